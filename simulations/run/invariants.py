"""The invariants of specs/threat-model.md that can be watched message by message, on every simulation.

    I3  all who commit a round report the same set and the same model
    I4  a holder releases one kind of share for one party, and in two attempts of a round for one survivor list only
    I5  an attempt has one upload of each party
    I6  committed rounds never regress

What a party must remember is durable before it acts: shares leave after the decision that spends the round (I4), a
masked upload after the decision that gives the update (I5).

I1, the sums, is compared by record.py; I7, that everything ends for a reason before its deadline, is where a
simulation stops; I2 needs marked inputs. The table of veilsum.simulations.testing has those, and holds all seven
after every single step: it replays what happened to the same monitor.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from veilsum.protocol.errors import LocalProtocolError
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import DecisionMade, Event, RoundCommitted
from veilsum.protocol.secure_sum.shares import ReleasedShares, ShareKind
from veilsum.protocol.secure_sum.survivors import SurvivorList
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message, Stamp, kind_of
from veilsum.roles.process.observer import RunObserver

SPENT, GIVEN = "spent_round", "given_round"
"""What protocol/machines/participation.py calls its decisions."""
_Attempt: TypeAlias = tuple[bytes, int, int]


class InvariantViolated(LocalProtocolError):
    """The protocol did what it must never do; `name` says which invariant broke."""

    def __init__(self, name: str, detail: str) -> None:
        self.name = name
        super().__init__(f"{name}: {detail}")


class InvariantMonitor(RunObserver):
    """Raises `InvariantViolated` at the message or the fact that breaks one."""

    def __init__(self) -> None:
        self._members: dict[int, tuple[PartyId, tuple[PartyId, ...]]] = {}
        self._hashes: dict[int, tuple[PartyId, bytes]] = {}
        self._newest: dict[PartyId, int] = {}
        self._released: dict[tuple[PartyId, int, PartyId], ShareKind] = {}
        self._released_for: dict[tuple[PartyId, int], tuple[PartyId, ...]] = {}
        self._lists: dict[tuple[PartyId, _Attempt], tuple[PartyId, ...]] = {}
        self._uploads: set[tuple[PartyId, str, _Attempt]] = set()
        self._decided: set[tuple[PartyId, str, int]] = set()

    def noted(self, now: float, party: PartyId, event: Event) -> None:
        if isinstance(event, RoundCommitted):
            self._note_commit(party, event)
        elif isinstance(event, DecisionMade):
            decided = (name for name in (SPENT, GIVEN) if name in event.record)
            self._decided |= {(party, name, int(event.record[name])) for name in decided}

    def _note_commit(self, party: PartyId, event: RoundCommitted) -> None:
        if event.round <= self._newest.get(party, -1):
            raise InvariantViolated("I6", f"{party} commits round {event.round} after {self._newest[party]}")
        self._newest[party] = event.round
        first, members = self._members.setdefault(event.round, (party, event.members))
        if members != event.members:
            raise InvariantViolated(
                "I3", f"round {event.round}: {first} has {members}, {party} has {event.members}"
            )
        if not event.model_hash:
            return
        first, model_hash = self._hashes.setdefault(event.round, (party, event.model_hash))
        if model_hash != event.model_hash:
            raise InvariantViolated("I3", f"round {event.round}: {first} and {party} hold different models")

    def sent(self, now: float, party: PartyId, receiver: PartyId, message: Message, size: int) -> None:
        if isinstance(message, SurvivorList):
            self._lists.setdefault((receiver, _attempt(message.stamp)), message.survivors)
        elif isinstance(message, ReleasedShares):
            self._require_decided("I4", party, SPENT, message)
            self._note_release(party, message)
        elif isinstance(getattr(message, "vector", None), np.ndarray) and receiver == SERVER:
            self._note_upload(party, message)
            if isinstance(message, MaskedInput):
                self._require_decided("I5", party, GIVEN, message)

    def _require_decided(self, invariant: str, party: PartyId, decision: str, message: Message) -> None:
        if (party, decision, message.stamp.round) not in self._decided:
            raise InvariantViolated(
                invariant,
                f"{party} sends {kind_of(message)} in round {message.stamp.round} before its decision is durable",
            )

    def _note_release(self, holder: PartyId, message: ReleasedShares) -> None:
        stamp = message.stamp
        survivors = self._lists.get((holder, _attempt(stamp)), ())
        if self._released_for.setdefault((holder, stamp.round), survivors) != survivors:
            raise InvariantViolated("I4", f"{holder} releases shares for two lists in round {stamp.round}")
        for kind, shares in (
            (ShareKind.SELF_MASK, message.self_masks),
            (ShareKind.MASKING_KEY, message.masking_keys),
        ):
            for target in shares:
                if self._released.setdefault((holder, stamp.round, target), kind) is not kind:
                    raise InvariantViolated("I4", f"{holder} releases both kinds of share of {target}")

    def _note_upload(self, sender: PartyId, message: Message) -> None:
        stamp = message.stamp
        key = (sender, kind_of(message), _attempt(stamp))
        if key in self._uploads:
            raise InvariantViolated("I5", f"{sender} uploads twice in round {stamp.round}.{stamp.attempt}")
        self._uploads.add(key)


def _attempt(stamp: Stamp) -> _Attempt:
    return stamp.session, stamp.round, stamp.attempt
