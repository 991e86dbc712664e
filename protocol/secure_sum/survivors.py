"""Agreeing on who is in the sum, before any share is released.

When uploads close, the server names the survivors and the dropped. A participant signs the first list that
passes its checks and never another one for the same attempt. Shares of a party are released only under t
signatures of that party's holders over one list: with 2t > s + c two different lists cannot both get them
(protocol/agreed/threat.py). The survivors must be joined to each other by masks that cancel: if those who dropped
cut them into parts, the parts would be opened one by one. Under the semi-honest threat the server is trusted
to show everyone the same list, and the signatures are left out.

Implements specs/protocol.md, section 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated

from veilsum.protocol.agreed.parameters import Differencing, Parameters
from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.agreed.threat import Threat
from veilsum.protocol.chain.statements import LIST_DOMAIN, list_digest
from veilsum.protocol.crypto.identity import Identity
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.graphs.graph import Graph
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.attempt import ParticipantContext
from veilsum.protocol.machines.events import Event, Warned
from veilsum.protocol.secure_sum.shares import holders_of, threshold_around
from veilsum.protocol.wire.messages import Length, Message, Stamp, message

SURVIVOR_DOMAIN = "survivors"


@message("survivors.list")
@dataclass(frozen=True, slots=True)
class SurvivorList(Message):
    """Who is in the sum; `total` is larger than the survivors named where only a neighbourhood is listed."""

    stamp: Stamp
    survivors: tuple[PartyId, ...]
    dropped: tuple[PartyId, ...]
    total: int
    voucher: Annotated[bytes, Length(64, or_empty=True)] = b""
    """The server's signature under the survivors: a member that signed the list can prove who proposed it."""

    def vouched(self, server: Identity) -> SurvivorList:
        """With the server's signature."""
        return replace(self, voucher=server.signing.sign(LIST_DOMAIN, self.vouched_digest))

    @property
    def named(self) -> tuple[PartyId, ...]:
        """Everyone of whom the list says what became of it."""
        return tuple(sorted((*self.survivors, *self.dropped)))

    @property
    def vouched_digest(self) -> bytes:
        return list_digest(self.stamp.without_model(), self.survivors, self.named)

    @property
    def digest(self) -> bytes:
        named = ("\n".join(self.survivors).encode(), "\n".join(self.dropped).encode())
        return self.stamp.digest("survivors", *named, self.total.to_bytes(8, "big"))


@message("survivors.signature")
@dataclass(frozen=True, slots=True)
class SurvivorSignature(Message):
    stamp: Stamp
    signature: Annotated[bytes, Length(64)]


@message("survivors.proof")
@dataclass(frozen=True, slots=True)
class SurvivorProof(Message):
    stamp: Stamp
    signatures: Mapping[PartyId, bytes]


def voters_of(parameters: Parameters, share_graph: Graph, party: PartyId) -> tuple[PartyId, ...]:
    """Those whose signature counts for the fate of a party: its holders.

    Where the threshold comes from protocol/agreed/sizing.py it counts neighbours, so a party's own voice
    is left out.
    """
    holders = holders_of(share_graph, party)
    if not parameters.counts_neighbours(len(holders), len(share_graph.parties)):
        return holders
    return tuple(name for name in holders if name != party)


