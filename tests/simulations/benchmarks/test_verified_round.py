"""What verification adds to a round is timed in the round, and the functions are as before when it is over."""

from __future__ import annotations

from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.config.values import party_names
from veilsum.simulations.benchmarks.rounds import measure_round
from veilsum.simulations.benchmarks.verification import OWN_STEP, VERIFICATION, AddedTime

ADDED = (*VERIFICATION, *OWN_STEP)


def test_a_measured_round_says_what_verification_adds_and_leaves_its_functions_as_they_were() -> None:
    before = [getattr(owner, name) for owner, name in ADDED]
    config = FederationConfig(scheme="masked", parties=party_names(4), rounds=1, task="vectors:100")
    cost = measure_round(config, 0)
    assert cost.verified_over_unverified > 1
    assert cost.own_step_over_given > 1
    assert cost.figures()["verified_over_unverified"] == cost.verified_over_unverified
    assert cost.figure.met is None
    assert [getattr(owner, name) for owner, name in ADDED] == before


def test_a_scheme_without_tags_adds_nothing() -> None:
    config = FederationConfig(scheme="plain", parties=party_names(4), rounds=1, task="vectors:100")
    assert measure_round(config, 0).verified_over_unverified == 1


def test_time_inside_another_timed_function_counts_for_the_inner_one() -> None:
    added = AddedTime()
    added.timed("own step", added.timed("verification", lambda: sum(range(200_000))))()
    assert added.verified_over_unverified(10.0) > added.own_step_over_given(10.0) >= 1
