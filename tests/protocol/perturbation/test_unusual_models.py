"""Unusual models: each is either recovered to 1e-10 in float64, or refused with its node and a remedy."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce

import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from veilsum.protocol.perturbation.algebra.selftest import run_self_test
from veilsum.protocol.perturbation.errors import UnsupportedModel
from veilsum.protocol.perturbation.tracing.trace import trace

SHAPES = {"vector": (6,), "image": (3, 8, 8), "sequence": (3, 10), "volume": (2, 4, 4, 4)}
OUTPUTS = 4


class Written(nn.Module):
    """A network whose forward function is a test's own."""

    def __init__(self, forward: Callable[..., Tensor], **layers: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self._forward = forward
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x: Tensor) -> Tensor:
        return self._forward(self, x)


class Dense(nn.Module):
    def __init__(self, channels: int, *inside: nn.Module) -> None:
        super().__init__()
        self.branch = nn.Sequential(*inside, nn.Conv2d(channels, 4, 3, padding=1), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.branch(x)], dim=1)


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(Dense(3), nn.Sequential(Dense(7), Dense(11)))
        self.second = Dense(15)

    def forward(self, x: Tensor) -> Tensor:
        joined = self.first(x)
        return torch.cat((joined, self.second(joined)), 1)


def chain(kind: str, width: int, *layers: nn.Module) -> tuple[nn.Module, str]:
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width, OUTPUTS)), kind


def around(operation: Callable[[Tensor], Tensor], width: int = 192) -> tuple[nn.Module, str]:
    """An operation between a convolution and the head."""
    return (
        Written(
            lambda self, x: self.head(operation(functional.relu(self.conv(x)))),
            conv=nn.Conv2d(3, 3, 3, padding=1),
            head=nn.Linear(width, OUTPUTS),
        ),
        "image",
    )


def on_vectors(forward: Callable[..., Tensor], **layers: nn.Module | nn.Parameter) -> tuple[nn.Module, str]:
    own: dict[str, nn.Module | nn.Parameter] = {"a": nn.Linear(6, 6), "head": nn.Linear(6, OUTPUTS)}
    return Written(forward, **own, **layers), "vector"


def added_in_place(self: nn.Module, x: Tensor) -> Tensor:
    hidden = self.a(x).relu()
    other = self.b(hidden)
    other += hidden
    return self.head(other)


