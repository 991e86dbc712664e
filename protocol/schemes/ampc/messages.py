"""What travels between peers, and between peers and the server, besides shares and survivor lists.

Set-up of a session:

    peer -> neighbour   ampc.seeds-for-neighbour   RSA(share secret, bias secret), signed
    peer -> server      ampc.seeds-for-others      RSA(bias secret) for every other peer, signed
    server -> peer      ampc.seeds-relayed         those of the others for this peer
    peer -> peers       ampc.model-held            a keyed hash of the state, and what proves it, sealed for the peers
    peer -> peer        ampc.model-wanted          a joiner or returner asks for the current model
    peer -> peer        ampc.model-given           sealed
    peer -> server      ampc.setup-report          the set-up is complete, or who holds it up

A round:

    server -> peers     round.opened
    peer -> server      shares.sealed              shares of the self mask; relayed as shares.delivered
    peer -> neighbour   ampc.share-vector          (share mode 'tensor') the share itself, sealed
    peer -> server      upload.masked
    server -> peers     survivors.list
    peer -> server      survivors.signature
    server -> peers     survivors.proof
    peer -> server      ampc.seeds-revealed        (after dropouts) share keys exchanged with dropped neighbours
    server -> peers     ampc.seeds-complete        (after dropouts) everyone who had to has revealed them
    peer -> server      shares.released            self-mask shares of the survivors
    server -> peers     ampc.aggregate             the sum, still under the biases
    peer -> everyone    ampc.result-digest         a vote; what it says of the model is sealed for the peers

Implements specs/protocol.md, section 4.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from veilsum.protocol.chain.votes import Certificate, Vote
from veilsum.protocol.crypto.domains import domain_tag, length_prefixed
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.wire.messages import Length, MaxLength, Message, Stamp, Tensor, message, record

SEEDS_DOMAIN = "sealed-seeds"
MAX_PROOF_BYTES = 1 << 20


@record
@dataclass(frozen=True, slots=True)
class SealedRecord:
    """An RSA ciphertext and its sender's signature; OAEP by itself has no sender."""

    ciphertext: Annotated[bytes, MaxLength(512)]
    signature: Annotated[bytes, Length(64)]


@message("ampc.seeds-for-neighbour")
@dataclass(frozen=True, slots=True)
class SeedsForNeighbour(Message):
    stamp: Stamp
    sealed: SealedRecord


@message("ampc.seeds-for-others")
@dataclass(frozen=True, slots=True)
class SeedsForOthers(Message):
    stamp: Stamp
    sealed: Mapping[PartyId, SealedRecord]


@message("ampc.seeds-relayed")
@dataclass(frozen=True, slots=True)
class SeedsRelayed(Message):
    stamp: Stamp
    sealed: Mapping[PartyId, SealedRecord]


@message("ampc.model-held")
@dataclass(frozen=True, slots=True)
class ModelHeld(Message):
    """The state that a peer holds at the session's position; `proof` is a `ChainProof`, sealed under the group key."""

    stamp: Stamp
    keyed_hash: Annotated[bytes, Length(32)]
    proof: Annotated[bytes, MaxLength(MAX_PROOF_BYTES)]


@message("ampc.chain-proof")
@dataclass(frozen=True, slots=True)
class ChainProof(Message):
    """Inside a `ModelHeld`: the certificate with hashes, or the vote for a state that nobody has certified yet."""

    stamp: Stamp
    certificate: Certificate | None
    vote: Vote | None


@message("ampc.state")
@dataclass(frozen=True, slots=True)
class StateContent(Message):
    """Inside a `ModelGiven`: a state, as its hash covers it."""

    stamp: Stamp
    before: Annotated[bytes, Length(32, or_empty=True)]
    model: Tensor
    memory: Tensor


@message("ampc.model-wanted")
@dataclass(frozen=True, slots=True)
class ModelWanted(Message):
    stamp: Stamp


@message("ampc.model-given")
@dataclass(frozen=True, slots=True)
class ModelGiven(Message):
    stamp: Stamp
    box: Tensor


@message("ampc.setup-report")
@dataclass(frozen=True, slots=True)
class SetupReport(Message):
    """How far a peer's set-up is: complete, if it is not behind and lacks nothing.

    `behind`: it has not said what it holds. `lacking`: whose seeds did not come or do not open, and who holds another
    state than the certified one. `waiting`: whose statement did not come or cannot be read, which may be because that
    peer is behind. `secrets`: a hash of each common secret that it was given.
    """

    stamp: Stamp
    behind: bool = False
    lacking: tuple[PartyId, ...] = ()
    waiting: tuple[PartyId, ...] = ()
    secrets: Mapping[PartyId, Annotated[bytes, Length(32)]] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return not (self.behind or self.lacking or self.waiting)


@message("ampc.share-vector")
@dataclass(frozen=True, slots=True)
class ShareVector(Message):
    stamp: Stamp
    box: Tensor


@message("ampc.seeds-revealed")
@dataclass(frozen=True, slots=True)
class SeedsRevealed(Message):
    """Mask keys of this attempt shared with dropped neighbours: given to them, and taken from them.

    In share mode 'tensor' the taken shares exist as vectors only; their sum is `taken_sum`.
    """

    stamp: Stamp
    given: Mapping[PartyId, Annotated[bytes, Length(32)]]
    taken: Mapping[PartyId, Annotated[bytes, Length(32)]]
    taken_sum: Tensor


@message("ampc.seeds-complete")
@dataclass(frozen=True, slots=True)
class SeedsComplete(Message):
    """Nothing but self masks and biases is left in the sum: their shares are due."""

    stamp: Stamp


@message("ampc.aggregate")
@dataclass(frozen=True, slots=True)
class Aggregate(Message):
    stamp: Stamp
    survivors: tuple[PartyId, ...]
    vector: Tensor


@message("ampc.result-digest")
@dataclass(frozen=True, slots=True)
class ResultDigest(Message):
    """What a peer computed: `vote` signs the ballot without hashes, `sealed_vote` the one with them, for the peers.

    A peer without a vote at this position states its result all the same, and signs neither.
    """

    states_result = True

    stamp: Stamp
    result: Annotated[bytes, Length(32)]
    vote: Annotated[bytes, Length(64, or_empty=True)]
    sealed_vote: Annotated[bytes, MaxLength(128)]


def seal_label(stamp: Stamp, sender: PartyId, receiver: PartyId) -> bytes:
    """The OAEP label: a ciphertext opens only in the session, direction and pair it was made for."""
    return stamp.digest("sealed-seeds", sender.encode(), receiver.encode())


def secret_hash(stamp: Stamp, owner: PartyId, secret: Secret) -> bytes:
    """What the server may see of a common secret: enough to find one that was not the same for all."""
    return stamp.without_model().digest("common-secret", owner.encode(), secret.reveal())


def sealed_digest(label: bytes, ciphertext: bytes) -> bytes:
    return hashlib.sha256(length_prefixed(domain_tag("sealed-seeds-signed"), label, ciphertext)).digest()
