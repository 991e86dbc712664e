"""The invariants of specs/threat-model.md that can be watched message by message, on every simulation.

    I3  all who commit a round report the same set and the same model
    I4  a holder releases one kind of share for one party, and in two attempts of a round for one survivor list only
    I5  an attempt has one upload of each party
    I6  committed rounds never regress
    I9  no key seals two boxes under one nonce
    I10  no tag key covers two updates

What a party must remember is durable before it acts, by a decision about this very attempt:

* it releases shares after it spent the round, and so it uploads where it dealt no shares: nothing else will be asked
  of it before the sum is open (I4);
* it uploads a masked update after it gave it (I5), and tells others of a result after it stated it (I3);
* the server asks for shares after it spent the round (I4). Which message asks depends on the scheme and the threat. So
  this is held where shares are released: the last that the holder was told in this attempt must have left after the
  server's decision. A question that nobody answered opened nothing, and is not noticed.

I1, the sums, is compared by record.py; I7, that everything ends for a reason before its deadline, is where a
simulation stops; I2 needs marked inputs. The table of veilsum.simulations.testing has those, and holds all of them
after every single step: it replays what happened to the same monitor.

Implements specs/threat-model.md, section 6.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np

from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import LocalProtocolError
from veilsum.protocol.identifiers import SERVER, PartyId, shown_attempt, shown_number
from veilsum.protocol.machines.decisions import Decision, RoundSpent, UpdateGiven, VoteCast
from veilsum.protocol.machines.events import DecisionMade, Event, RoundCommitted, SessionBegan
from veilsum.protocol.secure_sum.shares import ReleasedShares, SealedShares, ShareKind
from veilsum.protocol.secure_sum.survivors import SurvivorList
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message, Stamp, kind_of
from veilsum.roles.process.observer import RunObserver

_Attempt: TypeAlias = tuple[bytes, int, int]


class InvariantViolated(LocalProtocolError):
    """The protocol did what it must never do; `name` says which invariant broke."""

    def __init__(self, name: str, detail: str) -> None:
        self.name = name
        super().__init__(f"{name}: {detail}")


class SealRecorder:
    """I9, where boxes are sealed: a watcher for `watch_seals`. It never raises there, for a machine would handle it."""

    def __init__(self) -> None:
        self._used: set[bytes] = set()
        self._repeated = 0

    def __call__(self, key: Secret, nonce: bytes) -> None:
        use = hashlib.sha256(key.reveal() + nonce).digest()
        self._repeated += use in self._used
        self._used.add(use)

    def __len__(self) -> int:
        """How many boxes were sealed, each under a key and nonce of its own."""
        return len(self._used)

    def require_once(self) -> None:
        if self._repeated:
            raise InvariantViolated("I9", f"{self._repeated} boxes have the key and nonce of another")


class TagRecorder:
    """I10, where tags are made: a watcher for `watch_tags`. It never raises there, for a machine would handle it.

    Another tag under a key that was used before is that of another update; the same one again may be sent again.
    """

    def __init__(self) -> None:
        self._tags: dict[bytes, bytes] = {}
        self._second = 0
        self._looks = True

    def __call__(self, key: Secret, tag: bytes) -> None:
        if self._looks:
            use = hashlib.sha256(key.reveal()).digest()
            self._second += self._tags.setdefault(use, tag) != tag

    @contextmanager
    def looking_away(self) -> Iterator[None]:
        """While a lie is made: what a liar tags beside its update is its own doing, not that of the protocol."""
        self._looks = False
        try:
            yield
        finally:
            self._looks = True

    def __len__(self) -> int:
        """How many keys of tags were used."""
        return len(self._tags)

    def require_one_update_each(self) -> None:
        if self._second:
            raise InvariantViolated("I10", f"{self._second} tags have the key of the tag of another update")


class DecisionLog:
    """Which decisions are durable: whose, and about which attempt of which session.

    A decision names its round and attempt; the session is the one that its party entered last.
    """

    def __init__(self) -> None:
        self._sessions: dict[PartyId, bytes] = {}
        self._decided: set[tuple[PartyId, type[Decision], _Attempt]] = set()

    def enter(self, party: PartyId, session: bytes) -> None:
        self._sessions[party] = session

    def note(self, party: PartyId, decision: Decision) -> None:
        attempt = self._sessions.get(party, b""), decision.round, decision.attempt
        self._decided.add((party, type(decision), attempt))

    def holds(self, party: PartyId, decision: type[Decision], stamp: Stamp) -> bool:
        return (party, decision, _attempt(stamp)) in self._decided


class InvariantMonitor(RunObserver):
    """Raises `InvariantViolated` at the message or the fact that breaks one."""

    def __init__(self, *, server_lies: bool = False) -> None:
        """`server_lies`: messages travel in the server's name that its machine did not send, nor decided about."""
        self._server_lies = server_lies
        self._members: dict[int, tuple[PartyId, tuple[PartyId, ...]]] = {}
        self._hashes: dict[int, tuple[PartyId, bytes]] = {}
        self._newest: dict[PartyId, int] = {}
        self._released: dict[tuple[PartyId, int, PartyId], ShareKind] = {}
        self._released_for: dict[tuple[PartyId, int], tuple[PartyId, ...]] = {}
        self._lists: dict[tuple[PartyId, _Attempt], tuple[PartyId, ...]] = {}
        self._uploads: set[tuple[PartyId, str, _Attempt]] = set()
        self._dealt: set[tuple[PartyId, _Attempt]] = set()
        self._told_decided: dict[tuple[PartyId, _Attempt], bool] = {}
        self._decisions = DecisionLog()

    def noted(self, now: float, party: PartyId, event: Event) -> None:
        if isinstance(event, RoundCommitted):
            self._note_commit(party, event)
        elif isinstance(event, SessionBegan):
            self._decisions.enter(party, event.session)
        elif isinstance(event, DecisionMade):
            self._decisions.note(party, event.decision)

    def _note_commit(self, party: PartyId, event: RoundCommitted) -> None:
        if event.round <= self._newest.get(party, -1):
            raise InvariantViolated(
                "I6",
                f"{party} commits round {shown_number(event.round)} after {shown_number(self._newest[party])}",
            )
        self._newest[party] = event.round
        first, members = self._members.setdefault(event.round, (party, event.members))
        if members != event.members:
            raise InvariantViolated(
                "I3", f"round {shown_number(event.round)}: {first} has {members}, {party} has {event.members}"
            )
        if not event.model_hash:
            return
        first, model_hash = self._hashes.setdefault(event.round, (party, event.model_hash))
        if model_hash != event.model_hash:
            raise InvariantViolated(
                "I3", f"round {shown_number(event.round)}: {first} and {party} hold different models"
            )

    def sent(self, now: float, party: PartyId, receiver: PartyId, message: Message, size: int) -> None:
        if party == SERVER:
            self._note_told(receiver, message)
        elif isinstance(message, SealedShares):
            self._dealt.add((party, _attempt(message.stamp)))
        elif message.states_result:
            self._require_decided("I3", party, VoteCast, message)
        elif isinstance(message, ReleasedShares):
            self._require_decided("I4", party, RoundSpent, message)
            self._require_asked(party, message)
            self._note_release(party, message)
        elif isinstance(getattr(message, "vector", None), np.ndarray) and receiver == SERVER:
            self._note_upload(party, message)
            if isinstance(message, MaskedInput):
                self._require_given(party, message)

    def _note_told(self, receiver: PartyId, message: Message) -> None:
        attempt = _attempt(message.stamp)
        self._told_decided[receiver, attempt] = self._decisions.holds(SERVER, RoundSpent, message.stamp)
        if isinstance(message, SurvivorList):
            self._lists.setdefault((receiver, attempt), message.survivors)

    def _require_given(self, party: PartyId, message: MaskedInput) -> None:
        self._require_decided("I5", party, UpdateGiven, message)
        if (party, _attempt(message.stamp)) not in self._dealt:
            self._require_decided("I4", party, RoundSpent, message)

    def _require_decided(
        self, invariant: str, party: PartyId, decision: type[Decision], message: Message
    ) -> None:
        if not self._decisions.holds(party, decision, message.stamp):
            where = shown_attempt(message.stamp.round, message.stamp.attempt)
            raise InvariantViolated(
                invariant,
                f"{party} sends {kind_of(message)} in {where} before {decision.__name__} is durable",
            )

    def _require_asked(self, holder: PartyId, message: ReleasedShares) -> None:
        stamp = message.stamp
        if not self._server_lies and not self._told_decided.get((holder, _attempt(stamp)), False):
            raise InvariantViolated(
                "I4",
                f"{holder} releases shares in {shown_attempt(stamp.round, stamp.attempt)}; "
                f"the server asked for them before {RoundSpent.__name__} was durable",
            )

    def _note_release(self, holder: PartyId, message: ReleasedShares) -> None:
        stamp = message.stamp
        survivors = self._lists.get((holder, _attempt(stamp)), ())
        if self._released_for.setdefault((holder, stamp.round), survivors) != survivors:
            raise InvariantViolated(
                "I4", f"{holder} releases shares for two lists in round {shown_number(stamp.round)}"
            )
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
            raise InvariantViolated(
                "I5", f"{sender} uploads twice in {shown_attempt(stamp.round, stamp.attempt)}"
            )
        self._uploads.add(key)


def _attempt(stamp: Stamp) -> _Attempt:
    return stamp.session, stamp.round, stamp.attempt
