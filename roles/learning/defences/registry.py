"""The defences by name: built-in ones, one line each, and a user's own, in a module or in a file.

Built-in names are taken: a class from outside comes under its place, and is refused if it calls itself by one of them.
Naming a module runs its code (roles/config/user_code.py says for whom).

Implements specs/defences.md, section 1.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterator

from veilsum.protocol.errors import ParameterError
from veilsum.roles.config.spelling import which_then
from veilsum.roles.config.user_code import OWN, CodeAccess, load_named
from veilsum.roles.learning.defences.defence import Defence

_HERE = "veilsum.roles.learning.defences"
BUILT_IN = {
    "dp": f"{_HERE}.dp.settings:Dp",
    "ppdl": f"{_HERE}.ppdl.settings:Ppdl",
    "spn": f"{_HERE}.spn.settings:Spn",
    "sketch": f"{_HERE}.sketch.settings:Sketch",
}


def built_in_defences() -> Iterator[type[Defence]]:
    return (find_defence(name) for name in BUILT_IN)


def find_defence(name: str, access: CodeAccess = OWN) -> type[Defence]:
    """The class behind a built-in name, or behind the place of a user's own."""
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        found: type[Defence] = getattr(importlib.import_module(module), attribute)
        return found
    if ":" not in name:
        raise ParameterError([f"unknown defence {name!r}: {which_then(name, BUILT_IN)}"])
    return _own_defence(name, access)


def spelled(defence: Defence) -> str:
    """The name by which `find_defence` finds its class."""
    kind = type(defence)
    return defence.name if defence.name in BUILT_IN else f"{kind.__module__}:{kind.__qualname__}"


def _own_defence(place: str, access: CodeAccess) -> type[Defence]:
    named = load_named("defence", place, access)
    found = named.value()
    if (
        not isinstance(found, type)
        or not issubclass(found, Defence)
        or "__dataclass_params__" not in vars(found)
    ):
        raise ParameterError(
            [f"defence {place!r}: {named.module.__name__} has no dataclass {named.name} that extends Defence"]
        )
    if not isinstance(getattr(found, "name", None), str) or not found.name or found.name in BUILT_IN:
        raise ParameterError(
            [
                f"defence {place!r}: give the class a name of its own; {', '.join(BUILT_IN)} are built-in defences"
            ]
        )
    problems = [f"defence {place!r}: {problem}" for problem in _faults_of(found)]
    if problems:
        raise ParameterError(problems)
    return found


def _faults_of(kind: type[Defence]) -> Iterator[str]:
    """Why no text can make this defence, or no party use it."""
    fields = {one.name: one for one in dataclasses.fields(kind)}
    if strange := [key for key in kind.rules if key not in fields]:
        yield f"rules name {', '.join(strange)}, which are no fields"
    if ruleless := [key for key in kind.required if key not in kind.rules]:
        yield f"required settings {', '.join(ruleless)} have no rule: say in `rules` what they may be"
    demanded = [key for key, one in fields.items() if one.init and not _has_default(one)]
    if unsaid := [key for key in demanded if key not in kind.required]:
        yield f"{', '.join(unsaid)} has no default: give it one, or name it in `required`"
    if kind.guard is Defence.guard:
        yield "it has no guard: give the class a method `guard(key)`"


def _has_default(field: dataclasses.Field[object]) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
