"""What a machine tells its driver. Past facts, and requests to act; never an action itself.

A machine returns events in order. The driver performs each one before the next: a `DecisionMade` is on disk
before the message that follows it is sent. Heavy work is requested, not done: the driver runs `job`
wherever it likes and hands the result to `then`, so that no machine ever blocks the event loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from veilsum.protocol.chain.record import ChainRecord
from veilsum.protocol.errors import AbortReason, ProtocolError
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.decisions import Decision
from veilsum.protocol.numbers.model import LocalResult, Model
from veilsum.protocol.numbers.ring import RingVector
from veilsum.protocol.wire.messages import Message


@dataclass(frozen=True)
class Send:
    """A message is to be sent to this party."""

    receiver: PartyId
    message: Message


@dataclass(frozen=True)
class WorkRequested:
    """Run `job` away from the event loop, then call `then(result, now)`, or `failed(error, now)` if it raised."""

    job: Callable[[], Any]
    then: Callable[[Any, float], list[Event]]
    failed: Callable[[ProtocolError, float], list[Event]]


@dataclass(frozen=True)
class TrainingRequested:
    """Train on the local data from `model`; hand a `LocalResult` to `then`.

    `work` is how, where the scheme does not leave it to the learner: then nothing else is to be called.
    """

    round: int
    model: Model
    then: Callable[[LocalResult, float], list[Event]]
    failed: Callable[[ProtocolError, float], list[Event]]
    work: Callable[[], LocalResult] | None = None


@dataclass(frozen=True)
class SessionBegan:
    session: bytes
    members: tuple[PartyId, ...]


@dataclass(frozen=True)
class AttemptBegan:
    """The server opened an attempt of a round."""

    round: int
    attempt: int


@dataclass(frozen=True)
class DecisionMade:
    """Must be durable before anything after it is sent; a restarted machine is given what follows from it."""

    decision: Decision


@dataclass(frozen=True)
class RoundCommitted:
    """`total` is the opened ring sum, where this role may see it; `model` the model after the round.

    `loss` is the members' training loss, where the scheme itself finds it out; `chain` what the party keeps of the
    chain, where there is one.
    """

    round: int
    attempt: int
    members: tuple[PartyId, ...]
    model_hash: bytes
    model: Model | None = field(default=None, repr=False)
    total: RingVector | None = field(default=None, repr=False)
    loss: float | None = None
    chain: ChainRecord | None = field(default=None, repr=False)


@dataclass(frozen=True)
class ModelTaken:
    """The model of others was taken over, after so many rounds; as durable as one of our own."""

    rounds_done: int
    model: Model = field(repr=False)
    chain: ChainRecord | None = field(default=None, repr=False)


@dataclass(frozen=True)
class RoundFailed:
    round: int
    attempt: int
    reason: AbortReason
    culprit: str = ""
    detail: str = ""


@dataclass(frozen=True)
class RunFinished:
    rounds: int
    model: Model | None = field(default=None, repr=False)


@dataclass(frozen=True)
class RunFailed:
    reason: AbortReason
    culprit: str = ""
    detail: str = ""


@dataclass(frozen=True)
class PartyNamed:
    """It is certain to whoever says this that the party lied, and how."""

    party: PartyId
    reason: AbortReason
    detail: str


@dataclass(frozen=True)
class Warned:
    """Something that people should know, and that ends nothing."""

    text: str


Event: TypeAlias = (
    Send
    | WorkRequested
    | TrainingRequested
    | SessionBegan
    | AttemptBegan
    | DecisionMade
    | RoundCommitted
    | ModelTaken
    | RoundFailed
    | RunFinished
    | RunFailed
    | PartyNamed
    | Warned
)
