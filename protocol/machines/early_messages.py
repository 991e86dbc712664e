"""Messages that overtook the one that makes them understandable.

Each sender has its own bounded share of the waiting room, in messages and in bytes, so that no one can crowd out the
others or fill our memory. The bytes follow from what was agreed: what an honest sender is ahead by in one attempt is a
model and a vector at most, besides records of a few hundred bytes for each party.

Implements specs/wire-format.md, section 6.
"""

from __future__ import annotations

from dataclasses import dataclass

from veilsum.protocol.agreed.parameters import Parameters
from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.attempt import AttemptMachine
from veilsum.protocol.machines.session import Farewell, Invitation, RoundOpened, Session, SessionOpened
from veilsum.protocol.wire.envelope import Body
from veilsum.protocol.wire.messages import Message

MESSAGES_PER_SENDER = 8
VECTORS_PER_SENDER = 2
BYTES_PER_PARTY = 4 * 1024
BYTES_BESIDES = 64 * 1024
_LARGEST_NUMBER_BYTES = 8


@dataclass(frozen=True, slots=True)
class EarlyShare:
    """How many messages of one sender may wait, and how many bytes they may have together."""

    messages: int
    bytes: int


def early_share(parameters: Parameters, parties: int) -> EarlyShare:
    """The share of every sender under the agreed parameters, in a roster of so many participants."""
    vectors = VECTORS_PER_SENDER * _LARGEST_NUMBER_BYTES * parameters.vector_length
    return EarlyShare(MESSAGES_PER_SENDER, vectors + BYTES_PER_PARTY * parties + BYTES_BESIDES)


def is_early_in_opening(sender: PartyId, message: Message, roster: Roster) -> bool:
    """What another participant says while we are in no session may be of the one that we enter next."""
    if isinstance(message, Invitation | Farewell | SessionOpened):
        return False
    return sender in roster.participants


def is_early(
    sender: PartyId,
    message: Message,
    session: Session | None,
    machine: AttemptMachine | None,
    last_attempt: tuple[int, int],
    *,
    preparing: bool,
) -> bool:
    """Of an attempt that we may enter next but have not entered yet; or an end that our own result comes before."""
    if isinstance(message, Invitation | Farewell):
        return sender == SERVER and machine is not None and machine.is_decisive
    stamp = message.stamp
    if isinstance(message, SessionOpened) or session is None or stamp.session != session.id:
        return False
    if sender != SERVER and sender not in session.hellos:
        return False
    if machine is None:
        return (stamp.round, stamp.attempt) > last_attempt and not isinstance(message, RoundOpened)
    if preparing:
        return type(message) not in machine.table.messages
    return (stamp.round, stamp.attempt) > (machine.stamp.round, machine.stamp.attempt)


class EarlyMessages:
    def __init__(self, share: EarlyShare) -> None:
        self._share = share
        self._waiting: list[tuple[PartyId, Message]] = []
        self._used: dict[PartyId, tuple[int, int]] = {}

    def hold(self, sender: PartyId, message: Message) -> None:
        """Let a message wait; `Rejection` if its sender's share is used up."""
        messages, size = self._used.get(sender, (0, 0))
        messages, size = messages + 1, size + len(Body.of(message))
        if messages > self._share.messages or size > self._share.bytes:
            raise Rejection(
                AbortReason.UNEXPECTED_MESSAGE,
                f"{messages} early messages of {size} bytes; {self._share.messages} of {self._share.bytes} may wait",
            )
        self._used[sender] = messages, size
        self._waiting.append((sender, message))

    def hold_any(self, *kinds: type[Message]) -> bool:
        """Whether a message of these kinds waits."""
        return any(isinstance(message, kinds) for _, message in self._waiting)

    def take(self) -> list[tuple[PartyId, Message]]:
        """All that waited, in order; what is still early will be held again."""
        waiting, self._waiting = self._waiting, []
        self._used = {}
        return waiting
