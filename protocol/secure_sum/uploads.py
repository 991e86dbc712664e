"""The message that every masking scheme uploads, one ring vector that says nothing by itself, and the sum of them.

specs/protocol.md, section 2. Where a sum of the round may be open already, the upload of anybody who is not in it is
left out.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.attempt import require_absent
from veilsum.protocol.numbers.ring import Ring, add_into
from veilsum.protocol.wire.messages import Message, Stamp, Tensor, message


@message("upload.masked")
@dataclass(frozen=True, slots=True)
class MaskedInput(Message):
    """`refused` are those whose box for the sender does not hold the shares that they signed."""

    stamp: Stamp
    vector: Tensor
    refused: tuple[PartyId, ...] = ()


class RunningTotal:
    """The sum of uploads so far, and whose they are; only parties of `spent_cohort` enter it, where that is known."""

    def __init__(self, ring: Ring, length: int, spent_cohort: frozenset[PartyId] | None) -> None:
        self._ring = ring
        self._spent_cohort = spent_cohort
        self._left_out: set[PartyId] = set()
        self.vector = ring.zeros(length)
        self.parties: set[PartyId] = set()

    @property
    def survivors(self) -> tuple[PartyId, ...]:
        return tuple(sorted(self.parties))

    def add(self, sender: PartyId, upload: MaskedInput, cohort: Set[PartyId]) -> None:
        require_absent(sender, self.parties)
        if sender not in cohort:
            raise Rejection(
                AbortReason.UNEXPECTED_MESSAGE, "an upload of a party that is not in this attempt"
            )
        require_absent(sender, self._left_out)
        vector = self.require_vector(upload.vector)
        if self._spent_cohort is None or sender in self._spent_cohort:
            add_into(self.vector, vector)
            self.parties.add(sender)
        else:
            self._left_out.add(sender)

    def require_vector(self, vector: Tensor) -> Tensor:
        return self._ring.require(vector, len(self.vector))

    def silent(self, awaited: Set[PartyId], cohort: Set[PartyId]) -> Set[PartyId]:
        return (awaited & cohort) - self.parties - self._left_out
