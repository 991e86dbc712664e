"""Every party draws the same graph, simple, connected and of the promised degree, or learns what it lacks."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import refusal
from veilsum.protocol.errors import AbortReason, LocalProtocolError, ParameterError, Rejection
from veilsum.protocol.graphs.graph import Edge, Graph, circle_order, complete, explicit, k_regular, ring
from veilsum.protocol.graphs.policy import GraphKind, GraphPolicy, parse_graph
from veilsum.protocol.identifiers import PartyId

VECTORS = Path(__file__).resolve().parents[3] / "specs" / "vectors" / "v8"

names = st.builds(
    lambda first, rest: PartyId(first + rest), st.sampled_from("az09"), st.text("az09_-", max_size=4)
)
party_lists = st.lists(names, min_size=1, max_size=12, unique=True)
seeds = st.binary(min_size=32, max_size=32)


def numbered(count: int) -> list[PartyId]:
    return [PartyId(f"p{number:04}") for number in range(count)]


def edge_lists(parties: list[PartyId], at_least: int = 0) -> st.SearchStrategy[list[Edge]]:
    pairs = list(itertools.combinations(parties, 2))
    return st.lists(st.sampled_from(pairs), min_size=at_least, unique=True) if pairs else st.just([])


def connected_by_merging(parties: list[PartyId], edges: set[Edge]) -> bool:
    """A second opinion on connectivity: merge parts along edges until nothing moves."""
    part = {party: index for index, party in enumerate(parties)}
    for _ in parties:
        for one, other in edges:
            part[one] = part[other] = min(part[one], part[other])
    return len(set(part.values())) <= 1


@st.composite
def regular_graphs(draw: st.DrawFn) -> tuple[list[PartyId], int, bytes]:
    k = 2 * draw(st.integers(1, 5))
    parties = draw(st.lists(names, min_size=k + 1, max_size=k + 12, unique=True))
    return parties, k, draw(seeds)


@given(party_lists)
def test_the_complete_graph_joins_every_pair_and_nobody_to_itself(parties: list[PartyId]) -> None:
    graph = complete(parties)
    assert set(graph.edges()) == set(itertools.combinations(sorted(parties), 2))
    graph.require_connected()
    graph.require_degree(len(parties) - 1)


@given(st.lists(names, min_size=3, max_size=12, unique=True))
def test_a_ring_of_three_or_more_is_one_cycle_in_the_order_of_names(parties: list[PartyId]) -> None:
    graph = ring(parties)
    ordered = sorted(parties)
    assert all(
        graph.is_edge(one, other) for one, other in zip(ordered, ordered[1:] + ordered[:1], strict=True)
    )
    assert all(graph.degree(party) == 2 for party in parties)
    graph.require_safe_for_decomposition()


def test_rings_of_one_and_two_have_no_loops_or_double_edges() -> None:
    assert ring(numbered(1)).edges() == ()
    assert ring(numbered(2)) == complete(numbered(2))


@given(regular_graphs())
def test_a_k_regular_graph_is_simple_connected_and_exactly_regular(
    drawn: tuple[list[PartyId], int, bytes],
) -> None:
    parties, k, seed = drawn
    graph = k_regular(parties, k, seed)
    assert {graph.degree(party) for party in parties} == {k}
    assert len(graph.edges()) == len(parties) * k // 2
    assert not any(graph.is_edge(party, party) for party in parties)
    assert connected_by_merging(parties, set(graph.edges()))
    graph.require_safe_for_decomposition()


@given(regular_graphs(), st.randoms(use_true_random=False))
def test_graphs_do_not_depend_on_the_order_in_which_parties_are_listed(
    drawn: tuple[list[PartyId], int, bytes], random: Any
) -> None:
    parties, k, seed = drawn
    shuffled = random.sample(parties, len(parties))
    assert k_regular(shuffled, k, seed) == k_regular(parties, k, seed)
    assert ring(shuffled) == ring(parties)
    assert complete(shuffled) == complete(parties)


@given(regular_graphs())
def test_one_bit_of_the_seed_gives_another_order(drawn: tuple[list[PartyId], int, bytes]) -> None:
    parties, _, seed = drawn
    flipped = bytes([seed[0] ^ 1]) + seed[1:]
    pool = [*parties, *(PartyId(f"extra-{number}") for number in range(20))]
    assert circle_order(pool, seed) != circle_order(pool, flipped)


@given(regular_graphs())
def test_a_party_that_leaves_does_not_change_the_order_of_the_others(
    drawn: tuple[list[PartyId], int, bytes],
) -> None:
    parties, _, seed = drawn
    before = circle_order(parties, seed)
    assert circle_order(parties[1:], seed) == tuple(party for party in before if party != parties[0])


def test_every_pair_is_equally_likely_to_be_joined() -> None:
    """Over 3,000 seeds each of the 45 pairs is joined about 3000 * 4/9 times; five deviations are allowed."""
    counts: Counter[Edge] = Counter()
    draws = 3000
    for number in range(draws):
        counts.update(k_regular(numbered(10), 4, number.to_bytes(32, "big")).edges())
    expected, deviation = draws * 4 / 9, (draws * 4 / 9 * 5 / 9) ** 0.5
    assert len(counts) == 45
    assert all(abs(count - expected) < 5 * deviation for count in counts.values())


@pytest.mark.parametrize(("size", "k"), [(7, 2), (9, 4), (11, 4), (10, 6), (7, 6)])
def test_survivors_are_disconnected_exactly_by_two_separate_runs_of_half_the_degree(
    size: int, k: int
) -> None:
    """Exhaustive over all sets of removed parties: what the search for k counts is what breaks a graph."""
    seed = b"\x07" * 32
    graph = k_regular(numbered(size), k, seed)
    circle = circle_order(numbered(size), seed)
    for removed in itertools.product([False, True], repeat=size):
        survivors = [party for party, gone in zip(circle, removed, strict=True) if not gone]
        edges = {edge for edge in graph.edges() if set(edge) <= set(survivors)}
        assert connected_by_merging(survivors, edges) == (_long_runs(removed, k // 2) < 2)


def _long_runs(removed: tuple[bool, ...], length: int) -> int:
    """How many maximal cyclic runs of True have at least this length."""
    if all(removed):
        return 1
    start = removed.index(False)
    turned = removed[start:] + removed[:start]
    return sum(gone and len(list(run)) >= length for gone, run in itertools.groupby(turned))


@given(st.data())
def test_explicit_edges_give_the_induced_subgraph_of_those_present(data: st.DataObject) -> None:
    everyone = data.draw(party_lists)
    edges = data.draw(edge_lists(everyone))
    present = data.draw(st.lists(st.sampled_from(everyone), unique=True))
    graph = explicit(present, edges)
    expected = {(min(edge), max(edge)) for edge in edges if set(edge) <= set(present)}
    assert set(graph.edges()) == expected
    assert graph.parties == tuple(sorted(present))


@given(st.data())
def test_connectivity_agrees_with_a_second_opinion(data: st.DataObject) -> None:
    parties = data.draw(party_lists)
    edges = data.draw(edge_lists(parties))
    graph = explicit(parties, edges)
    if connected_by_merging(parties, set(graph.edges())):
        graph.require_connected()
    else:
        with refusal(Rejection, reason=AbortReason.GRAPH_TOO_THIN):
            graph.require_connected()


def test_all_graphs_on_four_parties_are_judged_by_degree_and_connectivity() -> None:
    parties = numbered(4)
    pairs = list(itertools.combinations(parties, 2))
    safe = 0
    for chosen in itertools.product([False, True], repeat=len(pairs)):
        edges = [pair for pair, taken in zip(pairs, chosen, strict=True) if taken]
        graph = explicit(parties, edges)
        degrees = [sum(party in edge for edge in edges) for party in parties]
        assert [graph.degree(party) for party in parties] == degrees
        if connected_by_merging(parties, set(edges)) and min(degrees) >= 2:
            graph.require_safe_for_decomposition()
            safe += 1
        else:
            with pytest.raises(Rejection):
                graph.require_safe_for_decomposition()
    assert safe == 3 + 6 + 1, "three 4-cycles, six with one diagonal, and the complete graph"


def test_the_missing_edge_can_be_added_and_mends_the_graph() -> None:
    """Following the advice of each refusal ends at a graph that is accepted."""
    parties, edges = numbered(6), list[Edge]()
    for _ in range(15):
        try:
            explicit(parties, edges).require_safe_for_decomposition()
            break
        except Rejection as refused:
            advice = refused.detail.partition("missing edge is ")[2].split()[0]
            one, other = map(PartyId, advice.split("-"))
            edges.append((one, other))
    explicit(parties, edges).require_safe_for_decomposition()


def test_two_parties_need_one_edge_and_one_party_needs_none() -> None:
    complete(numbered(2)).require_safe_for_decomposition()
    complete(numbered(1)).require_safe_for_decomposition()
    complete([]).require_connected()
    with refusal(Rejection, "p0000-p0001", reason=AbortReason.GRAPH_TOO_THIN):
        explicit(numbered(2), []).require_safe_for_decomposition()


def test_too_few_parties_for_a_degree_says_so_when_no_edge_could_help() -> None:
    with refusal(Rejection, "parties", reason=AbortReason.GRAPH_TOO_THIN):
        complete(numbered(3)).require_degree(3)


def test_neighbours_and_edges_come_in_sorted_order() -> None:
    graph = complete(reversed(numbered(20)))
    assert graph.neighbours_of(PartyId("p0003")) == tuple(p for p in numbered(20) if p != "p0003")
    assert list(graph.edges()) == sorted(graph.edges())


def test_a_graph_cannot_be_changed_and_equal_graphs_hash_alike() -> None:
    graph = ring(numbered(4))
    with pytest.raises(TypeError):
        graph.neighbours[PartyId("p0000")] = frozenset()  # type: ignore[index]  # the point of the test
    assert hash(graph) == hash(ring(numbered(4)))


@pytest.mark.parametrize(
    ("parties", "neighbours", "problem"),
    [
        (("b", "a"), {"a": {"b"}, "b": {"a"}}, "sorted"),
        (("a", "a"), {"a": set()}, "once"),
        (("a", "b"), {"a": set()}, "with its neighbours"),
        (("a",), {"a": {"a"}}, "a .* itself"),
        (("a",), {"a": {"z"}}, "a .* stranger"),
        (("a", "b"), {"a": {"b"}, "b": set()}, "one way only"),
    ],
)
def test_no_invalid_graph_can_be_built(
    parties: tuple[str, ...], neighbours: dict[str, set[str]], problem: str
) -> None:
    with pytest.raises(LocalProtocolError, match=problem):
        Graph(
            tuple(map(PartyId, parties)),
            {PartyId(one): frozenset(map(PartyId, others)) for one, others in neighbours.items()},
        )


def test_misuse_by_our_own_caller_is_a_local_error() -> None:
    graph = ring(numbered(3))
    for use in (graph.degree, graph.neighbours_of):
        with refusal(LocalProtocolError, "zoe", "graph"):
            use(PartyId("zoe"))
    with refusal(LocalProtocolError, "p0000", "twice"):
        complete(numbered(2) + numbered(1))
    with refusal(LocalProtocolError, 32, 3):
        k_regular(numbered(9), 4, b"abc")


@pytest.mark.parametrize("k", [-2, 0, 1, 3])
def test_odd_and_tiny_degrees_are_parameter_errors(k: int) -> None:
    with pytest.raises(ParameterError, match=f"not {k}"):
        k_regular(numbered(9), k, bytes(32))


def test_a_thousand_parties_with_thirty_neighbours_each() -> None:
    graph = k_regular(numbered(1000), 30, bytes(32))
    graph.require_connected()
    assert len(graph.edges()) == 15_000


@given(
    st.one_of(
        st.sampled_from([GraphPolicy(GraphKind.COMPLETE), GraphPolicy(GraphKind.RING)]),
        st.integers(1, 500).map(lambda half: GraphPolicy(GraphKind.K_REGULAR, k=2 * half)),
        st.lists(names, min_size=2, max_size=6, unique=True)
        .flatmap(lambda parties: edge_lists(parties, at_least=1))
        .map(lambda edges: GraphPolicy(GraphKind.EDGES, edges=tuple(edges))),
    )
)
def test_a_policy_is_read_back_from_its_description(policy: GraphPolicy) -> None:
    assert parse_graph(policy.describe()) == policy


@given(st.text(max_size=30))
def test_any_text_is_a_policy_or_a_parameter_error(text: str) -> None:
    try:
        policy = parse_graph(text)
    except ParameterError:
        return
    assert parse_graph(policy.describe()) == policy


@pytest.mark.parametrize(
    "text",
    [
        *("", "Complete", "ring:", "ring:3", "complete:", "k-regular", "k-regular:", "k-regular:04"),
        *("k-regular:+4", "k-regular:4 ", "k-regular:٤", "edges", "edges:", "edges:a", "edges:a-b,"),
        *("edges:a-b-c", "edges:a/b/c", "edges:A-b", "edges:a-b;c-d", "edges:a- b"),
    ],
)
def test_near_misses_are_not_guessed_at(text: str) -> None:
    with pytest.raises(ParameterError):
        parse_graph(text)


@pytest.mark.parametrize(
    ("kind", "k", "edges"),
    [
        (GraphKind.COMPLETE, 4, ()),
        (GraphKind.K_REGULAR, 0, ()),
        (GraphKind.EDGES, 0, ()),
        (GraphKind.RING, 0, ((PartyId("a"), PartyId("b")),)),
    ],
)
def test_no_contradictory_policy_can_be_built(kind: GraphKind, k: int, edges: tuple[Edge, ...]) -> None:
    with pytest.raises(ParameterError):
        GraphPolicy(kind, k, edges)


@pytest.mark.parametrize("case", json.loads((VECTORS / "graph.json").read_text())["cases"])
def test_vectors(case: dict[str, Any]) -> None:
    policy = parse_graph(case["policy"])
    graph = policy.draw(map(PartyId, case["parties"]), bytes.fromhex(case["seed"]))
    assert [list(edge) for edge in graph.edges()] == case["edges"]
    assert policy.describe() == case["policy"]


@pytest.mark.parametrize("path", sorted(VECTORS.glob("graph_bad_*.json")), ids=lambda path: path.stem)
def test_bad_vectors_are_refused_with_the_stated_error(path: Path) -> None:
    case = json.loads(path.read_text())
    with pytest.raises((ParameterError, Rejection)) as refused:
        parse_graph(case["policy"]).draw(
            map(PartyId, case["parties"]), bytes.fromhex(case["seed"])
        ).require_safe_for_decomposition()
    error = refused.value
    assert case["error"] == (error.reason.name if isinstance(error, Rejection) else type(error).__name__)
    assert case["names"] in str(error)
