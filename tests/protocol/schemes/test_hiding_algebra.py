"""What the server can compute from all it holds, as linear algebra over small graphs, exhaustively.

Every mask stream is an unknown of its own. What the server holds are linear combinations of the inputs and
these unknowns; what it can compute without knowing any of them are those combinations in their span that
contain inputs only. Spans are taken over a large prime field and over the two-element field: the latter
stands for the low bits of Z_2^b, where multiplying by an even number destroys what hides a bit.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator

import pytest

Vertex = int
Edge = tuple[int, int]
Combination = dict[str, int]

LARGE_PRIME = 2**61 - 1
FIELDS = (2, LARGE_PRIME)


def connected(vertices: Iterable[Vertex], edges: Iterable[Edge]) -> list[set[Vertex]]:
    """The connected parts."""
    parts = [{vertex} for vertex in vertices]
    for one, other in edges:
        touched = [part for part in parts if part & {one, other}]
        if len(touched) == 2 and {one, other} <= touched[0] | touched[1]:
            parts = [part for part in parts if part not in touched] + [touched[0] | touched[1]]
    return parts


def safe_graphs(size: int) -> Iterator[list[Edge]]:
    """Every graph that peers accept: connected, and every degree at least 2 from three peers on."""
    pairs = list(itertools.combinations(range(size), 2))
    for chosen in itertools.product((False, True), repeat=len(pairs)):
        edges = [pair for pair, taken in zip(pairs, chosen, strict=True) if taken]
        degrees = [sum(vertex in edge for edge in edges) for vertex in range(size)]
        if len(connected(range(size), edges)) == 1 and min(degrees) >= min(2, size - 1):
            yield edges


def survivor_sets(size: int, edges: list[Edge]) -> Iterator[set[Vertex]]:
    """Every set of survivors that peers accept: two or more, joined to each other."""
    for count in range(2, size + 1):
        for chosen in itertools.combinations(range(size), count):
            survivors = set(chosen)
            inner = [edge for edge in edges if set(edge) <= survivors]
            if len(connected(survivors, inner)) == 1:
                yield survivors


def rank(rows: list[Combination], field: int, unknowns: list[str]) -> int:
    matrix = [[row.get(name, 0) % field for name in unknowns] for row in rows]
    found = 0
    for column in range(len(unknowns)):
        pivot = next((at for at in range(found, len(matrix)) if matrix[at][column]), None)
        if pivot is None:
            continue
        matrix[found], matrix[pivot] = matrix[pivot], matrix[found]
        inverse = pow(matrix[found][column], -1, field)
        top = [value * inverse % field for value in matrix[found]]
        matrix[found] = top
        for at in range(found + 1, len(matrix)):
            factor = matrix[at][column]
            if factor:
                matrix[at] = [
                    (value - factor * head) % field for value, head in zip(matrix[at], top, strict=True)
                ]
        found += 1
    return found


def learned(known: list[Combination], inputs: list[str], field: int) -> int:
    """How many independent combinations of inputs alone the span of `known` contains."""
    unknowns = sorted({name for row in known for name in row} | set(inputs))
    alone = [{name: 1} for name in inputs]
    return rank(known, field, unknowns) + len(inputs) - rank([*known, *alone], field, unknowns)


def knows_sum(known: list[Combination], members: Iterable[Vertex], field: int) -> bool:
    total = {f"q{member}": 1 for member in members}
    unknowns = sorted({name for row in [*known, total] for name in row})
    return rank(known, field, unknowns) == rank([*known, total], field, unknowns)


def ampc_view(size: int, edges: list[Edge], survivors: set[Vertex], *, biased: bool) -> list[Combination]:
    """All uploads, late ones of dropped peers included, the survivors' self masks, and the revealed keys."""
    known: list[Combination] = []
    for peer in range(size):
        upload = {f"q{peer}": 1, f"b{peer}": 1}
        upload |= {f"a{peer}": -1} if biased else {}
        for other in range(size):
            if tuple(sorted((peer, other))) in edges:
                upload |= {f"s{peer}{other}": -1, f"s{other}{peer}": 1}
        known.append(upload)
    known += [{f"b{peer}": 1} for peer in survivors]
    for one, other in edges:
        if len(survivors & {one, other}) == 1:
            known += [{f"s{one}{other}": 1}, {f"s{other}{one}": 1}]
    return known


def masked_view(size: int, edges: list[Edge], survivors: set[Vertex]) -> list[Combination]:
    """All uploads, the survivors' self masks, and every pair mask of a dropped client."""
    known: list[Combination] = []
    for client in range(size):
        upload = {f"q{client}": 1, f"b{client}": 1}
        for edge in edges:
            if client in edge:
                upload[f"m{edge[0]}{edge[1]}"] = 1 if client == edge[1] else -1
        known.append(upload)
    known += [{f"b{client}": 1} for client in survivors]
    known += [{f"m{one}{other}": 1} for one, other in edges if not {one, other} <= survivors]
    return known


def common_view(size: int, edges: list[Edge], *, lowest_leaves_it_out: bool) -> list[Combination]:
    """Bias 'common', without recovery: everyone subtracts the sum of all biases, except one if there are two ways."""
    known = []
    for peer in range(size):
        upload = {f"q{peer}": 1}
        for other in range(size):
            if tuple(sorted((peer, other))) in edges:
                upload |= {f"s{peer}{other}": -1, f"s{other}{peer}": 1}
        if not (lowest_leaves_it_out and size % 2 == 0 and peer == 0):
            upload |= {f"a{other}": -1 for other in range(size)}
        known.append(upload)
    return known


