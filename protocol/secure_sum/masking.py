"""Zero-sum masks: every pair of clients adds and subtracts the same stream, and every client adds one of its own.

Client k uploads encode(x_k) + sum over j < k of PRG(pair_kj) - sum over j > k of PRG(pair_kj) + PRG(b_k).
Both ends of a pair derive its key from their X25519 keys of this attempt, bound to the session, the round,
the attempt, both names and the model; so the pair masks of a cohort cancel exactly, and do not if two
clients were given different models. The self mask b_k keeps an upload hidden when the server pretends that
its owner vanished and collects the pair masks.

Implements specs/protocol.md, section 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from veilsum.protocol.crypto.agreement import AgreementKey
from veilsum.protocol.crypto.kdf import Purpose, derive_key
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.numbers.ring import Ring, RingVector
from veilsum.protocol.numbers.stream import apply_masks
from veilsum.protocol.wire.messages import Stamp

WHOLE_VECTOR: Final[Mapping[str, slice]] = {"": slice(None)}
"""One stream of each key covers the whole upload; other schemes name parts, each with streams of its own."""


def self_mask_key(seed: Secret, stamp: Stamp, owner: PartyId, term: str = "") -> Secret:
    return derive_key(seed, Purpose.SELF_MASK, stamp.key_context(owner, term=term))


def pair_mask_key(
    ours: AgreementKey, theirs: bytes, stamp: Stamp, pair: tuple[PartyId, PartyId], term: str = ""
) -> Secret:
    """The key of the mask that two parties share in one attempt; both derive the same."""
    first, second = sorted(pair)
    return derive_key(ours.agree(theirs), Purpose.PAIR_MASK, stamp.key_context(first, second, term))


def mask_upload(
    ring: Ring,
    vector: RingVector,
    me: PartyId,
    pair_keys: Mapping[PartyId, Secret],
    own: Iterable[Secret] = (),
) -> None:
    """Turn an encoded vector into an upload, in place."""
    apply_masks(
        ring,
        vector,
        add=[*(key for other, key in pair_keys.items() if other < me), *own],
        subtract=[key for other, key in pair_keys.items() if other > me],
    )


def unmask_sum(
    ring: Ring,
    total: RingVector,
    self_keys: Iterable[Secret],
    open_pairs: Iterable[tuple[PartyId, PartyId, Secret]],
) -> None:
    """Remove from a sum of uploads the self masks, and the pair masks whose other end is missing, in place.

    `open_pairs` lists (survivor, missing party, key of the pair).
    """
    pairs = list(open_pairs)
    apply_masks(
        ring,
        total,
        add=[key for survivor, missing, key in pairs if missing > survivor],
        subtract=[
            *self_keys,
            *(key for survivor, missing, key in pairs if missing < survivor),
        ],
    )
