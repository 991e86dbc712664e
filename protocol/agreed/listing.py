"""Telling all members who is in a sum: by name or, where neighbourhoods alone are listed, with a bit for each.

Names for everyone grow with the square of the parties. A list that parties sign or vote on has names. Where the server
is believed and clients know their neighbours only, a bit for each participant of the roster says the same in n/8 bytes.
One message class has fields for both, and its reader takes the form that was agreed on and no other.

Implements specs/protocol.md, section 3.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, TypeAlias

from veilsum.protocol.agreed.parameters import Parameters
from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.wire.limits import DEFAULT_LIMITS
from veilsum.protocol.wire.messages import MaxLength

OneBitEach: TypeAlias = Annotated[bytes, MaxLength(DEFAULT_LIMITS.max_parties // 8)]
"""Some of the roster's participants, as `Roster.packed` writes them."""


def require_one_form(names: Collection[PartyId], present: bytes) -> None:
    """For a message with fields for both forms."""
    if names and present:
        raise ValueError("parties are told by name or by a bit each, not in both ways")


def listed(
    roster: Roster, parameters: Parameters, parties: Collection[PartyId]
) -> tuple[tuple[PartyId, ...], bytes]:
    """These parties as all members are told of them: names, or bits."""
    if parameters.lists_neighbourhoods:
        return (), roster.packed(frozenset(parties))
    return tuple(parties), b""


def read_listed(
    roster: Roster, parameters: Parameters, names: tuple[PartyId, ...], present: bytes
) -> tuple[PartyId, ...]:
    """The parties that are told in the agreed form; the other one is refused."""
    if bool(present) != parameters.lists_neighbourhoods:
        agreed = "bits" if parameters.lists_neighbourhoods else "names"
        raise Rejection(AbortReason.SURVIVOR_LIST, f"who is in the sum is told by {agreed} here")
    return roster.unpacked(present) if present else names
