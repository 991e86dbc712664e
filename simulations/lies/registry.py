"""The lies by name, one line each.

Implements specs/lies.md, section 1.
"""

from __future__ import annotations

from veilsum.protocol.errors import ParameterError
from veilsum.protocol.schemes.registry import find_scheme, scheme_names
from veilsum.roles.config.spelling import which_then
from veilsum.simulations.lies.lie import Lie
from veilsum.simulations.lies.lists import SplitSurvivors, TwoLists
from veilsum.simulations.lies.models import CraftedModel, OtherModel, StillModel
from veilsum.simulations.lies.participants import FalsePosition, FalseShare
from veilsum.simulations.lies.sums import ShiftedSum, ShiftedTogether
from veilsum.simulations.lies.uploads import FalseCount, FalseRange, FalseTag, FalseWeight

LISTED = "list"
"""What is asked for to see all names."""

_BUILT_IN: tuple[type[Lie], ...] = (
    ShiftedSum,
    StillModel,
    OtherModel,
    CraftedModel,
    SplitSurvivors,
    TwoLists,
    FalseCount,
    FalseRange,
    FalseWeight,
    FalseTag,
    FalseShare,
    FalsePosition,
    ShiftedTogether,
)
LIES = {one.name: one for one in _BUILT_IN}


def find_lie(name: str) -> type[Lie]:
    if name in LIES:
        return LIES[name]
    raise ParameterError([f"unknown lie {name!r}: {which_then(name, LIES, most=3, cutoff=0.5)}"])


def schemes_of(lie: type[Lie]) -> tuple[str, ...]:
    """The registered schemes that the lie makes sense in."""
    return tuple(name for name in scheme_names() if not list(lie.misfits(find_scheme(name))))
