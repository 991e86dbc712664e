"""The settings of a server's step as users write them: KEY=VALUE, joined by commas.

A value is read as what its default is: a switch, a row of numbers joined by /, or a number.

Implements specs/learning.md, section 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from veilsum.protocol.errors import ParameterError

_SWITCHES = {"true": True, "false": False}


def read_pairs(name: str, text: str, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that the text gives, of those that have a default; all problems are reported together."""
    problems: list[str] = []
    found: dict[str, Any] = {}
    for piece in filter(None, (one.strip() for one in text.split(","))):
        key, equals, value = (one.strip() for one in piece.partition("="))
        if not equals or key not in defaults or key in found:
            problems.append(f"{name}: {piece!r} is not one KEY=VALUE with a key of {', '.join(defaults)}")
            continue
        try:
            found[key] = _read_value(value, defaults[key])
        except ValueError:
            problems.append(f"{name}: {key} must be {_form_of(defaults[key])}, not {value!r}")
    if problems:
        raise ParameterError(problems)
    return found


def _read_value(text: str, default: object) -> object:
    match default:
        case bool():
            if text not in _SWITCHES:
                raise ValueError
            return _SWITCHES[text]
        case tuple():
            parts = text.split("/")
            if len(parts) != len(default):
                raise ValueError
            return tuple(None if part == "none" else float(part) for part in parts)
        case _:
            return int(text) if text.isdecimal() else float(text)


def _form_of(default: object) -> str:
    match default:
        case bool():
            return "true or false"
        case tuple():
            return "/".join("none" if one is None else f"{one:g}" for one in default) + " or the like"
        case _:
            return "a number"
