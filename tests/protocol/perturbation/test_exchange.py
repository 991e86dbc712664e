"""The cross-entropy exchange: what comes out, what overflows, what is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.support.refusals import refusal
from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection
from veilsum.protocol.perturbation.algebra.exchange import answer, ask, conclude
from veilsum.protocol.perturbation.algebra.key import PerturbationKey, new_key
from veilsum.protocol.perturbation.algebra.terms import client_terms, cross_entropy_terms, run_forward
from veilsum.protocol.perturbation.draws import UniformStream
from veilsum.protocol.perturbation.errors import ExchangeOverflow
from veilsum.protocol.perturbation.settings import PerturbationSettings
from veilsum.protocol.perturbation.tracing.trace import trace
from veilsum.roles.process.entropy import SeededEntropy

CLASSES = 4
PLAN = trace(nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, CLASSES)), torch.zeros(1, 3))


def make_key(exchange: str, groups: int = 2, gamma: float = 1.0, seed: int = 1) -> PerturbationKey:
    return new_key(
        PLAN,
        PerturbationSettings(loss="ce", exchange=exchange, groups=groups, gamma=gamma),
        SeededEntropy(seed),
    )


def softmax(values: np.ndarray) -> np.ndarray:
    powers = np.exp(values - values.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("exchange", ["log", "printed"])
@settings(max_examples=40, deadline=None)
@given(groups=st.integers(1, CLASSES), seed=st.integers(0, 10**6))
def test_the_surrogate_is_the_true_softmax_plus_a_blinded_direction(
    exchange: str, groups: int, seed: int
) -> None:
    """a - xi * b = softmax of the true outputs, for both exchanges and every number of groups."""
    key = make_key(exchange, groups, seed=seed)
    draws = UniformStream(SeededEntropy(seed + 1))
    true = draws.uniform(-3, 3, 6 * CLASSES).reshape(6, CLASSES)
    alpha = draws.uniform(-1, 1, 6)
    asked = ask(key.public, true + alpha[:, None] * key.offset, alpha, SeededEntropy(2))
    result = conclude(key.public, asked, answer(key, asked.request, SeededEntropy(3)))
    blinders = key.blinders[key.public.partition]
    assert np.allclose(result.surrogate - blinders * result.direction, softmax(true), atol=1e-10)
    assert not np.allclose(result.surrogate, softmax(true), atol=1e-2)


def test_the_factor_as_printed_does_not_satisfy_the_identity() -> None:
    """The inverse factor, which the publication also prints, is off by far more than rounding."""
    key = make_key("printed")
    true = np.linspace(-1, 1, 3 * CLASSES).reshape(3, CLASSES)
    asked = ask(key.public, true, np.zeros(3), SeededEntropy(2))
    result = conclude(key.public, asked, answer(key, asked.request, SeededEntropy(3)))
    blinders = key.blinders[key.public.partition]
    inverse = result.surrogate * blinders / (1 - np.exp(key.shifts))
    assert np.abs(result.surrogate - blinders * inverse - softmax(true)).max() > 0.05


def test_the_log_exchange_survives_offsets_at_which_the_printed_one_refuses() -> None:
    alpha = np.full(2, 3.0)
    true = np.linspace(-1, 1, 2 * CLASSES).reshape(2, CLASSES)
    for exchange in ("log", "printed"):
        key = make_key(exchange, gamma=300.0)
        perturbed = true + alpha[:, None] * key.offset
        if exchange == "printed":
            with refusal(ExchangeOverflow, "printed", "gamma", "log") as caught:
                ask(key.public, perturbed, alpha, SeededEntropy(2))
            assert caught.value.spread > caught.value.limit
        else:
            asked = ask(key.public, perturbed, alpha, SeededEntropy(2))
            result = conclude(key.public, asked, answer(key, asked.request, SeededEntropy(3)))
            found = result.surrogate - key.blinders[key.public.partition] * result.direction
            assert np.allclose(found, softmax(true), atol=1e-9)


def test_the_server_refuses_exponents_it_cannot_represent() -> None:
    key = make_key("printed", gamma=10.0)
    asked = ask(key.public, np.zeros((2, CLASSES)), np.full(2, 100.0), SeededEntropy(2))
    with pytest.raises(ExchangeOverflow):
        answer(key, asked.request, SeededEntropy(3))


@pytest.mark.parametrize("exchange", ["log", "printed"])
@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda r: replace(r, key_id=bytes(16)), AbortReason.WRONG_ROUND),
        (lambda r: replace(r, values=r.values[:, :-1]), AbortReason.BAD_VECTOR),
        (lambda r: replace(r, values=r.values[:0], alpha=r.alpha[:0]), AbortReason.BAD_VECTOR),
        (lambda r: replace(r, alpha=r.alpha[:-1]), AbortReason.BAD_VECTOR),
        (lambda r: replace(r, values=r.values + np.nan), AbortReason.BAD_VECTOR),
        (lambda r: replace(r, alpha=r.alpha + np.inf), AbortReason.BAD_VECTOR),
    ],
    ids=["stale", "classes", "empty", "alpha", "nan", "infinite"],
)
def test_malformed_requests_are_refused_with_the_reason(exchange: str, spoil, reason) -> None:
    key = make_key(exchange)
    asked = ask(key.public, np.zeros((2, CLASSES)), np.ones(2), SeededEntropy(2))
    with pytest.raises(Rejection) as caught:
        answer(key, spoil(asked.request), SeededEntropy(3))
    assert caught.value.reason is reason


@pytest.mark.parametrize("exchange", ["log", "printed"])
@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda r: replace(r, key_id=bytes(16)), AbortReason.WRONG_ROUND),
        (lambda r: replace(r, first=r.first[:1]), AbortReason.BAD_VECTOR),
        (lambda r: replace(r, second=r.second * np.nan), AbortReason.BAD_VECTOR),
        (lambda r: replace(r, third=r.third[None]), AbortReason.BAD_VECTOR),
    ],
    ids=["stale", "samples", "nan", "shape"],
)
def test_malformed_answers_are_refused_with_the_reason(exchange: str, spoil, reason) -> None:
    key = make_key(exchange)
    asked = ask(key.public, np.zeros((2, CLASSES)), np.ones(2), SeededEntropy(2))
    with pytest.raises(Rejection) as caught:
        conclude(key.public, asked, spoil(answer(key, asked.request, SeededEntropy(3))))
    assert caught.value.reason is reason


def test_an_answer_without_positive_denominators_is_refused() -> None:
    """A server that lies about the sums cannot make the client divide by nothing."""
    key = make_key("printed")
    asked = ask(key.public, np.zeros((2, CLASSES)), np.ones(2), SeededEntropy(2))
    reply = answer(key, asked.request, SeededEntropy(3))
    with pytest.raises(ExchangeOverflow):
        conclude(key.public, asked, replace(reply, second=reply.second + 1e6))


def test_rounds_that_need_no_exchange_refuse_one() -> None:
    key = new_key(PLAN, PerturbationSettings(loss="mse"), SeededEntropy(1))
    asked = ask(key.public, np.zeros((2, CLASSES)), np.ones(2), SeededEntropy(2))
    with pytest.raises(LocalProtocolError, match="needs no exchange"):
        answer(key, asked.request, SeededEntropy(3))


def test_cross_entropy_terms_without_their_exchange_are_refused() -> None:
    key = make_key("log")
    with pytest.raises(LocalProtocolError, match="needs an exchange"):
        client_terms(PLAN, PLAN.model, key.public, torch.zeros(2, 3), torch.tensor([0, 1]))


def test_labels_that_do_not_add_up_to_one_are_refused() -> None:
    key = make_key("log")
    forward = run_forward(PLAN, PLAN.model, key.public, torch.zeros(2, 3))
    asked = ask(
        key.public, forward.outputs.double().numpy(), forward.alpha.double().numpy(), SeededEntropy(2)
    )
    result = conclude(key.public, asked, answer(key, asked.request, SeededEntropy(3)))
    with refusal(LocalProtocolError, "entropy", "targets", "add", "one", "sample"):
        cross_entropy_terms(forward, result, torch.full((2, CLASSES), 1 / math.pi))
