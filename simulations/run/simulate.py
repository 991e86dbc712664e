"""`simulate`: one federation on virtual time, beside the run it is compared with."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.crypto.aead import watch_seals
from veilsum.protocol.crypto.linear_tag import watch_tags
from veilsum.protocol.errors import ParameterError, Rejection
from veilsum.protocol.identifiers import SERVER, PartyId, shown_number
from veilsum.protocol.machines.events import Event, RoundCommitted, RunFailed
from veilsum.protocol.machines.scheme import Scheme
from veilsum.protocol.machines.session import RoundOpened
from veilsum.protocol.numbers.fixedpoint import EXTRA_COORDINATES, FixedPoint
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.schemes.plain import Plain, PlainUpdate
from veilsum.protocol.wire.carried import Carried
from veilsum.protocol.wire.envelope import Body
from veilsum.protocol.wire.messages import Message, Stamp
from veilsum.roles.cli.progress import Progress
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.learning.contract import headline, sha256_of
from veilsum.roles.learning.datasets.registry import load_task
from veilsum.roles.learning.training.compare import mean_metrics, train_central, train_standalone
from veilsum.roles.process.observer import Observers, RunObserver
from veilsum.simulations.lies.lie import Lie
from veilsum.simulations.lies.play import HonestCommits, LiePlay, rules_of_liars
from veilsum.simulations.lies.registry import find_lie
from veilsum.simulations.lies.report import LieReport
from veilsum.simulations.run.engine import InlineEngine, TrainingEngine
from veilsum.simulations.run.federation import Federation
from veilsum.simulations.run.invariants import InvariantMonitor, SealRecorder, TagRecorder
from veilsum.simulations.run.record import Recorder, RoundRecord
from veilsum.simulations.run.simulation import Simulation
from veilsum.transport.memory.faults import Faults


class Comparison(StrEnum):
    """What a simulation may be shown beside: plain FedAvg, one model on the pooled data, or each party alone."""

    PLAIN = "plain"
    CENTRAL = "central"
    STANDALONE = "standalone"


@dataclass(frozen=True)
class Baseline:
    """The run beside which a simulation is shown; `model` is missing where there are several."""

    name: str
    metrics: dict[str, float]
    model: Model | None = field(default=None, repr=False)
    defence_left_out: bool = False
    """Whether the run that is compared has a defence, which plain FedAvg does without."""


@dataclass(frozen=True)
class SimulationResult:
    """What became of a simulated run: its rounds, the last model, how good it is, and what it cost."""

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

    def __repr__(self) -> str:
        config = self.federation.config
        end = "" if self.failed is None else f", failed={self.failed.reason.value!r}"
        return (
            f"SimulationResult(scheme={config.scheme!r}, rounds={len(self.rounds)} of {config.rounds}, "
            f"{len(self.model)} values{end}, wall_s={self.wall_s:.1f})"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows: curves, the table of rounds, and who saw what."""
        from veilsum.simulations.run.page import simulation_part

        return simulation_part(self)

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
            "abort_detail": self.failed.detail if self.failed is not None else None,
            "lost": [node.name for node in self.simulation.participants if not node.alive],
            "refused_messages": len(self.simulation.refusals),
            "warnings": self.recorder.warnings,
            "saw": dict(what_was_seen(self)),
            "total_cpu_s": self.protocol_cpu_s,
            "training_cpu_s": sum(node.training_cpu_s for node in self.simulation.nodes.values()),
            "wall_s": self.wall_s,
            **(self.lie.figures() if self.lie is not None else {}),
        }


def simulate(
    config: FederationConfig | str | Path,
    *,
    faults: Faults | str | None = None,
    drop: str | None = None,
    compare: str | None = None,
    initial_model: Model | None = None,
    verify: bool = True,
    progress: bool = False,
    engine: TrainingEngine | None = None,
    lie: str | None = None,
    keep_finished: bool = False,
) -> SimulationResult:
    """Run a federation in memory, on virtual time, from its configuration or the path of its federation.toml.

    `engine` says where the parties train (simulations/run/engine.py); by default inline. `lie` is the name of one in
    simulations/lies/registry.py: it is told among otherwise honest parties, and `lie` of the result says what they
    noticed. With `keep_finished` Ctrl-C ends the run and gives the rounds that were finished, instead of raising.
    """
    if not isinstance(config, FederationConfig):
        config = FederationConfig.from_toml(Path(config), run_code=True)
    beside = _comparison(compare) if compare is not None else None
    config.require_workable()
    config = config.with_weight_limit()
    chosen = Faults.parse(faults) if isinstance(faults, str) else faults or Faults()
    lost = losses(config, drop) if drop else {}
    engine = engine if engine is not None else InlineEngine()
    told = find_lie(lie) if lie is not None else None
    result = _run(
        config,
        chosen,
        lost,
        initial_model,
        engine,
        told,
        verify=verify,
        progress=progress,
        keep_finished=keep_finished,
    )
    still_there = sorted(name for name in lost if result.simulation.nodes[name].alive)
    if still_there:
        result.recorder.warnings.append(
            f"drop {drop}: {', '.join(still_there)} never came to that phase and was not lost"
        )
    if beside is None or result.interrupted:
        return result
    return replace(result, baseline=_baseline(beside, config, initial_model, engine, progress=progress))


def _comparison(name: str) -> Comparison:
    try:
        return Comparison(name)
    except ValueError:
        raise ParameterError([f"compare with one of {', '.join(Comparison)}, not {name!r}"]) from None


