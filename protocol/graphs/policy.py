"""The graph of a federation as it is written in its configuration: a rule, not yet a graph.

    complete                     everyone with everyone
    ring                         each with the next by name
    k-regular:12                 twelve neighbours each, drawn anew from a seed that all of them know
    edges:a-b,b-c,a-c            exactly these, as far as both ends take part
    edges:lab-1/lab-2,...        the same for names that contain '-'

Who takes part changes from attempt to attempt, so the rule is kept and the graph is drawn each time. The
text is part of the agreed configuration: `parse_graph(policy.describe())` gives the same policy back.

Implements specs/sharing-and-graphs.md, section 3.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass

from veilsum.protocol.errors import ParameterError, Rejection
from veilsum.protocol.graphs.graph import (
    Edge,
    Graph,
    canonical_edges,
    complete,
    explicit,
    k_regular,
    require_even_degree,
    ring,
)
from veilsum.protocol.identifiers import PartyId, require_party_id

_DEGREE = re.compile(r"[1-9][0-9]{0,4}")


class GraphKind(enum.Enum):
    COMPLETE = "complete"
    RING = "ring"
    K_REGULAR = "k-regular"
    EDGES = "edges"


@dataclass(frozen=True)
class GraphPolicy:
    """How the graph of an attempt follows from who takes part and from the seed they agreed on."""

    kind: GraphKind
    k: int = 0
    edges: tuple[Edge, ...] = ()

    def __post_init__(self) -> None:
        if self.kind is GraphKind.K_REGULAR:
            require_even_degree(self.k)
        elif self.k:
            raise ParameterError([f"a {self.kind.value} graph takes no degree"])
        if bool(self.edges) != (self.kind is GraphKind.EDGES):
            raise ParameterError(["a graph has a list of edges exactly if its kind is 'edges'"])
        object.__setattr__(self, "edges", canonical_edges(self.edges))

    def draw(self, parties: Iterable[PartyId], seed: bytes) -> Graph:
        """The graph over `parties`; the seed matters to k-regular graphs only."""
        match self.kind:
            case GraphKind.COMPLETE:
                return complete(parties)
            case GraphKind.RING:
                return ring(parties)
            case GraphKind.K_REGULAR:
                return k_regular(parties, self.k, seed)
            case GraphKind.EDGES:
                return explicit(parties, self.edges)

    def describe(self) -> str:
        details = ""
        if self.kind is GraphKind.K_REGULAR:
            details = f":{self.k}"
        elif self.kind is GraphKind.EDGES:
            details = ":" + ",".join(map(_edge_text, self.edges))
        return f"{self.kind.value}{details}"


def parse_graph(text: str) -> GraphPolicy:
    """The policy that `text` describes; anything else is a `ParameterError` that says what is accepted."""
    word, colon, rest = text.partition(":")
    if word == GraphKind.K_REGULAR.value and _DEGREE.fullmatch(rest):
        return GraphPolicy(GraphKind.K_REGULAR, k=int(rest))
    if word == GraphKind.EDGES.value and rest:
        return GraphPolicy(GraphKind.EDGES, edges=tuple(map(_parse_edge, rest.split(","))))
    if word in (GraphKind.COMPLETE.value, GraphKind.RING.value) and not colon:
        return GraphPolicy(GraphKind(word))
    raise ParameterError([f"{text!r} is no graph: write complete, ring, k-regular:12 or edges:a-b,b-c,a-c"])


def _parse_edge(text: str) -> Edge:
    ends = text.split("/") if "/" in text else text.split("-")
    if len(ends) != 2:
        raise ParameterError([f"{text!r} is no edge: write a-b, or a-1/b-1 where names contain '-'"])
    try:
        return require_party_id(ends[0]), require_party_id(ends[1])
    except Rejection as refusal:
        raise ParameterError([f"{text!r} is no edge: {refusal.detail}"]) from refusal


def _edge_text(edge: Edge) -> str:
    separator = "/" if any("-" in name for name in edge) else "-"
    return separator.join(edge)
