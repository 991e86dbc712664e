"""The invariants of specs/threat-model.md that can be watched message by message, on every simulation.

    I3  all who commit a round report the same set and the same model
    I4  a holder releases one kind of share for one party, and in two attempts of a round for one survivor list only
    I5  an attempt has one upload of each party
    I6  committed rounds never regress

I1, the sums, is compared by record.py; I7, that everything ends for a reason before its deadline, is where a
simulation stops; I2 needs marked inputs. The table of veilsum.simulations.testing has those, and holds all seven
after every single step.
"""

from __future__ import annotations

from typing import TypeAlias

from veilsum.protocol.errors import LocalProtocolError
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.events import RoundCommitted
from veilsum.protocol.secure_sum.shares import ReleasedShares, ShareKind
from veilsum.protocol.secure_sum.survivors import SurvivorList
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message, Stamp

_Attempt: TypeAlias = tuple[bytes, int, int]


class InvariantViolated(LocalProtocolError):
    """The protocol did what it must never do; the text says which invariant broke."""


class InvariantMonitor:
    def __init__(self) -> None:
        self._results: dict[int, tuple[bytes, tuple[PartyId, ...]]] = {}
        self._newest: dict[PartyId, int] = {}
        self._released: dict[tuple[PartyId, int, PartyId], ShareKind] = {}
        self._released_for: dict[tuple[PartyId, int], tuple[PartyId, ...]] = {}
        self._lists: dict[tuple[PartyId, _Attempt], tuple[PartyId, ...]] = {}
        self._uploads: set[tuple[PartyId, bytes, int, int]] = set()

    def note_commit(self, party: PartyId, event: RoundCommitted) -> None:
        if event.round <= self._newest.get(party, -1):
            raise InvariantViolated(f"I6: {party} commits round {event.round} after {self._newest[party]}")
        self._newest[party] = event.round
        stated = (event.model_hash, event.members)
        if event.model_hash and self._results.setdefault(event.round, stated) != stated:
            raise InvariantViolated(f"I3: {party} committed another set or model in round {event.round}")

    def note_message(self, sender: PartyId, receiver: PartyId, message: Message) -> None:
        if isinstance(message, SurvivorList):
            self._lists.setdefault((receiver, _attempt(message.stamp)), message.survivors)
        elif isinstance(message, ReleasedShares):
            self._note_release(sender, message)
        elif isinstance(message, MaskedInput):
            self._note_upload(sender, message)

    def _note_release(self, holder: PartyId, message: ReleasedShares) -> None:
        stamp = message.stamp
        survivors = self._lists.get((holder, _attempt(stamp)), ())
        if self._released_for.setdefault((holder, stamp.round), survivors) != survivors:
            raise InvariantViolated(f"I4: {holder} releases shares for two lists in round {stamp.round}")
        for kind, shares in (
            (ShareKind.SELF_MASK, message.self_masks),
            (ShareKind.MASKING_KEY, message.masking_keys),
        ):
            for target in shares:
                if self._released.setdefault((holder, stamp.round, target), kind) is not kind:
                    raise InvariantViolated(f"I4: {holder} releases both kinds of share of {target}")

    def _note_upload(self, sender: PartyId, message: MaskedInput) -> None:
        stamp = message.stamp
        key = (sender, *_attempt(stamp))
        if key in self._uploads:
            raise InvariantViolated(f"I5: {sender} uploads twice in round {stamp.round}.{stamp.attempt}")
        self._uploads.add(key)


def _attempt(stamp: Stamp) -> _Attempt:
    return stamp.session, stamp.round, stamp.attempt
