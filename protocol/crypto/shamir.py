"""Shamir sharing of 32-byte secrets: any `threshold` of the holders rebuild the secret, fewer learn nothing.

Theory. The secret is f(0) of a polynomial of degree threshold - 1 over the integers modulo the prime p =
2^256 + 297, the smallest above 2^256, so that every 32-byte string is a field element. All other
coefficients are uniform. Holder i = 1, 2, ... gets f(i). For every choice of threshold - 1 shares and every
candidate secret there is exactly one polynomial that fits, so those shares are independent of the secret.

Rebuilding and checking use one set of numbers. For holders x_1..x_n let u_i = 1 / prod_{j != i} (x_i -
x_j). Then f(0) = sum_i (-1)^(n-1) (x_1...x_n / x_i) u_i y_i, and the n values y_i lie on a polynomial of
degree below t exactly when the n - t syndromes S_k = sum_i u_i y_i x_i^k, k = 0..n-t-1, are all zero (a
Reed-Solomon code and its parity checks). If only the share of holder e is wrong, S_k is proportional to
x_e^k, so S_1 / S_0 = x_e names it. Two explanations of one set of syndromes differ by a codeword, which has
at least n - t + 1 non-zero places, so an innocent holder can be named only if n - t or more shares are
wrong.

Rejected: GF(2^16) in numpy and pycryptodome's byte-wise GF(2^128); specs/decisions/0006-shamir.md says why,
and why arithmetic that is not constant-time is acceptable here.

Implements specs/sharing-and-graphs.md, section 1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, ParameterError, Rejection
from veilsum.protocol.randomness import RandomBytes, require_random

FIELD_PRIME = 2**256 + 297
SECRET_BYTES = 32
SHARE_BYTES = 33
MAX_HOLDERS = 65_535

_SECRET_BOUND = 1 << (8 * SECRET_BYTES)
# Blocks of 33 bytes below this bound reduce to every residue equally often; 1 block in 256 lies above it.
_UNBIASED_BOUND = (1 << (8 * SHARE_BYTES)) // FIELD_PRIME * FIELD_PRIME


class WrongShare(Rejection):
    """The shares cannot be combined; `holder` is the one to blame where that is known."""

    def __init__(self, detail: str, holder: int | None = None) -> None:
        super().__init__(AbortReason.BAD_SHARE, detail)
        self.holder = holder


def split(secret: Secret, threshold: int, holders: int, random: RandomBytes) -> list[bytes]:
    """The shares of holders 1..`holders`, in that order."""
    _require_sharing_parameters(len(secret), threshold, holders)
    higher_coefficients = [_uniform_field_element(random) for _ in range(threshold - 1)]
    constant = int.from_bytes(secret.reveal(), "big")
    return [
        _evaluate(higher_coefficients, constant, holder).to_bytes(SHARE_BYTES, "big")
        for holder in range(1, holders + 1)
    ]


def combine(shares: Mapping[int, bytes], threshold: int) -> Secret:
    """The shared secret, from at least `threshold` shares by holder; every share given is checked."""
    return Combiner(threshold).combine(shares)


class Combiner:
    """Rebuilds many secrets of one threshold; keep it for a round: it remembers weights per holder set."""

    def __init__(self, threshold: int) -> None:
        if threshold < 2:
            raise ParameterError([f"threshold {threshold} is below 2: one share would be the secret"])
        self._threshold = threshold
        self._weights: dict[tuple[int, ...], tuple[list[int], list[int]]] = {}

    def combine(self, shares: Mapping[int, bytes]) -> Secret:
        holders = tuple(sorted(shares))
        self._require_enough(holders)
        values = [_decode_share(holder, shares[holder]) for holder in holders]
        parity_weights, weights_at_zero = self._weights_of(holders)
        weighted = [weight * value for weight, value in zip(parity_weights, values, strict=True)]
        _require_one_polynomial(holders, weighted, len(holders) - self._threshold)
        secret = sum(map(int.__mul__, weights_at_zero, values)) % FIELD_PRIME
        if secret >= _SECRET_BOUND:
            raise WrongShare("the shares rebuild a number that is not a 32-byte secret")
        return Secret(secret.to_bytes(SECRET_BYTES, "big"))

    def _require_enough(self, holders: tuple[int, ...]) -> None:
        if len(holders) < self._threshold:
            raise WrongShare(f"{len(holders)} shares are fewer than the threshold {self._threshold}")
        for holder in (holders[0], holders[-1]):
            if not 1 <= holder <= MAX_HOLDERS:
                raise WrongShare(f"holder {holder} is not in 1..{MAX_HOLDERS}", holder)

    def _weights_of(self, holders: tuple[int, ...]) -> tuple[list[int], list[int]]:
        if holders not in self._weights:
            self._weights[holders] = _barycentric_weights(holders)
        return self._weights[holders]


def _require_sharing_parameters(secret_bytes: int, threshold: int, holders: int) -> None:
    problems = []
    if secret_bytes != SECRET_BYTES:
        problems.append(f"a shared secret is {SECRET_BYTES} bytes, not {secret_bytes}")
    if not 2 <= threshold <= holders:
        problems.append(f"threshold {threshold} is not in 2..{holders}, the number of holders")
    if holders > MAX_HOLDERS:
        problems.append(f"{holders} holders are more than {MAX_HOLDERS}")
    if problems:
        raise ParameterError(problems)


def _uniform_field_element(random: RandomBytes) -> int:
    while True:
        number = int.from_bytes(require_random(random, SHARE_BYTES), "big")
        if number < _UNBIASED_BOUND:
            return number % FIELD_PRIME


def _evaluate(higher_coefficients: Sequence[int], constant: int, at: int) -> int:
    """Horner's rule; `higher_coefficients` start with that of the highest power."""
    value = 0
    for coefficient in higher_coefficients:
        value = (value + coefficient) * at % FIELD_PRIME
    return (value + constant) % FIELD_PRIME


