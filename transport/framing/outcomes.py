"""What an endpoint tells its caller: messages that came, what became of those that were sent, and whom it dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from veilsum.transport.base import Address
    from veilsum.transport.errors import TransportError


@dataclass(frozen=True, slots=True)
class Delivered:
    """A whole message from `sender`, to be taken once."""

    sender: Address
    payload: memoryview


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The receiver has the message."""

    receiver: Address
    message: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The message was given up; the error says why."""

    receiver: Address
    message: int
    error: TransportError


@dataclass(frozen=True, slots=True)
class PeerDropped:
    """Computing something for a peer failed in no known way: its lines and what was unfinished are gone."""

    peer: Address
    error: Exception


Outcome: TypeAlias = Acknowledged | Failed


@dataclass(slots=True)
class Counters:
    """What an endpoint has seen, for tests and for people who look for the cause of trouble."""

    malformed: int = 0
    not_opened: int = 0
    other_life: int = 0
    peers_dropped: int = 0
    sent: int = 0
