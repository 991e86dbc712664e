"""Foreign text on its way to a person: nobody may steer the terminal, or start a line, that it is read on."""

from __future__ import annotations

import json
from typing import Any


def printable(text: str) -> str:
    """The text on one line, with backslashes doubled only where something else was escaped by one."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() and one != "\\" else one.encode("unicode_escape").decode("ascii")
        for one in text
    )


def printable_lines(text: str) -> str:
    """A text of several lines, each printable."""
    return "\n".join(printable(line) for line in text.split("\n"))


def json_text(value: Any, **form: Any) -> str:
    """JSON in printable ASCII: it escapes every control character by itself but DEL."""
    return json.dumps(value, **form).replace("\x7f", r"\u007f")
