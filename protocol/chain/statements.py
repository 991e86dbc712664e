"""What a hello says of earlier attempts at its position, and what follows from all hellos of a session.

Every further attempt at a position begins with a new session, whose id hashes all hellos: so all members of the attempt
judge by the same statements. A list that is stated carries the server's signature, or one member could close a position
for all with a list that it made up; two lists of one attempt that the server signed prove that it lied.

Implements specs/chain.md, section 5.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from veilsum.protocol.agreed.parameters import Parameters, Recovery
from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.chain.position import (
    AnyCohort,
    AttemptRecord,
    AwaitMembers,
    AwaitStatements,
    OnlyCohort,
    PositionLost,
    PositionStatement,
    SitOut,
    UploadVerdict,
    Voters,
    VotersOf,
    all_members,
    judge_upload,
    require_permitted,
)
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.graphs.policy import GraphKind
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.wire.messages import Length, Stamp, record

LIST_DOMAIN = "survivors-proposed"
MOST_ATTEMPTS = 256
"""How many attempts at one position a party can speak of: far more than a server tries in one life."""


@record
@dataclass(frozen=True, slots=True)
class EnteredAttempt:
    """An attempt at a position that a party entered.

    `released` is the list for which it released its shares, `voucher` the server's signature under it. To sign a list
    opens nothing: what counts in the rule as signed is the release.
    """

    session: Annotated[bytes, Length(32)]
    attempt: int
    members: tuple[PartyId, ...]
    uploaded: bool = False
    released: tuple[PartyId, ...] = ()
    voucher: Annotated[bytes, Length(64, or_empty=True)] = b""

    def stamp(self, position: int) -> Stamp:
        return Stamp(self.session, position, self.attempt)

    def described(self, position: int, recovery: Recovery = Recovery.SHARES) -> AttemptRecord:
        """As the rule reads it: without recovery the upload is the release, for all members."""
        listed = self.released if recovery is Recovery.SHARES else self.members if self.uploaded else ()
        signed = frozenset(listed) if listed else None
        return AttemptRecord(self.stamp(position), frozenset(self.members), self.uploaded, signed)


def list_digest(stamp: Stamp, survivors: Iterable[PartyId], members: Iterable[PartyId]) -> bytes:
    """What the server signs as it proposes a list: who is in it, and out of whom; that decides how many open it."""
    listed = ("\n".join(sorted(names)).encode() for names in (survivors, members))
    return stamp.digest(LIST_DOMAIN, *listed)


def require_sound(sender: PartyId, attempts: tuple[EnteredAttempt, ...]) -> None:
    """Refuse what no party did: more than it can speak of, an attempt of others, a list of others than its members."""
    if len(attempts) > MOST_ATTEMPTS:
        raise Rejection(
            AbortReason.POSITION_LOST,
            f"{len(attempts)} attempts at one position, {MOST_ATTEMPTS} can be stated: the organiser goes on with a "
            "checkpoint",
        )
    stamps = {(one.session, one.attempt) for one in attempts}
    listed = (names for one in attempts for names in (one.members, one.released))
    if len(stamps) != len(attempts) or any(list(names) != sorted(set(names)) for names in listed):
        raise Rejection(
            AbortReason.SURVIVOR_LIST, "an attempt, or a party of it, is stated twice or out of order"
        )
    for one in attempts:
        if sender not in one.members or not set(one.released) <= set(one.members):
            raise Rejection(
                AbortReason.SURVIVOR_LIST,
                "stated: an attempt of others, or a list of others than its members",
            )


def require_vouched(roster: Roster, position: int, attempts: Iterable[EnteredAttempt]) -> None:
    """Refuse a statement about a list that the server did not propose."""
    for one in attempts:
        if one.released:
            digest = list_digest(one.stamp(position), one.released, one.members)
            roster.verify(SERVER, LIST_DOMAIN, digest, one.voucher)


def voters_rule(parameters: Parameters, *, shares_follow_graph: bool) -> VotersOf:
    """Who must have stated; on a thin graph a few neighbours open a list: all must state, and any list counts.

    On a ring it takes all holders of each party, so everyone, as on a complete graph it takes t(s).
    """
    if shares_follow_graph and parameters.graph.kind in (GraphKind.K_REGULAR, GraphKind.EDGES):
        return lambda attempt: Voters(attempt.members, 1, len(attempt.members), len(attempt.members))
    return all_members(parameters.colluders)


@dataclass(frozen=True)
class PositionRules:
    """What the hellos of a session allow one of its members to do at the session's position."""

    statements: tuple[PositionStatement, ...]
    voters_of: VotersOf
    verdict: UploadVerdict

    @classmethod
    def of(
        cls, me: PartyId, voters_of: VotersOf, statements: Mapping[PartyId, PositionStatement]
    ) -> PositionRules:
        said = tuple(statements.values())
        return cls(said, voters_of, judge_upload(me, said, voters_of))

    def require_upload(self, position: int) -> None:
        """Refuse to give our update again where it could end in a second sum."""
        match self.verdict:
            case AwaitStatements(missing=missing, needed=needed):
                why = f"{needed} more of {_names(missing)} must say which list they signed before"
            case AwaitMembers(missing=missing):
                why = f"its sum can be repeated by the same parties only: {_names(missing)} is missing; if "
                why += "that is for good, the organiser goes on with a checkpoint"
            case SitOut(named_by=named_by):
                why = f"{_names(named_by)} saw us give an update that we lost, or lies about it"
            case PositionLost(lists=lists, forgetful=forgetful):
                lost = (
                    f"{_names(forgetful)} lost the update" if forgetful else f"{len(lists)} lists were signed"
                )
                raise Rejection(
                    AbortReason.POSITION_LOST,
                    f"position {position}: {lost}; the organiser goes on with a checkpoint",
                )
            case _:
                return
        raise Rejection(AbortReason.DIFFERENCING, f"a sum of position {position} may be open already: {why}")

    def require_list(self, cohort: Collection[PartyId]) -> None:
        """Refuse to sign a list that shares a party with an earlier one, or names one that lost its update."""
        chosen = frozenset(cohort)
        require_permitted(chosen, self.statements, self.voters_of)
        match self.verdict:
            case OnlyCohort(cohort=only) if chosen != only:
                raise Rejection(
                    AbortReason.DIFFERENCING, "the sum must be over the list that was signed before"
                )
            case AnyCohort(free=free) if chosen - free:
                raise Rejection(
                    AbortReason.DIFFERENCING,
                    f"{_names(chosen - free)} gave another update, or is in another list",
                )
            case _:
                return


def _names(parties: Collection[PartyId]) -> str:
    return ", ".join(sorted(parties)[:10])
