"""One setting of a federation: its place in federation.toml, its flag, its form and its meaning."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Form(enum.Enum):
    """What a value looks like; the text is what an error message asks for."""

    TEXT = "a text"
    WHOLE = "a whole number"
    NUMBER = "a number"
    SWITCH = "true or false"
    BATCH = "a whole number, or 'all'"
    NAMES = "a list of names, or how many parties there are"


@dataclass(frozen=True)
class Setting:
    """One setting; `attribute` is its name in `FederationConfig`, `flag` its name on the command line."""

    attribute: str
    table: str
    key: str
    form: Form
    meaning: str
    choices: tuple[str | int, ...] = ()
    agreed: bool = True
    flag: str = ""
    metavar: str | None = None

    def __post_init__(self) -> None:
        if not self.flag:
            object.__setattr__(self, "flag", "--" + self.attribute.replace("_", "-"))

    @property
    def expected(self) -> str:
        """What may be written, for people."""
        return f"one of {', '.join(map(str, self.choices))}" if self.choices else self.form.value
