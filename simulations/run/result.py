"""What became of a simulated run, as facts: texts and pages are made from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.errors import Rejection
from veilsum.protocol.identifiers import SERVER
from veilsum.protocol.machines.events import RunFailed
from veilsum.protocol.machines.scheme import Scheme
from veilsum.protocol.machines.session import RoundOpened
from veilsum.protocol.numbers.fixedpoint import EXTRA_COORDINATES, FixedPoint
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.schemes.plain import PlainUpdate
from veilsum.protocol.wire.carried import Carried
from veilsum.protocol.wire.envelope import Body
from veilsum.protocol.wire.messages import Stamp
from veilsum.roles.learning.contract import against_chance, headline, sha256_of
from veilsum.simulations.lies.report import LieReport
from veilsum.simulations.run.federation import Federation
from veilsum.simulations.run.record import Recorder, RoundRecord
from veilsum.simulations.run.refused import told_refusals
from veilsum.simulations.run.simulation import Simulation


@dataclass(frozen=True)
class Baseline:
    """The run beside which a simulation is shown; `model` is missing where there are several."""

    name: str
    metrics: dict[str, float]
    model: Model | None = field(default=None, repr=False)
    defence_left_out: bool = False
    """Whether the run that is compared has a defence, which plain FedAvg does without."""


@dataclass(frozen=True)
class SimulationFacts:
    """The rounds of a simulated run, its last model, how good it is, and what it cost."""

    federation: Federation
    recorder: Recorder
    simulation: Simulation
    wall_s: float
    baseline: Baseline | None = None
    failed: RunFailed | None = None
    lie: LieReport | None = None
    """What became of the lie that was told in it, if one was."""
    interrupted: bool = False
    """Whether somebody stopped it; the rounds are those that were finished."""

    @property
    def rounds(self) -> list[RoundRecord]:
        return self.recorder.rounds

    @property
    def model(self) -> Model:
        """The last committed model."""
        model = self.recorder.model
        return model if model is not None else self.federation.initial_model

    @property
    def metrics(self) -> dict[str, float]:
        if self.rounds:
            return self.rounds[-1].metrics
        return next(iter(self.federation.learners.values())).evaluate(self.model)

    @property
    def plain_bytes(self) -> tuple[int, int]:
        """What FedAvg sends for one party and round: a float32 vector up, and one down."""
        return len(Body.of(PlainUpdate(Stamp(), self._zeros, 1))), len(
            Body.of(RoundOpened(Stamp(), self._zeros))
        )

    @property
    def bytes_up_over_plain(self) -> float | None:
        return self._over_plain(self.recorder.bytes_up, self.plain_bytes[0])

    @property
    def bytes_down_over_plain(self) -> float | None:
        return self._over_plain(self.recorder.bytes_down, self.plain_bytes[1])

    @property
    def _zeros(self) -> Model:
        return np.zeros(self.federation.parameters.dimension, dtype="<f4")

    def _over_plain(self, sent: int, plain: int) -> float | None:
        """Bytes of all participants over what FedAvg needs for the same rounds."""
        vectors = sum(len(one.members) for one in self.rounds)
        return sent / (vectors * plain) if vectors else None

    @property
    def protocol_cpu_s(self) -> float:
        return sum(node.cpu_s for node in self.simulation.nodes.values())

    @property
    def exact(self) -> bool | None:
        stated = [one.exact for one in self.rounds if one.exact is not None]
        return all(stated) if stated else None

    @property
    def baseline_distance(self) -> float | None:
        """The distance to the compared run's model, in units of that model's own length."""
        if self.baseline is None or self.baseline.model is None:
            return None
        length = float(np.linalg.norm(self.baseline.model))
        return float(np.linalg.norm(self.model - self.baseline.model)) / (length or 1.0)

    def figures(self) -> dict[str, Any]:
        config, baseline = self.federation.config, self.baseline
        errors = [one.max_abs_error for one in self.rounds if one.max_abs_error == one.max_abs_error]
        best, other = headline(self.metrics), headline(baseline.metrics) if baseline is not None else None
        return {
            "scheme": config.scheme,
            "parties": len(config.parties),
            "rounds": [one.figures() for one in self.rounds],
            "task": config.task,
            "seed": config.seed,
            "metric_name": best[0] if best is not None else None,
            "metric": best[1] if best is not None else None,
            "baseline": baseline.name if baseline is not None else None,
            "baseline_metric": other[1] if other is not None else None,
            "baseline_defence_left_out": baseline is not None and baseline.defence_left_out,
            "model_sha256": sha256_of(self.model),
            "baseline_sha256": sha256_of(baseline.model)
            if baseline is not None and baseline.model is not None
            else None,
            "baseline_distance": self.baseline_distance,
            "max_abs_error": max(errors, default=None),
            "exact_ring_sum": self.exact,
            "bytes_up_over_plain": self.bytes_up_over_plain,
            "bytes_down_over_plain": self.bytes_down_over_plain,
            "attempts": self.recorder.attempts,
            "sessions": self.recorder.sessions,
            "aborted": self.failed is not None,
            "interrupted": self.interrupted,
            "abort_reason": self.failed.reason.value if self.failed is not None else None,
            "abort_culprit": (self.failed.culprit or None) if self.failed is not None else None,
            "abort_detail": self.failed.detail if self.failed is not None else None,
            "lost": [node.name for node in self.simulation.participants if not node.alive],
            "refused_messages": len(self.simulation.refusals),
            "refusals": told_refusals(self.simulation.refusals),
            "warnings": self.recorder.warnings,
            "saw": dict(what_was_seen(self)),
            "total_cpu_s": self.protocol_cpu_s,
            "training_cpu_s": sum(node.training_cpu_s for node in self.simulation.nodes.values()),
            "wall_s": self.wall_s,
            **(self.lie.figures() if self.lie is not None else {}),
        }


def what_was_seen(result: SimulationFacts) -> Iterator[tuple[str, str]]:
    """For each role, what it may learn and, where it can form a model, how well that model does."""
    scheme = result.federation.scheme
    for role, words in scheme.learns.items():
        guess = _model_of(role, result, scheme)
        if guess is None:
            yield role, words
            continue
        best = against_chance(next(iter(result.federation.learners.values())).evaluate(guess))
        yield role, f"{words}; test {best[0]} {best[1]:.2f}" if best is not None else words


def _model_of(role: str, result: SimulationFacts, scheme: Scheme) -> Model | None:
    """The best model that a role can form from what it was sent; none where that is neither a model nor a sum."""
    if role == "broker" or not result.rounds:
        return None
    if role != SERVER or scheme.server_holds_model:
        return result.model
    federation, found = result.federation, result.recorder.server_sum
    if found is None:
        return None
    mean = found.vector if found.in_clear else _read_mean(federation.parameters.encoding, found)
    if len(mean) != federation.parameters.dimension:
        return None
    return federation.server_step().take(federation.initial_model, b"", mean, len(result.rounds) - 1)[0]


def _read_mean(encoding: FixedPoint, found: Carried) -> NDArray[np.float64]:
    """The mean in a sum; words that do not decode, since they are uniform, are read as a sum all the same."""
    members = len(found.members)
    try:
        return encoding.decode_mean(found.vector, members)[0]
    except Rejection:
        return encoding.ring.signed(found.vector)[:-EXTRA_COORDINATES] / (encoding.scale * members)
