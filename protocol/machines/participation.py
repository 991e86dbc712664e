"""What a participant remembers across rounds and restarts, for its own safety.

From the moment a sum with our update may be open, the round is *spent*. Another sum with the same update over other
parties, subtracted from the first, could expose someone. Yet a server that stops between the release of the shares and
its commitment must be able to repeat the round, or the run is lost. The two agree on one case: the same sum again.

* The cohort must be the one the round was spent with: no list over others is signed. But a list counts with t
  signatures, ours or not, and we upload before we see it. So before we do, everyone of the cohort must take part again,
  and nobody but those who took part then, the *electorate*. If the first sum was opened, t - c honest parties of the
  cohort sign no other list; the n' - t + c that are left are fewer than t', because t' <= t and 2t' > n' + c.
* At a model that we gave an update for, in whatever attempt of the round, the update must be the same, by its SHA-256.
  If one party alone gave another one, the difference of the two sums would be that party's. This is decided at the
  upload: a party that is kept from voting cannot know that its update is in a sum. At another model everybody's update
  is another one, as in any two rounds of one cohort; that all have the same model is what masks are bound to.

The server remembers for whom it asked shares, so that it asks for no others; parties do not rely on that.

Implements specs/protocol.md, section 1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from veilsum.protocol.chain.statements import EnteredAttempt
from veilsum.protocol.errors import AbortReason, Rejection, RemoteProtocolError
from veilsum.protocol.identifiers import SERVER, PartyId, shown_number
from veilsum.protocol.machines.decisions import AttemptEntered, Decision, RoundSpent, UpdateGiven
from veilsum.protocol.machines.events import DecisionMade, Event, Send
from veilsum.protocol.machines.session import RoundOpened, Withdrawn
from veilsum.protocol.wire.messages import Message, Stamp

RESTORE_SERVER = (
    "restore the server's state folder from a newer backup, or start all with --fresh, with --init and the last export "
    "(veilsum launch --fresh --init FILE)"
)
COHORTS_COMPARED = 20
"""How many different cohorts, the latest ones, are looked at together."""


@dataclass(frozen=True)
class Spent:
    """Over whom a round's sum may be open, and who took part in the attempt and could sign that."""

    cohort: frozenset[PartyId]
    electorate: frozenset[PartyId]


@dataclass(frozen=True)
class Given:
    """The last round that we gave an update in, and which one at which model, both by hash."""

    round: int = -1
    updates: Mapping[bytes, bytes] = field(default_factory=dict)


