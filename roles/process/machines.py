"""From a federation's settings and what a party has on disk to its machine: the same in memory and as processes."""

from __future__ import annotations

from typing import Protocol

from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import Event
from veilsum.protocol.machines.participant import ParticipantMachine
from veilsum.protocol.machines.rules import MachineRules, RoleParts, StartingPoint
from veilsum.protocol.machines.scheme import Scheme
from veilsum.protocol.machines.server import ServerMachine
from veilsum.protocol.machines.transitions import Phase
from veilsum.protocol.wire.messages import Message
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.learning.server_step import ServerStep, StepOptimizer
from veilsum.roles.process.persistent_state import PersistentState


class Machine(Protocol):
    """What a driver drives."""

    phase: Phase

    def start(self, now: float) -> list[Event]: ...
    def receive(self, sender: PartyId, message: Message, now: float) -> list[Event]: ...
    def handle_deadline(self, now: float) -> list[Event]: ...
    def next_deadline(self) -> float | None: ...


def rules_of(config: FederationConfig, roster: Roster, dimension: int) -> MachineRules:
    """What the machines of a federation go by, for a model of this dimension."""
    return MachineRules(config.parameters(dimension), config.timing, config.rounds, roster)


def holds_model(scheme: Scheme, name: PartyId) -> bool:
    """Whether this party brings the model along from round to round, or is given it in each."""
    if scheme.has_chain and name != SERVER:
        return True
    return scheme.server_holds_model == (name == SERVER)


def step_of(
    config: FederationConfig, name: PartyId, state: PersistentState, optimizer: StepOptimizer | None
) -> ServerStep:
    """How a mean becomes the next model; whoever holds the model steps with the optimiser, if there is one."""
    if holds_model(config.load_scheme(), name):
        return ServerStep(config.training_options(), optimizer, state.memory)
    return ServerStep(config.training_options())


def make_machine(
    scheme: Scheme, rules: MachineRules, parts: RoleParts, state: PersistentState
) -> ServerMachine | ParticipantMachine:
    """A machine that starts from what the party has on disk."""
    name = parts.identity.name
    model = state.model if holds_model(scheme, name) else None
    begin = StartingPoint(model, state.rounds_done, state.attempt, state.record, state.chain)
    kind = ServerMachine if name == SERVER else ParticipantMachine
    return kind(scheme, rules, parts, begin)
