"""Sealed datagrams between identities: what the transport's framing gets as `seal_chunk` and `open_chunk`.

Every start of a party, its life, draws an X25519 key that lives in memory only. The identity key signs it
together with the life, so two lives that have seen each other's signed key share a secret that nobody else can
compute: AES-256-GCM under two directional keys (protocol/crypto/boxes.py), bound to both names and both lives. No
handshake of its own is needed, because framing has one: a sender first asks who the receiver is (probe), and the
answer (ack) names the receiver's life.

    probe   key (32) signature (64)                        the signature covers the key and the whole header
    ack     key (32) signature (64) number (8) box         the signature covers the key, name and life
    chunk   number (8) box                                 both keys are known by now

The header is the associated data of every box, in an ack followed by the signed key. A probe has no content, so
it needs no secrecy, and a replayed one changes nothing at its receiver. An ack and a chunk open only with the
keys of the two lives named in the header. What was recorded stays closed when an identity key is stolen later,
since the keys of past lives are gone.

Rejected: static agreement keys in the roster, or the identity keys converted to X25519. Both would spare the
signatures, and both would let one stolen key open every recording. Also rejected: random nonces; a counter per
direction cannot collide, and the keys under it die with the process that counts.

Implements specs/keys.md, section 11.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from typing import cast

from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.crypto.agreement import PUBLIC_KEY_BYTES as KEY_BYTES
from veilsum.protocol.crypto.agreement import AgreementKey
from veilsum.protocol.crypto.boxes import Channel
from veilsum.protocol.crypto.domains import domain_tag, length_prefixed
from veilsum.protocol.crypto.identity import Identity
from veilsum.protocol.crypto.signing import SIGNATURE_BYTES
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.randomness import RandomBytes
from veilsum.transport.base import Buffer
from veilsum.transport.framing.datagrams import Ack, Chunk, Probe, parse_header

KEY_DOMAIN = "channel-key"
PROBE_DOMAIN = "channel-probe"
NUMBER_BYTES = 8
LIVES_KEPT = 8
"""How many lives of one party are remembered; each costs its receiver a few hundred bytes."""

_SIGNED_KEY_BYTES = KEY_BYTES + SIGNATURE_BYTES

_logger = logging.getLogger(__name__)


@dataclass
class _Line:
    """The channel to one life of another party; `proven` once that life has sealed something for us.

    The casts spare copies: AES-GCM reads any buffer.
    """

    key: bytes
    channel: Channel
    next_number: int = 0
    proven: bool = False

    def seal(self, header: bytes, data: Buffer) -> list[bytes]:
        number = self.next_number
        self.next_number += 1
        return [number.to_bytes(NUMBER_BYTES, "big"), self.channel.seal(number, cast(bytes, data), header)]

    def open(self, header: bytes, sealed: memoryview) -> bytes:
        number = int.from_bytes(sealed[:NUMBER_BYTES], "big")
        opened = self.channel.open(number, cast(bytes, sealed[NUMBER_BYTES:]), header)
        self.proven = True
        return opened


class Channels:
    """The channels of one life of one party to all others of its roster."""

    def __init__(
        self, me: Identity, roster: Roster, federation_id: str, life: bytes, random: RandomBytes
    ) -> None:
        self._me = me
        self._roster = roster
        self._federation = federation_id.encode()
        self._life = life
        self._key = AgreementKey.generate(random)
        signature = me.signing.sign(KEY_DOMAIN, self._key_digest(me.name, life, self._key.public))
        self._signed_key = self._key.public + signature
        self._lines: dict[PartyId, dict[bytes, _Line]] = {}
        self._complained: set[tuple[str, AbortReason]] = set()

    def seal_chunk(self, receiver: str, header: bytes, data: Buffer) -> bytes:
        """Bytes that only the receiver's life in the header opens; a probe is signed instead."""
        kind = _kind(header)
        if isinstance(kind, Probe):
            return self._key.public + self._me.signing.sign(
                PROBE_DOMAIN, self._probe_digest(header, self._key.public)
            )
        line = self._lines.get(PartyId(receiver), {}).get(kind.head.to_life)
        if line is None:
            # A life that is forgotten by now; framing asks again, and its answer brings the key back.
            return b""
        front = self._signed_key if isinstance(kind, Ack) else b""
        return b"".join([front, *line.seal(header + front, data)])

    def open_chunk(self, sender: str, header: bytes, sealed: Buffer) -> bytes | None:
        """The content, or None unless this sender of the roster sealed it for us under this header."""
        try:
            return self._open(PartyId(sender), header, memoryview(sealed))
        except Rejection as refusal:
            self._complain(sender, refusal)
            return None

    def _open(self, sender: PartyId, header: bytes, sealed: memoryview) -> bytes:
        if sender == self._me.name:
            raise Rejection(AbortReason.REPLAY, "our own datagrams come back")
        kind = _kind(header)
        life = kind.head.from_life
        if isinstance(kind, Probe):
            self._open_probe(sender, life, header, sealed)
            return b""
        front = b""
        if isinstance(kind, Ack):
            front, sealed = bytes(sealed[:_SIGNED_KEY_BYTES]), sealed[_SIGNED_KEY_BYTES:]
            self._learn_key(sender, life, front)
        line = self._lines.get(sender, {}).get(life)
        if line is None:
            raise Rejection(AbortReason.BAD_SEAL, "from a life that has not introduced itself")
        return line.open(header + front, sealed)

    def _open_probe(self, sender: PartyId, life: bytes, header: bytes, sealed: memoryview) -> None:
        key, signature = _split_signed_key(sealed)
        self._roster.verify(sender, PROBE_DOMAIN, self._probe_digest(header, key), signature)
        self._remember(sender, life, key)

    def _learn_key(self, sender: PartyId, life: bytes, signed_key: bytes) -> None:
        key, signature = _split_signed_key(signed_key)
        known = self._lines.get(sender, {}).get(life)
        if known is None or known.key != key:
            self._roster.verify(sender, KEY_DOMAIN, self._key_digest(sender, life, key), signature)
            self._remember(sender, life, key)

    def _remember(self, party: PartyId, life: bytes, key: bytes) -> None:
        lines = self._lines.setdefault(party, {})
        known = lines.get(life)
        if known is not None:
            if known.key != key:
                raise Rejection(AbortReason.EQUIVOCATION, "two channel keys for one life")
            return
        shared = self._key.agree(key)
        ends = sorted([(self._me.name.encode(), self._life), (party.encode(), life)])
        session = hashlib.sha256(
            length_prefixed(domain_tag("channel"), self._federation, *(part for end in ends for part in end))
        ).digest()
        if len(lines) >= LIVES_KEPT:
            del lines[next((old for old, line in lines.items() if not line.proven), next(iter(lines)))]
        lines[life] = _Line(key, Channel(shared, session, self._me.name, party))

    def _key_digest(self, name: PartyId, life: bytes, key: bytes) -> bytes:
        framed = length_prefixed(domain_tag(KEY_DOMAIN), self._federation, name.encode(), life, key)
        return hashlib.sha256(framed).digest()

    def _probe_digest(self, header: bytes, key: bytes) -> bytes:
        framed = length_prefixed(domain_tag(PROBE_DOMAIN), self._federation, header, key)
        return hashlib.sha256(framed).digest()

    def _complain(self, sender: str, refusal: Rejection) -> None:
        """Once per sender and reason: an outsider must not be able to fill a disk."""
        complaint = (sender, refusal.reason)
        if complaint not in self._complained and len(self._complained) < 1000:
            self._complained.add(complaint)
            _logger.warning("datagrams in the name of %s are dropped: %s", sender, refusal)


def _kind(header: bytes) -> Chunk | Probe | Ack:
    parsed = parse_header(memoryview(header))
    if parsed is None:
        raise Rejection(AbortReason.BAD_ENCODING, "no header of ours")
    return parsed[0]


def _split_signed_key(signed: bytes | memoryview) -> tuple[bytes, bytes]:
    if len(signed) != _SIGNED_KEY_BYTES:
        raise Rejection(AbortReason.BAD_ENCODING, f"a signed key has {_SIGNED_KEY_BYTES} bytes")
    return bytes(signed[:KEY_BYTES]), bytes(signed[KEY_BYTES:])