@dataclass
class ParticipationRecord:
    """Cohorts of the latest sums; and the rounds that are spent, with the details of the last one.

    A round without details stays spent whatever the cohort.
    """

    cohorts: list[frozenset[PartyId]] = field(default_factory=list)
    spent: dict[int, Spent | None] = field(default_factory=dict)
    given: Given = Given()
    entered: tuple[int, tuple[EnteredAttempt, ...]] = (-1, ())
    """The last round that we entered an attempt of, and all of its attempts that we entered."""

    def attempts_at(self, round_number: int) -> tuple[EnteredAttempt, ...]:
        """What we say of earlier attempts of a round."""
        return self.entered[1] if self.entered[0] == round_number else ()

    def uploaded_at(self, round_number: int) -> bool:
        """Whether we gave an update in a round, as far as our own disk knows."""
        return self.given.round == round_number

    def remember(self, cohort: frozenset[PartyId]) -> None:
        """The latest different cohorts, the newest last."""
        self.cohorts = [*(one for one in self.cohorts if one != cohort), cohort][-COHORTS_COMPARED:]

    def exposed_by(self, cohort: frozenset[PartyId], minimum: int) -> tuple[PartyId, ...]:
        """Those of whom the sums over this cohort and the latest others tell more than a sum over `minimum` would.

        Parties that took part in the very same sums form a class, and whatever is computed from the sums is a
        combination of the classes' sums: as long as each class has `minimum` parties, none of them stands alone. The
        smallest group that a combination really tells about is hard to find, so this is what suffices, in linear time.
        """
        sums = [*(one for one in self.cohorts[-COHORTS_COMPARED:] if one != cohort), cohort]
        classes: dict[tuple[bool, ...], list[PartyId]] = {}
        for party in sorted(frozenset().union(*sums)):
            classes.setdefault(tuple(party in one for one in sums), []).append(party)
        return tuple(sorted(name for one in classes.values() if len(one) < minimum for name in one))

    def enter(self, stamp: Stamp, members: tuple[PartyId, ...]) -> DecisionMade:
        """From here on the number of this attempt is used up, and these are in it; said again if they are fewer.

        Those are meant who hold shares of our secrets: no others can open a sum with us in it.
        """
        return self._decide(AttemptEntered(stamp.round, stamp.attempt, stamp.session, members))

    def give(self, stamp: Stamp, model_hash: bytes, update: bytes) -> DecisionMade:
        """From here on the update may be in a sum, whether we are asked or not."""
        return self._decide(UpdateGiven(stamp.round, stamp.attempt, model_hash, update))

    def spend(
        self,
        stamp: Stamp,
        cohort: Collection[PartyId],
        electorate: Collection[PartyId],
        voucher: bytes = b"",
        listed: tuple[PartyId, ...] = (),
    ) -> DecisionMade:
        """From here on a sum over this cohort may be open; the decision must be durable before the next message."""
        spent = RoundSpent(
            stamp.round, stamp.attempt, frozenset(cohort), frozenset(electorate), voucher, listed
        )
        return self._decide(spent)

    def _decide(self, decision: Decision) -> DecisionMade:
        self.note(decision)
        return DecisionMade(decision)

    def note(self, decision: Decision) -> None:
        """Take over a decision, as it is made or as it becomes durable: twice is as good as once."""
        match decision:
            case UpdateGiven():
                before = self.given.updates if self.given.round == decision.round else {}
                self.given = Given(decision.round, {**before, decision.model_hash: decision.update})
                self._note_attempt(decision, uploaded=True)
            case AttemptEntered():
                self._note_entered(decision)
            case RoundSpent():
                self._note_spent(decision)

    def _note_entered(self, decision: AttemptEntered) -> None:
        before = self.attempts_at(decision.round)
        if before and before[-1].session == decision.session:
            self._note_attempt(decision, members=decision.members)
        elif decision.session:
            new = EnteredAttempt(decision.session, decision.attempt, decision.members)
            self.entered = decision.round, (*before, new)

    def _note_attempt(self, decision: Decision, **changes: Any) -> None:
        """Only the attempt that we entered last is still under way."""
        before = self.attempts_at(decision.round)
        if before and before[-1].attempt == decision.attempt:
            self.entered = decision.round, (*before[:-1], replace(before[-1], **changes))

    def _note_spent(self, decision: RoundSpent) -> None:
        details = Spent(decision.cohort, decision.electorate) if decision.cohort else None
        self.spent = {**dict.fromkeys(self.spent), decision.round: details}
        if decision.cohort:
            self.remember(decision.cohort)
            self._note_released(decision)

    def _note_released(self, decision: RoundSpent) -> None:
        changes: dict[str, Any] = {"released": tuple(sorted(decision.cohort)), "voucher": decision.voucher}
        changes |= {"members": decision.listed} if decision.listed else {}
        self._note_attempt(decision, **changes)

    def reopen(self, round_number: int) -> None:
        """The organiser opened a position anew: what we did in its rounds and later is no more to be repeated."""
        self.spent = {number: spent for number, spent in self.spent.items() if number < round_number}
        if self.given.round >= round_number:
            self.given = Given()
        if self.entered[0] >= round_number:
            self.entered = -1, ()

    def cohort_of(self, round_number: int) -> frozenset[PartyId] | None:
        """Over whom the round's sum may be open, as far as is known."""
        spent = self.spent.get(round_number)
        return spent.cohort if spent is not None else None

    def electorate_of(self, round_number: int) -> frozenset[PartyId] | None:
        """Who may take part when the round's sum is repeated, as far as that is known."""
        spent = self.spent.get(round_number)
        return spent.electorate if spent is not None else None

    def require_repeatable(self, round_number: int, parties: Collection[PartyId]) -> None:
        """Refuse a spent round that these parties cannot or must not repeat, and one before our last upload."""
        if round_number < self.given.round:
            raise Rejection(
                AbortReason.REPLAY,
                f"round {shown_number(round_number)} after an upload in round {shown_number(self.given.round)}",
            )
        if round_number not in self.spent:
            return
        spent = self.spent[round_number]
        if spent is None:
            raise _refusal(round_number, "and it is not known over whom; another could expose it")
        missing = sorted(spent.cohort.difference(parties))
        if missing:
            raise _refusal(
                round_number, f"and can be repeated by the same parties only: {missing[0]} is missing"
            )
        strangers = sorted(set(parties) - spent.electorate)
        if strangers:
            raise _refusal(
                round_number,
                f"and can be repeated by the same parties only: {strangers[0]} took no part then",
            )

    def require_same_cohort(self, round_number: int, cohort: Collection[PartyId]) -> None:
        """Refuse another cohort than the one that the round was spent with."""
        known = self.cohort_of(round_number)
        if round_number in self.spent and (known is None or known != frozenset(cohort)):
            raise _refusal(round_number, "over other parties; the difference of the two could expose one")

    def require_same_update(self, round_number: int, model_hash: bytes, update: bytes) -> None:
        """Refuse to give another update at a model that we gave one for."""
        given = self.given.updates if self.given.round == round_number else {}
        if given.get(model_hash, update) != update:
            raise _refusal(round_number, "and this one differs from it: training did not repeat bit for bit")


def objection_to_done_round(held: int, message: Message, refused: RemoteProtocolError) -> list[Event]:
    """That a server begins a round which we have done: it hears so, and need not wait; nothing of ours changes.

    Our hello told it already how many rounds we have, and how a refused round goes on is up to it as before.
    """
    done = refused.reason is AbortReason.REPLAY and message.stamp.round < held
    if not isinstance(message, RoundOpened) or not done:
        return []
    told = (
        f"the server is behind: {held} rounds are done here, and round {shown_number(message.stamp.round)} begins "
        f"again; {RESTORE_SERVER}"
    )
    return [Send(SERVER, Withdrawn(message.stamp, told))]


def _refusal(round_number: int, why: str) -> Rejection:
    return Rejection(
        AbortReason.DIFFERENCING,
        f"a sum with our update of round {shown_number(round_number)} may be open already, {why}",
    )
