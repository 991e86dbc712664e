"""What a dealer signs about its shares, so that a wrong one names its author (specs/protocol.md, section 2).

With its boxes a dealer sends the server a hash of every share and of the seed of its self mask, under one signature.
Then a released share either is the one that was dealt or names its holder, and a secret that is rebuilt from shares
as they were dealt either is the one that was promised or names its dealer. A masking key needs no hash of its own:
its public half was signed.

A holder must not be blamed for a wrong share that it was dealt. So it is shown what the dealer signed about its box:
the hashes, and the path to the signed root of a hash tree whose leaf for this holder covers them and the box itself.
What does not fit the signature was changed by the server. A box that is the signed one, and does not hold what the
signed hashes say, was made so by the dealer: its key is known to the two of them only, and depends on nothing that
the server tells.

The hashes give nothing away. They are of values that nobody can guess: a seed is 32 uniform bytes, a share alone is
uniform in the field, and beside t - 1 others as uncertain as the secret itself.

Rejected: to send every holder all hashes of a dealer, the square of a neighbourhood for each (640 KB at a hundred
parties, where paths are 25 KB); a signature for each share, which the server would have to verify one by one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.crypto.merkle import MerkleTree, root_above
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.wire.messages import Length, Stamp, record

DEALT_DOMAIN = "dealt-shares"


@record
@dataclass(frozen=True, slots=True)
class SignedBox:
    """A box as its holder gets it: what it holds, by hash, and the path to what the dealer signed."""

    box: bytes
    hashes: tuple[Annotated[bytes, Length(32)], ...]
    path: tuple[Annotated[bytes, Length(32)], ...]
    signature: Annotated[bytes, Length(64)]


def share_hash(stamp: Stamp, dealer: PartyId, holder: PartyId, kind: str, share: bytes) -> bytes:
    return stamp.digest("share-hash", dealer.encode(), holder.encode(), kind.encode(), share)


def seed_hash(stamp: Stamp, dealer: PartyId, seed: Secret) -> bytes:
    return stamp.digest("seed-hash", dealer.encode(), seed.reveal())


class DealtTree:
    """All that one dealer signs in one attempt: its seed, then by name of the holder each box with its hashes."""

    def __init__(
        self,
        stamp: Stamp,
        dealer: PartyId,
        boxes: Mapping[PartyId, bytes],
        hashes: Mapping[PartyId, Iterable[bytes]],
        seed: bytes,
    ) -> None:
        """Among the holders is the dealer itself, which needs no box."""
        self._places = {holder: place for place, holder in enumerate(sorted(hashes), start=1)}
        self._tree = MerkleTree(
            [
                seed,
                *(
                    _leaf(stamp, dealer, holder, boxes.get(holder, b""), hashes[holder])
                    for holder in self._places
                ),
            ]
        )
        self.digest = _signed_digest(stamp, dealer, self._tree.root)

    def path_from(self, holder: PartyId) -> tuple[bytes, ...]:
        return self._tree.path_from(self._places[holder])


def require_signed(roster: Roster, stamp: Stamp, dealer: PartyId, holder: PartyId, signed: SignedBox) -> None:
    """Refuse a box that is not, with its hashes, the one that the dealer signed for this holder."""
    leaf = _leaf(stamp, dealer, holder, signed.box, signed.hashes)
    digest = _signed_digest(stamp, dealer, root_above(leaf, signed.path))
    roster.verify(dealer, DEALT_DOMAIN, digest, signed.signature)


def _leaf(stamp: Stamp, dealer: PartyId, holder: PartyId, box: bytes, hashes: Iterable[bytes]) -> bytes:
    return stamp.digest(
        "dealt-share", dealer.encode(), holder.encode(), hashlib.sha256(box).digest(), *hashes
    )


def _signed_digest(stamp: Stamp, dealer: PartyId, root: bytes) -> bytes:
    return stamp.digest("dealt-shares", dealer.encode(), root)
