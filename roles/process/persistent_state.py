"""What a party still knows after a restart.

The pump notes every event here. roles/process/checkpoint.py puts the value on disk; a simulation and the test table
keep a copy in its place. It holds no key, mask or seed: an interrupted attempt is abandoned, not continued, so nothing
secret needs to survive.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.chain.record import ChainRecord
from veilsum.protocol.machines.decisions import VoteCast
from veilsum.protocol.machines.events import (
    AttemptBegan,
    DecisionMade,
    Event,
    ModelTaken,
    RoundCommitted,
    RunFinished,
)
from veilsum.protocol.machines.participation import ParticipationRecord
from veilsum.protocol.machines.rules import StartingPoint
from veilsum.protocol.numbers.model import Model


@dataclass
class PersistentState:
    """`attempt` is the first number not yet used in the round that is next; `life` counts starts.

    `memory` is what a server's optimiser knew at the beginning of a round, by round. `chain` is what the party keeps of
    the chain, where there is one.
    """

    rounds_done: int
    model: Model | None = field(repr=False)
    record: ParticipationRecord = field(default_factory=ParticipationRecord, repr=False)
    attempt: int = 0
    life: int = 0
    memory: dict[int, bytes] = field(default_factory=dict, repr=False)
    chain: ChainRecord | None = field(default=None, repr=False)

    def note(self, event: Event) -> bool:
        """Take over what must survive a restart; whether there was anything."""
        match event:
            case RoundCommitted():
                self.rounds_done = event.round + 1
                self.attempt = 0
                self._hold(event.model, event.chain)
            case ModelTaken():
                self.rounds_done = event.rounds_done
                self.attempt = 0
                self._hold(event.model, event.chain)
            case RunFinished():
                self.rounds_done = event.rounds
                self.attempt = 0
                self._hold(event.model)
            case AttemptBegan():
                self.attempt = event.attempt + 1
            case DecisionMade():
                self.attempt = event.decision.attempt + 1
                self.record.note(event.decision)
                if isinstance(event.decision, VoteCast):
                    self.chain = event.decision.chain
            case _:
                return False
        return True

    def join_chain(self, roster: Roster, *, forgetful: bool = False) -> None:
        """Hold what we have of the roster's chain: from its first model on, or from where a checkpoint opened it anew.

        `forgetful`: this party may have taken part in it before, and has lost what it knew.
        """
        known = self.chain
        begin = StartingPoint(self.model, self.rounds_done, chain=known, forgetful=forgetful)
        self.chain = begin.chain_record(roster)
        if known is not None and known.anchor != self.chain.anchor:
            self.rounds_done = self.chain.position
            self.record.reopen(self.chain.position)

    def copy(self) -> PersistentState:
        """What a disk would hold now; later notes do not change it. Models are values, and are not copied."""
        record = self.record
        kept = replace(record, cohorts=list(record.cohorts), spent=dict(record.spent))
        return replace(self, record=kept, memory=dict(self.memory))

    def _hold(self, model: Model | None, chain: ChainRecord | None = None) -> None:
        if model is not None:
            self.model = model
        if chain is not None:
            self.chain = chain
