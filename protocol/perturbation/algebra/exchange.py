"""The extra exchange that cross entropy needs, because a softmax does not commute with the offset.

A client holds perturbed outputs y + alpha r and needs the true softmax p, but must not be given it. Instead
it gets a and b with a = p + xi * b, xi a secret of the round that is constant on each group.

*Log exchange* (default). The client sends its perturbed outputs and alpha; the server computes p in float64,
draws b, and answers a, b and the logarithm of the partition sum plus a secret constant, for the loss.

*Printed exchange*, as published, for study. For every class i the client sends the ratios
exp(y_hat[j] - y_hat[i]) + lambda[i]; the server turns them into (sum of exp(y)) / exp(y[i]) * exp(delta[i])
plus a multiple of lambda[i] that the client can subtract. The result is a = p / exp(delta), and
b = a * (1 - exp(delta)) / xi satisfies a = p + xi * b. The publication prints the inverse of this factor in
one of two places; the inverse does not recover gradients. Exponentials of output differences overflow, and
the subtraction of lambda cancels, at moderate offsets: both sides check and refuse.

Neither exchange keeps a secret for long: probabilities add up to one, so a batch of replies determines xi,
and the server sees each sample's softmax. The attacks are in simulations/attacks/perturbation.

Implements specs/perturbation.md, section 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection
from veilsum.protocol.perturbation.algebra.key import PerturbationKey
from veilsum.protocol.perturbation.draws import Reals, UniformStream
from veilsum.protocol.perturbation.errors import ExchangeOverflow
from veilsum.protocol.perturbation.public import PublicPerturbation
from veilsum.protocol.randomness import RandomBytes

# Beyond exp(36) a float64 difference of order one is lost beside its summands.
SPREAD_LIMIT = 36.0


@dataclass(frozen=True, eq=False)
class RequestArrays:
    """What a client asks about one batch.

    `values` are outputs (samples x outputs) for log, and blinded ratios (samples x outputs x outputs) for
    printed.
    """

    key_id: bytes
    values: Reals
    alpha: Reals


@dataclass(frozen=True, eq=False)
class ReplyArrays:
    """Log: a, b (samples x outputs) and the shifted log partition sums (samples).

    Printed: blinded sums and blinder sums (samples x outputs), and (1 - exp(delta)) / xi (outputs).
    """

    key_id: bytes
    first: Reals
    second: Reals
    third: Reals


@dataclass(frozen=True, eq=False)
class SurrogateSoftmax:
    """What the client trains with: `surrogate` = p + xi * `direction`, and per-sample log partition sums."""

    surrogate: Reals
    direction: Reals
    log_partition: Reals | None


@dataclass(frozen=True, eq=False)
class ClientExchange:
    """A client's side of one exchange; `blinding` is its own secret in the printed form."""

    request: RequestArrays
    blinding: Reals | None = field(default=None, repr=False)


def ask(public: PublicPerturbation, outputs: Reals, alpha: Reals, random: RandomBytes) -> ClientExchange:
    """Client: the request for one batch of perturbed outputs."""
    if public.exchange == "log":
        return ClientExchange(RequestArrays(public.key_id, outputs, alpha))
    differences = outputs[:, None, :] - outputs[:, :, None]
    spread = float(differences.max())
    if not spread <= SPREAD_LIMIT:
        raise ExchangeOverflow(spread, SPREAD_LIMIT)
    samples, classes = outputs.shape
    blinding = UniformStream(random).uniform(0.5, 1.5, samples * classes).reshape(samples, classes)
    ratios = np.exp(differences) + blinding[:, :, None]
    ratios[:, np.arange(classes), np.arange(classes)] = 0.0
    return ClientExchange(RequestArrays(public.key_id, ratios, alpha), blinding)


def answer(key: PerturbationKey, request: RequestArrays, random: RandomBytes) -> ReplyArrays:
    """Server: answer one client's request."""
    _require_request(key, request)
    if key.settings.exchange == "log":
        return _answer_log(key, request, UniformStream(random))
    return _answer_printed(key, request)


