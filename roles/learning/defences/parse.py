"""Defences as users write them: `spn:alpha2=0.1,bits=64`, `./own_defence.py:Name:key=value`, several joined by `+`.

All problems of a text are reported together, each with what is allowed.

Implements specs/defences.md, section 1.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from veilsum.protocol.errors import ParameterError
from veilsum.roles.config.spelling import did_you_mean
from veilsum.roles.config.user_code import OWN, CodeAccess, making
from veilsum.roles.learning.defences.defence import Configuration, Defence
from veilsum.roles.learning.defences.ranges import Rule
from veilsum.roles.learning.defences.registry import BUILT_IN, built_in_defences, find_defence, spelled

Part = TypeVar("Part", bound=Defence)
_JOINT = re.compile(r"\+(?=\s*[A-Za-z./])")  # not the plus in 1e+3


@dataclass(frozen=True)
class Defences:
    """What a party does to protect itself in training: none, one, or several defences at once."""

    parts: tuple[Defence, ...] = ()

    def __post_init__(self) -> None:
        problems = list(self._combination_problems())
        if problems:
            raise ParameterError(problems)

    def __bool__(self) -> bool:
        return bool(self.parts)

    def __str__(self) -> str:
        return "+".join(_text_of(part) for part in self.parts)

    def problems(self, config: Configuration) -> Iterator[str]:
        """Why these defences cannot work in this federation."""
        if self.parts and config.task.partition(":")[0] == "vectors":
            yield f"defence {self}: task {config.task} does not train, so there is nothing to defend"
        if self.parts and config.perturbs:
            yield (
                f"defence {self}: scheme {config.scheme} needs the exact gradient of the perturbed model; use "
                "defences with a scheme that perturbs nothing, such as masked"
            )
        for part in self.parts:
            yield from part.problems(config)

    def warnings(self, config: Configuration) -> Iterator[str]:
        """What these defences leave open, for people to read before they rely on them."""
        for part in self.parts:
            yield from part.warnings(config)

    def _combination_problems(self) -> Iterator[str]:
        for name, times in Counter(part.name for part in self.parts).items():
            if times > 1:
                yield f"defence {name} is given {times} times: once is enough"
        for part in self.parts:
            yield from _value_problems(part)
            yield from part.setting_problems()
            yield from part.clashes([other for other in self.parts if other is not part])


def parse_defence(text: str, access: CodeAccess = OWN) -> Defences:
    """The defences that a text names; the empty text names none."""
    if not text:
        return Defences()
    problems: list[str] = []
    read = (_read_part(one.strip(), problems, access) for one in _JOINT.split(text))
    parts = [part for part in read if part is not None]
    try:
        made = Defences(tuple(parts))
    except ParameterError as error:
        problems += error.problems
    if problems:
        raise ParameterError(problems)
    return made


def find_part(text: str, kind: type[Part]) -> Part | None:
    """The built-in defence of this class in a text; others are passed over and no module of theirs is imported."""
    for one in _JOINT.split(text):
        name, _ = split_settings(one.strip())
        if name == kind.name:
            (part,) = parse_defence(one.strip()).parts
            assert isinstance(part, kind)
            return part
    return None


def split_settings(text: str) -> tuple[str, str]:
    """The name of one defence, and its settings."""
    name, _, settings = text.partition(":")
    if name in BUILT_IN or "=" in settings.partition(":")[0]:
        return name, settings
    attribute, _, settings = settings.partition(":")
    return f"{name}:{attribute}" if attribute else name, settings


def _read_part(text: str, problems: list[str], access: CodeAccess) -> Defence | None:
    """One defence, or None after noting what is wrong with it."""
    name, settings = split_settings(text)
    if name not in BUILT_IN and ":" not in name:
        forms = "; ".join(one.form for one in built_in_defences())
        problems.append(
            f"unknown defence {name!r}{did_you_mean(name, BUILT_IN)}; allowed: {forms}; package.module:Name; "
            "./file.py:Name; joined by +"
        )
        return None
    found = len(problems)
    try:
        kind = find_defence(name, access)
    except ParameterError as error:
        problems += error.problems
        return None
    values = dict(_read_settings(name, settings, kind.rules, problems))
    missing = [key for key in kind.required if not _is_given(key, settings)]
    problems += [f"{name} needs {key}: {kind.rules[key].allowed}" for key in missing]
    return None if len(problems) > found else _make(name, kind, values, problems)


def _make(name: str, kind: type[Defence], values: Mapping[str, Any], problems: list[str]) -> Defence | None:
    try:
        with making("defence", name, "a defence is made of its settings alone"):
            return kind(**values)
    except ParameterError as error:
        problems += error.problems
        return None


def _read_settings(
    name: str, text: str, rules: Mapping[str, Rule], problems: list[str]
) -> Iterator[tuple[str, Any]]:
    seen: set[str] = set()
    for piece in filter(None, (one.strip() for one in text.split(","))):
        key, equals, value = (one.strip() for one in piece.partition("="))
        if not equals:
            problems.append(f"{name}: {piece!r} is not KEY=VALUE; its settings are {', '.join(rules)}")
        elif key not in rules:
            problems.append(
                f"{name} has no setting {key!r}{did_you_mean(key, rules)}; it has {', '.join(rules)}"
            )
        elif key in seen:
            problems.append(f"{name}: {key} is given twice")
        else:
            seen.add(key)
            try:
                yield key, rules[key].read(value)
            except ValueError:
                problems.append(f"{name}: {key} must be {rules[key].allowed}, not {value!r}")


def _is_given(key: str, settings: str) -> bool:
    return any(piece.partition("=")[0].strip() == key for piece in settings.split(","))


def _value_problems(part: Defence) -> Iterator[str]:
    """The same ranges for values that did not come from a text."""
    for key, rule in part.rules.items():
        value = getattr(part, key)
        if value is not None and not rule.allows(value):
            yield f"{part.name}: {key} must be {rule.allowed}, not {value!r}"


def _text_of(part: Defence) -> str:
    given = {
        one.name: getattr(part, one.name)
        for one in dataclasses.fields(part)
        if one.name in part.required or getattr(part, one.name) != one.default
    }
    settings = ",".join(f"{key}={value}" for key, value in given.items())
    return f"{spelled(part)}:{settings}" if settings else spelled(part)