CONV = nn.Conv2d
RELU = nn.ReLU()
LEGAL: dict[str, Callable[[], tuple[nn.Module, str]]] = {
    "grouped": lambda: chain("image", 288, CONV(3, 6, 3, padding=1), RELU, CONV(6, 8, 3, groups=2), RELU),
    "depthwise": lambda: chain("image", 432, CONV(3, 6, 3, padding=1), RELU, CONV(6, 12, 3, groups=6), RELU),
    "dilated, strided": lambda: chain("image", 45, CONV(3, 5, 3, stride=2, dilation=2, padding=1), RELU),
    "circular padding": lambda: chain("image", 256, CONV(3, 4, 3, padding=1, padding_mode="circular"), RELU),
    "one slope": lambda: chain("vector", 5, nn.Linear(6, 5), nn.PReLU()),
    "a slope per unit": lambda: chain("vector", 5, nn.Linear(6, 5), nn.PReLU(5)),
    "negative slope": lambda: chain("vector", 5, nn.Linear(6, 5), nn.LeakyReLU(-0.5)),
    "nested dense blocks": lambda: chain("image", 34, Nested(), nn.AvgPool2d(8)),
    "norm before a dense layer": lambda: chain(
        "image",
        12,
        CONV(3, 4, 1),
        Dense(4, nn.BatchNorm2d(4), RELU),
        Dense(8, nn.GroupNorm(2, 8)),
        nn.AvgPool2d(8),
    ),
    "residual around a norm": lambda: on_vectors(
        lambda self, x: self.head(torch.relu(self.a(x) + self.n(self.a2(x)))),
        n=nn.BatchNorm1d(6),
        a2=nn.Linear(6, 6),
    ),
    "norm of an input": lambda: chain("image", 384, nn.BatchNorm2d(3), CONV(3, 6, 3, padding=1), RELU),
    "norm before the head": lambda: chain("vector", 5, nn.Linear(6, 5), nn.BatchNorm1d(5)),
    "norm without statistics": lambda: chain(
        "image", 384, CONV(3, 6, 3, padding=1), nn.BatchNorm2d(6, track_running_stats=False), RELU
    ),
    "instance norm": lambda: chain("image", 320, CONV(3, 5, 3, padding=1), nn.InstanceNorm2d(5), RELU),
    "group norm, not affine": lambda: chain(
        "image", 384, CONV(3, 6, 3, padding=1), nn.GroupNorm(2, 6, affine=False), RELU
    ),
    "dropout of channels": lambda: chain("image", 384, CONV(3, 6, 3, padding=1), RELU, nn.Dropout2d(0.5)),
    "dropout in place": lambda: chain("vector", 5, nn.Linear(6, 5), nn.Dropout(0.5, inplace=True)),
    "padded pooling": lambda: chain("image", 80, CONV(3, 5, 3, padding=1), nn.MaxPool2d(3, 2, 1)),
    "rounded-up pooling": lambda: chain("image", 45, CONV(3, 5, 3), nn.AvgPool2d(3, 2, ceil_mode=True)),
    "adaptive pooling": lambda: chain("image", 20, CONV(3, 5, 3), RELU, nn.AdaptiveAvgPool2d((2, 2))),
    "zero border": lambda: chain("image", 400, CONV(3, 4, 3, padding=1), nn.ZeroPad2d(1)),
    "pixel shuffle": lambda: chain("image", 144, CONV(3, 4, 3), nn.PixelShuffle(2), RELU),
    "channel shuffle": lambda: chain("image", 144, CONV(3, 4, 3), nn.ChannelShuffle(2), RELU),
    "over time": lambda: chain(
        "sequence", 12, nn.Conv1d(3, 5, 3), RELU, nn.MaxPool1d(2), nn.BatchNorm1d(5), nn.Conv1d(5, 4, 2)
    ),
    "volumes": lambda: chain(
        "volume", 4, nn.Conv3d(2, 4, 2), nn.BatchNorm3d(4), RELU, nn.MaxPool3d(2), nn.Dropout3d(0.2)
    ),
    "adaptive pooling of volumes": lambda: chain("volume", 4, nn.Conv3d(2, 4, 2), nn.AdaptiveAvgPool3d(1)),
    "a layer on the last dimension": lambda: chain("image", 120, nn.Linear(8, 5), RELU),
    "no bias at all": lambda: (
        nn.Sequential(nn.Linear(6, 5, bias=False), RELU, nn.Linear(5, OUTPUTS, bias=False)),
        "vector",
    ),
    "nothing but a head": lambda: (nn.Sequential(nn.Linear(6, OUTPUTS)), "vector"),
    "a loop over layers": lambda: on_vectors(
        lambda self, x: self.head(
            reduce(lambda value, layer: torch.relu(layer(value)), self.layers, self.a(x))
        ),
        layers=nn.ModuleList(nn.Linear(6, 6) for _ in range(3)),
    ),
    "a product of branches": lambda: on_vectors(
        lambda self, x: self.head(torch.relu(self.a(x)) * self.b(x)), b=nn.Linear(6, 6)
    ),
    "a square as a product": lambda: on_vectors(lambda self, x: self.head(operator.mul(*[self.a(x)] * 2))),
    "a weighted sum": lambda: on_vectors(
        lambda self, x: self.head(torch.add(torch.relu(self.a(x)), self.b(x), alpha=-2)), b=nn.Linear(6, 6)
    ),
    "a sum in place": lambda: on_vectors(added_in_place, b=nn.Linear(6, 6)),
    "relu in place": lambda: on_vectors(lambda self, x: self.head(functional.relu_(self.a(x)))),
    "leaky relu in place": lambda: on_vectors(
        lambda self, x: self.head(functional.leaky_relu_(self.a(x), 0.2))
    ),
    "minus and magnitude": lambda: on_vectors(lambda self, x: self.head(-self.a(x).abs())),
    **{
        f"flat: {name}": (lambda operation=operation: around(operation))
        for name, operation in {
            "view": lambda x: x.view(x.size(0), -1),
            "reshape of rows": lambda x: x.reshape(-1, 192),
            "counted": lambda x: x.reshape(-1, x.numel() // x.shape[0]),
            "keyword": lambda x: torch.flatten(x, start_dim=1),
            "channels last": lambda x: x.permute(0, 2, 3, 1).reshape(x.shape[0], -1),
            "unflattened": lambda x: x.flatten(1).unflatten(1, (3, 64)).flatten(1),
            "stacked": lambda x: torch.stack([x, x], dim=1).sum(1).flatten(1),
            "mirrored": lambda x: torch.flip(x, (2,)).flatten(1),
            "sliced": lambda x: torch.cat([x[:, 1:], x[:, :1]], dim=1).clone().flatten(1),
            "spread": lambda x: x.mean((2, 3), keepdim=True).expand(-1, -1, 8, 8).flatten(1),
            "repeated": lambda x: x.amax((2, 3)).repeat(1, 64),
            "functional dropout": lambda x: functional.dropout(x, 0.3).flatten(1),
        }.items()
    },
}


class OptionalMask(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, OUTPUTS)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.head(x)


LEGAL["an optional input that is not used"] = lambda: (OptionalMask(), "vector")


@pytest.mark.parametrize("name", LEGAL)
def test_what_can_carry_factors_is_recovered_to_rounding(name: str) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(len(name))
        model, kind = LEGAL[name]()
    plan = trace(model, torch.zeros(1, *SHAPES[kind]))
    assert run_self_test(plan) < 1e-10
    assert plan.warnings == ()


class TwoInputs(OptionalMask):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.head(x * mask)


class NoInput(OptionalMask):
    def forward(self) -> Tensor:
        return self.head(torch.ones(2, 6))


class DerivedLinear(nn.Linear):
    pass


def hooked() -> tuple[nn.Module, str]:
    model, kind = chain("vector", 5, nn.Linear(6, 5), nn.ReLU())
    model[0].register_forward_hook(lambda _module, _inputs, output: output + 1)
    return model, kind


REFUSED: dict[str, tuple[Callable[[], tuple[nn.Module, str]], str, str]] = {
    "transposed": (lambda: chain("image", 324, nn.ConvTranspose2d(3, 4, 2)), "0", "use a convolution"),
    "mask by comparison": (
        lambda: on_vectors(lambda s, x: s.head(s.a(x) * (s.a2(x) > 0)), a2=nn.Linear(6, 6)),
        "gt",
        "use relu",
    ),
    "clamped below": (lambda: on_vectors(lambda s, x: s.head(s.a(x).clamp_min(0))), "clamp_min", "use ReLU"),
    "rms norm": (lambda: chain("vector", 5, nn.Linear(6, 5), nn.RMSNorm(5)), "1", "use GroupNorm"),
    "local response": (
        lambda: chain("image", 144, CONV(3, 4, 3), nn.LocalResponseNorm(2)),
        "1",
        "use GroupNorm",
    ),
    "attention": (
        lambda: (
            Written(
                lambda s, x: s.head(s.mix(x, x, x)[0][:, -1]),
                mix=nn.MultiheadAttention(10, 2),
                head=nn.Linear(10, 4),
            ),
            "sequence",
        ),
        "mix",
        "use convolutions",
    ),
    "recurrent": (
        lambda: (
            Written(lambda s, x: s.head(s.cell(x)[0][:, -1]), cell=nn.LSTM(10, 5), head=nn.Linear(5, 4)),
            "sequence",
        ),
        "cell",
        "use convolutions over time",
    ),
    "statistics of instances": (
        lambda: chain("image", 144, CONV(3, 4, 3), nn.InstanceNorm2d(4, track_running_stats=True)),
        "1",
        "switch them off",
    ),
    "positions of maxima": (lambda: around(lambda x: x.max(2)[0].flatten(1), 24), "max_1", "use amax"),
    "cut gradient": (lambda: around(lambda x: x.detach().flatten(1)), "detach", "leave it out"),
    "flat over samples": (lambda: around(lambda x: x.flatten()), "flatten", "keep dimension 0"),
    "turned samples": (lambda: around(lambda x: x.flip(0).flatten(1)), "flip", "keep dimension 0"),
    "free scale": (
        lambda: on_vectors(lambda s, x: s.head(s.a(x) * s.g), g=nn.Parameter(torch.ones(6))),
        "g",
        "use a layer",
    ),
    "constant mean": (
        lambda: on_vectors(lambda s, x: s.head(s.a(x - torch.ones(6)))),
        "_tensor_constant0",
        "prepare the data",
    ),
    "length": (lambda: on_vectors(lambda s, x: s.head(s.a(x).view(len(x), -1))), "forward", "len()"),
    "assigned entry": (
        lambda: on_vectors(lambda s, x: s.head(operator.setitem(s.a(x), 0, 0))),
        "forward",
        "assignment",
    ),
    "dictionary": (
        lambda: on_vectors(lambda s, x: {"y": s.head(s.a(x))}),
        "output",
        "return the last layer's alone",
    ),
    "two inputs": (lambda: (TwoInputs(), "vector"), "mask", "join several before the model"),
    "no input": (lambda: (NoInput(), "vector"), "forward", "one input"),
    "called twice": (
        lambda: on_vectors(lambda s, x: s.head(torch.relu(s.a(torch.relu(s.a(x)))))),
        "a",
        "make a second one",
    ),
    "bare linear": (lambda: (nn.Linear(6, OUTPUTS), "vector"), "linear", "inside a module"),
    "derived linear": (
        lambda: (nn.Sequential(DerivedLinear(6, OUTPUTS)), "vector"),
        "linear",
        "nn.Linear itself",
    ),
    "sequence of outputs": (lambda: (nn.Sequential(nn.Linear(10, 4)), "sequence"), "0", "flatten or pool"),
    "lazy": (
        lambda: (nn.Sequential(nn.LazyLinear(5), nn.Linear(5, 4)), "vector"),
        "0.weight",
        "run the model once",
    ),
    "empty layer": (
        lambda: (nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 0), nn.Linear(0, 4)), "vector"),
        "1.weight",
        "leave the layer out",
    ),
    "unusable change in place": (
        lambda: on_vectors(lambda s, x: s.head(s.a(x).relu().add_(x))),
        "self-test",
        "changes in place",
    ),
    "hook": (hooked, "self-test", "remove hooks"),
    "parametrised weight": (
        lambda: chain("vector", 5, nn.utils.parametrizations.weight_norm(nn.Linear(6, 5))),
        "0",
        "barrier='unit'",
    ),
}


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("name", REFUSED)
def test_the_rest_is_refused_with_its_node_and_what_to_do(name: str) -> None:
    build, node, remedy = REFUSED[name]
    model, kind = build()
    with pytest.raises(UnsupportedModel) as caught:
        trace(model, torch.zeros(1, *SHAPES[kind]))
    assert caught.value.node == node
    assert remedy in caught.value.reason


