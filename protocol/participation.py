"""What a participant remembers across rounds and restarts, for its own safety.

From the moment a sum with our update may be open, the round is *spent*. Another sum with the same update over other
parties, subtracted from the first, could expose someone. Yet a server that stops between the release of the shares and
its commitment must be able to repeat the round, or the run is lost. The two agree on one case: the same sum again.

* The cohort must be the one the round was spent with. It is compared where the cohort becomes known.
* At a model that we gave an update for, the update must be the same, by its SHA-256. If one party alone gave another
  one, the difference of the two sums would be that party's. At another model everybody's update is another one, as in
  any two rounds of the same cohort; that all have the same model is what masks are bound to.

The server remembers the cohort that it asked shares for, so that it asks for no other; parties do not rely on that.

A peer that holds the model itself also remembers the result that it stated last. If it stops before it hears that the
others agree, while one of them has committed, it needs nobody's word that this is the model it computed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.events import DecisionMade
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.messages import Stamp


@dataclass(frozen=True)
class Spent:
    """Over whom a round's sum may be open, and which update we gave at which model (both by hash)."""

    cohort: frozenset[PartyId]
    updates: Mapping[bytes, bytes] = field(default_factory=dict)


@dataclass
class ParticipationRecord:
    """Cohorts of all sums so far; and the rounds that are spent, with the details of the last one.

    A round without details stays spent whatever the cohort. `stated` is the last round that we computed a result of,
    and the hash of that model.
    """

    cohorts: list[frozenset[PartyId]] = field(default_factory=list)
    spent: dict[int, Spent | None] = field(default_factory=dict)
    stated: tuple[int, bytes] | None = None

    def remember(self, cohort: frozenset[PartyId]) -> None:
        if cohort not in self.cohorts:
            self.cohorts.append(cohort)

    def nearest_other_cohort(self, cohort: frozenset[PartyId]) -> int | None:
        """The smallest number of parties by which an earlier, different cohort differs from this one."""
        changes = [len(cohort ^ earlier) for earlier in self.cohorts if earlier != cohort]
        return min(changes, default=None)

    def spend(
        self, stamp: Stamp, cohort: Collection[PartyId], model_hash: bytes = b"", update: bytes = b""
    ) -> DecisionMade:
        """From here on a sum over this cohort may be open; the decision must be durable before the next message."""
        decision = {
            "spent_round": stamp.round,
            "attempt": stamp.attempt,
            "cohort": sorted(cohort),
            "model": model_hash.hex(),
            "update": update.hex(),
        }
        self.note(decision)
        return DecisionMade(decision)

    def state(self, stamp: Stamp, model_hash: bytes) -> DecisionMade:
        """This is what we computed; the decision must be durable before anyone is told."""
        decision = {"stated_round": stamp.round, "attempt": stamp.attempt, "model": model_hash.hex()}
        self.note(decision)
        return DecisionMade(decision)

    def note(self, decision: Mapping[str, Any]) -> None:
        """Take over a decision, as it is made or after a restart; decisions of other kinds mean nothing here."""
        if "stated_round" in decision:
            self.stated = int(decision["stated_round"]), bytes.fromhex(decision["model"])
        if "spent_round" in decision:
            self._note_spent(decision)

    def _note_spent(self, decision: Mapping[str, Any]) -> None:
        round_number = int(decision["spent_round"])
        cohort = frozenset(PartyId(name) for name in decision.get("cohort", ()))
        before = self.spent.get(round_number)
        updates = dict(before.updates) if before is not None and before.cohort == cohort else {}
        if decision.get("update"):
            updates[bytes.fromhex(decision["model"])] = bytes.fromhex(decision["update"])
        self.spent = {**dict.fromkeys(self.spent), round_number: Spent(cohort, updates) if cohort else None}
        if cohort:
            self.remember(cohort)

    def cohort_of(self, round_number: int) -> frozenset[PartyId] | None:
        """Over whom the round's sum may be open, as far as is known."""
        spent = self.spent.get(round_number)
        return spent.cohort if spent is not None else None

    def require_repeatable(self, round_number: int, members: Collection[PartyId]) -> None:
        """Refuse a spent round that these members cannot repeat."""
        if round_number not in self.spent:
            return
        cohort = self.cohort_of(round_number)
        if cohort is None:
            raise _refusal(round_number, "and it is not known over whom; another could expose it")
        missing = sorted(cohort.difference(members))
        if missing:
            raise _refusal(
                round_number, f"and can be repeated by the same parties only: {missing[0]} is missing"
            )

    def require_same_cohort(self, round_number: int, cohort: Collection[PartyId]) -> None:
        """Refuse another cohort than the one that the round was spent with."""
        known = self.cohort_of(round_number)
        if round_number in self.spent and (known is None or known != frozenset(cohort)):
            raise _refusal(round_number, "over other parties; the difference of the two could expose one")

    def require_same_update(self, round_number: int, model_hash: bytes, update: bytes) -> None:
        """Refuse to give another update at a model that we gave one for."""
        spent = self.spent.get(round_number)
        if spent is not None and spent.updates.get(model_hash, update) != update:
            raise _refusal(round_number, "and this one differs from it: training did not repeat bit for bit")


def _refusal(round_number: int, why: str) -> Rejection:
    return Rejection(
        AbortReason.DIFFERENCING, f"a sum with our update of round {round_number} may be open already, {why}"
    )
