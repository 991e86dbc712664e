"""The reference: what must come out of a run, computed the slow and obvious way.

It knows nothing of sessions, masks or shares. It knows what each party trained, and adds up Python integers over the
set that a result claims. It also predicts: a run that met nothing but delays and repeated messages, or no more crashes
than the scheme tolerates, must end with every round committed.

Implements specs/testing.md, section 4.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from veilsum.protocol.agreed.parameters import Parameters, Schedule
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.numbers.model import LocalResult


@dataclass
class Reference:
    """What the rounds of a table must come to, computed from the parties' inputs in plain integers."""

    parameters: Parameters = field(repr=False)
    inputs: dict[tuple[PartyId, int], LocalResult] = field(repr=False)
    tolerated_crashes: int = 0
    crashed: set[PartyId] = field(default_factory=set)
    disturbed: bool = False

    def words(self, party: PartyId, round_number: int) -> list[int]:
        """The integers that one party puts into the sum of one round."""
        encoding, trained = self.parameters.encoding, self.inputs[party, round_number]
        factor = trained.samples / encoding.max_weight * 2.0**encoding.fractional_bits
        return [*(round(float(value) * factor) for value in trained.payload), round(factor), 1]

    def total(self, members: Iterable[PartyId], round_number: int) -> list[int]:
        """The sum over a set, modulo the size of the ring."""
        columns = zip(*(self.words(party, round_number) for party in members), strict=True)
        return [sum(column) % 2**self.parameters.encoding.ring.bits for column in columns]

    def mean(self, members: tuple[PartyId, ...], round_number: int) -> list[float]:
        """The weighted mean over a set; with the schedule 'round-robin' the last member's vector."""
        trained = [self.inputs[party, round_number] for party in members]
        if self.parameters.schedule is Schedule.ROUND_ROBIN:
            return [float(value) for value in trained[-1].payload]
        weight = sum(one.samples for one in trained)
        columns = zip(*(one.payload for one in trained), strict=True)
        return [
            sum(float(value) * one.samples for value, one in zip(column, trained, strict=True)) / weight
            for column in columns
        ]

    def note_crash(self, party: PartyId) -> None:
        """A party crashed."""
        self.crashed.add(party)

    def note_disturbance(self) -> None:
        """A message was lost, came out of order or too late, a party came back, or someone lied."""
        self.disturbed = True

    @property
    def must_complete(self) -> bool:
        """Whether nothing happened that may cost a round."""
        tolerable = SERVER not in self.crashed and len(self.crashed) <= self.tolerated_crashes
        return tolerable and not self.disturbed
