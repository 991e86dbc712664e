"""The benchmark of perturbation reports what it promises; how fast it is, is not a test's business."""

from __future__ import annotations

import pytest

from veilsum.simulations.benchmarks.perturbed import rows, run


@pytest.mark.parametrize(
    ("loss", "groups", "kind", "terms"),
    [
        ("mse", 1, "scale+offset", 3),
        ("mse", 4, "scale+offset", 6),
        ("ce", 2, "scale+offset", 7),
        ("ce", 1, "scale", 1),
    ],
)
def test_ratios_phases_and_upload_of_one_setting(loss, groups: int, kind, terms: int) -> None:
    """The upload is the number of terms times the model, minus what the head saves."""
    figures = run("mlp3", 4, loss, groups, kind, input_shape=(1, 8, 8), turns=1)
    assert figures["parameters"] == 64 * 64 + 64 + 64 * 64 + 64 + 64 * 10 + 10
    assert terms - 1 < figures["upload_over_plain"] < terms + 0.2
    assert figures["client_over_plain"] > 0
    assert figures["server_over_plain"] > 0
    assert figures["condition"] >= 1.0 - 1e-9
    assert set(figures["phases_s"]) == {"plain_client", "plain_server", "client", "server"}
    for phases in figures["phases_s"].values():
        assert {"perturbation", "forward", "backward", "update"} <= set(phases)
    assert (figures["phases_s"]["server"]["exchange"] > 0) == (loss == "ce" and kind == "scale+offset")


def test_convolutions_are_measured_with_their_moments() -> None:
    figures = run("resnet20", 2, "mse", 1, "scale", input_shape=(3, 8, 8), turns=1)
    assert 1.0 < figures["upload_over_plain"] < 1.02


@pytest.mark.parametrize(
    ("changes", "client", "server"),
    [
        ({}, 2.35, 5.0),
        ({"loss": "ce"}, None, 5.0),
        ({"loss": "ce", "model": "mlp5:512"}, 2.8, 5.0),
        ({"groups": 3}, None, 7.0),
        ({"groups": 3, "loss": "ce"}, None, None),
        ({"groups": 3, "noise": "scale"}, 1.1, 7.0),
    ],
)
def test_limits_are_shown_where_they_are_set(changes, client: float | None, server: float | None) -> None:
    figures = {"model": "resnet20", "loss": "mse", "groups": 1, "noise": "scale+offset", **changes}
    names = ("client_over_plain", "client_over_plain_same_layout", "server_over_plain", "upload_over_plain")
    shown = {one.name: one.at_most for one in rows(figures | dict.fromkeys(names, 1.0))}
    assert shown == dict(zip(names, (client, None, server, None), strict=True))


def test_where_layouts_are_the_same_there_is_one_plain_client_to_compare_with() -> None:
    """Two measurements of the same thing would differ by chance and suggest a reason."""
    figures = run("mlp3", 4, "mse", 1, "scale+offset", input_shape=(1, 8, 8), turns=1)
    assert figures["client_over_plain_same_layout"] == figures["client_over_plain"]
    figures = run("resnet20", 2, "mse", 1, "scale+offset", input_shape=(3, 8, 8), turns=1)
    assert figures["client_over_plain_same_layout"] != figures["client_over_plain"]
