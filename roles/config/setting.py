"""One setting of a federation: its place in federation.toml, its flag, its form and its meaning."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from veilsum.roles.config.spelling import did_you_mean


class Form(enum.Enum):
    """What a value looks like; the text is what an error message asks for."""

    TEXT = "a text"
    WHOLE = "a whole number"
    NUMBER = "a number"
    SWITCH = "true or false"
    BATCH = "a whole number, or 'all'"
    NAMES = "a list of names, or how many parties there are"


ALL_SAMPLES = "all"
"""Written in place of a number: the whole data set is one batch."""
_TYPES: dict[Form, tuple[type, ...]] = {
    Form.TEXT: (str,),
    Form.WHOLE: (int,),
    Form.NUMBER: (int, float),
    Form.SWITCH: (bool,),
    Form.BATCH: (int,),
    Form.NAMES: (tuple,),
}


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

    def accepts(self, value: object) -> bool:
        """Whether a value in a configuration has the form, and is one of the choices."""
        if isinstance(value, bool) != (self.form is Form.SWITCH) or not isinstance(value, _TYPES[self.form]):
            return False
        if isinstance(value, tuple) and not all(isinstance(one, str) for one in value):
            return False
        return not self.choices or value in self.choices

    def accepts_written(self, value: object) -> bool:
        """The same for what stands in a file, where names are a list or a number and a batch may be everything."""
        if self.form is Form.NAMES and isinstance(value, int):
            return not isinstance(value, bool)
        if self.form is Form.BATCH and value == ALL_SAMPLES:
            return True
        return self.accepts(tuple(value) if isinstance(value, list) else value)

    def near(self, value: object) -> str:
        """Which of the choices a value that is none of them may have been meant for, for people."""
        return did_you_mean(value, self.choices) if isinstance(value, str) else ""

    @property
    def expected(self) -> str:
        """What may be written, for people."""
        return f"one of {', '.join(map(str, self.choices))}" if self.choices else self.form.value
