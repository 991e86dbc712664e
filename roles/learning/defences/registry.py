"""The defences by name: built-in ones, one line each, and a user's own as `package.module:Name`.

Built-in names are taken: a class from outside comes under its place, and is refused if it calls itself by one of them.
Naming a module runs its code, so a place comes from a party's own command line or configuration, never from the
network or a recorded view.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterator

from veilsum.protocol.errors import ParameterError
from veilsum.roles.config.user_code import load_named
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


def find_defence(name: str) -> type[Defence]:
    """The class behind a built-in name, or behind `package.module:Name`."""
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        found: type[Defence] = getattr(importlib.import_module(module), attribute)
        return found
    if ":" not in name:
        raise ParameterError([f"unknown defence {name!r}: choose one of {', '.join(BUILT_IN)}"])
    return _own_defence(name)


def spelled(defence: Defence) -> str:
    """The name by which `find_defence` finds its class."""
    kind = type(defence)
    return defence.name if defence.name in BUILT_IN else f"{kind.__module__}:{kind.__qualname__}"


def _own_defence(place: str) -> type[Defence]:
    named = load_named("defence", place)
    found = named.value()
    if (
        not isinstance(found, type)
        or not issubclass(found, Defence)
        or "__dataclass_params__" not in vars(found)
    ):
        raise ParameterError(
            [f"defence {place!r}: {named.module.__name__} has no dataclass {named.name} that extends Defence"]
        )
    if not isinstance(getattr(found, "name", None), str) or found.name in BUILT_IN:
        raise ParameterError(
            [
                f"defence {place!r}: give the class a name of its own; {', '.join(BUILT_IN)} are built-in defences"
            ]
        )
    missing = [key for key in found.rules if key not in {one.name for one in dataclasses.fields(found)}]
    if missing:
        raise ParameterError([f"defence {place!r}: rules name {', '.join(missing)}, which are no fields"])
    return found
