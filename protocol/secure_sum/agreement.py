"""From the uploads that came to the shares that open their sum: the server's side (specs/protocol.md, section 2).

The server names who is in the sum, collects signatures over that list, shows them around, and collects one share for
each party of the list. From the moment it asks for shares the round has one list for ever: the decision is durable
before the question leaves.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

from veilsum.protocol.errors import AbortReason, ProtocolError, Rejection
from veilsum.protocol.graphs.graph import Graph
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.attempt import Failed, ServerContext, failure_of
from veilsum.protocol.machines.events import Event, PartyNamed, Send
from veilsum.protocol.secure_sum.relay import ShareRelay
from veilsum.protocol.secure_sum.shares import (
    ReleasedShares,
    ShareCollector,
    ShareKind,
    WrongSecrets,
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
    relay: ShareRelay,
) -> Failed | None:
    """Why the sum of those who uploaded cannot be opened, if so: better to begin anew with those present."""
    try:
        mask_graph.require_connected_among(uploaded)
    except Rejection as problem:
        return Failed(problem.reason, detail=problem.detail, missing=missing)
    for party in (*sorted(uploaded), *missing):
        holders = frozenset(holders_of(share_graph, party))
        present, needed = holders & uploaded, threshold_around(context.parameters, share_graph, party)
        if len(present) < needed:
            detail = f"{len(present)} holders of the shares of {party} uploaded, {needed} are needed; "
            detail += f"missing: {', '.join(missing[:10])}"
            return Failed(AbortReason.COHORT_TOO_SMALL, detail=detail, missing=missing)
    return _unusable(context, share_graph, uploaded, missing, relay)


def _unusable(
    context: ServerContext,
    share_graph: Graph,
    uploaded: Set[PartyId],
    missing: tuple[PartyId, ...],
    relay: ShareRelay,
) -> Failed | None:
    """Whose shares too few hold, by what the holders say: the next attempt does without these dealers."""
    refused = []
    for dealer in (*sorted(uploaded), *(missing if relay.shares_keys else ())):
        holders = frozenset(holders_of(share_graph, dealer))
        left = (holders & uploaded) - relay.refused_by(dealer)
        if len(left) < threshold_around(context.parameters, share_graph, dealer):
            refused.append(dealer)
    if not refused:
        return None
    detail = f"too few holders have shares of {', '.join(refused[:10])} that are what the dealer signed"
    gone = tuple(sorted({*missing, *refused}))
    return Failed(AbortReason.BAD_SHARE, detail=detail, missing=gone, left_out=tuple(refused))


class SurvivorAgreement:
    """One list, the votes for it, and the shares that are released under it; the machine keeps the phases."""

    def __init__(
        self,
        context: ServerContext,
        share_graph: Graph,
        proposed: SurvivorList,
        relay: ShareRelay,
    ) -> None:
        """Where masking keys were shared too, those of the dropped are rebuilt."""
        self._context = context
        self._share_graph = share_graph
        self.proposed = proposed
        wanted = dict.fromkeys(proposed.survivors, ShareKind.SELF_MASK)
        if relay.shares_keys:
            wanted |= dict.fromkeys(proposed.dropped, ShareKind.MASKING_KEY)
        self.vote = SurvivorVote(context.roster, context.parameters, share_graph, proposed)
        self.collector = ShareCollector(context.parameters, share_graph, wanted, relay)

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
        short, wrong = self.collector.short_of, sorted(self.collector.wrong)
        if not short:
            return None
        silent = sorted(set(self.proposed.survivors) - self.collector.senders)
        detail = f"too few shares to rebuild the masks of {', '.join(short[:10])}"
        if silent:
            detail += f"; none came from {', '.join(silent[:10])}"
        reason = AbortReason.BAD_SHARE if wrong else AbortReason.TIMED_OUT
        return Failed(reason, (*wrong, *silent, *short)[0], detail, repeatable=bool(silent))

    @property
    def named(self) -> tuple[PartyNamed, ...]:
        """Holders that released a share which is not the one that they were dealt."""
        return tuple(
            PartyNamed(
                holder, AbortReason.BAD_SHARE, f"released a wrong share of {', '.join(sorted(dealers)[:10])}"
            )
            for holder, dealers in sorted(self.collector.wrong.items())
        )


def unopened(error: ProtocolError, survivors: Set[PartyId], named: tuple[PartyNamed, ...]) -> Failed:
    """Why the sum stayed closed, and who lied. The same sum can be tried again without those who are not in it."""
    dealers = error.dealers if isinstance(error, WrongSecrets) else ()
    detail = "dealt shares that rebuild another secret than it promised"
    lied = (PartyNamed(dealer, AbortReason.BAD_SHARE, detail) for dealer in dealers)
    failed = failure_of(error, repeatable=bool(dealers) and survivors.isdisjoint(dealers))
    if failed.reason is AbortReason.CHECK_FAILED:
        failed = replace(failed, detail=f"{failed.detail}: {spoiled(tuple(sorted(survivors)))}")
    return replace(failed, named=(*named, *lied))


def spoiled(cohort: tuple[PartyId, ...]) -> str:
    """What is told of a sum that fails its checks: the masks hide who spoiled it."""
    return (
        f"one of {', '.join(cohort[:10])} spoiled the sum, and the masks hide who; nothing was committed: the "
        "organiser goes on with `veilsum roster checkpoint`, with or without an eviction"
    )
