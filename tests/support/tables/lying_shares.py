"""Lies of a dealer that its signature covers, and who was named for what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.support.tables.lying_table import attempt_of
from veilsum.protocol.crypto.boxes import open_box
from veilsum.protocol.crypto.shamir import FIELD_PRIME, SHARE_BYTES
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.events import PartyNamed
from veilsum.protocol.secure_sum.dealt import DEALT_DOMAIN, DealtTree, share_hash
from veilsum.protocol.secure_sum.shares import SealedShares, ShareKind
from veilsum.protocol.wire.messages import Stamp
from veilsum.simulations.testing.federation import TableFederation
from veilsum.simulations.testing.table import Table


def named_by(table: Table, *names: str) -> set[str]:
    """Whom these parties named as liars."""
    return {
        entry.event.party
        for entry in table.trace.entries
        if entry.party in names and isinstance(entry.event, PartyNamed)
    }


def wrong_share(share: bytes) -> bytes:
    return ((int.from_bytes(share, "big") + 1) % FIELD_PRIME).to_bytes(SHARE_BYTES, "big")


def wrong_box(plain: bytes) -> bytes:
    """The content of a box with its first share, that of the self mask, changed."""
    return wrong_share(plain[:SHARE_BYTES]) + plain[SHARE_BYTES:]


def signed_again(federation: TableFederation, dealer: PartyId, sealed: SealedShares) -> SealedShares:
    """What the dealer would have signed if this were its word."""
    tree = DealtTree(sealed.stamp, dealer, sealed.boxes, sealed.hashes, sealed.seed_hash)
    signing = federation.identities[dealer].signing
    return replace(sealed, signature=signing.sign(DEALT_DOMAIN, tree.digest))


def made_up_shares(
    federation: TableFederation, stamp: Stamp, dealer: PartyId, boxes: Mapping[PartyId, bytes], share: bytes
) -> SealedShares:
    """Signed by the dealer: these boxes, and the same share of both kinds for every holder."""
    hashes = {
        holder: tuple(share_hash(stamp, dealer, holder, kind.value, share) for kind in ShareKind)
        for holder in (dealer, *boxes)
    }
    return signed_again(federation, dealer, SealedShares(stamp, boxes, hashes, bytes(32), bytes(64)))


def dealt_wrong(
    table: Table,
    dealer: PartyId,
    sealed: SealedShares,
    to: Iterable[PartyId],
    change: Callable[[bytes], bytes] = wrong_box,
    *,
    hashed: bool = False,
) -> SealedShares:
    """Other shares in the boxes of some holders, signed; `hashed`: their hashes say so, too."""
    boxes, hashes = dict(sealed.boxes), dict(sealed.hashes)
    machine: Any = attempt_of(table, dealer)
    recovery = getattr(machine, "_recovery", None) or machine._round._recovery
    for holder in to:
        key = recovery._keeper._box_secret(dealer, holder)
        plain = change(open_box(key, boxes[holder], b""))
        # A liar seals twice under one key: not through the seam whose every use is watched.
        boxes[holder] = AESGCM(key.reveal()).encrypt(bytes(12), plain, b"")
        if hashed:
            pieces = (plain[at : at + SHARE_BYTES] for at in range(0, len(plain), SHARE_BYTES))
            hashes[holder] = tuple(
                share_hash(sealed.stamp, dealer, holder, kind.value, piece)
                for kind, piece in zip(ShareKind, pieces, strict=False)
            )
    return signed_again(table.federation, dealer, replace(sealed, boxes=boxes, hashes=hashes))
