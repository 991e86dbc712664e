"""The built-in networks: features and a linear head, traceable, and refused by name where they do not fit."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.support.refusals import refusal
from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.learning.models import Network, build_model
from veilsum.roles.learning.training.vectorize import to_vector

MLPS = ["mlp1", "mlp3", "mlp5:512", "mlp7"]
SMALL = ["resnet20", "resnet32", "resnet56", "densenet", "dlnet", "dlnet-tanh", "dlnet-relu"]
LARGE = ["lenet5", "alexnet", "vgg16", "vgg16-gn"]
SHAPES = [(name, (1, 8, 8)) for name in MLPS + SMALL] + [(name, (3, 32, 32)) for name in LARGE]


@pytest.mark.parametrize(("name", "shape"), SHAPES)
def test_a_network_is_features_and_a_linear_head_and_traces_to_the_same_function(
    name: str, shape: tuple[int, ...]
) -> None:
    network = build_model(name, shape, 10, seed=1).eval()
    inputs = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        outputs = network(inputs)
        assert outputs.shape == (2, 10)
        assert torch.equal(network.head(network.features(inputs)), outputs)
        assert torch.equal(torch.fx.symbolic_trace(network)(inputs), outputs)


@pytest.mark.parametrize(("name", "shape"), SHAPES)
def test_no_network_computes_in_place_or_pools_adaptively(name: str, shape: tuple[int, ...]) -> None:
    for layer in build_model(name, shape, 10).modules():
        assert not getattr(layer, "inplace", False)
        assert not isinstance(layer, nn.AdaptiveAvgPool2d | nn.AdaptiveMaxPool2d)


@pytest.mark.parametrize("name", ["mlp3", "lenet5", "resnet20", "dlnet"])
def test_the_same_seed_gives_the_same_bytes_and_leaves_torchs_generator_alone(name: str) -> None:
    state = torch.get_rng_state()
    first, second, other = (to_vector(build_model(name, (1, 28, 28), 10, seed)) for seed in (5, 5, 6))
    assert first.tobytes() == second.tobytes() != other.tobytes()
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("name", "shape", "parameters"),
    [
        ("mlp2:32", (64,), 64 * 32 + 32 + 32 * 10 + 10),
        ("mlp3", (64,), 2 * (64 * 64 + 64) + 64 * 10 + 10),
        ("lenet5", (1, 28, 28), 61706),
        ("lenet5", (3, 32, 32), 62006),
        ("resnet20", (3, 32, 32), 269722 + (16 * 32 + 64) + (32 * 64 + 128)),
        ("dlnet", (3, 32, 32), 12 * 3 * 25 + 12 + 3 * (12 * 12 * 25 + 12) + 768 * 10 + 10),
    ],
)
def test_networks_have_the_published_number_of_parameters(
    name: str, shape: tuple[int, ...], parameters: int
) -> None:
    assert sum(p.numel() for p in build_model(name, shape, 10).parameters()) == parameters


def test_dlnet_starts_uniform_between_minus_and_plus_three_tenths() -> None:
    weights = to_vector(build_model("dlnet", (1, 8, 8), 10, seed=1))
    assert abs(weights).max() <= 0.3
    assert abs(weights).max() > 0.29


def test_spn_vgg_has_the_features_its_table_gets_wrong() -> None:
    network = build_model("vgg16-gn", (3, 32, 32), 10)
    widths = [layer.in_features for layer in network.modules() if isinstance(layer, nn.Linear)]
    assert widths == [8192, 256]
    assert sum(isinstance(layer, nn.GroupNorm) for layer in network.modules()) == 13


@pytest.mark.parametrize("name", ["", "mlp", "mlp0", "mlp3:0", "mlp3:", "LeNet5", "resnet18", "lenet5:2"])
def test_an_unknown_model_is_refused_with_the_allowed_names(name: str) -> None:
    with refusal(LocalProtocolError, "unknown", "mlpLAYERS", "lenet5", "alexnet", "vgg16"):
        build_model(name, (1, 8, 8), 10)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("lenet5", (64,), r"\(channels, height, width\)"),
        ("lenet5", (1, 8, 8), "12 x 12"),
        ("vgg16", (1, 28, 28), "32 x 32"),
        ("resnet20", (1, 30, 30), "multiples of 4"),
        ("alexnet", (1, 28, 28), "multiples of 8"),
    ],
)
def test_an_input_that_does_not_fit_is_refused_by_the_models_name(
    name: str, shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(LocalProtocolError, match=message):
        build_model(name, shape, 10)


def test_a_model_needs_an_output() -> None:
    with refusal(LocalProtocolError, "output", 0):
        build_model("mlp3", (4,), 0)


def test_networks_share_one_form() -> None:
    assert isinstance(build_model("mlp3", (4,), 2), Network)
