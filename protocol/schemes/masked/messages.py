"""What travels in a round of zero-sum masks, besides shares and survivor lists.

server -> clients   round.opened          which state of the chain it starts from
client -> server    masked.round-keys     a fresh X25519 key, signed together with the model's hash
server -> clients   masked.cohort-keys    everyone's
client -> server    shares.sealed         shares of the self mask and of the private key, boxed for neighbours
server -> client    shares.delivered      the boxes for this client
client -> server    upload.masked         the masked vector
server -> clients   survivors.list        who is in the sum
client -> server    survivors.signature   (threat 'lying') agreed
server -> clients   survivors.proof       (threat 'lying') enough agreed
client -> server    shares.released       one share for each neighbour
server -> clients   sum.opened            the sum, and the sum of its tags
client -> server    sum.vote              which state follows from it, signed
server -> clients   round.closed          the certificate

Implements specs/protocol.md, section 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from veilsum.protocol.chain.hellos import HelloRecord
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.wire.messages import Length, Message, Stamp, message, record

ROUND_KEY_DOMAIN = "round-key"


@record
@dataclass(frozen=True, slots=True)
class KeyRecord:
    """`group` is the id of the group key, where sums are verified."""

    key: Annotated[bytes, Length(32)]
    model_hash: Annotated[bytes, Length(32)]
    group: Annotated[bytes, Length(32, or_empty=True)]
    signature: Annotated[bytes, Length(64)]


@message("masked.round-keys")
@dataclass(frozen=True, slots=True)
class RoundKeys(Message):
    stamp: Stamp
    keys: KeyRecord


@message("masked.cohort-keys")
@dataclass(frozen=True, slots=True)
class CohortKeys(Message):
    """The keys of the cohort; `size` is larger than their number where only a neighbourhood is listed.

    `hellos` are then those of the neighbours, as far as the session was opened without them.
    """

    stamp: Stamp
    keys: Mapping[PartyId, KeyRecord]
    size: int
    hellos: Mapping[PartyId, HelloRecord] = field(default_factory=dict)


def round_key_digest(stamp: Stamp, owner: PartyId, record_: KeyRecord) -> bytes:
    """What the owner of a round key signs: the key, the model it starts from, and which group key it holds."""
    return stamp.digest("round-key", owner.encode(), record_.key, record_.model_hash, record_.group)


def cohort_seed(stamp: Stamp, keys: Mapping[PartyId, KeyRecord]) -> bytes:
    """The hash that the neighbour graph of an attempt is drawn from: it covers every key of the cohort."""
    parts = [part for name, record_ in sorted(keys.items()) for part in (name.encode(), record_.key)]
    return stamp.digest("cohort", *parts)
