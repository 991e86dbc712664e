"""From the uploads that came to the shares that open their sum: the server's side (specs/protocol.md, section 2).

The server names who is in the sum, collects signatures over that list, shows them around, and collects one share for
each party of the list. From the moment it asks for shares the round has one list for ever: the decision is durable
before the question leaves.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.graphs.graph import Graph
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.attempt import Failed, ServerContext
from veilsum.protocol.machines.events import Event, Send, Warned
from veilsum.protocol.secure_sum.shares import (
    ReleasedShares,
    ShareCollector,
    ShareKind,
    holders_of,
    threshold_around,
)
from veilsum.protocol.secure_sum.survivors import SurvivorList, SurvivorVote
from veilsum.protocol.wire.messages import Message, Stamp


def missing_upload(missing: tuple[PartyId, ...]) -> Failed:
    """Without recovery one upload that is missing ends the run: two sums over others could be compared."""
    detail = f"no upload of {', '.join(missing[:10])}"
    return Failed(AbortReason.MISSING_UPLOAD, missing[0], detail, missing, repeatable=False)


def unrecoverable(
    context: ServerContext,
    share_graph: Graph,
    mask_graph: Graph,
    uploaded: Set[PartyId],
    missing: tuple[PartyId, ...],
) -> Failed | None:
    """Why the sum of those who uploaded cannot be opened, if so: better to begin anew with those present."""
    try:
        mask_graph.require_connected_among(uploaded)
        for party in (*sorted(uploaded), *missing):
            _require_enough_holders(context, share_graph, uploaded, missing, party)
    except Rejection as problem:
        return Failed(problem.reason, detail=problem.detail, missing=missing)
    return None


def _require_enough_holders(
    context: ServerContext,
    share_graph: Graph,
    uploaded: Set[PartyId],
    missing: tuple[PartyId, ...],
    party: PartyId,
) -> None:
    """Without t holders left nothing can be agreed on nor rebuilt."""
    holders = holders_of(share_graph, party)
    left = sum(holder in uploaded for holder in holders)
    needed = threshold_around(context.parameters, share_graph, party)
    if left < needed:
        raise Rejection(
            AbortReason.COHORT_TOO_SMALL,
            f"{left} holders of the shares of {party} uploaded, {needed} are needed; "
            f"missing: {', '.join(missing[:10])}",
        )


def warnings_about(liars: tuple[PartyId, ...]) -> list[Event]:
    return [Warned(f"{name} released a wrong share; it was left out") for name in liars]


class SurvivorAgreement:
    """One list, the votes for it, and the shares that are released under it; the machine keeps the phases."""

    def __init__(
        self, context: ServerContext, share_graph: Graph, proposed: SurvivorList, *, rebuilds_keys: bool
    ) -> None:
        """`rebuilds_keys`: the masking keys of those who dropped are rebuilt too."""
        self._context = context
        self._share_graph = share_graph
        self.proposed = proposed
        wanted = dict.fromkeys(proposed.survivors, ShareKind.SELF_MASK)
        if rebuilds_keys:
            wanted |= dict.fromkeys(proposed.dropped, ShareKind.MASKING_KEY)
        self.vote = SurvivorVote(context.roster, context.parameters, share_graph, proposed)
        self.collector = ShareCollector(context.parameters, share_graph, wanted)

    @property
    def stamp(self) -> Stamp:
        return self.proposed.stamp

    @property
    def unsigned(self) -> Set[PartyId]:
        """Those whose signature may still be needed."""
        return set() if self.vote.complete else set(self.proposed.survivors)

    def unreleased(self, awaited: Set[PartyId]) -> Set[PartyId]:
        return (awaited & set(self.proposed.survivors)) - self.collector.senders

    def take_release(self, sender: PartyId, message: ReleasedShares) -> None:
        if sender not in self.proposed.survivors:
            raise Rejection(AbortReason.SURVIVOR_LIST, "a dropped party releases nothing")
        self.collector.add(sender, message)

    def propose(self) -> list[Event]:
        return [Send(name, self.proposed) for name in self.proposed.survivors]

    def lists(self) -> dict[PartyId, Message]:
        """The list as each survivor is told it: where so agreed, about its own neighbourhood only."""
        proposed = self.proposed
        if not self._context.parameters.lists_neighbourhoods:
            return dict.fromkeys(proposed.survivors, proposed)
        return {name: self._list_around(name) for name in proposed.survivors}

    def _list_around(self, name: PartyId) -> SurvivorList:
        around = holders_of(self._share_graph, name)
        survivors = tuple(other for other in around if other in self.proposed.survivors)
        dropped = tuple(other for other in around if other in self.proposed.dropped)
        return SurvivorList(self.stamp, survivors, dropped, self.proposed.total)

    def proofs(self) -> dict[PartyId, Message]:
        return {
            name: self.vote.proof_for(self.stamp, holders_of(self._share_graph, name))
            for name in self.proposed.survivors
        }

    def ask_for_shares(self, messages: Mapping[PartyId, Message]) -> list[Event]:
        """Send what makes participants release their shares; from here on the round has one list for ever."""
        spent = self._context.record.spend(self.stamp, self.proposed.survivors, self._share_graph.parties)
        return [spent, *(Send(name, message) for name, message in messages.items())]

    def unproved(self) -> Failed | None:
        """Why the list does not count, if too few signed it."""
        if self.vote.complete:
            return None
        silent = tuple(sorted(set(self.proposed.survivors) - self.vote.signatures.keys()))
        detail = f"too few agreed on the survivor list; missing: {', '.join(silent[:10])}"
        return Failed(AbortReason.TIMED_OUT, silent[0], detail, silent)

    def unopenable(self) -> Failed | None:
        """Why the sum stays closed, if too few shares were released."""
        short = self.collector.short_of
        if not short:
            return None
        silent = sorted(set(self.proposed.survivors) - self.collector.senders)
        detail = f"too few shares to rebuild the masks of {', '.join(short[:10])}"
        if silent:
            detail += f"; none came from {', '.join(silent[:10])}"
        return Failed(AbortReason.TIMED_OUT, (*silent, *short)[0], detail, repeatable=bool(silent))
