"""A peer that was away for the last rounds is given the final model by the others, who start once more for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.roles.process.test_chain_processes import company_of
from tests.support.brokers.broker import needs_mosquitto
from tests.support.refusals import require_mentions
from veilsum.roles.process.held_model import held_model

pytestmark = [needs_mosquitto, pytest.mark.long]

ROUNDS = 5
SETTINGS = {"rounds": ROUNDS, "seed": 11, "patience_s": 25.0}


@pytest.mark.parametrize("scheme", ["ampc", "mpc", "masked"])
def test_a_party_that_missed_the_last_rounds_is_given_the_final_model_with_resume(
    tmp_path: Path, scheme: str
) -> None:
    with company_of(tmp_path, scheme, 4, **SETTINGS) as company:
        roles = company.start_all()
        roles["server"].wait_for("round_committed", round=2)
        roles.pop("p4").kill()
        for role in roles.values():
            assert role.end() == 0, role.said()
        final, rounds = held_model(company.loaded, "p1")
        assert rounds == ROUNDS
        assert held_model(company.loaded, "p4")[1] < ROUNDS
        again = company.start_all("--resume")
        for role in again.values():
            assert role.end() == 0, role.said()
        given, rounds = held_model(company.loaded, "p4")
        assert rounds == ROUNDS
        assert given.tobytes() == final.tobytes()


def test_a_peer_that_comes_back_to_a_run_that_is_over_says_what_is_needed_for_the_final_model(
    tmp_path: Path,
) -> None:
    with company_of(tmp_path, "ampc", 4, **SETTINGS) as company:
        roles = company.start_all()
        roles["server"].wait_for("round_committed", round=2)
        roles.pop("p4").kill()
        for role in roles.values():
            assert role.end() == 0, role.said()
        alone = company.start("p4", "--resume")
        assert alone.end() == 1
        require_mentions(alone.told("run_failed")[-1]["detail"], "server", "--resume")
