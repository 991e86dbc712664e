"""Shares of a party's secrets among its neighbours and itself: dealt before uploads, released after.

Two kinds of secret are shared: the seed of the self mask and, with zero-sum masks, the private masking key
of the attempt. Rebuilding both for one party would open its upload. Hence the rule that everything here
serves: for one party a holder releases one kind, ever. It is kept by construction (`release` takes the
survivor list once and for all) and by a durable decision that the caller makes before it sends.

The holders of a party are itself and its neighbours, sorted by name; the i-th of them has evaluation point
i.

Implements specs/protocol.md, section 2.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from veilsum.protocol.agreed.parameters import Parameters
from veilsum.protocol.crypto.boxes import open_box, seal_box
from veilsum.protocol.crypto.kdf import Purpose, derive_key
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.crypto.shamir import SHARE_BYTES, Combiner, WrongShare, split
from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection
from veilsum.protocol.graphs.graph import Graph
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.attempt import ParticipantContext
from veilsum.protocol.wire.messages import Message, Stamp, message


class ShareKind(enum.Enum):
    SELF_MASK = "self mask"
    MASKING_KEY = "masking key"


@message("shares.sealed")
@dataclass(frozen=True, slots=True)
class SealedShares(Message):
    """From a party to the server: one box for each neighbour."""

    stamp: Stamp
    boxes: Mapping[PartyId, bytes]


@message("shares.delivered")
@dataclass(frozen=True, slots=True)
class DeliveredShares(Message):
    """From the server to a party: the boxes of the neighbours that shared."""

    stamp: Stamp
    boxes: Mapping[PartyId, bytes]


@message("shares.released")
@dataclass(frozen=True, slots=True)
class ReleasedShares(Message):
    stamp: Stamp
    self_masks: Mapping[PartyId, bytes]
    masking_keys: Mapping[PartyId, bytes]


def holders_of(graph: Graph, party: PartyId) -> tuple[PartyId, ...]:
    return tuple(sorted((party, *graph.neighbours[party])))


def threshold_around(parameters: Parameters, graph: Graph, party: PartyId) -> int:
    """How many holders of a party's shares rebuild its secret, or make a list count that says what became of it."""
    return parameters.holders_threshold(graph.degree(party) + 1, len(graph.parties))


class ShareKeeper:
    """A participant's side of one attempt: deals its shares, keeps those of others, releases one kind each."""

    def __init__(self, context: ParticipantContext, stamp: Stamp, share_graph: Graph) -> None:
        """Boxes are bound to `stamp`, shares travel along `share_graph`."""
        self._context = context
        self._me = context.name
        self._stamp = stamp
        self._share_graph = share_graph
        self._agreed = {
            other: context.box_key.agree(context.session.box_key_of(other))
            for other in share_graph.neighbours_of(context.name)
        }
        self._kinds: tuple[ShareKind, ...] = ()
        self._kept: dict[PartyId, dict[ShareKind, bytes]] = {}
        self._released: dict[PartyId, ShareKind] = {}

    @property
    def sharers(self) -> frozenset[PartyId]:
        """Those whose shares we hold, ourselves included."""
        return frozenset(self._kept)

    def deal(self, secrets: Mapping[ShareKind, Secret]) -> dict[PartyId, bytes]:
        """Split our secrets; keep our own shares, and return a box for each neighbour.

        Everyone deals the same kinds of share, in the same order.
        """
        self._kinds = tuple(secrets)
        holders = holders_of(self._share_graph, self._me)
        threshold = threshold_around(self._context.parameters, self._share_graph, self._me)
        dealt = {
            kind: split(secret, threshold, len(holders), self._context.random)
            for kind, secret in secrets.items()
        }
        boxes = {}
        for index, holder in enumerate(holders):
            shares = {kind: dealt[kind][index] for kind in self._kinds}
            if holder == self._me:
                self._kept[self._me] = shares
            else:
                key = self._box_secret(self._me, holder)
                boxes[holder] = seal_box(key, b"".join(shares[kind] for kind in self._kinds), b"")
        return boxes

    def accept(self, boxes: Mapping[PartyId, bytes]) -> list[PartyId]:
        """Keep what opens; return the neighbours whose box holds no shares, for a warning."""
        for sender in boxes:
            if sender not in self._agreed:
                raise Rejection(AbortReason.UNKNOWN_PARTY, f"{sender} is not a neighbour of {self._me}")
        unusable = []
        for sender, box in boxes.items():
            try:
                plain = open_box(self._box_secret(sender, self._me), box, b"")
            except Rejection:
                plain = b""
            pieces = [plain[at : at + SHARE_BYTES] for at in range(0, len(plain), SHARE_BYTES)]
            usable = len(plain) == SHARE_BYTES * len(self._kinds)
            self._kept[sender] = dict(zip(self._kinds, pieces, strict=True)) if usable else {}
            unusable += [] if usable else [sender]
        return unusable

    def release(
        self, stamp: Stamp, survivors: Iterable[PartyId], dropped: Iterable[PartyId]
    ) -> ReleasedShares:
        """Self-mask shares of survivors, masking-key shares of the dropped; never the other kind later."""
        wanted = dict.fromkeys(survivors, ShareKind.SELF_MASK)
        if ShareKind.MASKING_KEY in self._kinds:
            wanted |= dict.fromkeys(dropped, ShareKind.MASKING_KEY)
        for party, kind in wanted.items():
            if self._released.get(party, kind) is not kind:
                raise LocalProtocolError(
                    f"a share of the {self._released[party].value} of {party} was released"
                )
        shares: dict[ShareKind, dict[PartyId, bytes]] = {kind: {} for kind in ShareKind}
        for party, kind in wanted.items():
            if kind in self._kept.get(party, {}):
                shares[kind][party] = self._kept[party][kind]
                self._released[party] = kind
        return ReleasedShares(stamp, shares[ShareKind.SELF_MASK], shares[ShareKind.MASKING_KEY])

    def _box_secret(self, sender: PartyId, receiver: PartyId) -> Secret:
        agreed = self._agreed[receiver if sender == self._me else sender]
        return derive_key(agreed, Purpose.SHARE_BOX, self._stamp.key_context(sender, receiver))


