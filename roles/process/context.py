"""A process's context in its federation: whose keys it has, what it trains on, and the model it starts from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from veilsum.protocol.agreed.parameters import Parameters
from veilsum.protocol.crypto.identity import Identity, Role
from veilsum.protocol.errors import ParameterError
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.numbers.model import Model
from veilsum.roles.config.file import FILE_NAME
from veilsum.roles.federation.beginning import (
    MODEL_FILE,
    OtherModel,
    require_agreed,
    servers_first_model,
)
from veilsum.roles.federation.folder import KEYS_FOLDER, LoadedFederation, enter_federation, require_complete
from veilsum.roles.federation.private_files import PrivateFileError
from veilsum.roles.federation.signed_roster import RosterRefused
from veilsum.roles.learning.contract import Learner
from veilsum.roles.learning.datasets.registry import load_task
from veilsum.roles.learning.datasets.vectors import VectorsTask
from veilsum.roles.learning.equipment import TaskEquipment
from veilsum.roles.learning.server_step import StepOptimizer
from veilsum.roles.learning.task import Task
from veilsum.roles.monitor.log import RoleLog
from veilsum.roles.monitor.log_format import LOG_FORMATS, LogFormat, MeasureWhen
from veilsum.roles.monitor.measuring import Measuring, Turn
from veilsum.roles.process.disk.launch_lock import require_no_run_aside
from veilsum.roles.process.entropy import require_real_entropy, system_entropy
from veilsum.roles.process.machines import holds_model

if TYPE_CHECKING:
    from veilsum.roles.learning.first_model import Beginning

STATE_FOLDER = "state"
"""Where a launch keeps the run before until a fresh one has begun (roles/launch/earlier_run.py)."""
_ROLES = (Role.SERVER, Role.CLIENT, Role.PEER)
_PATHS = ("federation", "key", "state", "init", "record_view", "logs")


@dataclass(frozen=True)
class RoleOptions:
    """What the command line says about one process."""

    federation: Path
    name: str
    key: Path | None = None
    state: Path | None = None
    data: Path | str | None = None
    device: str | None = None
    init: Path | None = None
    resume: bool = False
    fresh: bool = False
    record_view: Path | None = None
    measure: MeasureWhen | None = None
    log_format: LogFormat = "text"
    logs: Path | None = None
    """The folder in which the log is kept as JSON, besides."""
    stay_s: float | None = None
    """How long a party that has all rounds waits for a server, instead of `patience_s`."""

    def __post_init__(self) -> None:
        """Paths may be texts; what no process can do is refused before it touches anything."""
        for field in _PATHS:
            if isinstance(value := getattr(self, field), str):
                object.__setattr__(self, field, Path(value))
        problems = []
        if self.resume and self.fresh:
            problems.append("resume goes on with an earlier run and fresh forgets it: choose one")
        if self.log_format not in LOG_FORMATS:
            problems.append(f"log_format {self.log_format!r} is not one of {', '.join(LOG_FORMATS)}")
        if problems:
            raise ParameterError(problems)


@dataclass(frozen=True)
class RoleContext:
    """Who a process is in its federation, before it has a model."""

    loaded: LoadedFederation
    identity: Identity
    key_folder: Path
    options: RoleOptions

    @property
    def name(self) -> PartyId:
        return self.identity.name

    def load_task(self) -> Task | VectorsTask:
        """The federation's task, with the data that this process was given."""
        config = self.loaded.config
        options = config.task_options(self.loaded.data_folder(self.options.data, self.name))
        return load_task(config.task, options, config.code)

    def load_pooled_task(self) -> Task | VectorsTask:
        """The same with the samples of all parties' folders, where each has its own: all of them must be here."""
        from veilsum.roles.learning.own_data import load_pooled_task

        return load_pooled_task(self.loaded.config, self.loaded.data_folders(self.options.data))


def enter_role(role: Role | str, options: RoleOptions) -> RoleContext:
    """Check settings, roster, keys and that this command is the one for them."""
    if role not in _ROLES:
        raise ParameterError([f"role {str(role)!r} is not one of {', '.join(_ROLES)}"])
    folder = options.federation if options.federation.is_dir() else options.federation.parent
    if options.state is None:
        require_no_run_aside(folder)
    key_folder = options.key or folder / KEYS_FOLDER / options.name
    loaded, identity = enter_as(options.federation, key_folder)
    if identity.name != options.name:
        raise ParameterError([f"{key_folder} holds the keys of {identity.name}, not of {options.name}"])
    if identity.role != role:
        raise ParameterError([f"{identity.name} is a {identity.role}: run veilsum {identity.role}"])
    require_complete(loaded)
    loaded.config.require_workable()
    return RoleContext(loaded, identity, key_folder, options)


def enter_as(federation: Path, key_folder: Path) -> tuple[LoadedFederation, Identity]:
    """The federation as the party with these keys has it; what does not fit is a request that cannot work."""
    try:
        return enter_federation(federation, key_folder)
    except (RosterRefused, PrivateFileError) as refusal:
        raise ParameterError([str(refusal)]) from refusal


def state_folder(folder: Path, name: str) -> Path:
    """Where a party keeps its checkpoints unless --state says otherwise."""
    return folder / STATE_FOLDER / name


