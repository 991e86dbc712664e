"""One position of a chain: a model, what the step remembers, and a hash over both and over all that came before.

The hash of state p covers the chain's id, p, the hash of state p-1, the model and the memory. The organiser signs the
first one (protocol/agreed/anchor.py); every party takes each step itself, from the words of a verified sum. So two
parties that name one hash hold one model, and had the same model at every position before it.

Implements specs/chain.md, section 1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.agreed.anchor import hash_state
from veilsum.protocol.crypto.domains import domain_tag, length_prefixed
from veilsum.protocol.numbers.model import Model

TakeStep: TypeAlias = Callable[[Model, bytes, NDArray[np.float64], int], tuple[Model, bytes]]
"""The next model and memory, from those of a position, the mean of its payloads and its number; pure, and heavy."""


OTHER_MODEL = "whoever has the wrong one is started with --fresh, and is given that of the others"
"""What to do about a party whose state is not that of the others."""


def shown_hash(state_hash: bytes) -> str:
    """As much of a hash as people compare."""
    return state_hash.hex()[:8] or "one that it does not name"


def hash_model(model: Model) -> bytes:
    """SHA-256 over a model's bytes, behind a tag and its length."""
    digest = hashlib.sha256(length_prefixed(domain_tag("model")) + len(model).to_bytes(8, "big"))
    digest.update(model.data.cast("B") if len(model) else b"")
    return digest.digest()


@dataclass(frozen=True)
class ChainState:
    """`before` is the hash of the state before, empty at position 0; `model_hash` is that of the model alone.

    States are equal whose hashes are: the bytes of a model are not compared again.
    """

    position: int
    model: Model = field(repr=False, compare=False)
    memory: bytes = field(repr=False)
    before: bytes
    model_hash: bytes
    hash: bytes

    @classmethod
    def of(cls, chain: bytes, position: int, before: bytes, model: Model, memory: bytes = b"") -> ChainState:
        model_hash, memory_hash = hash_model(model), hashlib.sha256(memory).digest()
        found = hash_state(chain, position, before, model_hash, memory_hash)
        return cls(position, model, memory, before, model_hash, found)
