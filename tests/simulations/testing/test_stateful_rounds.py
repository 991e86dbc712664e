"""Whatever is delivered, lost, repeated, crashed, restarted, late or forged: the invariants hold and runs end.

One stateful test, for every scheme of the package and for one from outside. The default run is short; the
long one plays many more and longer games. A failing game is printed as a program and kept by hypothesis.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.examples import ballot
from veilsum.protocol.agreed.parameters import Recovery, Schedule, ShareMode
from veilsum.protocol.agreed.threat import Threat
from veilsum.simulations.testing import rounds_under_faults

GAMES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("plain", {"tolerated_crashes": 1}),
    "plain, round-robin": ("plain", {"tolerated_crashes": 1, "schedule": Schedule.ROUND_ROBIN}),
    "masked": ("masked", {"tolerated_crashes": 1}),
    "masked, semi-honest": ("masked", {"tolerated_crashes": 1, "threat": Threat.SEMI_HONEST}),
    "masked, 32 bits": ("masked", {"tolerated_crashes": 1, "bits": 32}),
    "masked, no recovery": ("masked", {"recovery": Recovery.NONE}),
    "mpc": ("mpc", {"tolerated_crashes": 1}),
    "ampc": ("ampc", {"tolerated_crashes": 1}),
    "ampc, ring": ("ampc", {"tolerated_crashes": 0, "graph": "ring"}),
    "ampc, tensors": ("ampc", {"tolerated_crashes": 1, "share_mode": ShareMode.TENSOR}),
    "ampc, no recovery": ("ampc", {"recovery": Recovery.NONE}),
    "perturbed": ("perturbed", {"tolerated_crashes": 1, "options": {"asks": "no"}}),
    "perturbed, with questions": ("perturbed", {"tolerated_crashes": 1}),
    "bilateral": ("bilateral", {"tolerated_crashes": 1, "options": {"asks": "no"}}),
    "bilateral, with questions": ("bilateral", {"tolerated_crashes": 1}),
    "third party": (ballot.Ballot.name, {}),
}

SHORT = settings(
    max_examples=10, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
LONG = settings(SHORT, max_examples=500, stateful_step_count=50)


@pytest.mark.parametrize("game", GAMES)
def test_the_invariants_hold_and_every_run_ends(game: str) -> None:
    scheme, how = GAMES[game]
    run_state_machine_as_test(rounds_under_faults(scheme, **how), settings=SHORT)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("game", GAMES)
def test_the_invariants_hold_in_many_more_games(game: str) -> None:
    scheme, how = GAMES[game]
    run_state_machine_as_test(rounds_under_faults(scheme, **how), settings=LONG)
