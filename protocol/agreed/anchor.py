"""Where a chain of models begins, or goes on from: what the organiser vouches for in the roster.

A chain is the line of models that a federation's parties hold; position 0 is the first model, and each committed round
adds one. A server that could name the model to begin with would choose a crafted one, so the organiser signs its hash.
A later anchor, a checkpoint, moves the beginning to another position, or opens the same one anew: that is the way on
when a position was spoiled or too few of those who may vote on it are left. Checkpoints are counted: two at one
position are two anchors, and what parties train after each of them differs.

The electorate are the participants whose votes count at the position. Its size decides how many of them must agree, so
a party that was evicted since stays in it: without it fewer votes would do, and two groups could each have enough.

Implements specs/chain.md, section 6.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from veilsum.protocol.crypto.domains import DIGEST_BYTES, domain_tag, length_prefixed
from veilsum.protocol.errors import ParameterError, Rejection
from veilsum.protocol.identifiers import SERVER, PartyId, require_party_id

CHAIN_ID_BYTES = 32

_LARGEST_NUMBER = 2**63 - 1


def hash_state(chain: bytes, position: int, before: bytes, model_hash: bytes, memory_hash: bytes) -> bytes:
    """The hash of a state, from the hash of the state before it and of what it holds: a model, and a step's memory.

    Whoever has none of these things, as an organiser, can still compute it from what others say about them.
    """
    framed = length_prefixed(
        domain_tag("state"), chain, position.to_bytes(8, "big"), before, model_hash, memory_hash
    )
    return hashlib.sha256(framed).digest()


def first_anchor(chain: bytes, model_hash: bytes, participants: Iterable[PartyId]) -> Anchor:
    """The anchor of a new chain: its first model, a step that remembers nothing yet, and the votes of all."""
    state_hash = hash_state(chain, 0, b"", model_hash, hashlib.sha256(b"").digest())
    return Anchor(chain, 0, state_hash, tuple(sorted(participants)))


@dataclass(frozen=True)
class Anchor:
    """One position of a chain with the hash of its state; one that breaks a rule cannot be built."""

    chain: bytes
    position: int
    state_hash: bytes
    electorate: tuple[PartyId, ...]
    checkpoint: int = 0
    """How many checkpoints this chain has had, this one included; 0 where it begins."""

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise ParameterError(problems)

    @property
    def digest(self) -> bytes:
        """SHA-256 over every field: equal digests mean equal anchors."""
        framed = length_prefixed(
            domain_tag("anchor"),
            self.chain,
            self.position.to_bytes(8, "big"),
            self.state_hash,
            self.checkpoint.to_bytes(8, "big"),
            *(name.encode() for name in self.electorate),
        )
        return hashlib.sha256(framed).digest()

    def _problems(self) -> Iterator[str]:
        for what, value, length in (
            ("chain id", self.chain, CHAIN_ID_BYTES),
            ("state hash", self.state_hash, DIGEST_BYTES),
        ):
            if not isinstance(value, bytes) or len(value) != length:
                yield f"the {what} of an anchor has {length} bytes"
        for what, number in (("position", self.position), ("number of checkpoints", self.checkpoint)):
            if type(number) is not int or not 0 <= number <= _LARGEST_NUMBER:
                yield f"a {what} is a whole number from 0 to 2^63 - 1, not {number!r}"
        if not self.electorate:
            yield "the electorate of an anchor is empty: nobody could vote"
        for name in self.electorate:
            try:
                require_party_id(name)
            except Rejection as refusal:
                yield f"electorate: {refusal.detail}"
            if name == SERVER:
                yield "the server has no vote: leave it out of the electorate"
        if list(self.electorate) != sorted(set(self.electorate)):
            yield "the electorate is to be sorted, with every name once"
