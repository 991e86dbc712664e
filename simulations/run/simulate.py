"""`simulate`: one federation on virtual time, beside the run it is compared with."""

from __future__ import annotations

import time
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from veilsum.protocol.crypto.aead import watch_seals
from veilsum.protocol.crypto.linear_tag import watch_tags
from veilsum.protocol.errors import ParameterError
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.events import Event, RunFailed
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.schemes.plain import Plain
from veilsum.protocol.wire.messages import Message
from veilsum.roles.cli.progress import Progress
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.config.spelling import named_arguments
from veilsum.roles.learning.contract import LocalUpdate, headline
from veilsum.roles.learning.own_data import load_party_tasks, pooled_task
from veilsum.roles.learning.training.compare import mean_metrics, train_central, train_standalone
from veilsum.roles.process.observer import Observers, RunObserver
from veilsum.simulations.lies.lie import Lie
from veilsum.simulations.lies.play import HonestCommits, LiePlay, rules_of_liars
from veilsum.simulations.lies.registry import find_lie
from veilsum.simulations.run.engine import InlineEngine, TrainingEngine
from veilsum.simulations.run.faults import losses, read_faults
from veilsum.simulations.run.federation import Federation
from veilsum.simulations.run.invariants import InvariantMonitor, SealRecorder, TagRecorder
from veilsum.simulations.run.record import Recorder, RoundRecord
from veilsum.simulations.run.result import Baseline, SimulationFacts
from veilsum.simulations.run.simulation import Simulation
from veilsum.transport.memory.faults import Faults


class Comparison(StrEnum):
    """What a simulation may be shown beside: plain FedAvg, one model on the pooled data, or each party alone."""

    PLAIN = "plain"
    CENTRAL = "central"
    STANDALONE = "standalone"


class SimulationResult(SimulationFacts):
    """What became of a simulated run, and how a prompt and a notebook show it."""

    def __repr__(self) -> str:
        """How far it came, how good the model is beside what, and what it cost, in a few lines."""
        from veilsum.simulations.run.report import brief

        return "\n".join(brief(self))

    def _repr_html_(self) -> str:
        """What a notebook shows: curves, the table of rounds, and who saw what."""
        from veilsum.simulations.run.page import simulation_part

        return simulation_part(self)


@named_arguments
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
    config.require_data()
    config = config.with_weight_limit()
    chosen = read_faults(faults) if isinstance(faults, str) else faults or Faults()
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
    """Tells every committed round as the recorder, who hears it first, has measured it."""

    def __init__(self, progress: Progress, recorder: Recorder, rounds: int) -> None:
        self._progress = progress
        self._recorder = recorder
        self._rounds = rounds
        self._told = 0

    def trained(self, now: float, party: PartyId, round_number: int, update: LocalUpdate) -> None:
        self._progress.tick()

    def noted(self, now: float, party: PartyId, event: Event) -> None:
        for one in self._recorder.rounds[self._told :]:
            self._told += 1
            figures = f"round {one.round} of {self._rounds}{_measured(one)}, {len(one.members)} parties"
            self._progress.update(one.round, "rounds", keep=figures)


def _measured(one: RoundRecord) -> str:
    best = headline(one.metrics)
    loss = "" if one.loss is None else f", loss {one.loss:.4f}"
    return loss if best is None else f"{loss}, {best[0]} {best[1]:.4f}"


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
    told += [RoundProgress(shown, recorder, config.rounds)] if progress else []
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
    tasks, training = load_party_tasks(config), config.training_options()
    if beside is Comparison.CENTRAL:
        trained = train_central(pooled_task(config, tasks), config.rounds, training, config.seed)
        return Baseline(beside.value, trained.metrics, trained.model)
    alone = train_standalone([*tasks.values()], config.split, config.rounds, training, config.seed)
    return Baseline(beside.value, mean_metrics(alone))
