"""Lines between identities: what the transport is handed as its cryptography.

Here the two meet that must not know each other: `transport/lines/` keeps the lines of a party and asks for
signatures and keys, `protocol/crypto/lines.py` has them. A party's own identity signs, and the roster says whose
signature counts. Whatever does not verify is dropped, and told once.

Implements specs/keys.md, section 11.
"""

from __future__ import annotations

import logging
from typing import cast

from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.crypto.identity import Identity
from veilsum.protocol.crypto.lines import LineAcceptance, LineEnds, LineKeys, LineOpening
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.randomness import RandomBytes
from veilsum.transport.base import Acceptance, Buffer, LineSeal, Opening

_MOST_COMPLAINTS = 1000

_logger = logging.getLogger(__name__)


class Complaints:
    """Once per sender and reason: an outsider must not be able to fill a disk."""

    def __init__(self) -> None:
        self._told: set[tuple[str, AbortReason]] = set()

    def tell(self, sender: str, refusal: Rejection) -> None:
        complaint = (sender, refusal.reason)
        if complaint not in self._told and len(self._told) < _MOST_COMPLAINTS:
            self._told.add(complaint)
            _logger.warning("datagrams in the name of %s are dropped: %s", sender, refusal)


class IdentityLines:
    """The handshakes of one start of one party with all others of its roster."""

    def __init__(self, me: Identity, roster: Roster, federation_id: str, random: RandomBytes) -> None:
        self._me = me
        self._roster = roster
        self._federation = federation_id.encode()
        self._random = random
        self._complaints = Complaints()

    def knows(self, address: str) -> bool:
        if address == self._me.name:
            return False
        try:
            self._roster.identity(address)
        except Rejection as refusal:
            self._complaints.tell(address, refusal)
            return False
        return True

    def open_line(self, receiver: str) -> Opening:
        ends = LineEnds(self._federation, self._me.name, PartyId(receiver))
        return _SignedOpening(ends, self._me, self._roster, self._random, self._complaints)

    def accept_line(self, sender: str, body: bytes) -> Acceptance | None:
        ends = LineEnds(self._federation, PartyId(sender), self._me.name)
        try:
            key = self._roster.identity(ends.opener).verify_key
            made = LineAcceptance(ends, body, key, self._me.signing, self._random)
        except Rejection as refusal:
            self._complaints.tell(sender, refusal)
            return None
        return _SignedAcceptance(sender, made, self._complaints)


class _SignedOpening:
    def __init__(
        self, ends: LineEnds, me: Identity, roster: Roster, random: RandomBytes, complaints: Complaints
    ) -> None:
        self._accepter = ends.accepter
        self._roster = roster
        self._complaints = complaints
        self._opening = LineOpening(ends, me.signing, random)
        self.body = self._opening.datagram

    def accepted(self, body: bytes) -> tuple[LineSeal, bytes] | None:
        try:
            key = self._roster.identity(self._accepter).verify_key
            keys, confirmation = self._opening.accepted(body, key)
        except Rejection as refusal:
            self._complaints.tell(self._accepter, refusal)
            return None
        return _IdentitySeal(self._accepter, keys, self._complaints), confirmation


class _SignedAcceptance:
    def __init__(self, sender: str, made: LineAcceptance, complaints: Complaints) -> None:
        self._sender = sender
        self._made = made
        self._complaints = complaints
        self.body = made.datagram
        self.seal: LineSeal = _IdentitySeal(sender, made.keys, complaints)

    def is_confirmed_by(self, content: Buffer) -> bool:
        try:
            self._made.require_confirmation(bytes(content))
        except Rejection as refusal:
            self._complaints.tell(self._sender, refusal)
            return False
        return True


class _IdentitySeal:
    """The keys of a line as the transport sees them. The casts spare copies: AES-GCM reads any buffer."""

    def __init__(self, other: str, keys: LineKeys, complaints: Complaints) -> None:
        self._other = other
        self._keys = keys
        self._complaints = complaints
        self.id = keys.id

    def seal(self, number: int, data: Buffer, header: bytes) -> bytes:
        return self._keys.seal(number, cast(bytes, data), header)

    def open(self, number: int, sealed: Buffer, header: bytes) -> bytes | None:
        try:
            return self._keys.open(number, cast(bytes, sealed), header)
        except Rejection as refusal:
            self._complaints.tell(self._other, refusal)
            return None
