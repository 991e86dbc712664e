"""Parties that have lines and nothing else, with the identities of real ones: for tests of handshakes."""

from __future__ import annotations

from tests.support.tables.sealed_party import FEDERATION, SECRET, lines_of
from veilsum.transport.framing.datagrams import Chunk, Probe, parse_fields
from veilsum.transport.lines.answering import Opened
from veilsum.transport.lines.book import LineBook
from veilsum.transport.lines.datagrams import ACCEPT, CONFIRM, OPEN, kind_of_datagram
from veilsum.transport.lines.line import LineLimits

PROBE_FIELDS = Probe(b"lifetime", 1, 0).fields()
CHUNK_FIELDS = Chunk(b"lifetime", 1, 0, 0, 5, 5, 0).fields()


class LineParty:
    """One start of a party; `hear` says what a datagram brought, and None where it was dropped."""

    def __init__(
        self,
        name: str,
        limits: LineLimits | None = None,
        secret: str = SECRET,
        federation: str = FEDERATION,
    ) -> None:
        self.name = name
        self.book = LineBook(lines_of(name, secret, federation), limits or LineLimits())

    def ask(self, other: LineParty, now: float = 0.0, timed_out: bool = False) -> list[bytes]:
        return list(self.book.ask(other.name, PROBE_FIELDS, now, timed_out))

    def chunk(self, other: LineParty, data: bytes, now: float = 0.0) -> list[bytes]:
        return list(self.book.carry(other.name, CHUNK_FIELDS, data, now))

    def ack(self, other: LineParty, data: bytes) -> bytes | None:
        return self.book.acknowledge(other.name, PROBE_FIELDS, data)

    def hear(self, sender: str, datagram: bytes, now: float = 0.0) -> bytes | bool | Opened | None:
        view = memoryview(datagram)
        kind = kind_of_datagram(view)
        if kind is None:
            return None
        if kind == OPEN:
            return self.book.hear_open(sender, view, now)
        if kind == ACCEPT:
            return self.book.hear_accept(sender, view, now) or None
        if kind == CONFIRM:
            return self.book.hear_confirm(sender, view) or None
        parsed = parse_fields(kind, view)
        return parsed and self.book.open(sender, kind, bytes(view[: parsed[1]]), view[parsed[1] :])

    def reads(self, sender: str, datagram: bytes) -> bytes | None:
        """The content of a chunk, probe or acknowledgement, or None."""
        opened = self.hear(sender, datagram)
        return bytes(opened.data) if isinstance(opened, Opened) else None


def open_line(opener: LineParty, accepter: LineParty, now: float = 0.0) -> tuple[bytes, bytes]:
    """An `open` and the `accept` that it gets."""
    opening = opener.ask(accepter, now)[0]
    accept = accepter.hear(opener.name, opening, now)
    assert isinstance(accept, bytes)
    return opening, accept


def confirm_line(opener: LineParty, accepter: LineParty, accept: bytes) -> list[bytes]:
    """The opener takes the accept, confirms and asks, and hears that it was heard; returns what it sent."""
    assert opener.hear(accepter.name, accept)
    confirm, probe = opener.ask(accepter)
    assert accepter.hear(opener.name, confirm) is True
    assert accepter.reads(opener.name, probe) == b""
    ack = accepter.ack(opener, b"heard")
    assert ack is not None and opener.reads(accepter.name, ack) == b"heard"
    return [confirm, probe]


def introduced(*names: str, limits: LineLimits | None = None) -> tuple[LineParty, LineParty]:
    opener, accepter = (LineParty(name, limits) for name in names or ("alice", "bob"))
    confirm_line(opener, accepter, open_line(opener, accepter)[1])
    return opener, accepter
