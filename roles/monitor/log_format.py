"""What a role process tells, in words that `--help` reads: the form of its lines, and when it measures."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

LogFormat: TypeAlias = Literal["text", "json"]
LOG_FORMATS: tuple[LogFormat, ...] = get_args(LogFormat)

MeasureWhen: TypeAlias = Literal["always", "turns", "never"]
MEASURE_WHEN: tuple[MeasureWhen, ...] = get_args(MeasureWhen)
