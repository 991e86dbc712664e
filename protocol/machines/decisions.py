"""What a party decides for good: each is durable before the message that it is about leaves.

A machine states a decision in a `DecisionMade`, and a `ParticipationRecord` holds what follows from it
(protocol/machines/participation.py). Every decision is about one attempt of a round.

Implements specs/protocol.md, section 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from veilsum.protocol.chain.record import ChainRecord
from veilsum.protocol.identifiers import PartyId


@dataclass(frozen=True)
class Decision:
    round: int
    attempt: int


@dataclass(frozen=True)
class AttemptEntered(Decision):
    """The number of this attempt is used up; the members of its session are known to be in it."""

    session: bytes = b""
    members: tuple[PartyId, ...] = ()


@dataclass(frozen=True)
class UpdateGiven(Decision):
    """From here on the update may be in a sum, whether we are asked or not; model and update by their hashes."""

    model_hash: bytes
    update: bytes


@dataclass(frozen=True)
class RoundSpent(Decision):
    """From here on a sum over this cohort may be open; none is named where it is not known over whom.

    `voucher` is the server's signature under the list, where it proposed one, and `listed` everyone that list names.
    """

    cohort: frozenset[PartyId]
    electorate: frozenset[PartyId]
    voucher: bytes = b""
    listed: tuple[PartyId, ...] = ()


@dataclass(frozen=True)
class VoteCast(Decision):
    """This is the state that we vote for, and no other at its position; what we keep of the chain has both."""

    chain: ChainRecord
