"""Shares of a party's secrets among its neighbours and itself: dealt before uploads, released after.

Two kinds of secret are shared: the seed of the self mask and, with zero-sum masks, the private masking key
of the attempt. Rebuilding both for one party would open its upload. Hence the rule that everything here
serves: for one party a holder releases one kind, ever. It is kept by construction (`release` takes the
survivor list once and for all) and by a durable decision that the caller makes before it sends.

The holders of a party are itself and its neighbours, sorted by name; the i-th of them has evaluation point
i. What each of them was dealt is signed by hash (secure_sum/dealt.py), and checked where it is taken.

Implements specs/protocol.md, section 2.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Protocol

from veilsum.protocol.agreed.parameters import Parameters
from veilsum.protocol.crypto.boxes import open_box, seal_box
from veilsum.protocol.crypto.kdf import Purpose, derive_key
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.crypto.shamir import SHARE_BYTES, Combiner, WrongShare, split
from veilsum.protocol.errors import AbortReason, LocalProtocolError, Rejection, RemoteProtocolError
from veilsum.protocol.graphs.graph import Graph
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.attempt import ParticipantContext
from veilsum.protocol.secure_sum.dealt import (
    DEALT_DOMAIN,
    DealtTree,
    SignedBox,
    require_signed,
    seed_hash,
    share_hash,
)
from veilsum.protocol.wire.messages import Length, Message, Stamp, message


class ShareKind(enum.Enum):
    SELF_MASK = "self mask"
    MASKING_KEY = "masking key"


@message("shares.sealed")
@dataclass(frozen=True, slots=True)
class SealedShares(Message):
    """From a party to the server: a box for each neighbour, and what it signs about the shares of all holders."""

    stamp: Stamp
    boxes: Mapping[PartyId, bytes]
    hashes: Mapping[PartyId, tuple[Annotated[bytes, Length(32)], ...]]
    seed_hash: Annotated[bytes, Length(32)]
    signature: Annotated[bytes, Length(64)]


@message("shares.delivered")
@dataclass(frozen=True, slots=True)
class DeliveredShares(Message):
    """From the server to a party: the boxes of the neighbours that shared, as they signed them."""

    stamp: Stamp
    boxes: Mapping[PartyId, SignedBox]


@message("shares.released")
@dataclass(frozen=True, slots=True)
class ReleasedShares(Message):
    stamp: Stamp
    self_masks: Mapping[PartyId, bytes]
    masking_keys: Mapping[PartyId, bytes]


class WrongSecrets(RemoteProtocolError):
    """Shares as they were dealt rebuild another secret than was promised: these dealers lied."""

    def __init__(self, dealers: tuple[PartyId, ...]) -> None:
        detail = f"the shares that {', '.join(dealers[:10])} dealt rebuild another secret than was promised"
        super().__init__(dealers[0], AbortReason.BAD_SHARE, detail)
        self.dealers = dealers


def holders_of(graph: Graph, party: PartyId) -> tuple[PartyId, ...]:
    return tuple(sorted((party, *graph.neighbours[party])))


def threshold_around(parameters: Parameters, graph: Graph, party: PartyId) -> int:
    """How many holders of a party's shares rebuild its secret, or make a list count that says what became of it."""
    return parameters.holders_threshold(graph.degree(party) + 1, len(graph.parties))


