"""How often parties hash what is large: with a chain nobody hashes a vector twice, and no server once per client."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import Event, RoundCommitted, RunFinished
from veilsum.protocol.wire.messages import Message
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.config.values import party_names
from veilsum.roles.learning.contract import LocalUpdate
from veilsum.roles.process.observer import RunObserver
from veilsum.simulations.run.federation import Federation
from veilsum.simulations.run.simulation import Node, Simulation

DIMENSION = 1000
LARGE = 4 * DIMENSION
SHA256 = hashlib.sha256


class Hashes:
    """Everything large that was hashed, by the party whose turn it was."""

    def __init__(self) -> None:
        self.by_party: defaultdict[str, list[bytes]] = defaultdict(list)
        self.turn = ""

    def note(self, content: Any) -> None:
        if memoryview(content).nbytes >= LARGE:
            self.by_party[self.turn].append(bytes(memoryview(content).cast("B")))

    def sha256(self, content: Any = b"") -> Any:
        return Recording(self, content)

    def of(self, party: str, vector: np.ndarray) -> int:
        """How many times the party hashed these bytes, alone or within others."""
        return sum(vector.tobytes() in content for content in self.by_party[party])


class Recording:
    def __init__(self, hashes: Hashes, content: Any) -> None:
        self._hashes, self._inner = hashes, SHA256()
        self.update(content)

    def update(self, content: Any) -> None:
        self._hashes.note(content)
        self._inner.update(content)

    def digest(self) -> bytes:
        return self._inner.digest()

    def hexdigest(self) -> str:
        return self._inner.hexdigest()


class Vectors(RunObserver):
    """The large vectors of a run: what was trained, what travelled, and the models that came of it."""

    def __init__(self) -> None:
        self.models: dict[bytes, np.ndarray] = {}
        self.others: dict[bytes, np.ndarray] = {}

    def trained(self, now: float, party: PartyId, round_number: int, update: LocalUpdate) -> None:
        self.others[update.payload.tobytes()] = update.payload

    def sent(self, now: float, party: PartyId, receiver: PartyId, message: Message, size: int) -> None:
        for name in type(message).__dataclass_fields__:
            value = getattr(message, name)
            if isinstance(value, np.ndarray) and value.nbytes >= LARGE:
                self.others[value.tobytes()] = value

    def noted(self, now: float, party: PartyId, event: Event) -> None:
        if isinstance(event, RoundCommitted) and event.model is not None:
            self.models[event.model.tobytes()] = event.model


@pytest.fixture
def hashes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hashes]:
    found = Hashes()

    def in_turn(work: Callable[..., None]) -> Callable[..., None]:
        def taken(simulation: Simulation, node: Node, *given: Any) -> None:
            before, found.turn = found.turn, node.name
            try:
                work(simulation, node, *given)
            finally:
                found.turn = before

        return taken

    for name in ("_deliver", "_perform", "_transmit"):
        monkeypatch.setattr(Simulation, name, in_turn(getattr(Simulation, name)))
    monkeypatch.setattr(hashlib, "sha256", found.sha256)
    yield found
    assert found.by_party, "nothing large was hashed"


def play(scheme: str, parties: int, hashes: Hashes) -> Vectors:
    config = FederationConfig(
        scheme=scheme, parties=party_names(parties), rounds=2, task=f"vectors:{DIMENSION}"
    )
    federation, seen = Federation.build(config), Vectors()
    simulation = Simulation(federation, observer=seen)
    hashes.by_party.clear()
    simulation.run()
    assert isinstance(simulation.server.ended, RunFinished)
    assert len(seen.models) == 2
    return seen


@pytest.mark.parametrize("scheme", ["masked", "mpc", "ampc"])
def test_nobody_hashes_one_vector_twice_in_a_round(scheme: str, hashes: Hashes) -> None:
    """Updates, uploads, sums and models; what travels is hashed under its signature, and for nothing else."""
    seen = play(scheme, 5, hashes)
    counts = {
        (party, kind): max(hashes.of(party, one) for one in vectors.values())
        for party in ("p1", "p5", SERVER)
        for kind, vectors in (("models", seen.models), ("others", seen.others))
    }
    assert max(counts.values()) == 1, counts
    assert counts["p1", "models"] == 1, "a party hashes the model that it comes to"


@pytest.mark.parametrize("scheme", ["plain", "masked"])
def test_what_the_server_hashes_of_a_model_or_a_sum_does_not_grow_with_its_clients(
    scheme: str, hashes: Hashes
) -> None:
    most = []
    for parties in (3, 9):
        seen = play(scheme, parties, hashes)
        most.append(max(hashes.of(SERVER, one) for one in (*seen.models.values(), *seen.others.values())))
    assert most[0] == most[1] <= 2
