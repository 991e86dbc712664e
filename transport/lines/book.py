"""All lines of one party: to everybody it sends to, and from everybody who opened one.

What comes in is dropped without a word unless it fits: no datagram that does not open changes anything, and nothing is
kept for names that the handed-in cryptography does not know.

Implements specs/transport.md, section 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from veilsum.transport.lines.answering import Answerer, Opened
from veilsum.transport.lines.calling import Caller
from veilsum.transport.lines.datagrams import ACK, HEAD_BYTES, START_BYTES, parse_head

if TYPE_CHECKING:
    from veilsum.transport.base import Address, Buffer, LineCrypto
    from veilsum.transport.lines.line import LineLimits


class LineBook:
    """The lines of one start of one party."""

    def __init__(self, crypto: LineCrypto, limits: LineLimits) -> None:
        self._crypto = crypto
        self._limits = limits
        self._callers: dict[Address, Caller] = {}
        self._answerers: dict[Address, Answerer] = {}

    def ask(self, receiver: Address, fields: bytes, now: float, timed_out: bool) -> Iterator[bytes]:
        """The datagrams that ask a receiver what it has, and for a line where that is due."""
        if self._crypto.knows(receiver):
            yield from self._caller(receiver).ask(fields, now, timed_out)

    def carry(self, receiver: Address, fields: bytes, data: Buffer, now: float) -> Iterator[bytes]:
        """The datagram of a chunk, behind an `open` where the line is worn."""
        yield from self._caller(receiver).carry(fields, data, now)

    def acknowledge(self, sender: Address, fields: bytes, data: Buffer) -> bytes | None:
        """The datagram of an acknowledgement, or None if there is no line of this sender."""
        answerer = self._answerers.get(sender)
        return None if answerer is None else answerer.acknowledge(fields, data)

    def hear_open(self, sender: Address, datagram: memoryview, now: float) -> bytes | None:
        """The datagram that answers an `open`, or None if it is dropped."""
        if not self._crypto.knows(sender):
            return None
        answerer = self._answerers.get(sender)
        if answerer is None:
            answerer = self._answerers[sender] = Answerer(sender, self._crypto, self._limits)
        return answerer.hear_open(bytes(datagram[START_BYTES:]), now)

    def hear_accept(self, sender: Address, datagram: memoryview, now: float) -> bool:
        """Whether the answer to an `open` of ours made a line, over which to ask now."""
        caller = self._callers.get(sender)
        return caller is not None and caller.hear_accept(bytes(datagram[START_BYTES:]), now)

    def hear_confirm(self, sender: Address, datagram: memoryview) -> bool:
        """Whether the first box of a line confirmed it."""
        answerer = self._answerers.get(sender)
        line, number = parse_head(datagram)
        header, sealed = bytes(datagram[:HEAD_BYTES]), datagram[HEAD_BYTES:]
        return answerer is not None and answerer.hear_confirm(line, number, header, sealed)

    def open(self, sender: Address, kind: int, header: bytes, sealed: memoryview) -> Opened | None:
        """The data of a chunk, probe or acknowledgement that `sender` sealed on a line with us."""
        line, number = parse_head(memoryview(header))
        if kind == ACK:
            caller = self._callers.get(sender)
            data = None if caller is None else caller.open(line, number, header, sealed)
            return None if data is None else Opened(data, newest=True)
        answerer = self._answerers.get(sender)
        return None if answerer is None else answerer.open(line, number, header, sealed)

    def hang_up(self, party: Address) -> None:
        """End all lines with a party, both ways; it or we open new ones."""
        self._callers.pop(party, None)
        answerer = self._answerers.get(party)
        if answerer is not None:
            answerer.hang_up()

    def _caller(self, receiver: Address) -> Caller:
        caller = self._callers.get(receiver)
        if caller is None:
            caller = self._callers[receiver] = Caller(receiver, self._crypto, self._limits)
        return caller