class RoundProgress(RunObserver):
    """Shows how far the run is."""

    def __init__(self, progress: Progress, recorder: Recorder) -> None:
        self._progress = progress
        self._recorder = recorder

    def noted(self, now: float, party: PartyId, event: Event) -> None:
        if isinstance(event, RoundCommitted):
            self._progress.update(
                shown_number(event.round), f"rounds, {', '.join(self._newest(len(event.members)))}"
            )

    def _newest(self, members: int) -> Iterator[str]:
        yield f"{members} parties"
        if self._recorder.rounds:
            last = self._recorder.rounds[-1]
            best = headline(last.metrics)
            yield from () if last.loss is None else (f"loss {last.loss:.4f}",)
            yield from () if best is None else (f"{best[0]} {best[1]:.4f}",)


def _run(
    config: FederationConfig,
    faults: Faults,
    lost: dict[PartyId, type[Message]],
    initial_model: Model | None,
    engine: TrainingEngine,
    lie: type[Lie] | None = None,
    *,
    verify: bool,
    progress: bool,
    keep_finished: bool = False,
) -> SimulationResult:
    federation = Federation.build(config, initial_model)
    play = None
    if lie is not None:
        federation = replace(federation, own_rules=rules_of_liars(lie, federation))
        play = LiePlay(lie, federation, lambda name: simulation.nodes[name].machine)
    recorder = Recorder(federation, verify and play is None)
    shown = Progress(config.scheme, config.rounds)
    told: list[RunObserver] = [InvariantMonitor(server_lies=play is not None), recorder]
    if play is not None:
        told = [HonestCommits(one, play.liars.names) for one in told] + [play]
    told += [RoundProgress(shown, recorder)] if progress else []
    simulation = Simulation(federation, faults, lost, Observers(told), engine=engine)
    seals, tags = SealRecorder(), TagRecorder()
    simulation.instead_of = tags.looking_away()(play.instead_of) if play is not None else None
    started = time.monotonic()
    interrupted = False
    with watch_seals(seals), watch_tags(tags):
        try:
            simulation.run()
        except KeyboardInterrupt:
            if not keep_finished:
                raise
            interrupted = True
    seals.require_once()
    tags.require_one_update_each()
    shown.close()
    ended = simulation.server.ended
    failed = ended if isinstance(ended, RunFailed) else None
    report = play.report(simulation.refusals, simulation.endings) if play is not None else None
    wall_s = time.monotonic() - started
    return SimulationResult(
        federation, recorder, simulation, wall_s, failed=failed, lie=report, interrupted=interrupted
    )


def _baseline(
    beside: Comparison,
    config: FederationConfig,
    initial_model: Model | None,
    engine: TrainingEngine,
    *,
    progress: bool,
) -> Baseline:
    if beside is Comparison.PLAIN:
        plain = replace(
            config,
            scheme=Plain.name,
            payload=config.upload,
            min_parties=None,
            recovery="shares",
            bias="own",
            graph="complete",
            defence="",
        )
        run = _run(plain, Faults(), {}, initial_model, engine, verify=False, progress=progress)
        return Baseline(beside.value, run.metrics, run.model, defence_left_out=bool(config.defence))
    task, training = load_task(config.task, config.task_options(), config.code), config.training_options()
    if beside is Comparison.CENTRAL:
        trained = train_central(task, config.rounds, training, config.seed)
        return Baseline(beside.value, trained.metrics, trained.model)
    alone = train_standalone(task, len(config.parties), config.split, config.rounds, training, config.seed)
    return Baseline(beside.value, mean_metrics(alone))


def losses(config: FederationConfig, text: str) -> dict[PartyId, type[Message]]:
    """Read `N@PHASE`: N parties drawn from the seed, lost right before the message that ends the phase."""
    scheme = config.load_scheme()
    count, at, phase = text.partition("@")
    if not at or not count.isdecimal() or phase not in scheme.drop_points:
        raise ParameterError(
            [
                f"drop {text!r}: write N@PHASE with PHASE one of {', '.join(scheme.drop_points)} for {scheme.name}"
            ]
        )
    if int(count) > len(config.parties):
        raise ParameterError([f"drop {text!r}: there are only {len(config.parties)} parties"])
    chosen = random.Random(config.seed).sample(sorted(config.parties), int(count))  # noqa: S311 - a simulated fault
    return dict.fromkeys(map(PartyId, chosen), scheme.drop_points[phase])


def what_was_seen(result: SimulationResult) -> Iterator[tuple[str, str]]:
    """For each role, what it may learn and, where it can form a model, how well that model does."""
    scheme = result.federation.scheme
    for role, words in scheme.learns.items():
        guess = _model_of(role, result, scheme)
        if guess is None:
            yield role, words
            continue
        best = _against_chance(next(iter(result.federation.learners.values())).evaluate(guess))
        yield role, f"{words}; test {best[0]} {best[1]:.2f}" if best is not None else words


def _against_chance(metrics: dict[str, float]) -> tuple[str, float] | None:
    """The metric that tells knowledge from none: where one class is frequent, guessing it always is accurate, too."""
    balanced = metrics.get("balanced_accuracy")
    return ("balanced accuracy", balanced) if balanced is not None else headline(metrics)


def _model_of(role: str, result: SimulationResult, scheme: Scheme) -> Model | None:
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
