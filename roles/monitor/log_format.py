"""The forms of the lines that a role process tells; apart from the log itself, because `--help` reads them."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

LogFormat: TypeAlias = Literal["text", "json"]
LOG_FORMATS: tuple[LogFormat, ...] = get_args(LogFormat)
