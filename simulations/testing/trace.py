"""What happened at a table, in order: every event, every message, every refusal, every use of a mask key."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar
from unittest.mock import patch

from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import RemoteProtocolError
from veilsum.protocol.identifiers import PartyId, shown_attempt
from veilsum.protocol.machines.events import Event, RoundCommitted, RoundFailed, RunFailed, RunFinished
from veilsum.protocol.numbers import stream
from veilsum.protocol.wire.messages import Message, Stamp
from veilsum.simulations.run.invariants import SealRecorder, TagRecorder

E = TypeVar("E")


@dataclass(frozen=True)
class InFlight:
    """A message between two parties; its number is unique at the table."""

    number: int
    sender: PartyId
    receiver: PartyId
    message: Message

    def __repr__(self) -> str:
        kind, stamp = type(self.message).__name__, self.message.stamp
        shown = shown_attempt(stamp.round, stamp.attempt)
        return f"<{self.number}: {kind} {self.sender} -> {self.receiver}, {shown}>"


@dataclass(frozen=True)
class Entry:
    """A fact that a party stated; numbers grow with time, those of messages included."""

    time: float
    party: PartyId
    event: Event
    number: int


@dataclass(frozen=True)
class Refusal:
    """A message that a machine did not accept; the machine is as it was before."""

    flight: InFlight
    error: RemoteProtocolError

    @property
    def party(self) -> PartyId:
        """Who refused it."""
        return self.flight.receiver

    @property
    def message(self) -> Message:
        """What was refused."""
        return self.flight.message


@dataclass(frozen=True)
class KeyUse:
    """One stream of one mask key, met by one job of one party; `key` is a hash of it."""

    party: PartyId
    stamp: Stamp
    job: int
    key: bytes


@dataclass(repr=False)
class Trace:
    """Everything that happened at one table."""

    entries: list[Entry] = field(default_factory=list)
    sent: list[InFlight] = field(default_factory=list)
    """What the machines themselves sent; what a test injected is not in it."""
    refusals: list[Refusal] = field(default_factory=list)
    key_uses: list[KeyUse] = field(default_factory=list)
    seals: SealRecorder = field(default_factory=SealRecorder)
    tags: TagRecorder = field(default_factory=TagRecorder)

    def __repr__(self) -> str:
        return f"Trace({len(self.entries)} facts, {len(self.sent)} messages, {len(self.refusals)} refusals)"

    def events(self, kind: type[E]) -> list[tuple[PartyId, E]]:
        """All events of one class, with the party that had them."""
        return [(entry.party, entry.event) for entry in self.entries if isinstance(entry.event, kind)]

    @property
    def commits(self) -> list[tuple[PartyId, RoundCommitted]]:
        """Who committed which round, in order."""
        return self.events(RoundCommitted)

    @property
    def failures(self) -> list[tuple[PartyId, RoundFailed]]:
        """Who gave up which attempt, in order."""
        return self.events(RoundFailed)

    @property
    def endings(self) -> dict[PartyId, RunFinished | RunFailed]:
        """How the run last ended for each party, where it did."""
        return {
            entry.party: entry.event
            for entry in self.entries
            if isinstance(entry.event, RunFinished | RunFailed)
        }

    @contextmanager
    def noting_keys(self, party: PartyId, stamp: Stamp, job: int) -> Iterator[None]:
        """While this lasts, every mask key that becomes a stream is noted."""
        make_stream: Callable[[Secret], Any] = stream._keystream

        def noting(key: Secret) -> Any:
            digest = hashlib.sha256(key.reveal()).digest()
            self.key_uses.append(KeyUse(party, stamp, job, digest))
            return make_stream(key)

        with patch.object(stream, "_keystream", noting):
            yield
