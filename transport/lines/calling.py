"""The opening half of lines: ours to one receiver, over which our chunks travel.

At most one `open` waits for its answer. It is sent again as the same bytes, and the receiver answers these with
the `accept` that it has stored; after a few times a fresh one takes its place, for the receiver may know it as spent.
The first `accept` that verifies makes the line, and the private key of the handshake is gone with that. The line before
is kept, for its acknowledgements, until the receiver has answered on the new one: only then is it sure that the
`confirm` arrived. Until then the stored `confirm` goes out again with each question.

A line that is unknown at the other end cannot be told from one whose datagrams get lost, for a receiver does not
answer what it cannot open. So after `timeouts_before_new` timeouts a new one is opened.

Implements specs/transport.md, section 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from veilsum.transport.lines.datagrams import CHUNK, CONFIRM, OPEN, PROBE, pack_handshake
from veilsum.transport.lines.line import Line

if TYPE_CHECKING:
    from veilsum.transport.base import Address, Buffer, LineCrypto, Opening
    from veilsum.transport.lines.line import LineLimits


class Caller:
    """Our lines to one receiver."""

    def __init__(self, receiver: Address, crypto: LineCrypto, limits: LineLimits) -> None:
        self._receiver = receiver
        self._crypto = crypto
        self._limits = limits
        self._opening: Opening | None = None
        self._asked_at = 0.0
        self._askings = 0
        self._line: Line | None = None
        self._confirm: bytes | None = None
        self._before: Line | None = None
        self._timeouts = 0

    def ask(self, fields: bytes, now: float, timed_out: bool) -> Iterator[bytes]:
        """What asks the receiver what it has: an `open` where there is no line or it seems dead, and a probe on it."""
        self._timeouts += timed_out
        line = self._line
        if (
            line is None
            or self._timeouts >= self._limits.timeouts_before_new
            or line.is_worn(self._limits, now)
        ):
            yield from self._ask_for_line(now)
        if line is not None:
            if self._confirm is not None:
                yield self._confirm
            yield from _unless_spent(line.seal(PROBE, fields, b""))

    def carry(self, fields: bytes, data: Buffer, now: float) -> Iterator[bytes]:
        """A chunk on the newest line, and an `open` beside it when the line is worn."""
        line = self._line
        if line is None:
            return
        if line.is_worn(self._limits, now) and (
            self._opening is None or now - self._asked_at >= self._limits.ask_again_s
        ):
            yield from self._ask_for_line(now)
        yield from _unless_spent(line.seal(CHUNK, fields, data))

    def hear_accept(self, body: bytes, now: float) -> bool:
        """Take an answer to our `open`; whether there is a new line to ask on."""
        answered = None if self._opening is None else self._opening.accepted(body)
        if answered is None:
            return False
        seal, content = answered
        if self._confirm is None:
            self._before = self._line
        self._opening = None
        self._line = Line(seal, now)
        self._confirm = self._line.seal(CONFIRM, b"", content)
        self._timeouts = 0
        return True

    def open(self, line_id: bytes, number: int, header: bytes, sealed: Buffer) -> Buffer | None:
        """An acknowledgement of the receiver, or None."""
        for line in (self._line, self._before):
            if line is not None and line.id == line_id:
                data = line.open(number, header, sealed)
                if data is not None:
                    self._note_answer(line)
                return data
        return None

    def _note_answer(self, line: Line) -> None:
        self._timeouts = 0
        if line is self._line:
            self._confirm = None
            self._before = None

    def _ask_for_line(self, now: float) -> Iterator[bytes]:
        if self._opening is None or self._askings >= self._limits.askings_of_one_open:
            self._opening = self._crypto.open_line(self._receiver)
            self._askings = 0
        self._askings += 1
        self._asked_at = now
        yield pack_handshake(OPEN, self._opening.body)


def _unless_spent(datagram: bytes | None) -> Iterator[bytes]:
    if datagram is not None:
        yield datagram