def _decode_share(holder: int, share: bytes) -> int:
    if len(share) != SHARE_BYTES:
        raise WrongShare(f"the share of holder {holder} has {len(share)} bytes, not {SHARE_BYTES}", holder)
    value = int.from_bytes(share, "big")
    if value >= FIELD_PRIME:
        raise WrongShare(f"the share of holder {holder} is not a field element", holder)
    return value


def _barycentric_weights(holders: Sequence[int]) -> tuple[list[int], list[int]]:
    """For each holder u_i and its weight at zero; differences of holders are small, so products are cheap."""
    parity_weights = _inverses(
        [math.prod([x - other for other in holders if other != x]) % FIELD_PRIME for x in holders]
    )
    product = math.prod(holders) * (-1) ** (len(holders) - 1)
    at_zero = [product // x * u % FIELD_PRIME for x, u in zip(holders, parity_weights, strict=True)]
    return parity_weights, at_zero


def _inverses(values: Sequence[int]) -> list[int]:
    """All modular inverses for the price of one (running products, then peeled off from the end)."""
    running = list(
        itertools.accumulate(values, lambda product, value: product * value % FIELD_PRIME, initial=1)
    )
    inverse_of_rest = pow(running[-1], -1, FIELD_PRIME)
    inverses = [0] * len(values)
    for index in range(len(values) - 1, -1, -1):
        inverses[index] = inverse_of_rest * running[index] % FIELD_PRIME
        inverse_of_rest = inverse_of_rest * values[index] % FIELD_PRIME
    return inverses


def _require_one_polynomial(holders: Sequence[int], weighted: Sequence[int], spare: int) -> None:
    """All `spare` syndromes are zero; otherwise say which single share explains them, if one does."""
    syndromes = []
    terms = list(weighted)
    for _ in range(spare):
        syndromes.append(sum(terms) % FIELD_PRIME)
        terms = [term * x % FIELD_PRIME for term, x in zip(terms, holders, strict=True)]
    if not any(syndromes):
        return
    culprit = _single_culprit(holders, syndromes)
    if culprit is None:
        raise WrongShare(f"{len(holders)} shares disagree and no single one explains it")
    raise WrongShare(f"the share of holder {culprit} is off the polynomial of the others", culprit)


def _single_culprit(holders: Sequence[int], syndromes: Sequence[int]) -> int | None:
    if len(syndromes) < 2 or syndromes[0] == 0:
        return None
    suspect = syndromes[1] * pow(syndromes[0], -1, FIELD_PRIME) % FIELD_PRIME
    proportional = all(
        later == earlier * suspect % FIELD_PRIME for earlier, later in itertools.pairwise(syndromes)
    )
    return suspect if proportional and suspect in holders else None
