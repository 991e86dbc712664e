"""Who exchanges seeds and shares with whom.

A graph is drawn from data that every participant already holds, so that no one has to be trusted for it:
all of them draw it and check it. Everything here is deterministic and independent of the order in which
parties are listed.

The k-regular graph puts the parties on a circle, in the order of SHA-256(tag, seed, name), and joins each
to the k/2 next on either side. In the random-oracle model the order is a uniform permutation, so the
neighbours of any party are a uniform k-subset of the others, which is what protocol/agreed/sizing.py
counts with. This graph is simple, connected and exactly k-regular for every even k < n, and its breaking is
fully understood: when some parties are removed, the rest are disconnected exactly if the removed ones
contain two separate runs of k/2 or more places on the circle.

Rejected: a Fisher-Yates shuffle (needs an unbiased sampler that a second implementer must match draw by
draw, and one party less changes the order of all others); random matchings or the configuration model
(better expansion, but simple and connected only after retries, and no exact statement for a given n and k);
a graph chosen by the server (it would surround its victim with its friends).

Implements specs/sharing-and-graphs.md, section 3.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from veilsum.protocol.errors import AbortReason, LocalProtocolError, ParameterError, Rejection
from veilsum.protocol.identifiers import PartyId

Edge: TypeAlias = tuple[PartyId, PartyId]

SEED_BYTES = 32
CIRCLE_TAG = b"veilsum v8 graph circle\x00"


@dataclass(frozen=True)
class Graph:
    """An undirected graph without loops; parties are sorted by name."""

    parties: tuple[PartyId, ...]
    neighbours: Mapping[PartyId, frozenset[PartyId]] = field(hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "neighbours", MappingProxyType(dict(self.neighbours)))
        everyone = frozenset(self.parties)
        if list(self.parties) != sorted(everyone) or self.neighbours.keys() != everyone:
            raise LocalProtocolError("a graph lists each party once, sorted, with its neighbours")
        for party, joined in self.neighbours.items():
            if party in joined or not joined <= everyone:
                raise LocalProtocolError(f"{party} is joined to itself or to a stranger")
            theirs = map(self.neighbours.__getitem__, joined)
            if not all(map(frozenset.__contains__, theirs, itertools.repeat(party))):
                raise LocalProtocolError(f"an edge of {party} goes one way only")

    def is_edge(self, one: PartyId, other: PartyId) -> bool:
        """Whether these two share a secret."""
        return other in self._joined_to(one)

    def degree(self, party: PartyId) -> int:
        """How many neighbours a party has."""
        return len(self._joined_to(party))

    def neighbours_of(self, party: PartyId) -> tuple[PartyId, ...]:
        """In sorted order, which a frozenset of names does not keep from one process to the next."""
        return tuple(sorted(self._joined_to(party)))

    def edges(self) -> tuple[Edge, ...]:
        """Each edge once, lower name first, sorted."""
        return tuple((one, other) for one in self.parties for other in self.neighbours_of(one) if one < other)

    def require_connected(self) -> None:
        """Refuse a graph of which a part could be summed apart."""
        if not self.parties:
            return
        reached = self._reachable_from(self.parties[0])
        cut_off = [party for party in self.parties if party not in reached]
        if cut_off:
            raise Rejection(
                AbortReason.GRAPH_TOO_THIN,
                f"no path joins {self.parties[0]} and {cut_off[0]}; "
                f"the missing edge is {self.parties[0]}-{cut_off[0]} or any other between their two parts",
            )

    def require_connected_among(self, parties: Collection[PartyId]) -> None:
        """These parties are joined to each other by edges among themselves, so no part of them is a sum apart."""
        wanted = frozenset(parties)
        start = min(wanted)
        reached, frontier = {start}, [start]
        while frontier and len(reached) < len(wanted):
            fresh = (self._joined_to(frontier.pop()) & wanted) - reached
            reached |= fresh
            frontier.extend(fresh)
        cut_off = wanted - reached
        if cut_off:
            raise Rejection(
                AbortReason.GRAPH_TOO_THIN,
                f"without those who are missing no path joins {start} and {min(cut_off)}: "
                "their two parts would be opened one by one",
            )

    def require_degree(self, minimum: int) -> None:
        """Refuse a graph in which a party has too few neighbours."""
        for party in self.parties:
            if self.degree(party) < minimum:
                raise Rejection(AbortReason.GRAPH_TOO_THIN, self._too_few_neighbours(party, minimum))

    def require_safe_for_decomposition(self) -> None:
        """Connected, and from three parties on every degree at least 2.

        With one neighbour only, that neighbour knows all that hides a party's vector.
        """
        self.require_connected()
        self.require_degree(min(2, len(self.parties) - 1))

    def _joined_to(self, party: PartyId) -> frozenset[PartyId]:
        try:
            return self.neighbours[party]
        except KeyError:
            raise LocalProtocolError(f"{party} is not in this graph") from None

    def _reachable_from(self, start: PartyId) -> set[PartyId]:
        reached = {start}
        frontier = [start]
        while frontier:
            fresh = self.neighbours[frontier.pop()] - reached
            reached |= fresh
            frontier.extend(fresh)
        return reached

    def _too_few_neighbours(self, party: PartyId, minimum: int) -> str:
        text = f"{party} has {self.degree(party)} neighbours, {minimum} are needed"
        strangers = [other for other in self.parties if other != party and not self.is_edge(party, other)]
        if not strangers:
            return f"{text}, and it is joined to every other party already: more parties must take part"
        return f"{text}; a missing edge is {party}-{strangers[0]}"


def complete(parties: Iterable[PartyId]) -> Graph:
    """Everyone with everyone."""
    names = _sorted_parties(parties)
    everyone = frozenset(names)
    return Graph(names, {party: everyone - {party} for party in names})


def ring(parties: Iterable[PartyId]) -> Graph:
    """Each party with the next one by name, and the last with the first."""
    names = _sorted_parties(parties)
    return _circulant(names, names, reach=1)


def k_regular(parties: Iterable[PartyId], k: int, seed: bytes) -> Graph:
    """Every degree exactly k, the same graph for everyone who holds the 32-byte seed."""
    names = _sorted_parties(parties)
    require_even_degree(k)
    if len(seed) != SEED_BYTES:
        raise LocalProtocolError(f"the seed of a graph is {SEED_BYTES} bytes, not {len(seed)}")
    if len(names) <= k:
        raise Rejection(
            AbortReason.GRAPH_TOO_THIN,
            f"{len(names)} parties cannot have {k} neighbours each: at least {k + 1} must take part",
        )
    return _circulant(names, circle_order(names, seed), reach=k // 2)


def explicit(parties: Iterable[PartyId], edges: Iterable[Edge]) -> Graph:
    """The given edges among those present; edges to absent parties are left out."""
    names = _sorted_parties(parties)
    neighbours: dict[PartyId, set[PartyId]] = {party: set() for party in names}
    for one, other in canonical_edges(edges):
        if one in neighbours and other in neighbours:
            neighbours[one].add(other)
            neighbours[other].add(one)
    return Graph(names, {party: frozenset(joined) for party, joined in neighbours.items()})


def circle_order(parties: Iterable[PartyId], seed: bytes) -> tuple[PartyId, ...]:
    """The parties in the order of SHA-256(tag, seed, name): a permutation nobody could choose."""
    prefix = CIRCLE_TAG + seed
    return tuple(sorted(parties, key=lambda party: hashlib.sha256(prefix + party.encode("ascii")).digest()))


def require_even_degree(k: int) -> None:
    if k < 2 or k % 2:
        raise ParameterError([f"the degree of a k-regular graph is even and at least 2, not {k}"])


def canonical_edges(edges: Iterable[Edge]) -> tuple[Edge, ...]:
    """Lower name first, sorted; loops and repeated edges are configuration errors."""
    canonical: set[Edge] = set()
    problems = []
    for one, other in edges:
        edge = (min(one, other), max(one, other))
        if one == other:
            problems.append(f"{one}-{other} joins a party to itself")
        elif edge in canonical:
            problems.append(f"edge {edge[0]}-{edge[1]} is given twice")
        canonical.add(edge)
    if problems:
        raise ParameterError(problems)
    return tuple(sorted(canonical))


def _sorted_parties(parties: Iterable[PartyId]) -> tuple[PartyId, ...]:
    names = sorted(parties)
    repeated = [one for one, following in itertools.pairwise(names) if one == following]
    if repeated:
        raise LocalProtocolError(f"{repeated[0]} is listed twice")
    return tuple(names)


def _circulant(names: tuple[PartyId, ...], circle: tuple[PartyId, ...], reach: int) -> Graph:
    """Each party with those at most `reach` places away on the circle."""
    size = len(circle)
    offsets = [offset for step in range(1, reach + 1) for offset in (step, -step)]
    return Graph(
        names,
        {
            party: frozenset(circle[(place + offset) % size] for offset in offsets) - {party}
            for place, party in enumerate(circle)
        },
    )
