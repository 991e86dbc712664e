"""The benchmark of perturbation reports what it promises; how fast it is, is not a test's business."""

from __future__ import annotations

import pytest

from veilsum.simulations.benchmarks.perturbed import run


@pytest.mark.parametrize(
    ("loss", "groups", "noise", "terms"),
    [
        ("mse", 1, "scale+offset", 3),
        ("mse", 4, "scale+offset", 6),
        ("ce", 2, "scale+offset", 7),
        ("ce", 1, "scale", 1),
    ],
)
def test_ratios_phases_and_upload_of_one_setting(loss, groups: int, noise, terms: int) -> None:
    """The upload is the number of terms times the model, minus what the head saves."""
    figures = run("mlp3", 4, loss, groups, noise, input_shape=(1, 8, 8), turns=1)
    assert figures["parameters"] == 64 * 64 + 64 + 64 * 64 + 64 + 64 * 10 + 10
    assert terms - 1 < figures["upload_over_plain"] < terms + 0.2
    assert figures["client_over_plain"] > 0
    assert figures["server_over_plain"] > 0
    assert figures["condition"] >= 1.0 - 1e-9
    assert set(figures["phases_s"]) == {"plain_client", "plain_server", "client", "server"}
    for phases in figures["phases_s"].values():
        assert {"perturbation", "forward", "backward", "update"} <= set(phases)
    assert (figures["phases_s"]["server"]["exchange"] > 0) == (loss == "ce" and noise == "scale+offset")


def test_convolutions_are_measured_with_their_moments() -> None:
    figures = run("resnet20", 2, "mse", 1, "scale", input_shape=(3, 8, 8), turns=1)
    assert 1.0 < figures["upload_over_plain"] < 1.02
