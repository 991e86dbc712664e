"""Uniform real numbers from a cryptographic stream.

The entropy source gives 32 bytes; AES-256 in counter mode stretches them. The generators of torch and numpy
are not used: their state can be computed from their output.

Implements specs/perturbation.md, section 2.
"""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

from veilsum.protocol.randomness import RandomBytes, require_random

Reals = NDArray[np.float64]


class UniformStream:
    """Successive draws from one seed, used once."""

    def __init__(self, random: RandomBytes) -> None:
        self._keystream = Cipher(AES(require_random(random, 32)), CTR(bytes(16))).encryptor()

    def words(self, count: int) -> NDArray[np.uint64]:
        return np.frombuffer(self.octets(8 * count), dtype="<u8").astype(np.uint64)

    def octets(self, count: int) -> bytes:
        return self._keystream.update(bytes(count))

    def uniform(self, low: float, high: float, count: int) -> Reals:
        unit = (self.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return low + (high - low) * unit

    def log_uniform(self, low: float, high: float, count: int) -> Reals:
        return np.exp(self.uniform(np.log(low), np.log(high), count))

    def signed(self, low: float, high: float, count: int) -> Reals:
        """Magnitudes uniform in [low, high), each with a random sign."""
        signs = np.where(self.words(count) & np.uint64(1), 1.0, -1.0)
        return signs * self.uniform(low, high, count)

    def powers_of_two(self, low: int, high: int, count: int) -> Reals:
        """2**k with k uniform in low..high."""
        return np.exp2(np.floor(self.uniform(low, high + 1, count)))

    def permutation(self, count: int) -> NDArray[np.int64]:
        return np.argsort(self.words(count), kind="stable").astype(np.int64)
