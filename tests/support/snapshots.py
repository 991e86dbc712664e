"""A deep picture of a machine, for comparing it before and after something that must not change it."""

from __future__ import annotations

import dataclasses
import enum
from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from veilsum.protocol.agreed.parameters import Parameters, Timing
from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.crypto.identity import Identity
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.machines.scheme import Scheme

UNCHANGING = (Identity, Parameters, Timing, Roster, Scheme)
ATOMS = (str, bytes, int, float, bool, type(None), enum.Enum, type)


def picture(thing: Any, *, without: frozenset[str] = frozenset()) -> Any:
    """Nested tuples of everything reachable inside our own classes; foreign objects count by identity."""
    return _Painter(without).paint(thing)


class _Painter:
    def __init__(self, without: frozenset[str]) -> None:
        self._without = without
        self._seen: dict[int, int] = {}

    def paint(self, thing: Any) -> Any:
        if isinstance(thing, ATOMS):
            return thing
        if isinstance(thing, Secret):
            return thing.reveal()
        if isinstance(thing, np.ndarray):
            return (thing.dtype.str, thing.tobytes())
        if id(thing) in self._seen:
            return ("seen", self._seen[id(thing)])
        self._seen[id(thing)] = len(self._seen)
        return self._paint_inside(thing)

    def _paint_inside(self, thing: Any) -> Any:
        if isinstance(thing, Mapping):
            return tuple((self.paint(key), self.paint(value)) for key, value in thing.items())
        if isinstance(thing, list | tuple | deque):
            return (type(thing).__name__, *map(self.paint, thing))
        if isinstance(thing, set | frozenset):
            return frozenset(map(self.paint, thing))
        if isinstance(thing, UNCHANGING) or not type(thing).__module__.startswith(("veilsum.", "tests.")):
            return ("object", id(thing))
        return (type(thing).__name__, *self._paint_attributes(thing))

    def _paint_attributes(self, thing: Any) -> list[Any]:
        names = (
            [field.name for field in dataclasses.fields(thing)]
            if dataclasses.is_dataclass(thing)
            else sorted(getattr(thing, "__dict__", {}))
        )
        return [(name, self.paint(getattr(thing, name))) for name in names if name not in self._without]
