"""Independent random streams from one user seed.

Each use names its stream, for example ("batches", party, round). Streams with different names are
unrelated, and none depends on how many numbers another one drew: that is what makes a training call
repeatable on its own. These seeds order batches and initialise models. They protect nothing; masks and keys
never come from here.

Implements specs/learning.md, section 2.
"""

from __future__ import annotations

import hashlib

import numpy as np


def derive_seed(seed: int, *name: str | int) -> int:
    """A 63-bit seed for the stream called `name`."""
    label = repr((seed, *name)).encode()
    return int.from_bytes(hashlib.sha256(b"veilsum learning v1:" + label).digest()[:8], "little") >> 1


def again(checkpoint: int) -> tuple[int, ...]:
    """What streams that are drawn anew after a checkpoint end their names with; nothing as long as there was none."""
    return (checkpoint,) if checkpoint else ()


def generator(seed: int, *name: str | int) -> np.random.Generator:
    """A numpy generator for the stream called `name`; PCG64 by name, so that it stays the same."""
    return np.random.Generator(np.random.PCG64(derive_seed(seed, *name)))