@pytest.mark.parametrize(
    "build",
    [
        lambda: chain("vector", 5, nn.Linear(6, 5), nn.GELU()),
        lambda: chain("image", 324, nn.ConvTranspose2d(3, 4, 2)),
        lambda: on_vectors(lambda s, x: s.head(s.a(x) * s.g), g=nn.Parameter(torch.ones(6))),
        lambda: on_vectors(lambda s, x: s.head(s.a(x) * torch.sigmoid(s.b(x))), b=nn.Linear(6, 6)),
        lambda: on_vectors(lambda s, x: s.head(torch.relu(s.a(x)) + 1)),
    ],
    ids=["GELU", "transposed", "free scale", "gate", "constant"],
)
def test_a_unit_barrier_recovers_exactly_and_names_what_is_unperturbed(
    build: Callable[[], tuple[nn.Module, str]],
) -> None:
    model, kind = build()
    plan = trace(model, torch.zeros(1, *SHAPES[kind]), barrier="unit")
    assert run_self_test(plan) < 1e-10
    assert plan.warnings
    assert all("in clear" in text for text in plan.warnings)


def test_a_barrier_does_not_let_errors_of_torch_through() -> None:
    model, kind = around(lambda x: x.float().flatten(1))
    with pytest.raises(UnsupportedModel, match="fixed precisions") as caught:
        trace(model, torch.zeros(1, *SHAPES[kind]), barrier="unit")
    assert caught.value.node == "self-test"