def conclude(public: PublicPerturbation, exchange: ClientExchange, reply: ReplyArrays) -> SurrogateSoftmax:
    """Client: what to train with, from the server's reply."""
    _require_reply(public, exchange, reply)
    if exchange.blinding is None:
        return SurrogateSoftmax(reply.first, reply.second, reply.third)
    inverse = reply.first - exchange.blinding * reply.second
    if not inverse.min() > 0:
        raise ExchangeOverflow(float(np.log(reply.first.max())), SPREAD_LIMIT)
    surrogate = 1.0 / inverse
    return SurrogateSoftmax(surrogate, surrogate * reply.third, None)


def _answer_log(key: PerturbationKey, request: RequestArrays, stream: UniformStream) -> ReplyArrays:
    true = request.values - request.alpha[:, None] * key.offset
    peak = true.max(axis=1, keepdims=True)
    log_partition = peak[:, 0] + np.log(np.exp(true - peak).sum(axis=1))
    softmax = np.exp(true - log_partition[:, None])
    direction = stream.uniform(-1.0, 1.0, true.size).reshape(true.shape)
    surrogate = softmax + key.blinders[key.public.partition] * direction
    return ReplyArrays(key.public.key_id, surrogate, direction, log_partition + key.loss_shift)


def _answer_printed(key: PerturbationKey, request: RequestArrays) -> ReplyArrays:
    offset, classes = key.offset, key.plan.head.outputs
    shifts = key.shifts[None, :, None]
    # exponents[n, i, j] = delta[i] - (r[j] - r[i]) * alpha[n]
    exponents = shifts - (offset[None, None, :] - offset[None, :, None]) * request.alpha[:, None, None]
    spread = float(np.abs(exponents).max())
    if not spread <= SPREAD_LIMIT:
        raise ExchangeOverflow(spread, SPREAD_LIMIT)
    correction = np.exp(exponents)
    correction[:, np.arange(classes), np.arange(classes)] = 0.0
    blinded = np.exp(key.shifts)[None, :] + (request.values * correction).sum(axis=2)
    ratio = (1.0 - np.exp(key.shifts)) / key.blinders[key.public.partition]
    return ReplyArrays(key.public.key_id, blinded, correction.sum(axis=2), ratio)


def _require_request(key: PerturbationKey, request: RequestArrays) -> None:
    if not key.settings.has_offset or key.settings.loss != "ce":
        raise LocalProtocolError("this round's perturbation needs no exchange")
    if request.key_id != key.public.key_id:
        raise Rejection(AbortReason.WRONG_ROUND, "the exchange was asked for with a stale key")
    classes, samples = key.plan.head.outputs, request.alpha.shape[:1]
    shape = (*samples, classes) if key.settings.exchange == "log" else (*samples, classes, classes)
    if request.alpha.ndim != 1 or request.values.shape != shape or math.prod(shape) == 0:
        raise Rejection(
            AbortReason.BAD_VECTOR, f"the exchange carries shape {request.values.shape}, not {shape}"
        )
    if not (np.isfinite(request.values).all() and np.isfinite(request.alpha).all()):
        raise Rejection(AbortReason.BAD_VECTOR, "the exchange carries values that are not finite")


def _require_reply(public: PublicPerturbation, exchange: ClientExchange, reply: ReplyArrays) -> None:
    if reply.key_id != public.key_id:
        raise Rejection(AbortReason.WRONG_ROUND, "the exchange was answered with a stale key")
    samples, classes = exchange.request.values.shape[:2]
    third = (samples,) if exchange.blinding is None else (classes,)
    shapes = ((samples, classes), (samples, classes), third)
    for part, shape in zip((reply.first, reply.second, reply.third), shapes, strict=True):
        if part.shape != shape or not np.isfinite(part).all():
            raise Rejection(
                AbortReason.BAD_VECTOR, "the reply has a wrong shape or values that are not finite"
            )
