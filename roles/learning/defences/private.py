"""The private randomness of one party: one key, and from it a stream for every use.

Noise that protects must come from a secret that nobody else has, never from the user's seed, which all
parties share. A party draws 32 bytes once, from the entropy it was given; every stream is AES-256 in counter
mode under HMAC-SHA256(key, label).

The label of a round names its number and the model it starts from. The same call therefore gives the same
bytes, so that a repeated upload shows nothing new and noise cannot be averaged away by asking again; and
another model in the same round meets fresh noise, so that no difference of two uploads is free of it.

Gaussian noise is made by Box and Muller's method from 53-bit uniform numbers, which end at 8.6 standard
deviations. Floating-point noise has gaps that a determined reader can exploit (Mironov, 2012); the uploads
of the schemes that hide are rounded to fixed point and summed before anyone reads them, those of `plain`
are not.

Implements specs/defences.md, section 2.
"""

from __future__ import annotations

import hmac
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from veilsum.protocol.crypto.domains import domain_tag, length_prefixed
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import LocalProtocolError
from veilsum.protocol.randomness import RandomBytes, require_random

KEY_BYTES = 32
Mechanism: TypeAlias = Literal["gaussian", "laplace"]
Doubles: TypeAlias = npt.NDArray[np.float64]

_TAG = domain_tag("defence")
_UNIT = 2.0**-53


class PrivateKey:
    """The secret that all private draws of one party come from."""

    def __init__(self, secret: Secret) -> None:
        if len(secret) != KEY_BYTES:
            raise LocalProtocolError(f"the key of a defence is {KEY_BYTES} bytes, not {len(secret)}")
        self.secret = secret

    @classmethod
    def draw(cls, entropy: RandomBytes) -> PrivateKey:
        return cls(Secret(require_random(entropy, KEY_BYTES)))

    def stream(self, use: str, *label: bytes | int) -> Stream:
        """The stream of one use; another label gives an unrelated one."""
        parts = [part if isinstance(part, bytes) else str(part).encode() for part in label]
        derived = hmac.digest(self.secret.reveal(), length_prefixed(_TAG, use.encode(), *parts), "sha256")
        return Stream(derived)

    def __repr__(self) -> str:
        return f"PrivateKey({self.secret!r})"


class Stream:
    """Draws one after the other from one keystream."""

    def __init__(self, key: bytes) -> None:
        self._cipher = Cipher(AES(key), CTR(bytes(16))).encryptor()

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        return np.frombuffer(self._cipher.update(bytes(8 * count)), dtype="<u8")

    def uniform(self, count: int) -> Doubles:
        """Numbers in (0, 1]: multiples of 2^-53, never 0, so that their logarithm exists."""
        return _in_unit_interval(self.words(count))

    def signs(self, count: int) -> Doubles:
        """-1 or +1."""
        return _signs(self.words(count))

    def chosen(self, count: int, probability: float) -> npt.NDArray[np.int64]:
        """The positions out of `count` that independent coins with this probability choose."""
        return np.flatnonzero(self.uniform(count) <= probability)

    def normal(self, count: int) -> Doubles:
        """Standard normal numbers."""
        pairs = (count + 1) // 2
        radius = np.sqrt(-2 * np.log(self.uniform(pairs)))
        angle = 2 * np.pi * self.uniform(pairs)
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]

    def laplace(self, count: int) -> Doubles:
        """Laplace numbers of scale 1: an exponential one with a sign, from unused bits of the same word."""
        words = self.words(count)
        return -np.log(_in_unit_interval(words)) * _signs(words)

    def noise(self, mechanism: Mechanism, count: int) -> Doubles:
        """Noise of scale 1: standard deviation 1 for Gaussian, parameter 1 for Laplace."""
        return self.normal(count) if mechanism == "gaussian" else self.laplace(count)


def _in_unit_interval(words: npt.NDArray[np.uint64]) -> Doubles:
    upper: npt.NDArray[np.uint64] = words >> np.uint64(11)
    return (upper.astype(np.float64) + 1) * _UNIT


def _signs(words: npt.NDArray[np.uint64]) -> Doubles:
    lowest: npt.NDArray[np.uint64] = words & np.uint64(1)
    return 2 * lowest.astype(np.float64) - 1
