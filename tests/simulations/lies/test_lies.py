"""Every named lie in every scheme it makes sense in: what honest parties notice, whom they name, what they commit."""

from __future__ import annotations

from dataclasses import replace

import pytest

import veilsum
from tests.support.refusals import refusal
from veilsum.protocol.agreed.parameters import Recovery
from veilsum.protocol.agreed.threat import Threat
from veilsum.protocol.errors import ParameterError
from veilsum.protocol.identifiers import SERVER
from veilsum.protocol.schemes.registry import scheme_names
from veilsum.simulations.lies.registry import LIES, find_lie, schemes_of
from veilsum.simulations.lies.report import LieReport
from veilsum.simulations.testing import check_invariants, tell_lie

LIAR = "p1"
PARTIES = tuple(f"p{number}" for number in range(1, 9))
ROUNDS = 3
ALL_ROUNDS = tuple(range(ROUNDS))

REASONS = {
    "server:shift": {"SUM_FALSIFIED"},
    "server:still-model": {"REPLAY"},
    "server:other-model": {"WRONG_MODEL", "SUM_FALSIFIED"},
    "server:crafted-model": {"WRONG_MODEL"},
    "server:split-survivors": {"SURVIVOR_LIST"},
    "server:two-lists": {"DIFFERENCING"},
    "client:count": {"CHECK_FAILED"},
    "client:range": {"CHECK_FAILED"},
    "client:weight": {"CHECK_FAILED"},
    "client:tag": {"SUM_FALSIFIED"},
    "client:share": {"BAD_SHARE"},
    "peer:rounds-done": {"BAD_CERTIFICATE"},
    "server+client:shift": set(),
}
EVERY_LIE = [(name, scheme) for name, lie in LIES.items() for scheme in schemes_of(lie)]
UNNOTICED = "server+client:shift"


def config_of(scheme: str, rounds: int = ROUNDS) -> veilsum.FederationConfig:
    return veilsum.FederationConfig(scheme=scheme, parties=PARTIES, task="vectors:20", rounds=rounds, seed=3)


def lie_in_simulation(name: str, scheme: str) -> LieReport:
    report = veilsum.simulate(config_of(scheme), lie=name).lie
    assert report is not None
    return report


def reasons_of(report: LieReport) -> set[str]:
    return {one.reason.name for one in report.noticed}


def test_every_lie_has_a_row_here_and_a_scheme() -> None:
    assert set(REASONS) == set(LIES)
    assert {name for name, _ in EVERY_LIE} == set(LIES)


@pytest.mark.parametrize(("name", "scheme"), EVERY_LIE)
def test_honest_parties_notice_the_lie_and_commit_nothing_false(name: str, scheme: str) -> None:
    """Except for the one lie that is the printed limit: that one falsifies every commit, and nobody notices."""
    report = lie_in_simulation(name, scheme)
    assert reasons_of(report) <= REASONS[name]
    assert bool(report.noticed) == (name != UNNOTICED)
    honest = [party for party in PARTIES if party not in report.liars]
    assert report.told
    assert report.falsified_commits == (ROUNDS * len(honest) if name == UNNOTICED else 0)
    assert not {one.party for one in report.noticed} & set(report.liars)
    assert set(report.named) <= set(report.liars)


@pytest.mark.parametrize(("name", "scheme"), EVERY_LIE)
def test_a_lie_that_is_told_at_a_table_is_noticed_as_in_a_simulation(name: str, scheme: str) -> None:
    told = tell_lie(name, scheme, parties=PARTIES, rounds=ROUNDS)
    report = told.run()
    assert reasons_of(report) == reasons_of(lie_in_simulation(name, scheme))
    assert told.table.liars >= set(report.liars)
    if name == UNNOTICED:
        assert report.falsified_commits
    else:
        assert not report.falsified_commits
        check_invariants(told.table)


