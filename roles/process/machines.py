"""From a federation's settings and what a party has on disk to its machine: the same in memory and over MQTT."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from veilsum.protocol.agreed.parameters import Parameters, Timing
from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.crypto.identity import Identity
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.attempt import ApplyMean
from veilsum.protocol.machines.events import Event
from veilsum.protocol.machines.participant import ParticipantMachine
from veilsum.protocol.machines.scheme import Scheme
from veilsum.protocol.machines.server import ServerMachine
from veilsum.protocol.machines.transitions import Phase
from veilsum.protocol.randomness import RandomBytes
from veilsum.protocol.wire.messages import Message
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.learning.server_step import ServerStep, StepOptimizer
from veilsum.roles.process.persistent_state import PersistentState

if TYPE_CHECKING:
    from veilsum.roles.learning.training.settings import TrainingOptions


class Machine(Protocol):
    """What a driver drives."""

    phase: Phase

    def start(self, now: float) -> list[Event]: ...
    def receive(self, sender: PartyId, message: Message, now: float) -> list[Event]: ...
    def handle_deadline(self, now: float) -> list[Event]: ...
    def next_deadline(self) -> float | None: ...


@dataclass(frozen=True)
class MachineRules:
    """What the machines of a federation agree on, whatever is trained in it."""

    scheme: Scheme
    parameters: Parameters
    timing: Timing
    rounds: int
    roster: Roster = field(repr=False)

    def holds_model(self, name: PartyId) -> bool:
        """Whether this party brings the model along from round to round, or is given it in each."""
        return self.scheme.server_holds_model == (name == SERVER)

    def machine(
        self,
        identity: Identity,
        state: PersistentState,
        random: RandomBytes,
        apply: ApplyMean,
        equipment: object | None = None,
    ) -> ServerMachine | ParticipantMachine:
        """A machine that starts from what the party has on disk; `equipment` is what its scheme asks of the role."""
        common: dict[str, Any] = {
            "identity": identity,
            "roster": self.roster,
            "parameters": self.parameters,
            "scheme": self.scheme,
            "timing": self.timing,
            "random": random,
            "model": state.model if self.holds_model(identity.name) else None,
            "apply": apply,
            "rounds_done": state.rounds_done,
            "record": state.record,
            "equipment": equipment,
        }
        if identity.name == SERVER:
            return ServerMachine(**common, rounds=self.rounds, first_attempt=state.attempt)
        return ParticipantMachine(**common)


@dataclass(frozen=True)
class Rules:
    """What all machines of a federation have in common."""

    config: FederationConfig
    scheme: Scheme
    parameters: Parameters
    training: TrainingOptions
    roster: Roster = field(repr=False)

    @classmethod
    def of(cls, config: FederationConfig, roster: Roster, dimension: int) -> Rules:
        """The rules for a model of this dimension."""
        return cls(
            config, config.find_scheme(), config.parameters(dimension), config.training_options(), roster
        )

    @property
    def machines(self) -> MachineRules:
        config = self.config
        return MachineRules(self.scheme, self.parameters, config.timing, config.rounds, self.roster)

    def machine(
        self,
        identity: Identity,
        state: PersistentState,
        random: RandomBytes,
        equipment: object | None = None,
        optimizer: StepOptimizer | None = None,
    ) -> ServerMachine | ParticipantMachine:
        """A machine that starts from what the party has on disk; `optimizer` for a server that steps with one."""
        step = ServerStep(self.training)
        if identity.name == SERVER:
            step = ServerStep(self.training, optimizer, state.memory)
        return self.machines.machine(identity, state, random, step.apply, equipment)
