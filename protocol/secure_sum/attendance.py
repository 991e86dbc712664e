"""Whom the server still waits for, and whether those who are here are enough (specs/protocol.md, section 1).

A list that shares were asked for once, perhaps by a server that was stopped since, is the only one that is ever
proposed in that round: whoever is on it must be here again.
"""

from __future__ import annotations

from collections.abc import Set

from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.attempt import Failed, ServerContext
from veilsum.protocol.machines.transitions import Phase


class Attendance:
    """`awaited` are the members that have not left; `spent_cohort` those of a sum of this round that may be open."""

    def __init__(self, context: ServerContext) -> None:
        self._members = context.session.members
        self._minimum = context.parameters.min_parties
        self.awaited = set(context.session.members)
        self.spent_cohort = context.record.cohort_of(context.stamp.round)

    def refusal(self, present: Set[PartyId], phase: Phase) -> Failed | None:
        """Why the attempt cannot go on with these, if so."""
        return self._too_few(present, phase) or self._not_the_same(present)

    def _too_few(self, present: Set[PartyId], phase: Phase) -> Failed | None:
        if len(present) >= max(2, self._minimum):
            return None
        missing = tuple(sorted(set(self._members) - present))
        detail = (
            f"{len(present)} parties while {phase.value}, the agreed minimum is {self._minimum}; "
            f"missing: {', '.join(missing[:10])}"
        )
        return Failed(AbortReason.COHORT_TOO_SMALL, detail=detail, missing=missing)

    def _not_the_same(self, present: Set[PartyId]) -> Failed | None:
        gone = tuple(sorted((self.spent_cohort or frozenset()) - present))
        if not gone:
            return None
        detail = (
            "the sum of this round may be open already, and can be repeated by the same parties only; missing: "
            f"{', '.join(gone[:10])}"
        )
        return Failed(AbortReason.DIFFERENCING, detail=detail)