@pytest.mark.parametrize("scheme", schemes_of(LIES["client:share"]))
def test_a_wrong_share_names_its_author_and_costs_no_round(scheme: str) -> None:
    report = lie_in_simulation("client:share", scheme)
    assert report.named == (LIAR,)
    assert report.committed == ALL_ROUNDS
    assert report.abort_reason is None


@pytest.mark.parametrize("name", ["client:count", "client:range", "client:weight"])
@pytest.mark.parametrize("scheme", schemes_of(LIES["client:count"]))
def test_a_spoiled_sum_ends_the_run_typed_and_names_nobody(name: str, scheme: str) -> None:
    report = lie_in_simulation(name, scheme)
    assert report.abort_reason is not None
    assert report.abort_reason.name == "CHECK_FAILED"
    assert report.committed == report.named == ()


@pytest.mark.parametrize("scheme", schemes_of(LIES["client:range"]))
def test_a_number_beyond_the_clip_is_told_and_seen_in_short_words_too(scheme: str) -> None:
    report = veilsum.simulate(replace(config_of(scheme), bits=32), lie="client:range").lie
    assert report is not None
    assert {one.reason.name for one in report.noticed} == {"CHECK_FAILED"}
    assert report.committed == ()


@pytest.mark.parametrize("scheme", schemes_of(LIES["peer:rounds-done"]))
def test_a_peer_that_claims_rounds_is_left_out_and_the_others_go_on(scheme: str) -> None:
    report = lie_in_simulation("peer:rounds-done", scheme)
    assert report.named == (LIAR,)
    assert report.committed == ALL_ROUNDS
    assert {one.party for one in report.noticed} == {SERVER}


@pytest.mark.parametrize("scheme", schemes_of(LIES["server:still-model"]))
def test_a_model_that_stands_still_gets_no_second_sum(scheme: str) -> None:
    report = lie_in_simulation("server:still-model", scheme)
    assert report.committed == (0,)
    assert report.named == (SERVER,)


def test_the_state_that_was_crafted_is_not_taken_over_and_the_others_go_on() -> None:
    report = lie_in_simulation("server:crafted-model", "masked")
    assert {one.party for one in report.noticed} == {PARTIES[-1]}
    assert report.committed == ALL_ROUNDS


@pytest.mark.parametrize("name", LIES)
def test_a_lie_that_makes_no_sense_in_a_scheme_is_refused_before_anything_runs(name: str) -> None:
    for scheme in set(scheme_names()) - set(schemes_of(LIES[name])):
        if scheme in ("plain", "masked"):
            with refusal(ParameterError, name):
                veilsum.simulate(config_of(scheme), lie=name)
            with refusal(ParameterError, name):
                tell_lie(name, scheme)


def test_a_lie_about_earlier_rounds_takes_more_than_one() -> None:
    with refusal(ParameterError, "server:still-model", 2):
        veilsum.simulate(config_of("masked", rounds=1), lie="server:still-model")


@pytest.mark.parametrize("name", ["server:two-lists", "client:share"])
def test_a_lie_about_lists_or_shares_takes_recovery(name: str) -> None:
    with refusal(ParameterError, name, "recovery"):
        tell_lie(name, "masked", recovery=Recovery.NONE)


@pytest.mark.parametrize("name", [name for name in LIES if name.startswith("server")])
def test_a_server_that_is_taken_not_to_lie_is_told_none(name: str) -> None:
    with refusal(ParameterError, name, "semi-honest"):
        tell_lie(name, schemes_of(LIES[name])[0], threat=Threat.SEMI_HONEST)


@pytest.mark.parametrize(
    ("asked", "near"), [("server:shfit", "server:shift"), ("client:counts", "client:count")]
)
def test_an_unknown_lie_is_refused_with_the_nearest_names(asked: str, near: str) -> None:
    with refusal(ParameterError, near):
        find_lie(asked)


def test_a_lie_that_was_never_told_is_not_taken_for_one_that_nobody_noticed() -> None:
    report = lie_in_simulation("server:shift", "masked")
    assert "never" not in report.describe()
    assert "never" in replace(report, told=0).describe()
