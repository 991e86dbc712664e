"""A step gives the same bits everywhere: as scalar arithmetic does, in blocks of any size, on any processor."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy._core import _multiarray_umath as build_of_numpy

from tests.support.refusals import refusal
from tests.support.scalar_steps import DEFAULTS, ScalarStep
from veilsum.protocol.errors import LocalProtocolError, ParameterError
from veilsum.protocol.numbers import steps
from veilsum.protocol.numbers.rates import RateSchedule
from veilsum.protocol.numbers.step_kinds import STEP_KINDS, Adagrad, Adam, Momentum, Sgd, StepKind, Yogi
from veilsum.protocol.numbers.step_memory import StepMemory
from veilsum.protocol.numbers.steps import ModelStep

KINDS: tuple[StepKind, ...] = (
    Sgd(),
    Momentum(),
    Adam(),
    Adam(tau=1e-3),
    Adagrad(),
    Adagrad(tau=1e-2),
    Yogi(),
)
PLAIN = RateSchedule(0.1)
ODD_SIZES = (1, 7, 33, 1021)

reals = st.one_of(
    st.floats(-1e3, 1e3),
    st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 1e-310, -2.3e-308, 2.0**-149, 1e-160]),
)
vectors = hnp.arrays(np.float64, 5, elements=reals)


def step_of(kind: StepKind | None, payload: str = "gradient", moved: int | None = None) -> ModelStep:
    return ModelStep(payload, PLAIN, kind, None if kind is None else RateSchedule(0.02), moved)


def bits_of(model: Any, memory: StepMemory) -> tuple[bytes, bytes]:
    return model.astype("<f4").tobytes(), memory.encode()


def numbers(size: int, seed: int) -> Any:
    """Ordinary numbers with tiny ones and zeros of both signs among them."""
    drawn = np.random.default_rng(seed).standard_normal(size)
    drawn[::5] *= 1e-310
    drawn[1::5] *= 1e-160
    drawn[2::7] = -0.0
    drawn[3::7] = 0.0
    return drawn


def digest_of_many_steps() -> str:
    """Every kind and payload over several steps, lengths that fill no register, tiny numbers and negative zeros."""
    hashed = hashlib.sha256()
    for size in ODD_SIZES:
        for kind in KINDS:
            for payload in ("gradient", "delta"):
                step, memory = step_of(kind, payload, size - size // 4), StepMemory()
                model = numbers(size, 1).astype(np.float32)
                for round_ in range(4):
                    model, memory = step.apply(model, memory, numbers(size, 2 + round_), round_)
                    hashed.update(b"".join(bits_of(model, memory)))
    return hashed.hexdigest()


@given(
    st.sampled_from(KINDS),
    st.sampled_from(["gradient", "delta"]),
    st.integers(0, 5),
    vectors,
    st.lists(vectors, min_size=1, max_size=4),
)
def test_every_bit_is_that_of_scalar_arithmetic(
    kind: StepKind, payload: str, moved: int, start: Any, means: list[Any]
) -> None:
    step, memory, model = step_of(kind, payload, moved), StepMemory(), start.astype(np.float32)
    scalar = ScalarStep(kind.name, vars(kind), payload, moved)
    values = [float(one) for one in model]
    for round_, mean in enumerate(means):
        model, memory = step.apply(model, memory, mean, round_)
        values = scalar.apply(values, [float(one) for one in mean], 0.02, 0.1)
        assert bits_of(model, memory) == (np.array(values, dtype="<f4").tobytes(), scalar.memory())


@given(st.sampled_from(["model", "delta", "gradient"]), vectors, vectors)
def test_without_a_kind_the_mean_is_applied_and_nothing_remembered(
    payload: str, start: Any, mean: Any
) -> None:
    model, memory = step_of(None, payload).apply(start.astype(np.float32), StepMemory(), mean, 0)
    scalar = ScalarStep(None, {}, payload, 0)
    expected = scalar.apply([float(one) for one in start.astype(np.float32)], list(mean), 0.0, 0.1)
    assert bits_of(model, memory) == (np.array(expected, dtype="<f4").tobytes(), StepMemory().encode())


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_the_size_of_a_block_is_not_observable(kind: StepKind, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> tuple[bytes, bytes]:
        memory, model = StepMemory(), numbers(100, 1).astype(np.float32)
        for round_ in range(3):
            model, memory = step_of(kind, moved=90).apply(model, memory, numbers(100, round_ + 2), round_)
        return bits_of(model, memory)

    whole = run()
    monkeypatch.setattr(steps, "BLOCK", 7)
    assert run() == whole


def _switched_off() -> list[str]:
    """Nothing, then more and more of the features that numpy would use on this processor."""
    have = build_of_numpy.__cpu_features__
    used = [name for name in build_of_numpy.__cpu_dispatch__ if have[name]]
    return [" ".join(used[start:]) for start in range(len(used), -1, -1)]


@pytest.mark.parametrize("features", _switched_off())
def test_a_processor_with_fewer_features_gives_the_same_bits(features: str) -> None:
    code = (
        "import sys; from numpy._core import _multiarray_umath as build; "
        "from tests.protocol.numbers.test_steps import digest_of_many_steps; "
        "assert not any(build.__cpu_features__[name] for name in sys.argv[1:]), 'still on'; "
        "print(digest_of_many_steps())"
    )
    environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": features}
    done = subprocess.run(
        [sys.executable, "-c", code, *features.split()],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == digest_of_many_steps()


def _torchs(kind: StepKind, parameter: Any) -> Any:
    match kind:
        case Momentum():
            return torch.optim.SGD([parameter], lr=0.02, momentum=kind.momentum)
        case Adam():
            return torch.optim.Adam([parameter], lr=0.02, betas=kind.betas, eps=kind.eps)
        case Adagrad():
            return torch.optim.Adagrad([parameter], lr=0.02, eps=kind.eps)
        case _:
            return torch.optim.SGD([parameter], lr=0.02)


@pytest.mark.parametrize("kind", [Sgd(), Momentum(), Adam(), Adagrad()], ids=lambda kind: kind.name)
def test_the_steps_are_those_of_torch_up_to_rounding(kind: StepKind) -> None:
    drawn = np.random.default_rng(3).standard_normal((6, 50))
    parameter = torch.nn.Parameter(torch.from_numpy(drawn[0].astype(np.float32).astype(np.float64)))
    theirs = _torchs(kind, parameter)
    model, memory = drawn[0].astype(np.float32), StepMemory()
    for round_, mean in enumerate(drawn[1:]):
        model, memory = step_of(kind).apply(model, memory, mean, round_)
        parameter.grad = torch.from_numpy(mean)
        theirs.step()
        parameter.data = parameter.data.float().double()
        np.testing.assert_allclose(model, parameter.detach().numpy(), rtol=3e-7, atol=1e-7)


@pytest.mark.parametrize("kind", [Adam(tau=0.1), Adagrad(tau=0.1), Yogi(tau=0.1)], ids=lambda one: one.name)
def test_with_tau_the_first_step_is_that_of_adaptive_federated_optimisation(kind: StepKind) -> None:
    """By hand: v from tau^2, m from 0, and no correction."""
    g, v = 0.5, 0.01
    first, second = getattr(kind, "betas", (0.0, 0.0))
    after = {
        "adam": second * v + (1 - second) * g * g,
        "adagrad": v + g * g,
        "yogi": v + (1 - second) * g * g,
    }
    expected = 1.0 - 0.02 * (1 - first) * g / (after[kind.name] ** 0.5 + 0.1)
    model, memory = step_of(kind).apply(np.ones(1, np.float32), StepMemory(), np.array([g]), 0)
    assert model[0] == pytest.approx(expected, rel=1e-6)
    assert memory.vectors["v"][0] == pytest.approx(after[kind.name])


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_a_run_that_resumes_from_bytes_is_the_run_without_interruption(kind: StepKind) -> None:
    straight = resumed = (numbers(33, 1).astype(np.float32), StepMemory())
    for round_ in range(5):
        mean = numbers(33, round_ + 2)
        straight = step_of(kind).apply(*straight, mean, round_)
        resumed = step_of(kind).apply(resumed[0], StepMemory.decode(resumed[1].encode()), mean, round_)
        assert bits_of(*straight) == bits_of(*resumed)
        assert straight[1].digest == resumed[1].digest == hashlib.sha256(straight[1].encode()).digest()


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_a_step_leaves_its_arguments_alone(kind: StepKind) -> None:
    model, mean = numbers(9, 1).astype(np.float32), numbers(9, 2)
    first, memory = step_of(kind).apply(model, StepMemory(), mean, 0)
    before = (*bits_of(first, memory), mean.tobytes())
    step_of(kind).apply(first, memory, mean, 1)
    assert (*bits_of(first, memory), mean.tobytes()) == before


@pytest.mark.parametrize("mean", [1e41, np.nan, np.inf, 1e200])
@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_what_is_not_finite_is_refused_in_model_and_memory(kind: StepKind, mean: float) -> None:
    """2e39 is no float32, and the square of 1e200 is no float64; adaptive kinds make a small step of 1e41."""
    start, means = np.ones(3, np.float32), np.full(3, mean)
    if mean == 1e41 and not isinstance(kind, Sgd | Momentum):
        assert np.isfinite(step_of(kind).apply(start, StepMemory(), means, 0)[0]).all()
        return
    with refusal(LocalProtocolError, "infinite", "NaN"):
        step_of(kind).apply(start, StepMemory(), means, 0)


def test_a_thread_that_rounds_tiny_numbers_to_zero_takes_no_step() -> None:
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot be told to")
    try:
        with refusal(LocalProtocolError, "torch.set_flush_denormal"):
            step_of(None).apply(np.ones(1, np.float32), StepMemory(), np.ones(1), 0)
    finally:
        torch.set_flush_denormal(False)


def test_a_memory_of_another_step_is_refused() -> None:
    model, mean = np.ones(3, np.float32), np.ones(3)
    _, memory = step_of(Momentum()).apply(model, StepMemory(), mean, 0)
    for kind, size in ((Adam(), 3), (Sgd(), 3), (Momentum(), 4)):
        with refusal(LocalProtocolError, kind.name, "checkpoint"):
            step_of(kind).apply(np.ones(size, np.float32), memory, np.ones(size), 1)


@pytest.mark.parametrize("count", [-1, 2**64])
def test_a_count_that_no_run_reaches_is_refused(count: int) -> None:
    with refusal(LocalProtocolError, count):
        StepMemory(count)


def test_a_memory_that_is_full_takes_no_step() -> None:
    with refusal(LocalProtocolError, "run"):
        step_of(Momentum()).apply(
            np.ones(1, np.float32), StepMemory(2**64 - 1, {"b": np.ones(1)}), np.ones(1), 0
        )


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Adam(betas=(0.9, 1.0)), "betas"),
        (lambda: Adam(eps=0.0), "eps"),
        (lambda: Adam(tau=-1.0), "tau"),
        (lambda: Yogi(tau=0.0), "tau"),
        (lambda: Momentum(momentum=1.0), "momentum"),
        (lambda: Adagrad(eps=float("nan")), "eps"),
        (lambda: step_of(Sgd(), "model"), "payload"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(make: Any, named: str) -> None:
    with refusal(ParameterError, named):
        make()


def test_a_mean_of_another_length_and_a_border_beyond_the_model_are_refused() -> None:
    with refusal(LocalProtocolError, "shape"):
        step_of(Sgd()).apply(np.ones(3, np.float32), StepMemory(), np.ones(4), 0)
    with refusal(LocalProtocolError, 4, 3):
        step_of(Sgd(), moved=4).apply(np.ones(3, np.float32), StepMemory(), np.ones(3), 0)


def test_the_description_tells_every_setting_apart() -> None:
    made = [step_of(kind, payload) for kind in KINDS for payload in ("gradient", "delta")]
    made += [step_of(None, payload) for payload in ("model", "delta", "gradient")]
    made += [replace(made[0], plain_rate=RateSchedule(0.2)), replace(made[0], rate=RateSchedule(0.2))]
    made += [step_of(Adam(eps=1e-7)), step_of(Adam(betas=(0.9, 0.99))), step_of(Momentum(0.8))]
    assert len({step.describe() for step in made}) == len(made)
    assert {kind.name for kind in KINDS} == set(STEP_KINDS) == set(DEFAULTS)
