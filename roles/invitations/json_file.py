"""JSON objects of ours that came from elsewhere: of one format, with exactly their fields, and not too large."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from veilsum.protocol.errors import ParameterError

LARGEST = 64 * 1024 * 1024
"""Bytes of a file: a stranger's JSON takes many times as much memory while it is read."""


class BadFile(ParameterError):
    """A file is not what it should be; the text names it, what is wrong and the remedy."""

    def __init__(self, path: Path, problem: str, remedy: str) -> None:
        super().__init__([f"{path} {problem}: {remedy}"])


def read_object(
    path: Path, format_name: str, version: int, fields: Collection[str], remedy: str
) -> dict[str, Any]:
    """The fields of a file beside its format and version."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)
    except (FileNotFoundError, IsADirectoryError):
        raise BadFile(path, "is no file", "correct the path") from None
    if len(content) > LARGEST:
        raise BadFile(path, f"has more than {LARGEST} bytes", remedy)
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise BadFile(path, "is damaged (it is not JSON)", remedy) from None
    if not isinstance(found, dict) or found.pop("format", None) != format_name:
        raise BadFile(path, f"is no {format_name}", remedy)
    if (told := found.pop("format_version", None)) != version:
        raise BadFile(path, f"has format version {told!r}, this program reads {version}", remedy)
    if set(found) != set(fields):
        raise BadFile(path, f"is damaged (its fields are not {', '.join(sorted(fields))})", remedy)
    return found


def encode_object(format_name: str, version: int, fields: dict[str, Any]) -> bytes:
    content = (
        json.dumps({"format": format_name, "format_version": version, **fields}, indent=2).encode() + b"\n"
    )
    if len(content) > LARGEST:
        raise ParameterError(
            [f"a {format_name} would have {len(content)} bytes, more than {LARGEST}: shorten the code"]
        )
    return content


def format_of(path: Path) -> object:
    """What a file says that it is, if it is JSON of ours."""
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(LARGEST))
    except (OSError, ValueError, RecursionError):
        return None
    return found.get("format") if isinstance(found, dict) else None