def known_to(coalition: set[Vertex], edges: list[Edge], view: list[Combination]) -> list[Combination]:
    """The server's view with all that these participants hold: their inputs, masks and seeds, and every bias."""
    own: list[Combination] = [{f"{kind}{one}": 1} for one in coalition for kind in "qb"]
    for one, other in edges:
        if coalition & {one, other}:
            own += [{f"s{one}{other}": 1}, {f"s{other}{one}": 1}, {f"m{one}{other}": 1}]
    if coalition:
        own += [{name: 1} for name in {name for row in view for name in row} if name.startswith("a")]
    return [*view, *own]


VIEWS: dict[str, Callable[[int, list[Edge], set[Vertex]], list[Combination]]] = {
    "mpc": functools.partial(ampc_view, biased=False),
    "ampc": functools.partial(ampc_view, biased=True),
    "masked": masked_view,
}


def inputs_of(size: int) -> list[str]:
    return [f"q{vertex}" for vertex in range(size)]


@pytest.mark.parametrize("size", [2, 3, 4])
def test_under_ampc_nothing_but_uniform_words_can_be_computed(size: int) -> None:
    """No input, no sum, no other combination of inputs, for every graph and every set of survivors."""
    for edges in safe_graphs(size):
        for survivors in survivor_sets(size, edges):
            known = ampc_view(size, edges, survivors, biased=True)
            assert [learned(known, inputs_of(size), field) for field in FIELDS] == [0, 0]


@pytest.mark.parametrize("size", [2, 3, 4])
def test_under_mpc_the_sum_of_the_survivors_and_nothing_else_can_be_computed(size: int) -> None:
    for edges in safe_graphs(size):
        for survivors in survivor_sets(size, edges):
            known = ampc_view(size, edges, survivors, biased=False)
            assert [learned(known, inputs_of(size), field) for field in FIELDS] == [1, 1]
            assert knows_sum(known, survivors, LARGE_PRIME)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_under_masked_the_sum_of_the_survivors_and_nothing_else_can_be_computed(size: int) -> None:
    for edges in safe_graphs(size):
        for survivors in survivor_sets(size, edges):
            known = masked_view(size, edges, survivors)
            assert [learned(known, inputs_of(size), field) for field in FIELDS] == [1, 1]
            assert knows_sum(known, survivors, LARGE_PRIME)


@pytest.mark.parametrize("size", [3, 4])
@pytest.mark.parametrize("scheme", VIEWS)
def test_with_participants_the_server_gets_the_sum_of_each_part_of_the_honest_survivors(
    scheme: str, size: int
) -> None:
    """One honest survivor alone, or one whose neighbours all collude, is a part: its update is theirs.

    Any that stay joined without the coalition are one sum, and under ampc one peer is enough to take the biases off.
    """
    single = 0
    for edges in safe_graphs(size):
        for survivors in survivor_sets(size, edges):
            for count in range(1, size):
                for coalition in map(set, itertools.combinations(range(size), count)):
                    known = known_to(coalition, edges, VIEWS[scheme](size, edges, survivors))
                    honest = survivors - coalition
                    parts = connected(honest, [edge for edge in edges if set(edge) <= honest])
                    assert all(knows_sum(known, part, LARGE_PRIME) for part in parts)
                    for field in FIELDS:
                        assert learned(known, inputs_of(size), field) == len(coalition) + len(parts)
                    single += sum(len(part) == 1 for part in parts)
    assert single


@pytest.mark.parametrize("view", ["mpc", "masked"])
def test_survivors_that_are_cut_apart_would_be_opened_part_by_part(view: str) -> None:
    """Why participants refuse such a list: on a ring of five without 1 and 3, peer 2 stands alone."""
    edges, survivors = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)], {0, 2, 4}
    known = (
        masked_view(5, edges, survivors) if view == "masked" else ampc_view(5, edges, survivors, biased=False)
    )
    assert learned(known, inputs_of(5), LARGE_PRIME) == 2
    assert knows_sum(known, {2}, LARGE_PRIME)
    assert knows_sum(known, {0, 4}, LARGE_PRIME)


@pytest.mark.parametrize("size", [3, 4, 5, 6])
def test_the_common_bias_hides_for_even_and_odd_numbers_of_peers(size: int) -> None:
    edges = list(itertools.combinations(range(size), 2))
    known = common_view(size, edges, lowest_leaves_it_out=True)
    assert [learned(known, inputs_of(size), field) for field in FIELDS] == [0, 0]


@pytest.mark.parametrize("size", [4, 6])
def test_the_common_bias_as_printed_shows_the_low_bit_for_even_numbers_of_peers(size: int) -> None:
    """m times anything is even: over the two-element field the bias is gone, and the sum is there."""
    edges = list(itertools.combinations(range(size), 2))
    known = common_view(size, edges, lowest_leaves_it_out=False)
    assert knows_sum(known, range(size), 2)
    assert learned(known, inputs_of(size), LARGE_PRIME) == 0


def test_revealed_keys_of_one_peer_leave_it_to_its_self_mask() -> None:
    """Why keys are revealed only under a list that t have signed: with all keys and the self mask, nothing is left."""
    edges = [(0, 1), (1, 2), (2, 3), (0, 3)]
    known = ampc_view(4, edges, {0, 1, 2, 3}, biased=False)
    lies = [{f"s{one}{other}": 1} for one, other in ((0, 1), (1, 0), (0, 3), (3, 0))]
    assert knows_sum([*known, *lies], {0}, LARGE_PRIME)
    without_self_mask = [row for row in [*known, *lies] if row != {"b0": 1}]
    assert not knows_sum(without_self_mask, {0}, LARGE_PRIME)
