"""What the audit must show on digits at smoke scale; minutes of work, so under the long mark."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from veilsum.roles.cli import main as cli
from veilsum.roles.learning.training.determinism import one_thread
from veilsum.simulations.audit.experiments import rows_of
from veilsum.simulations.audit.report.verdicts import warnings
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.rows.row import Row
from veilsum.simulations.audit.scales import find_scale
from veilsum.simulations.audit.steps import Steps

pytestmark = pytest.mark.long
SMOKE = find_scale("smoke")
SEEDS, SPN = (7, 8, 9), "spn:alpha2=0.1"


def rows(scheme: str, adversary: str, attack: str, defence: str = "") -> list[Row]:
    return made(Request(scheme, adversary, attack, SMOKE, defence=defence))


def made(request: Request) -> list[Row]:
    """With one thread, as the audit makes them: more add in another order, and crowd a busy machine."""
    with one_thread():
        return list(rows_of(request, Steps()))


def attacked(found: list[Row], target: str = "") -> Row:
    return next(row for row in found if row.row == "attack" and row.target.startswith(target))


def median_ssim(attack: str, defence: str = "") -> float:
    """Of the attack's row under `plain` over the seeds; one seed alone may be off by the rounding of a machine."""
    found = []
    for seed in SEEDS:
        request = Request("plain", "server", attack, SMOKE, seed=seed, defence=defence, references=False)
        found.append(attacked(made(request)).ssim or 0.0)
    return statistics.median(found)


def test_plain_hides_nothing_from_the_server() -> None:
    found = rows("plain", "server", "idlg")
    assert (attacked(found).ssim or 0) >= 0.95
    assert next(row.ssim for row in found if row.row == "null") < 0.3  # type: ignore[operator]


def test_ampc_hides_from_the_server() -> None:
    found = rows("ampc", "server", "idlg")
    assert max(row.ssim or 0 for row in found if row.row == "attack") <= 0.2
    assert next(row.ssim for row in found if row.row == "oracle") >= 0.95  # type: ignore[operator]


def test_masked_hides_an_upload_and_not_the_sum_of_four_single_images() -> None:
    found = rows("masked", "server", "idlg")
    assert (attacked(found, "one upload").ssim or 0) <= 0.3
    assert (attacked(found, "aggregate").ssim or 0) >= 0.9
    assert any("Aggregation of few is not privacy" in text for text in warnings(found))


def test_ampc_gives_the_global_model_to_the_server_and_one_peer() -> None:
    assert attacked(rows("ampc", "coalition", "ampc-coalition")).extra["model_distance"] == 0


@pytest.mark.parametrize("naive", ["dlg", "idlg"])
def test_spn_leaves_naive_attacks_half_of_what_they_get_undefended(naive: str) -> None:
    assert median_ssim(naive, SPN) <= 0.5 * median_ssim(naive)


def test_spn_falls_to_an_attacker_who_treats_the_private_head_as_unknown() -> None:
    assert median_ssim("spn-adaptive", SPN) >= 0.9


def test_noise_that_goes_to_zero_reproduces_the_undefended_row() -> None:
    found = rows("plain", "server", "idlg", "dp:sigma=1e-9")
    undefended = next(row for row in found if row.row == "undefended")
    assert attacked(found).ssim == pytest.approx(undefended.ssim, abs=0.01)


def test_generators_find_more_than_a_prior_alone() -> None:
    found = rows("plain", "server", "generative")
    null = next(row for row in found if row.row == "null")
    assert (attacked(found).ssim or 0) > (null.ssim or 0)


def test_a_model_can_be_inverted_to_its_classes() -> None:
    found = rows("plain", "server", "gmi")
    null = next(row for row in found if row.row == "null")
    assert (attacked(found).success_rate or 0) > (null.success_rate or 0)


def test_ppc_walks_every_defence(tmp_path: Path) -> None:
    target = tmp_path / "ppc.json"
    assert cli.main(["audit", "ppc", "--defence", "dp,spn", "--json", str(target)]) == 0
    figures = json.loads(target.read_text())
    assert len(figures["points"]) == 6
    by_sigma = {one["parameter"]: one for one in figures["points"] if one["defence"] == "dp"}
    assert by_sigma[1e-4]["distances"]["adaptive"]["rmse"] < 0.1
    assert by_sigma[0.5]["distances"]["adaptive"]["rmse"] > 0.8
