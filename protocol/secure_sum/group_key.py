"""The group key of a session: one member deals it, boxed for each of the others, and the server passes the boxes on.

Tags of sums are made with it (verification.py beside this file), so the server must not have it, and all members must
have the same. The dealer is the member with the lowest SHA-256 of session id and name: nobody chooses it, the id hashes
everyone's nonce. More dealers would protect from nobody, since any one member that colludes with the server gives the
key away. That all hold the same shows in the id of the key, which members sign with what they send next; a dealer that
deals two keys therefore stops an attempt, and gets nothing.

    dealer -> server    group-key.dealt       a box for each other member
    server -> member    group-key.delivered   the box for this one

Implements specs/protocol.md, section 6.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from veilsum.protocol.crypto.boxes import open_box, seal_box
from veilsum.protocol.crypto.domains import domain_tag, length_prefixed
from veilsum.protocol.crypto.kdf import KEY_BYTES, Purpose
from veilsum.protocol.crypto.linear_tag import group_key_id
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.identifiers import SERVER, PartyId, SessionId
from veilsum.protocol.machines.attempt import (
    AttemptMachine,
    Failed,
    ParticipantContext,
    Prepared,
    ServerContext,
    handles,
    require_from_server,
    server_was_silent,
)
from veilsum.protocol.machines.events import Event, Send
from veilsum.protocol.machines.transitions import Phase, TransitionTable
from veilsum.protocol.randomness import require_random
from veilsum.protocol.wire.messages import MaxLength, Message, Stamp, message

_BOX = MaxLength(128)


@message("group-key.dealt")
@dataclass(frozen=True, slots=True)
class GroupKeyDealt(Message):
    stamp: Stamp
    boxes: Mapping[PartyId, Annotated[bytes, _BOX]]


@message("group-key.delivered")
@dataclass(frozen=True, slots=True)
class GroupKeyDelivered(Message):
    stamp: Stamp
    box: Annotated[bytes, _BOX]


@dataclass(frozen=True)
class GroupKey:
    """The key that the members of a session have in common, and the id that shows which one it is."""

    key: Secret = field(repr=False)
    id: bytes

    @classmethod
    def of(cls, key: Secret) -> GroupKey:
        return cls(key, group_key_id(key))


def dealer_of(session: SessionId, members: Iterable[PartyId]) -> PartyId:
    """Who deals: nobody can choose to."""
    drawn = {
        name: hashlib.sha256(length_prefixed(domain_tag("group-dealer"), session, name.encode())).digest()
        for name in members
    }
    return min(drawn, key=drawn.__getitem__)


class GroupKeyPhase(Phase):
    DEALING = "dealing"
    CLOSED = "closed"


_P = GroupKeyPhase


class GroupKeyRelay(AttemptMachine):
    """The server's side: it passes on boxes that it cannot open."""

    table = TransitionTable(
        "group key, server",
        _P.DEALING,
        {
            (_P.DEALING, GroupKeyDealt): (_P.CLOSED,),
            (_P.DEALING, "deadline"): (_P.CLOSED,),
            (_P.DEALING, "loss"): (_P.CLOSED,),
        },
    )

    def __init__(self, context: ServerContext) -> None:
        super().__init__(context.stamp)
        self._context = context
        self._dealer = dealer_of(context.session.id, context.session.members)

    def start(self, now: float) -> list[Event]:
        self.deadline = now + self._context.timing.phase_s
        return []

    @handles(GroupKeyDealt)
    def relay(self, sender: PartyId, dealt: GroupKeyDealt, now: float) -> list[Event]:
        if sender != self._dealer:
            raise Rejection(AbortReason.UNEXPECTED_MESSAGE, f"{self._dealer} deals the group key")
        if dealt.boxes.keys() != set(self._context.session.members) - {sender}:
            raise Rejection(AbortReason.BAD_SEAL, "a box for each other member, no more and no fewer")
        self.move(GroupKeyDealt, _P.CLOSED)
        self.outcome = Prepared()
        return [Send(name, GroupKeyDelivered(self.stamp, box)) for name, box in dealt.boxes.items()]

    def lose(self, party: PartyId, now: float) -> list[Event]:
        return self._give_up("loss") if party == self._dealer else []

    def deadline_passed(self, now: float) -> list[Event]:
        return self._give_up("deadline")

    def _give_up(self, trigger: str) -> list[Event]:
        detail = f"{self._dealer} dealt no group key"
        gone = (self._dealer,)
        failed = Failed(AbortReason.TIMED_OUT, self._dealer, detail, gone, left_out=gone)
        return self.fail(trigger, _P.CLOSED, failed)


class GroupKeySetup(AttemptMachine):
    """A member's side: it deals the key, or waits for its box."""

    table = TransitionTable(
        "group key, member",
        _P.DEALING,
        {
            (_P.DEALING, "start"): (_P.CLOSED,),
            (_P.DEALING, GroupKeyDelivered): (_P.CLOSED,),
            (_P.DEALING, "deadline"): (_P.CLOSED,),
        },
    )

    def __init__(self, context: ParticipantContext) -> None:
        """Of those whose hellos we were shown, the dealer draws the lowest hash: it does of all members."""
        super().__init__(context.stamp)
        self._context = context
        self._dealer = dealer_of(context.session.id, context.session.hellos)

    def start(self, now: float) -> list[Event]:
        context = self._context
        self.deadline = now + context.timing.patience_s
        if self._dealer != context.name:
            return []
        key = Secret(require_random(context.random, KEY_BYTES))
        boxes = {
            name: seal_box(self._box_secret(name), key.reveal(), b"")
            for name in context.session.members
            if name != context.name
        }
        self._hold("start", key)
        return [Send(SERVER, GroupKeyDealt(self.stamp, boxes))]

    @handles(GroupKeyDelivered)
    def take(self, sender: PartyId, delivered: GroupKeyDelivered, now: float) -> list[Event]:
        """A box that does not open ends this session for us; the server hears of it, the next has another dealer."""
        require_from_server(sender)
        if self._dealer == self._context.name:
            raise Rejection(AbortReason.UNEXPECTED_MESSAGE, "this party deals the group key itself")
        try:
            plain = open_box(self._box_secret(self._context.name), delivered.box, b"")
            if len(plain) != KEY_BYTES:
                raise Rejection(AbortReason.BAD_SEAL, f"{self._dealer} dealt a key of {len(plain)} bytes")
        except Rejection as problem:
            return self._context.withdraw(problem, now)
        self._hold(GroupKeyDelivered, Secret(plain))
        return []

    def _box_secret(self, receiver: PartyId) -> Secret:
        stamp = self.stamp.without_model()
        return self._context.box_secret(Purpose.GROUP_KEY, stamp, self._dealer, receiver)

    def _hold(self, trigger: str | type[Message], key: Secret) -> None:
        self.move(trigger, _P.CLOSED)
        self.outcome = Prepared(GroupKey.of(key))

    def deadline_passed(self, now: float) -> list[Event]:
        return self.fail("deadline", _P.CLOSED, server_was_silent(self.phase))
