"""Where randomness comes from: the operating system, or, in simulations only, a seed.

The protocol takes randomness as an argument; this file holds the two sources. A role process that runs
against real parties must call `require_real_entropy` on what it was given: whoever knows the seed of a
`SeededEntropy` knows every key of the run.

Implements specs/keys.md, section 1.
"""

from __future__ import annotations

import hashlib
import os

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from veilsum.protocol.crypto.domains import domain_tag, length_prefixed
from veilsum.protocol.errors import LocalProtocolError
from veilsum.protocol.randomness import RandomBytes

_TAG = domain_tag("seeded-entropy")


def system_entropy(n: int) -> bytes:
    """Fresh bytes from the operating system."""
    return os.urandom(n)


class SeededEntropy:
    """A repeatable source, for simulations only: the same seed gives the same bytes in the same order.

    Each party of a simulation draws from `for_party(name)`, so that what one party draws does not depend on
    when the others draw, and a run repeats whatever the order of events.
    """

    simulation_only = True

    def __init__(self, seed: int | bytes) -> None:
        encoded = b"bytes:" + seed if isinstance(seed, bytes) else f"int:{seed}".encode()
        self._root = hashlib.sha256(length_prefixed(_TAG, b"root", encoded)).digest()
        self._stream = Cipher(AES(self._root), CTR(bytes(16))).encryptor()

    def __call__(self, n: int) -> bytes:
        return self._stream.update(bytes(n))

    def for_party(self, name: str) -> SeededEntropy:
        """The source of one party; it depends on the seed and the name, not on what was drawn before."""
        return SeededEntropy(
            hashlib.sha256(length_prefixed(_TAG, b"party", self._root, name.encode())).digest()
        )

    def __repr__(self) -> str:
        return "<seeded entropy, simulations only>"


def require_real_entropy(random: RandomBytes) -> RandomBytes:
    """Return the source unless it is a simulation's."""
    if getattr(random, "simulation_only", False):
        raise LocalProtocolError(
            "a seeded randomness source is for simulations only: a role process must use system_entropy"
        )
    return random
