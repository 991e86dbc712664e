"""No lying server opens two lists with a common honest member at one position, and each weaker rule lets it.

Every pair of attempts of up to eight parties is played, as far as the tolerated colluders' signatures carry it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pytest

from tests.support.position_search import Weakness, plays, succeeds
from veilsum.protocol.agreed.threat import Threat, agreement_threshold, tolerated_colluders

Lists = tuple[frozenset[int], ...]
SIZES = [
    pytest.param(n, c, marks=[pytest.mark.long] if n > 6 else [])
    for n in range(2, 9)
    for c in range(tolerated_colluders(n, Threat.LYING) + 1)
]


def two_thirds(size: int, colluders: int) -> int:
    return 2 * size // 3 + 1


@pytest.mark.parametrize(("parties", "colluders"), SIZES)
def test_no_play_opens_two_lists_with_a_common_honest_member(parties: int, colluders: int) -> None:
    rule = Weakness(agreement_threshold)
    tried = list(plays(parties - colluders, colluders, agreement_threshold))
    assert tried or parties < 3
    assert not [play for play in tried if succeeds(play, colluders, rule)]


@pytest.mark.parametrize(
    "rule",
    [
        Weakness(agreement_threshold, alone=True),
        Weakness(agreement_threshold, heard_before=True),
        Weakness(agreement_threshold, signs_later=True),
        Weakness(agreement_threshold, needs_fewer=1),
        Weakness(agreement_threshold, fresh_count=True),
        Weakness(agreement_threshold, trusts_all=True),
    ],
    ids=["own records", "heard before", "signs later", "one fewer", "fresh ones count", "nobody denies"],
)
def test_every_weaker_rule_lets_a_play_through(rule: Weakness) -> None:
    assert any(succeeds(play, 1, rule) for play in plays(4, 1, rule.threshold))


def test_two_thirds_of_a_session_are_too_few_where_the_roster_is_larger() -> None:
    """Four of a roster of six, both of its colluders among them."""
    assert any(succeeds(play, 2, Weakness(two_thirds)) for play in plays(2, 2, two_thirds))
    assert not any(
        succeeds(play, 2, Weakness(agreement_threshold)) for play in plays(2, 2, agreement_threshold)
    )


def given_away(lists: Lists) -> set[int]:
    """The parties whose update is a combination of the sums over these lists."""
    everyone = sorted(frozenset[int]().union(*lists))
    rows = np.array([[party in one for party in everyone] for one in lists], dtype=np.float64)
    rank = np.linalg.matrix_rank(rows)
    units = np.eye(len(everyone))
    return {
        party
        for party, unit in zip(everyone, units, strict=True)
        if np.linalg.matrix_rank(np.vstack([rows, unit])) == rank
    }


def passes_local_records(lists: Lists, minimum: int) -> bool:
    """Each party finds the lists that name it large, nested, and far enough from each other."""
    return all(len(one) >= minimum for one in lists) and all(
        not one & other or ((one <= other or other <= one) and len(one ^ other) >= minimum)
        for one, other in combinations(lists, 2)
    )


def unseen_partitions(parties: int, minimum: int) -> Iterator[Lists]:
    """A list, and two of parts of it that do not know of each other: what the directed search looks at."""
    whole = frozenset(range(parties))
    for size in range(minimum, parties - minimum):
        one = frozenset(range(size))
        for rest in range(minimum, parties - size + 1):
            yield whole, one, frozenset(range(size, size + rest))


@pytest.mark.parametrize(
    ("parties", "minimum"), [(n, m) for n in range(5, 12) for m in range(2, 6) if n > 2 * m]
)
def test_local_records_of_nested_cohorts_give_a_party_away(parties: int, minimum: int) -> None:
    found = [
        lists
        for lists in unseen_partitions(parties, minimum)
        if passes_local_records(lists, minimum) and given_away(lists)
    ]
    assert found


def test_eleven_parties_with_a_minimum_of_five_lose_the_eleventh() -> None:
    lists = frozenset(range(11)), frozenset(range(5)), frozenset(range(5, 10))
    assert passes_local_records(lists, 5)
    assert given_away(lists) == {10}


def separate_lists(parties: frozenset[int], minimum: int) -> Iterator[Lists]:
    """All families of lists without common members, up to the order of their lists."""
    yield ()
    left = sorted(parties)
    for size in range(minimum, len(left) + 1):
        for one in combinations(left, size):
            later = frozenset(party for party in left if party > one[0]) - frozenset(one)
            for others in separate_lists(later, minimum):
                yield (frozenset(one), *others)


def test_lists_without_common_members_give_nobody_away() -> None:
    families = [lists for lists in separate_lists(frozenset(range(8)), 2) if lists]
    assert len(families) > 1000
    assert not [lists for lists in families if given_away(lists)]
