"""Everything a table of machines stands on: keys, roster, parameters, and marked inputs.

Inputs are marked: party number j adds 1 in slot j of its vector, and the other slots hold numbers that
depend on the party and the round. A contribution that is lost, counted twice or mixed with another round's
shows in the sum at once, and says whose it was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.agreed.parameters import Parameters, Timing, Weights
from veilsum.protocol.agreed.threat import HONEST_IN_A_SUM, Threat, tolerated_colluders
from veilsum.protocol.chain.state import TakeStep
from veilsum.protocol.errors import ParameterError
from veilsum.protocol.graphs.policy import parse_graph
from veilsum.protocol.identifiers import SERVER, PartyId, require_party_id
from veilsum.protocol.machines.participant import ParticipantMachine
from veilsum.protocol.machines.rules import MachineRules, RoleParts
from veilsum.protocol.machines.server import ServerMachine
from veilsum.protocol.numbers.model import LocalResult, Model
from veilsum.protocol.randomness import RandomBytes
from veilsum.protocol.schemes.registry import find_scheme
from veilsum.roles.learning.contract import PAYLOADS, apply_update
from veilsum.roles.learning.equipment import equip
from veilsum.roles.process.entropy import SeededEntropy
from veilsum.roles.process.machines import make_machine
from veilsum.roles.process.persistent_state import PersistentState
from veilsum.simulations.run.federation import FederationInMemory, simulated_identities, simulated_roster
from veilsum.simulations.testing.perturbation import (
    TableClientPerturbation,
    TableLearner,
    TableServerPerturbation,
)

CLIP = 8.0
MAX_WEIGHT = 1000
SETTINGS = tuple(
    one.name for one in fields(Parameters) if one.name not in ("scheme", "encoding", "dimension")
)
"""Fields of `Parameters` that a test may choose."""


@dataclass(frozen=True)
class MarkedLearner:
    """Party j has 1 in slot j, 0 in the slots of the others, and its own numbers in the rest."""

    parties: tuple[PartyId, ...]
    dimension: int
    max_weight: int = MAX_WEIGHT

    def train(self, party: PartyId, round: int, model: Model) -> LocalResult:
        """Random values, and a 1 in the party's own slot."""
        digest = hashlib.sha256(f"{party}/{round}".encode()).digest()
        payload = np.random.default_rng(list(digest)).uniform(-CLIP, CLIP, self.dimension).astype(np.float32)
        payload[: len(self.parties)] = 0
        payload[self.parties.index(party)] = 1
        return LocalResult(payload, 1 + int.from_bytes(digest[:4], "big") % self.max_weight)


@dataclass(frozen=True, kw_only=True, repr=False)
class TableFederation(FederationInMemory):
    """What all parties of a table agree on, the private keys of each, and one learner for all."""

    learner: TableLearner

    def equipment_of(self, name: PartyId) -> object | None:
        """What the machine of a party is given besides: by its scheme, or a perturbation in a few lines of numpy."""
        return equip(self.scheme, name, self.parameters, lambda: self._perturbation_of(name))

    def _perturbation_of(self, name: PartyId) -> TableServerPerturbation | TableClientPerturbation:
        asks = self.parameters.options.get("asks", "yes") == "yes"
        if name == SERVER:
            return TableServerPerturbation(self.parameters.dimension, asks)
        return TableClientPerturbation(self.parameters.dimension, asks, name, self.learner)

    def machine(
        self, name: PartyId, state: PersistentState, random: RandomBytes
    ) -> ServerMachine | ParticipantMachine:
        """A machine that starts from what the party has on disk."""
        parts = RoleParts(self.identities[name], random, self.apply, self.equipment_of(name))
        return make_machine(self.scheme, self.rules_for(name), parts, state)

    @property
    def participants(self) -> tuple[PartyId, ...]:
        """The names of all parties but the server."""
        return self.roster.participants

    @property
    def initial_model(self) -> Model:
        """The model before the first round."""
        return _first_model(self.parameters.dimension)

    def chain_step(self) -> TakeStep:
        """What every party makes the next state of a chain with; it remembers nothing."""
        return lambda model, memory, mean, position: (self.apply(model, mean, position), memory)

    def apply(self, model: Model, mean: NDArray[np.float64] | None, round_number: int) -> Model:
        """The next model from a mean; no mean, no step."""
        if mean is None:
            return model
        payload = next(word for word in PAYLOADS if word == self.parameters.payload)
        return apply_update(model, mean, payload, learning_rate=1.0)


def found_federation(
    scheme: str,
    parties: int | Sequence[str],
    *,
    dimension: int | None,
    rounds: int,
    seed: int,
    bits: int,
    timing: Timing | None,
    learner: TableLearner | None,
    **parameters: Any,
) -> TableFederation:
    """Keys and parameters from a seed; `parameters` are fields of `Parameters`, a graph may be its text."""
    found = find_scheme(scheme)
    names = _party_names(parties)
    if dimension is None:
        dimension = len(names) + 3
    if learner is None and dimension < len(names):
        raise ParameterError([f"{len(names)} markers need a dimension of at least that, not {dimension}"])
    threat = parameters.get("threat", Threat.LYING)
    colluders = parameters.setdefault("colluders", tolerated_colluders(len(names), threat))
    least = colluders + HONEST_IN_A_SUM if found.hides_updates else 1
    parameters.setdefault("min_parties", max(least, min(3, len(names))))
    if isinstance(parameters.get("graph"), str):
        parameters["graph"] = parse_graph(parameters["graph"])
    most = parameters.get("weights", Weights.SAMPLES).of(MAX_WEIGHT)
    encoding = found.plan_numbers(len(names), most, CLIP, bits, parameters.get("options", {}))
    entropy = SeededEntropy(seed)
    identities = simulated_identities(found, names, entropy)
    return TableFederation(
        scheme=found,
        rules=MachineRules(
            Parameters(scheme, encoding, dimension, **parameters),
            timing or Timing(),
            rounds,
            simulated_roster(found, identities, _first_model(dimension), entropy),
        ),
        identities=identities,
        learner=learner or MarkedLearner(names, dimension),
        entropy=entropy,
    )


def _first_model(dimension: int) -> Model:
    return np.zeros(dimension, dtype=np.float32)


def _party_names(parties: int | Sequence[str]) -> tuple[PartyId, ...]:
    if not isinstance(parties, int):
        return tuple(sorted(map(require_party_id, parties)))
    if parties < 1:
        raise ParameterError([f"a table has at least one participant, not {parties}"])
    digits = len(str(parties - 1))
    return tuple(PartyId(f"p{index:0{digits}d}") for index in range(parties))