class ShareKeeper:
    """A participant's side of one attempt: deals its shares, keeps those of others, releases one kind each."""

    def __init__(self, context: ParticipantContext, share_graph: Graph) -> None:
        """Shares travel along `share_graph`, in boxes that are bound to the attempt and to nothing else."""
        self._context = context
        self._me = context.name
        self._stamp = context.stamp.without_model()
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
        """Those who dealt us a box, ourselves included, whatever was in it."""
        return frozenset(self._kept)

    @property
    def refused(self) -> tuple[PartyId, ...]:
        """Those whose box does not hold the shares that they signed."""
        return tuple(sorted(dealer for dealer, shares in self._kept.items() if not shares))

    def deal(self, secrets: Mapping[ShareKind, Secret]) -> SealedShares:
        """Split our secrets; keep our own shares, and seal and sign a box for each neighbour.

        Everyone deals the same kinds of share, in the same order.
        """
        self._kinds = tuple(secrets)
        holders = holders_of(self._share_graph, self._me)
        threshold = threshold_around(self._context.parameters, self._share_graph, self._me)
        dealt = {
            kind: split(secret, threshold, len(holders), self._context.random)
            for kind, secret in secrets.items()
        }
        boxes, hashes = {}, {}
        for index, holder in enumerate(holders):
            shares = {kind: dealt[kind][index] for kind in self._kinds}
            hashes[holder] = self._hashes_of(self._me, holder, shares)
            if holder == self._me:
                self._kept[self._me] = shares
            else:
                key = self._box_secret(self._me, holder)
                boxes[holder] = seal_box(key, b"".join(shares[kind] for kind in self._kinds), b"")
        seed = seed_hash(self._stamp, self._me, secrets[ShareKind.SELF_MASK])
        digest = DealtTree(self._stamp, self._me, boxes, hashes, seed).digest
        signature = self._context.me.signing.sign(DEALT_DOMAIN, digest)
        return SealedShares(self._context.stamp, boxes, hashes, seed, signature)

    def accept(self, boxes: Mapping[PartyId, SignedBox]) -> None:
        """Keep the shares that are what their dealer signed; refuse all if one box is not what was signed."""
        for dealer, signed in boxes.items():
            if dealer not in self._agreed:
                raise Rejection(AbortReason.UNKNOWN_PARTY, f"{dealer} is not a neighbour of {self._me}")
            require_signed(self._context.roster, self._stamp, dealer, self._me, signed)
        self._kept |= {dealer: self._opened(dealer, signed) for dealer, signed in boxes.items()}

    def _opened(self, dealer: PartyId, signed: SignedBox) -> dict[ShareKind, bytes]:
        """The shares in a box, or none if it does not hold those that its dealer signed."""
        try:
            plain = open_box(self._box_secret(dealer, self._me), signed.box, b"")
        except Rejection:
            return {}
        if len(plain) != SHARE_BYTES * len(self._kinds):
            return {}
        pieces = (plain[at : at + SHARE_BYTES] for at in range(0, len(plain), SHARE_BYTES))
        shares = dict(zip(self._kinds, pieces, strict=True))
        return shares if self._hashes_of(dealer, self._me, shares) == signed.hashes else {}

    def _hashes_of(
        self, dealer: PartyId, holder: PartyId, shares: Mapping[ShareKind, bytes]
    ) -> tuple[bytes, ...]:
        return tuple(
            share_hash(self._stamp, dealer, holder, kind.value, share) for kind, share in shares.items()
        )

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


class Dealt(Protocol):
    """What is known of the shares and secrets of each dealer, by what it signed."""

    def is_share(self, dealer: PartyId, holder: PartyId, kind: ShareKind, share: bytes) -> bool: ...

    def is_secret(self, dealer: PartyId, kind: ShareKind, secret: Secret) -> bool: ...


class ShareCollector:
    """The server's side: gathers released shares and rebuilds one secret for each party of the list."""

    def __init__(
        self, parameters: Parameters, share_graph: Graph, wanted: Mapping[PartyId, ShareKind], dealt: Dealt
    ) -> None:
        self._wanted = wanted
        self._dealt = dealt
        self._holders = {party: holders_of(share_graph, party) for party in wanted}
        self._thresholds = {party: threshold_around(parameters, share_graph, party) for party in wanted}
        self._combiners = {t: Combiner(t) for t in set(self._thresholds.values())}
        self._shares: dict[PartyId, dict[int, bytes]] = {party: {} for party in wanted}
        self.senders: set[PartyId] = set()
        self.wrong: dict[PartyId, list[PartyId]] = {}

    def add(self, sender: PartyId, released: ReleasedShares) -> None:
        """Take all shares of one holder, but none that is not the one it was dealt; or raise and take nothing."""
        if sender in self.senders:
            raise Rejection(AbortReason.REPLAY, "this party has released its shares already")
        given = [(party, ShareKind.SELF_MASK, share) for party, share in released.self_masks.items()]
        given += [(party, ShareKind.MASKING_KEY, share) for party, share in released.masking_keys.items()]
        for party, kind, _ in given:
            if self._wanted.get(party) is not kind:
                raise Rejection(
                    AbortReason.SURVIVOR_LIST, f"a share of the {kind.value} of {party} is not due"
                )
            if sender not in self._holders[party]:
                raise Rejection(AbortReason.BAD_SHARE, f"no share of {party} was dealt to this party")
        for party, kind, share in given:
            if self._dealt.is_share(party, sender, kind, share):
                self._shares[party][self._holders[party].index(sender) + 1] = share
            else:
                self.wrong.setdefault(sender, []).append(party)
        self.senders.add(sender)

    @property
    def short_of(self) -> tuple[PartyId, ...]:
        """Parties whose secret cannot be rebuilt yet."""
        return tuple(party for party in self._wanted if len(self._shares[party]) < self._thresholds[party])

    def rebuild(self) -> dict[PartyId, Secret]:
        """Every secret, from shares as they were dealt; `WrongSecrets` if that is not what was promised."""
        secrets = {party: self._rebuild_one(party) for party in self._wanted}
        found = {party: secret for party, secret in secrets.items() if secret is not None}
        if len(found) < len(secrets):
            raise WrongSecrets(tuple(sorted(secrets.keys() - found.keys())))
        return found

    def _rebuild_one(self, party: PartyId) -> Secret | None:
        threshold = self._thresholds[party]
        enough = dict(list(self._shares[party].items())[:threshold])
        try:
            secret = self._combiners[threshold].combine(enough)
        except WrongShare:
            return None
        return secret if self._dealt.is_secret(party, self._wanted[party], secret) else None
