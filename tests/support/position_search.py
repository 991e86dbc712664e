"""A lying server against the rule of one list per position: every pair of attempts, up to the names of the parties.

Two lists that are opened at one position and share a member are the lists of two attempts, `first` and `second`;
further attempts only add statements, which forbid more. What a party does in the two is its `Part`. Parties with the
same part are alike, so a play is a multiset of parts, and all of them are tried. Corrupt parties sign both lists and
state what helps the server. An honest one that is in the second attempt has stated, so it signed the first list before
that or never.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations_with_replacement, product

from veilsum.protocol.chain.position import (
    AnyCohort,
    AttemptRecord,
    Cohort,
    OnlyCohort,
    PositionStatement,
    Voters,
    VotersOf,
    judge_upload,
    require_permitted,
)
from veilsum.protocol.errors import Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.wire.messages import Stamp

FIRST = Stamp(attempt=1)
SMALLEST_COHORT = 2

Threshold = Callable[[int, int], int]


class In(enum.IntEnum):
    """What a party is in an attempt: absent, left out of the list, in it, or in it and one of its signers."""

    ABSENT = 0
    DROPPED = 1
    LISTED = 2
    SIGNER = 3


@dataclass(frozen=True)
class Part:
    """What one party does; `denies` is a corrupt party's lie that it signed nothing, `wiped` a disk lost in between."""

    first: In
    second: In
    corrupt: bool = False
    denies: bool = False
    wiped: bool = False


HONEST = (
    *(Part(first, second) for first, second in product(In, In)),
    *(Part(first, In.DROPPED, wiped=True) for first in (In.LISTED, In.SIGNER)),
)
CORRUPT = tuple(
    Part(first, second, corrupt=True, denies=denies)
    for first, second, denies in product(
        (In.ABSENT, In.DROPPED, In.SIGNER), (In.ABSENT, In.DROPPED, In.SIGNER), (False, True)
    )
    if not denies or (first is In.SIGNER and second is not In.ABSENT)
)


@dataclass(frozen=True)
class Play:
    """Two attempts, as the server arranged them."""

    parts: tuple[Part, ...]

    def names(self, test: Callable[[Part], bool]) -> Cohort:
        return frozenset(PartyId(f"p{number}") for number, part in enumerate(self.parts) if test(part))

    @property
    def first_list(self) -> Cohort:
        return self.names(lambda part: part.first >= In.LISTED)

    @property
    def second_list(self) -> Cohort:
        return self.names(lambda part: part.second >= In.LISTED)

    def statement(self, number: int, *, signs_later: bool = False) -> PositionStatement:
        """What this party states as it enters the second attempt, or stated elsewhere before."""
        part, sender = self.parts[number], PartyId(f"p{number}")
        if part.first is In.ABSENT or part.wiped:
            return PositionStatement(sender, fresh=part.wiped)
        tells = part.first is In.SIGNER and not part.denies and not signs_later
        record = AttemptRecord(
            FIRST,
            self.names(lambda one: one.first > In.ABSENT),
            uploaded=part.first >= In.LISTED,
            signed=self.first_list if tells else None,
        )
        return PositionStatement(sender, (record,))


@dataclass(frozen=True)
class Weakness:
    """How a rule falls short of the real one; the real one has none."""

    threshold: Threshold
    alone: bool = False
    """A party knows its own records only."""
    heard_before: bool = False
    """Statements count for an uploader wherever it heard them; signers know those of the second attempt."""
    signs_later: bool = False
    """A party may still sign in an attempt of which it has stated that it signed nothing."""
    needs_fewer: int = 0
    """So many statements fewer are enough."""
    trusts_all: bool = False
    """A list does not count if its signers could be enough only by lying now."""
    fresh_count: bool = False
    """Those who lost their disks count as having stated that they signed nothing."""


def plays(honest: int, colluders: int, threshold: Threshold) -> Iterator[Play]:
    """Those in which both lists get their signatures, differ, and have an honest member in common."""
    coalitions = list(combinations_with_replacement(CORRUPT, colluders))
    for parts in combinations_with_replacement(HONEST, honest):
        if not any(part.first >= In.LISTED <= part.second for part in parts):
            continue
        for coalition in coalitions:
            everyone = parts + coalition
            if _both_open(everyone, colluders, threshold):
                yield Play(everyone)


def _both_open(parts: tuple[Part, ...], colluders: int, threshold: Threshold) -> bool:
    members = signers = others = second_signers = 0
    differ = False
    for part in parts:
        members += part.first > In.ABSENT
        signers += part.first is In.SIGNER
        others += part.second > In.ABSENT
        second_signers += part.second is In.SIGNER
        differ = differ or (part.first >= In.LISTED) != (part.second >= In.LISTED)
    return (
        differ
        and signers >= threshold(members, colluders)
        and second_signers >= threshold(others, colluders)
        and min(signers, second_signers) >= SMALLEST_COHORT
    )


def succeeds(play: Play, colluders: int, rule: Weakness) -> bool:
    """Whether every honest party of the second list uploads, and every honest signer of it signs, under the rule."""
    present = [number for number, part in enumerate(play.parts) if part.second > In.ABSENT]
    known = [number for number, part in enumerate(play.parts) if part.first > In.ABSENT or number in present]
    for number, part in enumerate(play.parts):
        if part.corrupt or part.second < In.LISTED:
            continue
        here = [number] if rule.alone else present
        heard = known if rule.heard_before else here
        if not _uploads(play, number, heard, _voters(rule, colluders), rule):
            return False
        if part.second is In.SIGNER and not _signs(play, here, _voters(rule, colluders), rule):
            return False
    return True


def _voters(rule: Weakness, colluders: int) -> VotersOf:
    def voters_of(record: AttemptRecord) -> Voters:
        needed = 0 if rule.alone else rule.threshold(len(record.members), colluders) - rule.needs_fewer
        return Voters(record.members, needed, 0 if rule.trusts_all else colluders)

    return voters_of


def _statements(play: Play, numbers: list[int], rule: Weakness) -> list[PositionStatement]:
    said = [play.statement(number, signs_later=rule.signs_later) for number in numbers]
    if rule.fresh_count:
        said = [PositionStatement(one.sender, one.attempts) for one in said]
    return said


def _uploads(play: Play, number: int, heard: list[int], voters_of: VotersOf, rule: Weakness) -> bool:
    verdict = judge_upload(PartyId(f"p{number}"), _statements(play, heard, rule), voters_of)
    return isinstance(verdict, AnyCohort | OnlyCohort)


def _signs(play: Play, here: list[int], voters_of: VotersOf, rule: Weakness) -> bool:
    try:
        require_permitted(play.second_list, _statements(play, here, rule), voters_of)
    except Rejection:
        return False
    return True
