"""The accepting half of lines: those that one sender opened to us, over which its chunks come.

A broker can play back every `open` that the sender ever signed, and hold back every `confirm`. Neither helps it: an
`open` makes an unconfirmed line at most, which carries nothing and displaces only other unconfirmed ones, and a
confirmed line yields only to a confirmed one that we accepted later. So the line of the sender's present start
cannot be pushed out by those of earlier ones, and what an earlier start sent is not read once a later one was heard.
Nor does it keep the sender from opening a line: an `open` whose line is gone is known again and dropped, so that each
recording takes its turn among the few that are verified in a second once, and not as often as it is played.

The line before the newest is still read, for what was under way when it was replaced; acknowledgements always travel
on the newest.

Implements specs/transport.md, section 5.
"""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from veilsum.transport.lines.datagrams import ACCEPT, ACK, pack_handshake
from veilsum.transport.lines.line import Line

if TYPE_CHECKING:
    from veilsum.transport.base import Acceptance, Address, Buffer, LineCrypto
    from veilsum.transport.lines.line import LineLimits


@dataclass(frozen=True, slots=True)
class Opened:
    """The data of a datagram; `newest` unless it came over a line that has been replaced."""

    data: Buffer
    newest: bool


@dataclass(frozen=True, slots=True)
class _Accepted:
    body: bytes
    acceptance: Acceptance
    line: Line

    def answer(self) -> bytes:
        return pack_handshake(ACCEPT, self.acceptance.body)


class Answerer:
    """The lines of one sender to us."""

    def __init__(self, sender: Address, crypto: LineCrypto, limits: LineLimits) -> None:
        self._sender = sender
        self._crypto = crypto
        self._limits = limits
        self._verified_at: deque[float] = deque(maxlen=limits.opens_per_s)
        self._accepted = 0
        self._heard: dict[bytes, None] = {}
        self._unconfirmed: dict[bytes, _Accepted] = {}
        self._confirmed: _Accepted | None = None
        self._draining: Line | None = None

    def hear_open(self, body: bytes, now: float) -> bytes | None:
        """The `accept`: the stored one for bytes that we know, a new one for what verifies, or None."""
        known = [*self._unconfirmed.values(), *([self._confirmed] if self._confirmed else [])]
        for accepted in known:
            if accepted.body == body:
                return accepted.answer()
        digest = hashlib.sha256(body).digest()
        if digest in self._heard:
            return None
        if len(self._verified_at) == self._limits.opens_per_s and now - self._verified_at[0] < 1.0:
            return None
        self._verified_at.append(now)
        acceptance = self._crypto.accept_line(self._sender, body)
        if acceptance is None:
            return None
        self._heard[digest] = None
        if len(self._heard) > self._limits.opens_remembered:
            del self._heard[next(iter(self._heard))]
        if len(self._unconfirmed) >= self._limits.most_unconfirmed:
            del self._unconfirmed[next(iter(self._unconfirmed))]
        self._accepted += 1
        accepted = _Accepted(body, acceptance, Line(acceptance.seal, now, self._accepted))
        self._unconfirmed[accepted.line.id] = accepted
        return accepted.answer()

    def hear_confirm(self, line_id: bytes, number: int, header: bytes, sealed: Buffer) -> bool:
        """The sender vouches for a line: it replaces the newest one, unless that was accepted later."""
        waiting = self._unconfirmed.get(line_id)
        if waiting is None or number != 0:
            return False
        content = waiting.line.open(number, header, sealed)
        if content is None or not waiting.acceptance.is_confirmed_by(content):
            return False
        self._draining = None if self._confirmed is None else self._confirmed.line
        self._confirmed = waiting
        later = waiting.line.order
        self._unconfirmed = {key: one for key, one in self._unconfirmed.items() if one.line.order > later}
        return True

    def open(self, line_id: bytes, number: int, header: bytes, sealed: Buffer) -> Opened | None:
        """What the sender sealed on a confirmed line, or None."""
        if self._confirmed is not None and self._confirmed.line.id == line_id:
            data = self._confirmed.line.open(number, header, sealed)
            return None if data is None else Opened(data, newest=True)
        if self._draining is not None and self._draining.id == line_id:
            data = self._draining.open(number, header, sealed)
            return None if data is None else Opened(data, newest=False)
        return None

    def hang_up(self) -> None:
        """End all lines of this sender; what it opened before stays known, so that none of it opens one again."""
        self._unconfirmed.clear()
        self._confirmed = self._draining = None

    def acknowledge(self, fields: bytes, data: Buffer) -> bytes | None:
        """An acknowledgement on the newest line, or None where there is none."""
        return None if self._confirmed is None else self._confirmed.line.seal(ACK, fields, data)
