"""A state that the server is to hold and lost: it asks for it whom the hellos say to hold it.

    server -> participant   session.state-wanted   position and hash of the state, as votes prove them
    participant -> server   session.state-given    the state, which must have that hash

The hash is certified, or supported by votes of more parties than may lie, or signed by the organiser; so nobody can
plant another state, and the first answer that fits is as good as any. One that has something else, or nothing, costs
its turn: the next holder is asked without waiting for it for long. A participant gives each state once for a hello.

Rejected: a majority of answers (one that fits proves itself); asking everyone at once (a model is large).

Implements specs/chain.md, section 9.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Annotated

from veilsum.protocol.chain.record import ChainRecord
from veilsum.protocol.chain.state import ChainState
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.wire.messages import Length, Message, Stamp, Tensor, message


@message("session.state-wanted")
@dataclass(frozen=True, slots=True)
class StateWanted(Message):
    """The stamp names the position, and the hash of the state; `invitation` is the one that the hello answered."""

    stamp: Stamp
    invitation: Annotated[bytes, Length(32)]


@message("session.state-given")
@dataclass(frozen=True, slots=True)
class StateGiven(Message):
    """The state that was asked for, under the same stamp; `before` is the hash of the state before it."""

    stamp: Stamp
    invitation: Annotated[bytes, Length(32)]
    model: Tensor
    memory: Tensor
    before: Annotated[bytes, Length(32, or_empty=True)] = b""


@dataclass(frozen=True)
class LackingState:
    """A state that others hold: its position, and the hash that votes or the organiser prove."""

    position: int
    hash: bytes

    @property
    def stamp(self) -> Stamp:
        return Stamp(b"", self.position, 0, self.hash)


def held_state(record: ChainRecord, wanted: Stamp) -> ChainState:
    """The state that is asked for, if it is ours or the one that we voted for; refused if we hold no such state."""
    for state in (record.state, record.next_state):
        if state is not None and (state.position, state.hash) == (wanted.round, wanted.model_hash):
            return state
    raise Rejection(
        AbortReason.WRONG_MODEL, f"the server asks for a state of position {wanted.round} that is not ours"
    )


@dataclass
class StateSearch:
    """Who was asked for one state, and until when; `over` once nobody is left to ask."""

    lacking: LackingState
    invitation: bytes
    asked: list[PartyId] = field(default_factory=list)
    until: float = 0.0
    over: bool = False

    def next_holder(
        self, holders: Collection[PartyId], now: float, phase_s: float, colluders: int
    ) -> PartyId | None:
        """Whom to ask now; as many as may lie, and one more, are asked within one phase."""
        left = sorted(set(holders).difference(self.asked))
        if now < self.until:
            return None
        if not left:
            self.over = True
            return None
        self.asked.append(left[0])
        self.until = now + (phase_s / (colluders + 1) if left[1:] else phase_s)
        return left[0]