def make_equipment(context: RoleContext, parameters: Parameters, learner: Learner | None) -> object | None:
    """What the machine is given besides; loads torch at a server that perturbs the model."""
    return TaskEquipment(context.loaded.config, context.load_task).of(context.name, parameters, learner)


def make_optimizer(context: RoleContext) -> StepOptimizer | None:
    """What takes this party's step on the mean; loads torch where there is one."""
    config = context.loaded.config
    training, scheme = config.training_options(), config.load_scheme()
    if not training.steps_with_optimizer or not holds_model(scheme, context.name):
        return None
    from veilsum.roles.learning.factory import make_step_optimizer

    return make_step_optimizer(context.load_task(), training, by_parties=scheme.has_chain)


def make_party_learner(context: RoleContext, state: Path, another_run: bool = False) -> Learner:
    """The participant's own training; loads torch where the task needs it. A defence keeps its secrets in `state`.

    `another_run` says that what lies there is of another chain of models.
    """
    from veilsum.roles.learning.factory import make_learner

    config, options = context.loaded.config, context.options
    task = context.load_task()
    learner = make_learner(
        config,
        task,
        context.name,
        device=options.device,
        entropy=require_real_entropy(system_entropy),
        traced=TaskEquipment(config, lambda: task).traced,
        checkpoint=0 if context.loaded.roster.anchor is None else context.loaded.roster.anchor.checkpoint,
    )
    if not config.defence:
        return learner
    from veilsum.roles.learning.defences.keeping import STATE_FILE, KeepingLearner

    return KeepingLearner(learner, state / STATE_FILE, fresh=options.fresh, another_run=another_run)


def make_measuring(context: RoleContext, learner: Learner | None, log: RoleLog) -> Measuring | None:
    """How this process measures the common model: a party always unless told otherwise, a server only if told to.

    Where parties get a perturbed model, the server alone can, on the test samples of all folders that it has been
    given; elsewhere it leaves that to them.
    """
    server, config = context.name == SERVER, context.loaded.config
    when = context.options.measure or ("never" if server else "always")
    if when == "never" or config.perturbs != server:
        return None
    if learner is None:
        from veilsum.roles.learning.factory import make_observing_learner

        return Measuring(
            make_observing_learner(config, context.load_pooled_task()), log, tells=config.tell_metric
        )
    parties = context.loaded.roster.participants
    turn = Turn(parties.index(context.name), len(parties)) if when == "turns" else Turn()
    return Measuring(learner, log, turn, config.tell_metric)


def starting_notes(context: RoleContext, learner: Learner | None, first: Model | None) -> Iterator[str]:
    """What the defence leaves open, and what it gives this party in figures; a first model that was not taken.

    `first` is the model that the process begins or goes on with, if it has one.
    """
    from veilsum.roles.learning.defences.keeping import KeepingLearner
    from veilsum.roles.learning.defences.parse import parse_defence

    loaded, config = context.loaded, context.loaded.config
    if first is None and learner is None and _asks_for_model(context) and _first_model_file(context).exists():
        try:
            servers_first_model(loaded.folder, config, loaded.signed)
        except OtherModel as problem:
            yield f"{problem}; the server goes by the one that the parties hold"
    if isinstance(learner, KeepingLearner):
        yield from parse_defence(config.defence, config.code).warnings(config)
        yield from learner.notes(config.rounds)


def first_length(context: RoleContext, model: Model | None) -> int:
    """The number of values in a model: of the one at hand, or what the roster says of the first one."""
    if model is not None:
        return len(model)
    return require_agreed(context.loaded.folder, context.loaded.config, context.loaded.signed).length


def initial_model(context: RoleContext, learner: Learner | None) -> Model | None:
    """The first model: the given one, the learner's, or for a server that holds models the one in its file.

    None for a server that was given none: its scheme keeps models from it, or a party gives it the one that all signed.
    """
    options, loaded = context.options, context.loaded
    if learner is None and options.init is None:
        asks = _asks_for_model(context)
        if not holds_model(loaded.config.load_scheme(), context.name):
            return None
        if asks and not _first_model_file(context).exists():
            return None
        try:
            return servers_first_model(loaded.folder, loaded.config, loaded.signed)
        except OtherModel:
            if not asks:
                raise
            return None
    return _given_or_made(options, None if learner is None else learner.initial_model())


def _asks_for_model(context: RoleContext) -> bool:
    """Whether this server holds the model, and is given the signed one by the parties where it has none."""
    scheme = context.loaded.config.load_scheme()
    return scheme.has_chain and context.name == SERVER and holds_model(scheme, SERVER)


def _first_model_file(context: RoleContext) -> Path:
    return context.loaded.folder / MODEL_FILE


def _given_or_made(options: RoleOptions, made: Model | None) -> Model | None:
    from veilsum.roles.learning.model_files import load_model

    given = None if options.init is None else load_model(options.init)
    if given is not None and made is not None and len(made) != len(given):
        raise ParameterError([f"{options.init} has {len(given)} values, the task's model {len(made)}"])
    return made if given is None else given


def beginning_of(context: RoleContext) -> Beginning:
    """What the record of a server's view says about the task, from a process that may load torch: for audits alone."""
    from veilsum.roles.learning.first_model import ask_for_beginning

    options, loaded = context.options, context.loaded
    file = loaded.folder / FILE_NAME if options.federation.is_dir() else options.federation
    return ask_for_beginning(loaded.config, file, loaded.data_folder(options.data, context.name))
