"""What a simulation is remembered by: a line per round, and whether the sums were exact.

The recorder sees every party's update, which no party of the protocol does; so it can compare each opened sum with the
sum of the encoded inputs, bit for bit, and each mean with the mean in float64.

Implements specs/threat-model.md, section 6.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.agreed.parameters import Schedule
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER, PartyId, shown_number
from veilsum.protocol.machines.events import (
    Event,
    PartyNamed,
    RoundCommitted,
    RoundFailed,
    SessionBegan,
    Warned,
)
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.numbers.ring import add_into
from veilsum.protocol.wire.carried import Carried
from veilsum.protocol.wire.messages import Message
from veilsum.roles.learning.contract import LocalUpdate, headline, sha256_of
from veilsum.roles.process.observer import RunObserver
from veilsum.simulations.run.federation import Federation
from veilsum.simulations.run.invariants import InvariantViolated

_BLOCK = 1 << 18


@dataclass(repr=False)
class RoundRecord:
    """One committed round; rounds and attempts are counted from 1.

    Byte counts are of all participants together, since the round before.

    There is no `loss` where a perturbed round was closed without a step: parties only know that of the perturbation.
    """

    round: int
    attempt: int
    members: tuple[PartyId, ...]
    model_hash: bytes
    model_sha256: str
    loss: float | None
    metrics: dict[str, float]
    max_abs_error: float
    exact: bool | None
    bytes_up: int
    bytes_down: int
    virtual_s: float
    mean_distance: float | None

    def __repr__(self) -> str:
        loss = "" if self.loss is None else f", loss={self.loss:.4g}"
        best = headline(self.metrics)
        measured = "" if best is None else f", {best[0]}={best[1]:.4g}"
        return (
            f"RoundRecord(round={self.round}, attempt={self.attempt}, {len(self.members)} members{loss}{measured}, "
            f"model_sha256={self.model_sha256[:16]!r})"
        )

    def figures(self) -> dict[str, Any]:
        return {
            "round": self.round,
            "attempt": self.attempt,
            "members": list(self.members),
            "loss": self.loss,
            "metrics": self.metrics,
            "max_abs_error": self.max_abs_error,
            "exact_ring_sum": self.exact,
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
            "virtual_s": self.virtual_s,
            "mean_distance_to_global": self.mean_distance,
            "model_sha256": self.model_sha256,
        }


@dataclass(repr=False)
class Recorder(RunObserver):
    """What became of a run, round by round."""

    federation: Federation
    verify: bool = True
    rounds: list[RoundRecord] = field(default_factory=list)
    failures: list[tuple[PartyId, RoundFailed]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    sessions: int = 0
    model: Model | None = None
    server_sum: Carried | None = None
    """The last sum that the server had in its hands, hidden or not, as the scheme reads its messages."""
    bytes_up: int = 0
    bytes_down: int = 0

    def __repr__(self) -> str:
        return f"Recorder({len(self.rounds)} rounds, {len(self.failures)} failures, {len(self.warnings)} warnings)"

    def __post_init__(self) -> None:
        self._updates: dict[tuple[int, PartyId], LocalUpdate] = {}
        self._server_step = self.federation.server_step()
        self._counted = (0, 0)

    def trained(self, now: float, party: PartyId, round_number: int, update: LocalUpdate) -> None:
        weight = self.federation.parameters.weights.of(update.samples)
        self._updates[round_number, party] = replace(update, samples=weight)

    def sent(self, now: float, party: PartyId, receiver: PartyId, message: Message, size: int) -> None:
        if party != SERVER:
            self.bytes_up += size
        if receiver != SERVER:
            self.bytes_down += size
        if SERVER in (party, receiver):
            carried = self.federation.scheme.carries(message)
            if carried is not None and carried.members:
                self.server_sum = carried

    def noted(self, now: float, party: PartyId, event: Event) -> None:
        match event:
            case RoundCommitted():
                if party == SERVER and event.total is not None:
                    self.server_sum = Carried(event.total, members=event.members)
                if event.model is not None and (
                    not self.rounds or self.rounds[-1].round < shown_number(event.round)
                ):
                    self._remember(now, event)
            case RoundFailed():
                self._note_failure(party, event)
            case SessionBegan() if party == SERVER:
                self.sessions += 1
            case PartyNamed():
                self._note_warning(f"{event.party} {event.detail}")
            case Warned():
                self._note_warning(event.text)
            case _:
                pass

    def _note_warning(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    def _note_failure(self, party: PartyId, event: RoundFailed) -> None:
        """Keep it; the first party that failed by its own work also says why, as its log would in a real run."""
        if _is_own(party, event) and not any(_is_own(*earlier) for earlier in self.failures):
            self.warnings.append(f"{party}: {event.detail}")
        self.failures.append((party, event))

    def _remember(self, now: float, event: RoundCommitted) -> None:
        assert event.model is not None
        federation = self.federation
        self._require_possible(event)
        updates = {name: self._updates[event.round, name] for name in event.members}
        first_learner = next(iter(federation.learners.values()))
        error, exact = self._compare(event, updates)
        distances = [
            float(np.linalg.norm(update.model - event.model))
            for update in updates.values()
            if update.model is not None
        ]
        self.rounds.append(
            RoundRecord(
                round=shown_number(event.round),
                attempt=shown_number(event.attempt),
                members=event.members,
                model_hash=event.model_hash,
                model_sha256=sha256_of(event.model),
                loss=_weighted_loss(updates)
                if event.loss is None and not federation.scheme.perturbs
                else event.loss,
                metrics=first_learner.evaluate(event.model),
                max_abs_error=error,
                exact=exact,
                bytes_up=self.bytes_up - self._counted[0],
                bytes_down=self.bytes_down - self._counted[1],
                virtual_s=now,
                mean_distance=sum(distances) / len(distances) if distances else None,
            )
        )
        self.model = event.model
        self._counted = (self.bytes_up, self.bytes_down)
        self._updates = {key: update for key, update in self._updates.items() if key[0] > event.round}

    def _require_possible(self, event: RoundCommitted) -> None:
        """A model of the agreed length, made of updates that were there."""
        absent = [name for name in event.members if (event.round, name) not in self._updates]
        if absent:
            raise InvariantViolated(
                "I1", f"round {shown_number(event.round)} counts {absent[0]}, who gave no update"
            )
        assert event.model is not None
        length, agreed = len(event.model), self.federation.parameters.dimension
        if length != agreed:
            raise InvariantViolated(
                "I1", f"the model of round {shown_number(event.round)} has {length} values, not {agreed}"
            )

    def _compare(
        self, event: RoundCommitted, updates: dict[PartyId, LocalUpdate]
    ) -> tuple[float, bool | None]:
        """The error of the mean against float64, and whether the ring sum is the sum of the inputs, bit for bit."""
        if not self.verify or self.federation.parameters.schedule is Schedule.ROUND_ROBIN:
            return float("nan"), None
        if event.total is None and self.federation.scheme.perturbs:
            return float("nan"), None
        if event.total is None:
            before = self.model if self.model is not None else self.federation.initial_model
            assert event.model is not None
            expected = self._server_step.apply(before, float_mean(updates, slice(None)), event.round)
            return float(np.abs(event.model - expected).max()), None
        encoding = self.federation.parameters.encoding
        total = encoding.ring.zeros(len(event.total))
        for update in updates.values():
            encoded = encoding.encode(update.payload, update.samples)
            if len(encoded) != len(total):
                raise InvariantViolated(
                    "I1",
                    f"the sum of round {shown_number(event.round)} has {len(total)} words, not {len(encoded)}",
                )
            add_into(total, encoded)
        if not np.array_equal(total, event.total):
            raise InvariantViolated(
                "I1", f"the sum of round {shown_number(event.round)} is not the sum of its members' inputs"
            )
        del total
        mean, _ = encoding.decode_mean(event.total, len(updates))
        blocks = (slice(start, start + _BLOCK) for start in range(0, len(mean), _BLOCK))
        return max(float(np.abs(mean[block] - float_mean(updates, block)).max()) for block in blocks), True

    @property
    def attempts(self) -> int:
        """How many attempts the server began."""
        failed = sum(1 for party, _ in self.failures if party == SERVER)
        return len(self.rounds) + failed

    @property
    def reason(self) -> AbortReason | None:
        last = [failure.reason for party, failure in self.failures if party == SERVER]
        return last[-1] if last else None


def float_mean(updates: dict[PartyId, LocalUpdate], block: slice) -> NDArray[np.float64]:
    """The weighted mean of a block of the payloads in float64, in the order of names."""
    total = np.zeros(len(next(iter(updates.values())).payload[block]), dtype=np.float64)
    for _, update in sorted(updates.items()):
        total += update.payload[block].astype(np.float64) * update.samples
    total /= sum(update.samples for update in updates.values())
    return total


def _is_own(party: PartyId, failure: RoundFailed) -> bool:
    """Whether a participant failed by itself, not because of what another party did or said."""
    return party != SERVER and failure.reason is AbortReason.WITHDRAWN and not failure.culprit


def _weighted_loss(updates: dict[PartyId, LocalUpdate]) -> float:
    samples = sum(update.samples for update in updates.values())
    return sum(update.loss * update.samples for update in updates.values()) / samples
