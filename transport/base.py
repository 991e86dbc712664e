"""The interfaces of the transport: a link that may lose datagrams, and a transport that does not.

A `Link` carries single datagrams, at most once or several times, in any order: an MQTT connection or a
table in memory. A `Transport` carries whole messages of any size, exactly once and in order per sender, or
raises a typed error. `veilsum.transport.reliable` builds the second from the first. Payloads are opaque
bytes, and the name of a sender is as true as the `LineCrypto` that the caller hands in: all keys are its business.

A role process is given a `TransportFactory`: from a `ConnectionRequest` it makes a `RoleTransport`, over which
parties also tell everybody how they are.

Implements specs/transport.md, section 11.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self, TypeAlias

Address: TypeAlias = str
Buffer: TypeAlias = bytes | bytearray | memoryview


class LineSeal(Protocol):
    """The keys of one line at one end."""

    @property
    def id(self) -> bytes:
        """What both ends call the line: 16 bytes that no other line has."""

    def seal(self, number: int, data: Buffer, header: bytes) -> bytes:
        """Bytes that only the other end opens, and only with this number and header."""

    def open(self, number: int, sealed: Buffer, header: bytes) -> Buffer | None:
        """The data, or None unless the other end sealed exactly this."""


class Opening(Protocol):
    """An `open` of ours that waits for its `accept`."""

    @property
    def body(self) -> bytes: ...

    def accepted(self, body: bytes) -> tuple[LineSeal, bytes] | None:
        """The line and the content of its `confirm`, or None unless the receiver answered this very `open`."""


class Acceptance(Protocol):
    """An `accept` of ours, and its line, which nobody has confirmed yet."""

    @property
    def body(self) -> bytes: ...

    @property
    def seal(self) -> LineSeal: ...

    def is_confirmed_by(self, content: Buffer) -> bool:
        """Whether the opener vouches for this very line."""


class LineCrypto(Protocol):
    """Handshakes of one party. What it draws is fresh for each of them, so no line is made twice."""

    def knows(self, address: Address) -> bool:
        """Whether there is another party of this name; nothing is kept for any other name."""

    def open_line(self, receiver: Address) -> Opening:
        """A new handshake."""

    def accept_line(self, sender: Address, body: bytes) -> Acceptance | None:
        """The answer to an `open`, or None unless `sender` made it for us."""


@dataclass(frozen=True, slots=True)
class Datagram:
    """One datagram as it came off a link; who sent it is a hint."""

    sender_hint: Address
    data: Buffer


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The link lost its connection, and says why; datagrams are lost until it is `Reconnected`."""

    why: str


@dataclass(frozen=True, slots=True)
class Reconnected:
    """The link was interrupted and is back; datagrams sent meanwhile may be lost."""


@dataclass(frozen=True, slots=True)
class GoneHint:
    """The link believes that a party has gone; a hint, never a proof."""

    address: Address


LinkNews: TypeAlias = Interrupted | Reconnected
LinkEvent: TypeAlias = Datagram | LinkNews | GoneHint


def ignore_news(news: LinkNews) -> None:
    """For whoever does not want to know how its link fares."""


@dataclass(frozen=True, slots=True)
class Received:
    """One whole message; the sender is as true as the sealing that the transport was given."""

    sender_hint: Address
    payload: memoryview


class Link(Protocol):
    """An unreliable datagram link of one address."""

    @property
    def largest_datagram(self) -> int | None:
        """The largest datagram that the link is known to carry, or None when it has stated no limit."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc_info: object) -> None: ...

    async def send(self, receiver: Address, datagram: bytes) -> None:
        """Hand one datagram over; returning promises nothing about its arrival."""

    async def receive(self) -> LinkEvent:
        """Wait for the next datagram or notice; raises a `TransportError` when the link is beyond repair."""


class Transport(Protocol):
    """A reliable message transport of one address."""

    @property
    def address(self) -> Address: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc_info: object) -> None: ...

    async def send(self, receiver: Address, payload: Sequence[Buffer], deadline_s: float) -> None:
        """Return when `receiver` has acknowledged the whole message, or raise by the deadline."""

    async def receive(self) -> Received:
        """Wait for the next whole message."""


class StatusSource(Protocol):
    """Where statuses are heard, by a party or an observer; they may be lost, and who sent one is a hint."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *exc_info: object) -> None: ...

    def statuses(self) -> AsyncIterator[Datagram]:
        """What parties tell about themselves, from now on."""


class RoleTransport(Transport, StatusSource, Protocol):
    """A transport of a role process, over which it also tells how it is."""

    async def publish_status(self, status: bytes) -> None:
        """Tell everybody who listens how we are; at most once, kept by nobody."""


@dataclass(frozen=True, slots=True)
class ConnectionRequest:
    """Who wants to be connected, and what makes its datagrams unreadable for everybody else.

    `life` is a fresh nonce of this start of the party; `on_gone` is told when the link believes that a party has gone;
    `largest_message` is what no message for or of this party exceeds, where that is known (`Limits.for_messages`);
    `on_link` is told when the connection is lost, and when it is back.
    """

    federation: str
    address: Address
    life: bytes
    crypto: LineCrypto = field(repr=False)
    on_gone: Callable[[Address], None] = field(repr=False)
    connect_within_s: float
    largest_message: int | None = None
    on_link: Callable[[LinkNews], None] = field(default=ignore_news, repr=False)


TransportFactory: TypeAlias = Callable[[ConnectionRequest], RoleTransport]
"""Makes the transport of one start of a party; the role process enters and leaves it."""
