"""The server passes sealed shares on (specs/protocol.md, section 2): it cannot open a box, and leaves none out."""

from __future__ import annotations

from collections.abc import Set

from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.graphs.graph import Graph
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.attempt import require_absent
from veilsum.protocol.machines.events import Event, Send
from veilsum.protocol.secure_sum.shares import DeliveredShares, SealedShares
from veilsum.protocol.wire.messages import Stamp


class ShareRelay:
    """Boxes of the `candidates`, each for one neighbour in `graph`."""

    def __init__(self, graph: Graph, candidates: Set[PartyId]) -> None:
        self._graph = graph
        self._candidates = frozenset(candidates)
        self._boxes: dict[PartyId, SealedShares] = {}

    @property
    def senders(self) -> set[PartyId]:
        return set(self._boxes)

    def add(self, sender: PartyId, message: SealedShares) -> None:
        require_absent(sender, self._boxes)
        if sender not in self._candidates:
            raise Rejection(AbortReason.UNEXPECTED_MESSAGE, "shares of a party that is not in this attempt")
        if message.boxes.keys() != self._graph.neighbours[sender]:
            raise Rejection(AbortReason.BAD_SHARE, "a box for each neighbour, no more and no fewer")
        self._boxes[sender] = message

    def silent(self, awaited: Set[PartyId]) -> Set[PartyId]:
        return (awaited & self._candidates) - self._boxes.keys()

    def deliveries(self, stamp: Stamp) -> list[Event]:
        return [Send(name, DeliveredShares(stamp, self._boxes_for(name))) for name in sorted(self._boxes)]

    def _boxes_for(self, name: PartyId) -> dict[PartyId, bytes]:
        around = self._graph.neighbours_of(name)
        return {other: self._boxes[other].boxes[name] for other in around if other in self._boxes}
