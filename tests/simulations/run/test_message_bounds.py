"""What agreed parameters say of the longest message is true of every message that honest parties send."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import numpy as np
import pytest

from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.events import RunFinished
from veilsum.protocol.schemes.registry import find_scheme
from veilsum.protocol.wire.envelope import Body
from veilsum.protocol.wire.limits import DEFAULT_LIMITS
from veilsum.protocol.wire.messages import Message, kind_of
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.config.values import party_names
from veilsum.roles.process.observer import RunObserver
from veilsum.simulations.run.federation import Federation
from veilsum.simulations.run.simulation import Simulation
from veilsum.transport.memory.faults import Crash, Faults

PATIENT = {"training_s": 5.0, "phase_s": 5.0, "opening_s": 5.0, "patience_s": 20.0}
CASES: dict[str, dict[str, Any]] = {
    "plain": {"scheme": "plain"},
    "plain, round-robin": {"scheme": "plain", "schedule": "round-robin"},
    "masked": {"scheme": "masked", "bits": 32},
    "masked, 64 bits": {"scheme": "masked", "bits": 64},
    "masked, semi-honest": {"scheme": "masked", "threat": "semi-honest"},
    "masked, thin": {"scheme": "masked", "threat": "semi-honest", "graph": "k-regular:4"},
    "mpc": {"scheme": "mpc", "bits": 32},
    "ampc": {"scheme": "ampc"},
    "ampc, shares as vectors": {"scheme": "ampc", "shares": "tensor"},
}
REMEMBERING = {"payload": "gradient", "server_optimizer": "adam:lr=0.01", "model": "mlp2:16"}


class Longest(RunObserver):
    """By kind, the most bytes that the vectors of a message had, and the whole body."""

    def __init__(self) -> None:
        self.vectors: Counter[str] = Counter()
        self.bodies: Counter[str] = Counter()

    def sent(self, now: float, party: PartyId, receiver: PartyId, message: Message, size: int) -> None:
        kind, values = kind_of(message), (getattr(message, one.name) for one in dataclasses.fields(message))
        vectors = sum(value.nbytes for value in values if isinstance(value, np.ndarray))
        self.vectors[kind] = max(self.vectors[kind], vectors)
        self.bodies[kind] = max(self.bodies[kind], len(Body.of(message)))


def play(config: FederationConfig, crash_at: float) -> tuple[Federation, Longest]:
    """One party is away for a while and is then given what it missed."""
    federation, seen = Federation.build(config), Longest()
    away = Crash(config.parties[1], crash_at, 3.0)
    simulation = Simulation(federation, Faults(crashes=(away,)), observer=seen)
    simulation.run()
    assert isinstance(simulation.server.ended, RunFinished)
    return federation, seen


def require_within_bounds(federation: Federation, seen: Longest) -> int:
    bound = federation.scheme.most_vector_bytes(federation.parameters)
    assert bound is not None
    assert max(seen.vectors.values()) <= bound, seen.vectors
    assert max(seen.bodies.values()) <= DEFAULT_LIMITS.for_vectors(bound).max_message_bytes
    fields = {kind: seen.bodies[kind] - seen.vectors[kind] for kind in seen.bodies}
    assert max(fields.values()) <= DEFAULT_LIMITS.max_fields_bytes
    return bound


@pytest.mark.parametrize("parties", [5, 9])
@pytest.mark.parametrize("dimension", [1, 1000, 20_000])
@pytest.mark.parametrize("case", CASES)
def test_no_message_of_a_run_with_a_party_that_comes_back_is_longer_than_agreed(
    case: str, dimension: int, parties: int
) -> None:
    config = FederationConfig(
        task=f"vectors:{dimension}", parties=party_names(parties), rounds=3, seed=7, **PATIENT, **CASES[case]
    )
    require_within_bounds(*play(config, 0.25))


@pytest.mark.parametrize(
    ("scheme", "handing_over"), [("masked", ("round.opened",)), ("mpc", ("ampc.model-given",))]
)
def test_a_state_with_all_that_a_step_remembers_is_the_longest_there_is_and_fits(
    scheme: str, handing_over: tuple[str, ...]
) -> None:
    """The bound is not much more than that, so that it means something."""
    found: Counter[str] = Counter()
    bound = 0
    for crash_at in (0.2, 0.3):
        config = FederationConfig(scheme=scheme, task="digits", rounds=6, seed=7, **PATIENT, **REMEMBERING)
        federation, seen = play(config, crash_at)
        bound = require_within_bounds(federation, seen)
        found |= seen.vectors
    assert bound - 2048 < max(found[kind] for kind in handing_over) <= bound


@pytest.mark.parametrize("scheme", ["perturbed", "bilateral"])
def test_a_scheme_whose_questions_grow_with_samples_states_no_bound(scheme: str) -> None:
    config = FederationConfig(scheme=scheme, task="digits", loss="ce")
    assert find_scheme(scheme).most_vector_bytes(config.parameters(100)) is None
    assert DEFAULT_LIMITS.for_vectors(None) is DEFAULT_LIMITS
