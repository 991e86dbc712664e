"""Tracing accepts what can carry factors and refuses the rest by name."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.support.refusals import refusal, require_mentions
from veilsum.protocol.perturbation.algebra.selftest import TOLERANCE, run_self_test
from veilsum.protocol.perturbation.errors import UnsupportedModel
from veilsum.protocol.perturbation.tracing.factors import FactorSpace
from veilsum.protocol.perturbation.tracing.trace import trace
from veilsum.roles.learning.models import build_model


class Body(nn.Module):
    """A small network around one operation."""

    def __init__(self, middle, **layers: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 6)
        self.head = nn.Linear(6, 3)
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.middle = middle

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.middle(self, torch.relu(self.inner(x))))


def complaint(model: nn.Module, shape: tuple[int, ...] = (4,)) -> UnsupportedModel:
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(UnsupportedModel) as caught:
        trace(model, torch.zeros(1, *shape))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    return caught.value


@pytest.mark.parametrize(
    "layer",
    [
        *(nn.Sigmoid(), nn.Tanh(), nn.GELU(), nn.SiLU(), nn.ReLU6(), nn.Softplus(), nn.ELU(), nn.Hardtanh()),
        *(nn.LayerNorm(6), nn.Softmax(dim=1), nn.AlphaDropout(), nn.SELU()),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_layers_that_are_not_homogeneous_are_refused_by_name(layer: nn.Module) -> None:
    error = complaint(Body(lambda self, x: self.layer(x), layer=layer))
    assert error.node == "layer"
    assert type(layer).__name__ in error.reason


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        (lambda self, x: torch.sigmoid(x), "sigmoid homogeneous"),
        (lambda self, x: x * torch.sigmoid(x), "sigmoid homogeneous"),
        (lambda self, x: x + 1.0, "adding constant"),
        (lambda self, x: 1.0 + x, "adding constant"),
        (lambda self, x: x - 0.5, "adding constant"),
        (lambda self, x: x / (x + x), "dividing tensor"),
        (lambda self, x: torch.div(x, 2, rounding_mode="floor"), "division rounds"),
        (lambda self, x: torch.add(x, other=1.0), "adding constant"),
        (lambda self, x: x.chunk(2, 1)[0], "chunk several slices"),
        (lambda self, x: self.extra(x[:, None])[0][:, 0], "one tensor"),
        (lambda self, x: x.clamp(0, 1), "clamp homogeneous"),
        (lambda self, x: x - x.mean(0), "batch dimension"),
        (lambda self, x: x * x.sum(), "all dimensions"),
        (lambda self, x: x.roll(1), "roll list"),
        (lambda self, x: torch.cat((x, x), 0)[:2], "across samples"),
        (lambda self, x: nn.functional.pad(x, (0, 0), value=1.0), "zeros"),
        (lambda self, x: torch.relu(self.extra(self.extra(x))), "shared"),
        (lambda self, x: x if x.sum() > 0 else -x, "control flow"),
        (lambda self, x: x * self.extra, "free parameters"),
    ],
    ids=lambda value: value.replace(" ", "_") if isinstance(value, str) else "",
)
def test_operations_in_forward_are_refused_with_the_reason(forward, words: str) -> None:
    extra = {
        "shared": nn.Linear(6, 6),
        "free parameters": nn.Parameter(torch.ones(6)),
        "one tensor": nn.MaxPool1d(1, return_indices=True),
    }
    layers = {"extra": extra[words]} if words in extra else {}
    require_mentions(str(complaint(Body(forward, **layers))), *words.split())


def test_models_that_do_not_end_in_a_linear_layer_are_refused() -> None:
    error = complaint(nn.Sequential(nn.Linear(4, 3), nn.Softmax(dim=1)))
    assert error.node == "1"
    assert "Softmax" in error.reason


def test_tied_frozen_and_unused_parameters_are_refused_by_name() -> None:
    tied = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    tied[2].weight = tied[0].weight
    require_mentions(complaint(tied).reason, "shares", "0.weight")
    frozen = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    frozen[0].bias.requires_grad_(False)
    assert complaint(frozen).node == "0.bias"
    assert complaint(Body(lambda self, x: x, spare=nn.Linear(2, 2))).node == "spare.weight"


def test_inputs_that_cannot_carry_factors_are_refused() -> None:
    with pytest.raises(UnsupportedModel, match="floating-point"):
        trace(nn.Sequential(nn.Linear(4, 2)), torch.zeros(1, 4, dtype=torch.int64))
    with refusal(UnsupportedModel, "run", "example", node="0"):
        trace(nn.Sequential(nn.Linear(4, 2)), torch.zeros(1, 5))


def test_a_unit_barrier_is_exact_and_warned_about() -> None:
    """Behind a barrier everything is in clear, which the plan says, and recovery still holds."""
    model = Body(lambda self, x: self.norm(torch.sigmoid(x)), norm=nn.LayerNorm(6))
    plan = trace(model, torch.zeros(1, 4), barrier="unit")
    assert [text.split(":")[0] for text in plan.warnings] == ["sigmoid", "norm"]
    assert run_self_test(plan) < TOLERANCE
    assert not any(status.perturbed for status in plan.report())


def test_a_barrier_does_not_excuse_shared_weights() -> None:
    model = Body(lambda self, x: self.square(self.square(x)), square=nn.Linear(6, 6))
    with pytest.raises(UnsupportedModel, match="shared"):
        trace(model, torch.zeros(1, 4), barrier="unit")


def test_the_report_lists_every_parameter_with_its_fate() -> None:
    """A convolution in front of a unit normalisation is sent in clear, and so is the bias of the head."""
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(12, 5),
        nn.PReLU(),
        nn.Linear(5, 2),
    )
    report = {status.name: status for status in trace(model, torch.zeros(1, 1, 4, 4)).report()}
    assert list(report) == [name for name, _ in model.named_parameters()]
    assert {name for name, status in report.items() if not status.perturbed} == {
        *("0.weight", "0.bias", "5.weight", "6.bias")
    }
    assert str(report["0.bias"]) == "0.bias 3: sent in clear"
    assert str(report["4.weight"]) == "4.weight 5x12: perturbed"


def test_the_self_test_catches_a_rule_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Free factors in front of a normalisation look harmless and are refused by the float64 comparison."""
    monkeypatch.setattr(FactorSpace, "equate", lambda *_: None)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 2))
    with refusal(UnsupportedModel, "perturbed", "differs", "true", node="self-test"):
        trace(model, torch.zeros(1, 1, 4, 4))


