"""What an attempt held, keys and vectors as large as the model, is gone when it ends, without the garbage collector.

The collector comes when it has counted objects enough, which says nothing of their size: machines that refer to
themselves in a circle kept the vectors of up to a hundred rounds.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from veilsum import simulate
from veilsum.protocol.machines import participant, server
from veilsum.protocol.machines.attempt import AttemptMachine
from veilsum.protocol.machines.scheme import Scheme, require_machine
from veilsum.roles.config.federation_config import FederationConfig

ROUNDS = 4
PERTURBED = {"task": "digits", "parties": 3}


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize(
    ("settings", "faults"),
    [
        ({"scheme": "plain"}, {}),
        ({"scheme": "mpc"}, {}),
        ({"scheme": "ampc"}, {}),
        ({"scheme": "ampc", "parties": 5}, {"drop": "1@upload"}),
        ({"scheme": "masked"}, {}),
        ({"scheme": "masked", "recovery": "none"}, {}),
        ({"scheme": "masked", "threat": "semi-honest"}, {}),
        ({"scheme": "masked", "parties": 5}, {"drop": "1@upload"}),
        ({"scheme": "perturbed", **PERTURBED}, {}),
        ({"scheme": "bilateral", **PERTURBED}, {}),
    ],
    ids=lambda value: " ".join(str(one) for one in value.values()) or "no faults",
)
def test_an_ended_attempt_leaves_nothing_for_the_garbage_collector(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], faults: dict[str, str]
) -> None:
    attempts: list[tuple[int, weakref.ref[AttemptMachine]]] = []
    left: list[set[str]] = []

    def noted(scheme: Scheme, machine: object) -> AttemptMachine:
        made = require_machine(scheme, machine)
        last = made.stamp.round - 1
        before = [one() for number, one in attempts if number < last]
        left.append({type(one).__name__ for one in before if one is not None and one.outcome is not None})
        attempts.append((made.stamp.round, weakref.ref(made)))
        return made

    for driver in (participant, server):
        monkeypatch.setattr(driver, "require_machine", noted)
    values = {"parties": 4, "rounds": ROUNDS, "task": "vectors:40", "seed": 7, **settings}
    result = simulate(FederationConfig.from_options(values), **faults)
    assert len(result.rounds) == ROUNDS
    assert len({number for number, _ in attempts}) == ROUNDS
    assert not set().union(*left)
