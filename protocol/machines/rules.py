"""What a machine is given at its start: what all parties go by, what its role brings, and what it already knows.

The scheme is handed over beside the rules and not in them: it makes machines for contexts, and contexts hold the rules.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, dataclass, field, replace
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.agreed.parameters import Parameters, Timing
from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.chain.record import ChainRecord
from veilsum.protocol.chain.state import ChainState, TakeStep
from veilsum.protocol.crypto.identity import Identity
from veilsum.protocol.errors import AbortReason, LocalProtocolError
from veilsum.protocol.machines.participation import ParticipationRecord
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.randomness import RandomBytes


class AnEnding(Protocol):
    """How an attempt or a run came to nothing."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def reason(self) -> AbortReason: ...
    @property
    def detail(self) -> str: ...


Ending = TypeVar("Ending", bound=AnEnding)
SILENCES = frozenset({AbortReason.COHORT_TOO_SMALL, AbortReason.NO_QUORUM, AbortReason.TIMED_OUT})
"""Why a run ends when others are not heard."""

ApplyMean: TypeAlias = Callable[[Model, NDArray[np.float64] | None, int], Model]
"""The next model from the model of a round, the mean of its payloads and the round's number.

Without a mean the round closes without a step.
"""


@dataclass(frozen=True)
class MachineRules:
    """What the machines of a federation go by, whatever is trained in it."""

    parameters: Parameters
    timing: Timing
    rounds: int
    roster: Roster = field(repr=False)

    def agreed_model(self, committed: Model) -> Model:
        """What an attempt commits, if it is a model of this federation: a scheme of one's own may give another."""
        wanted, given = self.parameters.dimension, len(committed)
        if given != wanted or committed.dtype.str != "<f4":
            raise LocalProtocolError(
                f"scheme {self.parameters.scheme} committed a model of {given} numbers of type {committed.dtype.str}, "
                f"the federation's have {wanted} of type <f4: its machines must commit what `next_model` gives"
            )
        return committed


@dataclass(frozen=True)
class RoleParts:
    """What the role of one party hands to its machine; `equipment` is known to the scheme alone.

    `hindrance` says in words what kept the role itself from hearing others of late; nothing, if nothing did.
    """

    identity: Identity
    random: RandomBytes = field(repr=False)
    apply: ApplyMean = field(repr=False)
    equipment: object | None = field(default=None, repr=False)
    take_step: TakeStep | None = field(default=None, repr=False)
    hindrance: Callable[[], str] = field(default=str, repr=False)

    def explained(self, ending: Ending) -> Ending:
        """Who could hear nobody says so, before it says whom it missed."""
        hindrance = self.hindrance() if ending.reason in SILENCES else ""
        if not hindrance:
            return ending
        detail = f"{hindrance}; then: {ending.reason.value}"
        detail += f": {ending.detail}" if ending.detail else ""
        return replace(ending, reason=AbortReason.LINK_LOST, culprit=self.identity.name, detail=detail)

    @property
    def chain_step(self) -> TakeStep:
        """How parties that keep a chain step; one that remembers nothing is `apply`."""
        if self.take_step is not None:
            return self.take_step
        return lambda model, memory, mean, position: (self.apply(model, mean, position), memory)


@dataclass(frozen=True)
class StartingPoint:
    """What a party knows when its machine starts; `attempt` is the first number not used in the round that is next.

    `model` is None for a party that is given it in each round. `chain` is what it kept of the chain, if it did.
    """

    model: Model | None = field(default=None, repr=False)
    rounds_done: int = 0
    attempt: int = 0
    record: ParticipationRecord = field(default_factory=ParticipationRecord, repr=False)
    chain: ChainRecord | None = field(default=None, repr=False)
    forgetful: bool = False
    """Whether the party lost what it had on disk, and may have voted and uploaded before."""

    def chain_record(self, roster: Roster) -> ChainRecord:
        """What this party has of the roster's chain: what it kept, or its first model at position 0."""
        anchor = roster.anchor
        if self.chain is not None:
            return self.chain if anchor is None else self.chain.under(anchor)
        if anchor is None:
            return ChainRecord(self.rounds_done)
        if self.model is None:
            return ChainRecord(max(self.rounds_done, anchor.position)).under(anchor)
        first = ChainState.of(anchor.chain, 0, b"", self.model)
        lost = self.forgetful
        return ChainRecord(0, first, votes_here=not lost, forgetful=lost).under(anchor)