class SurvivorCheck:
    """A participant's side: one list per attempt, and t signatures before anything is released."""

    def __init__(
        self,
        context: ParticipantContext,
        share_graph: Graph,
        mask_graph: Graph,
        sharers: frozenset[PartyId],
        expected: frozenset[PartyId],
    ) -> None:
        """Shares travel along `share_graph`, masks that cancel along `mask_graph`.

        `sharers` are those whose shares we hold, `expected` those around us that a list must name.
        """
        self._context = context
        self._share_graph = share_graph
        self._mask_graph = mask_graph
        self._sharers = sharers
        self._expected = expected
        self.accepted: SurvivorList | None = None

    def accept(self, proposed: SurvivorList) -> list[Event]:
        """Adopt the list, or raise; returns warnings."""
        if self.accepted is not None:
            again = proposed == self.accepted
            reason = AbortReason.REPLAY if again else AbortReason.EQUIVOCATION
            raise Rejection(reason, "a second survivor list for one attempt")
        self._require_partition(proposed)
        self._require_us_and_enough(proposed)
        if self._context.parameters.threat is Threat.LYING and self._context.chain is not None:
            self._context.roster.verify(SERVER, LIST_DOMAIN, proposed.vouched_digest, proposed.voucher)
        self._mask_graph.require_connected_among(proposed.survivors)
        warnings = check_differencing(self._context, frozenset(proposed.survivors))
        self.accepted = proposed
        return warnings

    @property
    def agreed(self) -> SurvivorList:
        assert self.accepted is not None
        return self.accepted

    def sign(self) -> SurvivorSignature:
        signature = self._context.me.signing.sign(SURVIVOR_DOMAIN, self.agreed.digest)
        return SurvivorSignature(self._context.stamp, signature)

    def require_proof(self, proof: SurvivorProof) -> None:
        """Each party whose shares we hold needs t of its own holders behind the list we signed."""
        survivors, digest = frozenset(self.agreed.survivors), self.agreed.digest
        for name, signature in proof.signatures.items():
            if name not in survivors:
                raise Rejection(AbortReason.SURVIVOR_LIST, f"{name} signed, but is not a survivor")
            self._context.roster.verify(name, SURVIVOR_DOMAIN, digest, signature)
        parameters = self._context.parameters
        for party in sorted(self._sharers):
            signed = sum(
                voter in proof.signatures for voter in voters_of(parameters, self._share_graph, party)
            )
            needed = threshold_around(parameters, self._share_graph, party)
            if signed < needed:
                raise Rejection(
                    AbortReason.SURVIVOR_LIST,
                    f"{signed} holders of {party} signed the list, {needed} are needed",
                )

    def _require_partition(self, proposed: SurvivorList) -> None:
        named = (*proposed.survivors, *proposed.dropped)
        both = frozenset(proposed.survivors) & frozenset(proposed.dropped)
        if both:
            raise Rejection(AbortReason.BOTH_SHARE_KINDS, f"{min(both)} is called survivor and dropped")
        if len(set(named)) != len(named):
            raise Rejection(AbortReason.SURVIVOR_LIST, "a party is named twice")
        for name in named:
            if name not in self._share_graph.neighbours:
                raise Rejection(AbortReason.UNKNOWN_PARTY, f"{name} does not take part in this attempt")
        around = frozenset(holders_of(self._share_graph, self._context.name))
        unexpected = (frozenset(named) & around) ^ self._expected
        if unexpected:
            raise Rejection(
                AbortReason.SURVIVOR_LIST,
                f"the list does not fit those who take part: {', '.join(sorted(unexpected))}",
            )

    def _require_us_and_enough(self, proposed: SurvivorList) -> None:
        silent = (frozenset(proposed.survivors) & self._expected) - self._sharers
        if silent:
            raise Rejection(AbortReason.SURVIVOR_LIST, f"{min(silent)} is called a survivor and never shared")
        if self._context.name not in proposed.survivors:
            raise Rejection(AbortReason.SURVIVOR_LIST, "we uploaded and are not called a survivor")
        parameters = self._context.parameters
        if proposed.total != len(proposed.survivors) and not parameters.lists_neighbourhoods:
            raise Rejection(
                AbortReason.SURVIVOR_LIST,
                f"{proposed.total} survivors announced, {len(proposed.survivors)} named",
            )
        if proposed.total < parameters.min_parties:
            raise Rejection(
                AbortReason.COHORT_TOO_SMALL,
                f"{proposed.total} survivors, the minimum is {parameters.min_parties}",
            )


def check_differencing(context: ParticipantContext, cohort: frozenset[PartyId]) -> list[Event]:
    """Sums over cohorts that differ by few parties tell about those few, if models move slowly.

    Two sums of one round tell it in any case. A list of our neighbours alone says too little for the first.
    """
    parameters = context.parameters
    context.record.require_same_cohort(context.stamp.round, cohort)
    context.sums.require_list(cohort)
    if parameters.lists_neighbourhoods:
        return []
    exposed = context.record.exposed_by(cohort, parameters.min_parties)
    if not exposed:
        return []
    text = (
        f"this sum and earlier ones, compared, may tell about {', '.join(exposed[:10])}, in groups of fewer than "
        f"{parameters.min_parties}"
    )
    if parameters.differencing is Differencing.REFUSE:
        raise Rejection(AbortReason.DIFFERENCING, f"{text}; the run goes on when the same parties are back")
    return [Warned(text)]


class SurvivorVote:
    """The server's side: collects signatures over its list until every party's holders have t."""

    def __init__(
        self, roster: Roster, parameters: Parameters, share_graph: Graph, proposed: SurvivorList
    ) -> None:
        self._roster = roster
        self.proposed = proposed
        self._digest = proposed.digest
        named = (*proposed.survivors, *proposed.dropped)
        self._voters = {party: voters_of(parameters, share_graph, party) for party in named}
        self._needed = {party: threshold_around(parameters, share_graph, party) for party in named}
        self.signatures: dict[PartyId, bytes] = {}

    def add(self, sender: PartyId, message: SurvivorSignature) -> None:
        if sender in self.signatures:
            raise Rejection(AbortReason.REPLAY, "this party has signed already")
        if sender not in self.proposed.survivors:
            raise Rejection(AbortReason.SURVIVOR_LIST, "a dropped party does not sign")
        self._roster.verify(sender, SURVIVOR_DOMAIN, self._digest, message.signature)
        self.signatures[sender] = message.signature

    @property
    def complete(self) -> bool:
        return all(
            sum(voter in self.signatures for voter in voters) >= self._needed[party]
            for party, voters in self._voters.items()
        )

    def proof_for(self, stamp: Stamp, around: Iterable[PartyId]) -> SurvivorProof:
        """The signatures that a participant needs for the parties whose shares it holds."""
        signers: set[PartyId] = set()
        for party in around:
            if party in self._voters:
                signed = [voter for voter in self._voters[party] if voter in self.signatures]
                signers.update(signed[: self._needed[party]])
        return SurvivorProof(stamp, {name: self.signatures[name] for name in signers})
