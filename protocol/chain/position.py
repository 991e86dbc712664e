"""Whether a party may give its update again at a position, and in which sum: the first list is the only one.

At one position a party has one update, sent again in every attempt. Two sums over different cohorts, subtracted, show
whoever is in one of them only. So all sums that are opened at a position are over one list, or over lists without a
common member. This file is that rule, as functions of what the members of an attempt state; it knows no keys and keeps
nothing.

* **Unseen lists.** From its upload on a party may be in a list that it never saw: t of the others sign it. Hence a
  party states, whenever it enters a further attempt, which attempts of this position it entered and which list it
  signed in each; after that it signs nothing in any of them. It uploads again only when t(s) of the s voters of each
  attempt it uploaded in have so stated. An opened list has t signers, so at least t - c honest ones, and any t staters
  have t - c honest ones; 2t > s + c makes one of them both, and it states the list.
* **Who must know.** A list is signed by others than those who were left out of it. What decides are therefore the
  statements of the members of *this* attempt, the same for all of them (they are hashed into what its signatures
  cover), and never what one party heard in an earlier session.
* **Lost disks.** A party without its records calls itself fresh. It cannot speak of attempts that it has forgotten, and
  sits a position out if another member names it in one: its update there would be a second one.
* A list that is stated counts as opened if it may be: if those who state it, those who have not spoken and as many of
  the others as may lie are enough signers. So neither a vote that broke off nor a list that one member invents closes
  a position when enough members of that attempt are here.

Rejected: records of cohorts that each party keeps for itself and compares pairwise, or that must be nested. One group
does not know the other's list: with eleven parties and a minimum of five {0..10}, {0..4}, {5..9} pass all records, and
give party 10 away. Statements that count wherever they were heard: the uploader then knows of a list that the signers
of the next one do not know. `tests/protocol/chain/test_position_search.py` finds these attacks.

Implements specs/models/README.md, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from veilsum.protocol.agreed.threat import agreement_threshold
from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection
from veilsum.protocol.identifiers import PartyId, shown_number
from veilsum.protocol.wire.messages import Stamp

Cohort: TypeAlias = frozenset[PartyId]
_Which: TypeAlias = tuple[bytes, int, int]


def _which(stamp: Stamp) -> _Which:
    """An attempt as a key."""
    return stamp.session, stamp.round, stamp.attempt


@dataclass(frozen=True)
class AttemptRecord:
    """One attempt at this position as one of its members remembers it; `signed` is the one list it signed there.

    It is on disk before the member's first message of the attempt leaves, and again before its upload and before its
    signature. Without recovery there is no list to sign: then the upload signs all members.
    """

    stamp: Stamp
    members: Cohort
    uploaded: bool = False
    signed: Cohort | None = None


@dataclass(frozen=True)
class PositionStatement:
    """What a member says as it enters a further attempt: every attempt of this position that it entered before.

    From here on it signs nothing in these. An attempt that it does not list it never entered, unless it is `fresh`:
    then it lost its disk, and may have been in others as well.
    """

    sender: PartyId
    attempts: tuple[AttemptRecord, ...] = ()
    fresh: bool = False

    @cached_property
    def _records(self) -> Mapping[_Which, AttemptRecord]:
        return {_which(record.stamp): record for record in self.attempts}

    def record_of(self, stamp: Stamp) -> AttemptRecord | None:
        return self._records.get(_which(stamp))

    def speaks_of(self, stamp: Stamp) -> bool:
        """Whether it says something about that attempt: a list, or that there is none of its own."""
        return not self.fresh or self.record_of(stamp) is not None


@dataclass(frozen=True)
class Voters:
    """Whose signatures open a list of an attempt, how many of them it takes, and how many may deny theirs.

    `quorum` is how many must have stated before we upload again; as many as open a list, if nothing else is said.
    """

    names: Cohort
    threshold: int
    colluders: int
    quorum: int | None = None


VotersOf: TypeAlias = Callable[[AttemptRecord], Voters]


def all_members(colluders: int) -> VotersOf:
    """Where every member holds shares of every other, each is a voter."""
    return lambda record: Voters(
        record.members, agreement_threshold(len(record.members), colluders), colluders
    )


@dataclass(frozen=True)
class AnyCohort:
    """We may upload; the sum may be over any of `free`, who have no list here, and over nobody else."""

    free: Cohort


@dataclass(frozen=True)
class OnlyCohort:
    """We may upload; the sum is over exactly these, as a list that names us said before."""

    cohort: Cohort


@dataclass(frozen=True)
class AwaitStatements:
    """We may be in a list of this attempt that we did not see: so many more of `missing` must state."""

    stamp: Stamp
    missing: Cohort
    needed: int


@dataclass(frozen=True)
class AwaitMembers:
    """The sum must be over `cohort` again, and these of them are not here."""

    cohort: Cohort
    missing: Cohort


@dataclass(frozen=True)
class SitOut:
    """We have no update of this position, and these name us in an attempt at it."""

    named_by: Cohort


@dataclass(frozen=True)
class PositionLost:
    """No sum can follow here: `lists` exclude each other, or `forgetful` of the one list lost their updates."""

    lists: frozenset[Cohort]
    forgetful: Cohort = frozenset()


UploadVerdict: TypeAlias = AnyCohort | OnlyCohort | AwaitStatements | AwaitMembers | SitOut | PositionLost


def judge_upload(
    own: PartyId, statements: Collection[PositionStatement], voters_of: VotersOf
) -> UploadVerdict:
    """What `own` may do in an attempt whose members stated this, itself included."""
    said = _by_sender(own, statements)
    lists = list(_lists_that_count(said, voters_of))
    if clash := _clashing(lists):
        return PositionLost(clash)
    forgetful = _forgetful(said)
    if own in forgetful:
        return SitOut(frozenset(forgetful[own]))
    for record in said[own].attempts:
        if record.uploaded and (short := _unheard(record, said, voters_of(record))):
            return short
    ours = next((cohort for _, cohort in lists if own in cohort), None)
    if ours is not None:
        return _judge_repetition(ours, said, forgetful.keys())
    listed = frozenset[PartyId]().union(*(cohort for _, cohort in lists))
    return AnyCohort(frozenset(said.keys() - listed - forgetful.keys()))


def require_permitted(cohort: Cohort, statements: Collection[PositionStatement], voters_of: VotersOf) -> None:
    """Refuse to sign a list that shares a member with another one that may be opened."""
    for stamp, earlier in _lists_that_count({one.sender: one for one in statements}, voters_of):
        if cohort != earlier and cohort & earlier:
            common, others = sorted(cohort & earlier), sorted(cohort ^ earlier)
            raise Rejection(
                AbortReason.DIFFERENCING,
                f"{', '.join(common[:10])} stood in a list of attempt {shown_number(stamp.attempt)} that differs by "
                f"{', '.join(others[:10])}",
            )


def _by_sender(
    own: PartyId, statements: Collection[PositionStatement]
) -> Mapping[PartyId, PositionStatement]:
    said = {statement.sender: statement for statement in statements}
    if own not in said or len(said) != len(statements):
        raise LocalProtocolError(
            f"a position is judged by one statement of each member, that of {own} included"
        )
    return said


def _lists_that_count(
    said: Mapping[PartyId, PositionStatement], voters_of: VotersOf
) -> Iterator[tuple[Stamp, Cohort]]:
    """The lists that were stated, each once, without those that too few can have signed."""
    stated = {
        (*_which(record.stamp), record.members, record.signed): record
        for statement in said.values()
        for record in statement.attempts
    }
    for record in stated.values():
        if record.signed is not None and _may_be_opened(record, record.signed, said, voters_of(record)):
            yield record.stamp, record.signed


def _may_be_opened(
    record: AttemptRecord, cohort: Cohort, said: Mapping[PartyId, PositionStatement], voters: Voters
) -> bool:
    """Only survivors sign; whoever speaks of the attempt and does not state this list denies it."""
    able = voters.names & cohort
    heard = {name for name in able & said.keys() if said[name].speaks_of(record.stamp)}
    stating = {name for name in heard if (own := said[name].record_of(record.stamp)) and own.signed == cohort}
    denying = len(heard - stating)
    return len(able) - denying + min(denying, voters.colluders) >= voters.threshold


def _clashing(lists: list[tuple[Stamp, Cohort]]) -> frozenset[Cohort]:
    """Two lists of one attempt, or with a common member."""
    of_attempt: dict[_Which, Cohort] = {}
    of_party: dict[PartyId, Cohort] = {}
    for stamp, cohort in lists:
        known = {of_attempt.setdefault(_which(stamp), cohort)}
        known |= {of_party.setdefault(name, cohort) for name in cohort}
        if other := known - {cohort}:
            return frozenset((cohort, *other))
    return frozenset()


def _forgetful(said: Mapping[PartyId, PositionStatement]) -> dict[PartyId, set[PartyId]]:
    """Who is named in an attempt that it does not remember, and by whom."""
    found: dict[PartyId, set[PartyId]] = {}
    for other, statement in said.items():
        for record in statement.attempts:
            for name in record.members & said.keys():
                if not said[name].speaks_of(record.stamp):
                    found.setdefault(name, set()).add(other)
    return found


def _unheard(
    record: AttemptRecord, said: Mapping[PartyId, PositionStatement], voters: Voters
) -> AwaitStatements | None:
    heard = {name for name in voters.names & said.keys() if said[name].speaks_of(record.stamp)}
    quorum = voters.threshold if voters.quorum is None else voters.quorum
    if len(heard) >= quorum:
        return None
    return AwaitStatements(record.stamp, voters.names - heard, quorum - len(heard))


def _judge_repetition(
    cohort: Cohort, said: Mapping[PartyId, PositionStatement], forgetful: Set[PartyId]
) -> UploadVerdict:
    if lost := cohort & forgetful:
        return PositionLost(frozenset((cohort,)), lost)
    if missing := cohort.difference(said):
        return AwaitMembers(cohort, missing)
    return OnlyCohort(cohort)
