"""The matrix of the threat model: what the audit measures is what the page says, cell by cell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from veilsum.roles.config.schemes import load_scheme
from veilsum.simulations.audit.experiments import rows_of
from veilsum.simulations.audit.matrix import Matrix, condensed
from veilsum.simulations.audit.report.markdown import MATRIX, table_in
from veilsum.simulations.audit.report.verdicts import judge
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.rows.asides import ModelsJob
from veilsum.simulations.audit.rows.row import Row
from veilsum.simulations.audit.runner import run_requests
from veilsum.simulations.audit.scales import find_scale
from veilsum.simulations.audit.steps import Steps
from veilsum.simulations.audit.sweeps.everything import ALL_SCHEMES, server_requests

SMOKE = find_scale("smoke")
CHAINED = ("masked", "mpc", "ampc")


def rows(scheme: str, attack: str) -> list[Row]:
    return list(rows_of(Request(scheme, "server", attack, SMOKE), Steps()))


def of_kind(found: list[Row], kind: str) -> Row:
    return next(row for row in found if row.row == kind)


def measured() -> Matrix:
    requests = list(server_requests(SMOKE, 7, "digits", None))
    asked = [
        ModelsJob(replace(requests[0], attack="idlg", scheme=scheme, rounds=2)) for scheme in ALL_SCHEMES
    ]
    outcome = run_requests(requests, shared=True, also=asked)
    return condensed(ALL_SCHEMES, outcome.others, outcome.rows)


def test_the_page_of_the_threat_model_has_the_measured_matrix(repository: Path) -> None:
    found = measured()
    assert table_in(repository / "specs" / "threat-model.md", MATRIX) == [
        list(found.columns),
        *map(list, found.lines),
    ]


@pytest.mark.parametrize("attack", ["imprint", "trap-weights"])
def test_a_crafted_model_gives_samples_back_from_single_updates_and_from_unverified_sums(attack: str) -> None:
    found = rows("plain", attack)
    for kind in ("attack", "oracle"):
        assert (of_kind(found, kind).success_rate or 0) > 0.5
    assert of_kind(found, "oracle").target.startswith("aggregate of 4 parties")
    assert (of_kind(found, "null").ssim or 0) < 0.5


@pytest.mark.parametrize("attack", ["imprint", "trap-weights"])
@pytest.mark.parametrize("scheme", CHAINED)
def test_no_update_is_given_at_a_crafted_model_where_parties_hold_the_chain(scheme: str, attack: str) -> None:
    row = of_kind(rows(scheme, attack), "attack")
    expected = "models" if load_scheme(scheme).server_holds_model else "tagged"
    assert row.extra["updates_given"] == 0
    assert expected in row.extra["refused"]
    assert judge(row, [row])[0] == "holds"


@pytest.mark.parametrize("scheme", CHAINED)
def test_a_second_sum_at_one_model_is_refused_where_parties_hold_the_chain(scheme: str) -> None:
    found = rows(scheme, "sums-at-one-model")
    row = of_kind(found, "attack")
    assert row.extra["updates_given"] == 0
    assert "seen before" in row.extra["refused"]
    assert of_kind(found, "undefended").extra["update_error"] < 1e-6


def test_over_two_rounds_the_difference_is_near_an_update_and_its_count_exact_but_not_for_the_server_of_ampc() -> (
    None
):
    near = of_kind(rows("masked", "sums-over-rounds"), "attack").extra
    assert 0.01 < near["update_error"] < 1
    assert near["samples_found"] == pytest.approx(1)
    assert of_kind(rows("ampc", "sums-over-rounds"), "attack").extra["update_error"] > 1