class ShareCollector:
    """The server's side: gathers released shares and rebuilds one secret for each party of the list."""

    def __init__(
        self, parameters: Parameters, share_graph: Graph, wanted: Mapping[PartyId, ShareKind]
    ) -> None:
        self._wanted = wanted
        self._holders = {party: holders_of(share_graph, party) for party in wanted}
        self._thresholds = {party: threshold_around(parameters, share_graph, party) for party in wanted}
        self._combiners = {t: Combiner(t) for t in set(self._thresholds.values())}
        self._shares: dict[PartyId, dict[int, bytes]] = {party: {} for party in wanted}
        self.senders: set[PartyId] = set()

    def add(self, sender: PartyId, released: ReleasedShares) -> None:
        """Take all shares of one holder, or raise and take none."""
        if sender in self.senders:
            raise Rejection(AbortReason.REPLAY, "this party has released its shares already")
        given = [(party, ShareKind.SELF_MASK, share) for party, share in released.self_masks.items()]
        given += [(party, ShareKind.MASKING_KEY, share) for party, share in released.masking_keys.items()]
        for party, kind, share in given:
            if self._wanted.get(party) is not kind:
                raise Rejection(
                    AbortReason.SURVIVOR_LIST, f"a share of the {kind.value} of {party} is not due"
                )
            if sender not in self._holders[party] or len(share) != SHARE_BYTES:
                raise Rejection(AbortReason.BAD_SHARE, f"no share of {party}")
        for party, _, share in given:
            self._shares[party][self._holders[party].index(sender) + 1] = share
        self.senders.add(sender)

    @property
    def short_of(self) -> tuple[PartyId, ...]:
        """Parties whose secret cannot be rebuilt yet."""
        return tuple(party for party in self._wanted if len(self._shares[party]) < self._thresholds[party])

    def rebuild(self) -> tuple[dict[PartyId, Secret], set[PartyId]]:
        """Every secret, and the holders whose shares turned out wrong and were left out."""
        secrets, liars = {}, set()
        for party in self._wanted:
            secrets[party], wrong = self._rebuild_one(party)
            liars |= wrong
        return secrets, liars

    def _rebuild_one(self, party: PartyId) -> tuple[Secret, set[PartyId]]:
        shares = dict(self._shares[party])
        wrong: set[PartyId] = set()
        while True:
            try:
                return self._combiners[self._thresholds[party]].combine(shares), wrong
            except WrongShare as problem:
                if problem.holder is None or problem.holder not in shares:
                    raise
                wrong.add(self._holders[party][problem.holder - 1])
                del shares[problem.holder]
