"""A whole federation in one process: identities, roster, learners, and machines that can be started anew.

Everything is a function of the configuration and its seed: keys come from a seeded source and a pool of RSA keys that
real roles refuse, so a run repeats bit for bit. What a restarted party still knows is what it made durable before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TypeAlias

from veilsum.protocol.agreed.anchor import CHAIN_ID_BYTES, first_anchor
from veilsum.protocol.agreed.parameters import Parameters
from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.chain.state import TakeStep, hash_model
from veilsum.protocol.crypto.identity import Identity, Role
from veilsum.protocol.crypto.signing import SigningKey
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.participant import ParticipantMachine
from veilsum.protocol.machines.rules import MachineRules, RoleParts
from veilsum.protocol.machines.scheme import Scheme
from veilsum.protocol.machines.server import ServerMachine
from veilsum.protocol.numbers.model import Model
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.learning.contract import Learner
from veilsum.roles.learning.datasets.vectors import VectorsTask
from veilsum.roles.learning.defences.parse import parse_defence
from veilsum.roles.learning.equipment import TaskEquipment, equipment_notes
from veilsum.roles.learning.errors import TaskError
from veilsum.roles.learning.factory import Defended, make_learner, make_step_optimizer
from veilsum.roles.learning.own_data import load_party_tasks
from veilsum.roles.learning.server_step import ServerStep, StepOptimizer
from veilsum.roles.learning.task import Task
from veilsum.roles.process.entropy import SeededEntropy
from veilsum.roles.process.machines import make_machine, rules_of, step_of
from veilsum.roles.process.persistent_state import PersistentState
from veilsum.simulations.run.keypool import simulation_rsa_key

LearnersOf: TypeAlias = Callable[[TaskEquipment, SeededEntropy], Mapping[PartyId, Learner]]


def learners_of_tasks(
    tasks: Mapping[str, Task | VectorsTask], equipping: TaskEquipment, entropy: SeededEntropy
) -> dict[PartyId, Learner]:
    """The learners of all parties, each with its part of the common task, or with a task of its own."""
    config = equipping.config
    learners = {
        PartyId(name): make_learner(
            config, task, name, entropy=entropy.for_party(f"defence/{name}"), traced=equipping.traced
        )
        for name, task in tasks.items()
    }
    if config.data_folders.of_party:
        _require_one_model(config, learners)
    return learners


def _require_one_model(config: FederationConfig, learners: Mapping[PartyId, Learner]) -> None:
    """Refuse a task whose model follows from the data of a party: no two of them could be averaged."""
    (first, wanted), *others = ((name, one.initial_model()) for name, one in learners.items())
    for name, made in others:
        if made.tobytes() != wanted.tobytes():
            raise TaskError(
                f"task {config.task}: the first model of {name} has {len(made)} values and is not that of {first}, "
                f"which has {len(wanted)}: a model must not depend on a party's own data"
            )


@dataclass(frozen=True, kw_only=True, repr=False)
class FederationInMemory:
    """What every federation in memory has, a simulated one and that of a table: rules, keys and a seeded source."""

    scheme: Scheme
    rules: MachineRules
    identities: Mapping[PartyId, Identity]
    entropy: SeededEntropy
    own_rules: Mapping[PartyId, MachineRules] = field(default_factory=dict)
    """Who goes by other rules than were agreed on: a liar."""

    def rules_for(self, name: PartyId) -> MachineRules:
        """What the machine of this party goes by."""
        return self.own_rules.get(name, self.rules)

    def __repr__(self) -> str:
        count, dimension = len(self.roster.participants), self.parameters.dimension
        return f"{type(self).__name__}(scheme={self.scheme.name!r}, {count} participants, {dimension} values)"

    @property
    def parameters(self) -> Parameters:
        return self.rules.parameters

    @property
    def roster(self) -> Roster:
        return self.rules.roster


@dataclass(frozen=True, kw_only=True, repr=False)
class Federation(FederationInMemory):
    """A federation that trains as its configuration says."""

    config: FederationConfig
    learners: Mapping[PartyId, Learner]
    initial_model: Model
    equipping: TaskEquipment
    optimizer: StepOptimizer | None = None

    @classmethod
    def build(
        cls,
        config: FederationConfig,
        initial_model: Model | None = None,
        make_learners: LearnersOf | None = None,
    ) -> Federation:
        config.require_workable()
        scheme = config.load_scheme()
        names = [PartyId(name) for name in config.parties]
        tasks = load_party_tasks(config)
        task = next(iter(tasks.values()))
        entropy = SeededEntropy(config.seed)
        equipping = TaskEquipment(config, lambda: task)
        learners = (make_learners or partial(learners_of_tasks, tasks))(equipping, entropy)
        model = initial_model if initial_model is not None else next(iter(learners.values())).initial_model()
        identities = simulated_identities(scheme, names, entropy)
        return cls(
            config=config,
            scheme=scheme,
            rules=rules_of(config, simulated_roster(scheme, identities, model, entropy), len(model)),
            identities=identities,
            learners=learners,
            initial_model=model,
            entropy=entropy,
            equipping=equipping,
            optimizer=make_step_optimizer(task, config.training_options(), by_parties=scheme.has_chain),
        )

    def defence_notes(self) -> Iterator[str]:
        """What the defence of the parties leaves open, and what it gives in figures."""
        yield from parse_defence(self.config.defence, self.config.code).warnings(self.config)
        parties_of: dict[str, list[PartyId]] = {}
        for name, learner in self.learners.items():
            for note in learner.notes(self.config.rounds) if isinstance(learner, Defended) else ():
                parties_of.setdefault(note, []).append(name)
        for note, names in parties_of.items():
            yield f"{'every party' if len(names) == len(self.learners) else ', '.join(names)}: {note}"

    def data_notes(self) -> Iterator[str]:
        """Which test set it is measured on, where each party has its own."""
        if self.config.data_folders.of_party and not isinstance(
            task := self.equipping.load_task(), VectorsTask
        ):
            yield f"measured on the {len(task.test)} test samples of all parties' folders together"

    @cached_property
    def equipment(self) -> Mapping[PartyId, object | None]:
        """What the machines of every party are given besides, the same in all its lives."""
        return {
            name: self.equipping.of(name, self.parameters, self.learners.get(name))
            for name in self.identities
        }

    def equipment_notes(self) -> Iterator[str]:
        """What the server's equipment leaves open."""
        return equipment_notes(self.equipment[SERVER])

    def fresh(self) -> PersistentState:
        """What a party has before its first round."""
        return PersistentState(0, self.initial_model)

    def machine(self, name: PartyId, state: PersistentState) -> ServerMachine | ParticipantMachine:
        """A machine that starts from what the party has on disk."""
        random = self.entropy.for_party(f"{name}/{state.life}")
        step = step_of(self.config, name, state, self.optimizer)
        parts = RoleParts(self.identities[name], random, step.apply, self.equipment[name], step.take)
        return make_machine(self.scheme, self.rules_for(name), parts, state)

    def server_step(self) -> ServerStep:
        """What makes the next model from a mean, as a server that has done no round yet."""
        return ServerStep(self.config.training_options(), self.optimizer)

    def chain_step(self) -> TakeStep:
        """What every party makes the next state of a chain with."""
        return self.server_step().take


def simulated_identities(
    scheme: Scheme, names: Sequence[PartyId], entropy: SeededEntropy
) -> dict[PartyId, Identity]:
    """Keys of the server and of these participants, from a seeded source."""
    identities = {
        SERVER: Identity(SERVER, Role.SERVER, SigningKey.generate(entropy.for_party("keys/server")))
    }
    for index, name in enumerate(names):
        signing = SigningKey.generate(entropy.for_party(f"keys/{name}"))
        rsa = simulation_rsa_key(index) if scheme.needs_rsa else None
        identities[name] = Identity(name, scheme.participant_role, signing, rsa)
    return identities


def simulated_roster(
    scheme: Scheme, identities: Mapping[PartyId, Identity], first: Model, entropy: SeededEntropy
) -> Roster:
    """A roster of these, in their order, which nobody needs to sign; `first` is where a chain begins."""
    public = tuple(identity.public for identity in identities.values())
    if not scheme.has_chain:
        return Roster(1, public)
    chain = entropy.for_party("chain")(CHAIN_ID_BYTES)
    return Roster(
        1, public, first_anchor(chain, hash_model(first), [name for name in identities if name != SERVER])
    )