def test_two_models_have_equal_digests_only_with_equal_parameters() -> None:
    def plan(width: int):
        return trace(nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2)), torch.zeros(1, 4))

    assert plan(5).digest == plan(5).digest != plan(6).digest


def test_only_plain_chains_use_the_hand_written_backward_pass() -> None:
    chain = nn.Sequential(
        nn.Flatten(), nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 2)
    )
    assert trace(chain, torch.zeros(1, 2, 2)).dense_chain == ("1", "3")
    assert trace(nn.Sequential(nn.Linear(4, 2)), torch.zeros(1, 4)).dense_chain == ()
    for other in (
        nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 2)),
        nn.Sequential(nn.Linear(4, 5), nn.LeakyReLU(), nn.Linear(5, 2)),
        nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Dropout(), nn.Linear(5, 2)),
        nn.Sequential(nn.ReLU(), nn.Linear(4, 2)),
    ):
        assert trace(other, torch.zeros(1, 4)).dense_chain is None


def test_a_one_dimensional_convolution_and_sequence_features_are_followed() -> None:
    """Conv1d, pooling, transposition and a linear layer on every position keep factors exact."""

    class Sequence(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv1d(2, 4, 3)
            self.each = nn.Linear(4, 5)
            self.head = nn.Linear(5, 2)

        def forward(self, x: Tensor) -> Tensor:
            x = nn.functional.max_pool1d(torch.relu(self.conv(x)), 2)
            x = torch.relu(self.each(x.transpose(1, 2)))
            return self.head(x.mean(dim=1))

    assert run_self_test(trace(Sequence(), torch.zeros(1, 2, 10))) < TOLERANCE


def test_channels_go_last_only_where_no_view_forbids_it() -> None:
    flat = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 2))

    class Viewed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = nn.Conv2d(1, 3, 3), nn.Linear(12, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.conv(x).view(-1, 12))

    assert trace(flat, torch.zeros(1, 1, 4, 4)).channels_last
    assert not trace(Viewed(), torch.zeros(1, 1, 4, 4)).channels_last
    assert not trace(nn.Sequential(nn.Linear(4, 2)), torch.zeros(1, 4)).channels_last


@pytest.mark.parametrize(
    ("name", "shape", "in_clear"),
    [
        ("mlp3", (1, 8, 8), {"head.bias"}),
        ("lenet5", (1, 28, 28), {"head.bias"}),
        ("resnet20", (3, 32, 32), {"features.0.weight", "head.bias"}),
        ("densenet", (3, 32, 32), None),
        pytest.param("vgg16", (3, 32, 32), None, marks=pytest.mark.long),
        pytest.param("vgg16-gn", (3, 32, 32), None, marks=pytest.mark.long),
        pytest.param("alexnet", (3, 32, 32), None, marks=pytest.mark.long),
        pytest.param("resnet56", (3, 32, 32), {"features.0.weight", "head.bias"}, marks=pytest.mark.long),
        ("dlnet-relu", (3, 32, 32), {"head.bias"}),
    ],
)
def test_the_catalogue_can_be_perturbed(name: str, shape: tuple[int, ...], in_clear: set[str] | None) -> None:
    """Every model of the catalogue whose activations allow it passes its self-test; few parameters are in clear."""
    plan = trace(build_model(name, shape, 10, seed=1), torch.zeros(1, *shape))
    clear = {status.name for status in plan.report() if not status.perturbed}
    assert in_clear is None or clear == in_clear
    assert len(clear) < len(plan.parameters) / 2


@pytest.mark.parametrize("name", ["dlnet", "dlnet-tanh"])
def test_the_catalogues_saturating_models_are_refused(name: str) -> None:
    assert (
        "not positively homogeneous"
        in complaint(build_model(name, (3, 32, 32), 10, seed=1), (3, 32, 32)).reason
    )
