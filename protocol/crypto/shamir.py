"""Shamir sharing of 32-byte secrets: any `threshold` of the holders rebuild the secret, fewer learn nothing.

Theory. The secret is f(0) of a polynomial of degree threshold - 1 over the integers modulo the prime p =
2^256 + 297, the smallest above 2^256, so that every 32-byte string is a field element. All other
coefficients are uniform. Holder i = 1, 2, ... gets f(i). For every choice of threshold - 1 shares and every
candidate secret there is exactly one polynomial that fits, so those shares are independent of the secret.

Holders x_1..x_t rebuild f(0) = sum_i w_i y_i with w_i = prod_{j != i} x_j / (x_j - x_i). Any t numbers rebuild
something: whether a share is the one that was dealt is known from the hash that its dealer signed
(protocol/secure_sum/dealt.py), so nothing is looked for among spare shares.

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
    """The shares cannot be combined; `holder` is whose share is malformed, if one is."""

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
    """The shared secret, from exactly `threshold` shares by holder."""
    return Combiner(threshold).combine(shares)


class Combiner:
    """Rebuilds many secrets of one threshold; keep it for a round: it remembers weights per holder set."""

    def __init__(self, threshold: int) -> None:
        if threshold < 2:
            raise ParameterError([f"threshold {threshold} is below 2: one share would be the secret"])
        self._threshold = threshold
        self._weights: dict[tuple[int, ...], list[int]] = {}

    def combine(self, shares: Mapping[int, bytes]) -> Secret:
        holders = tuple(sorted(shares))
        self._require_sound(holders)
        values = [_decode_share(holder, shares[holder]) for holder in holders]
        secret = sum(map(int.__mul__, self._weights_of(holders), values)) % FIELD_PRIME
        if secret >= _SECRET_BOUND:
            raise WrongShare("the shares rebuild a number that is not a 32-byte secret")
        return Secret(secret.to_bytes(SECRET_BYTES, "big"))

    def _require_sound(self, holders: tuple[int, ...]) -> None:
        if len(holders) != self._threshold:
            raise WrongShare(f"{len(holders)} shares, and exactly {self._threshold} rebuild the secret")
        for holder in (holders[0], holders[-1]):
            if not 1 <= holder <= MAX_HOLDERS:
                raise WrongShare(f"holder {holder} is not in 1..{MAX_HOLDERS}", holder)

    def _weights_of(self, holders: tuple[int, ...]) -> list[int]:
        if holders not in self._weights:
            self._weights[holders] = _weights_at_zero(holders)
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


def _weights_at_zero(holders: Sequence[int]) -> list[int]:
    """Differences of holders are small, so products are cheap."""
    differences = [math.prod([other - x for other in holders if other != x]) % FIELD_PRIME for x in holders]
    product = math.prod(holders)
    return [product // x * u % FIELD_PRIME for x, u in zip(holders, _inverses(differences), strict=True)]


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
