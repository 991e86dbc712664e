"""The server passes sealed shares on, and keeps what their dealers signed (specs/protocol.md, section 2).

It cannot open a box, and leaves none out. From what is signed it tells a share that was dealt from one that was not.
A holder that finds a box empty of what was signed says so with its upload. That is a bare claim: it counts where it
is about the holder's own share, which will not be released, and names the dealer only if more holders say so than
may collude. So liars among the holders can make a dealer sit out a round, which they could end in any case by
keeping their shares to themselves, and can make nobody believe that it lied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from veilsum.protocol.crypto.agreement import AgreementKey
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.graphs.graph import Graph
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.attempt import ServerContext, require_absent
from veilsum.protocol.machines.events import Event, PartyNamed, Send
from veilsum.protocol.secure_sum.dealt import DEALT_DOMAIN, DealtTree, SignedBox, seed_hash, share_hash
from veilsum.protocol.secure_sum.shares import DeliveredShares, SealedShares, ShareKind
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Stamp


class ShareRelay:
    """Boxes of the `candidates`, each for one neighbour in `graph`.

    `masking_keys` are the public halves of the keys that are shared beside the self masks, where there are any.
    """

    def __init__(
        self,
        context: ServerContext,
        graph: Graph,
        candidates: Set[PartyId],
        masking_keys: Mapping[PartyId, bytes] | None = None,
    ) -> None:
        self._context = context
        self._graph = graph
        self._candidates = frozenset(candidates)
        self._masking_keys = masking_keys
        self._kinds = tuple(ShareKind) if masking_keys is not None else (ShareKind.SELF_MASK,)
        self._dealt: dict[PartyId, SealedShares] = {}
        self._trees: dict[PartyId, DealtTree] = {}
        self._refusals: dict[PartyId, set[PartyId]] = {}

    @property
    def shares_keys(self) -> bool:
        return self._masking_keys is not None

    @property
    def senders(self) -> set[PartyId]:
        return set(self._dealt)

    def add(self, sender: PartyId, message: SealedShares) -> None:
        require_absent(sender, self._dealt)
        if sender not in self._candidates:
            raise Rejection(AbortReason.UNEXPECTED_MESSAGE, "shares of a party that is not in this attempt")
        if message.boxes.keys() != self._graph.neighbours[sender]:
            raise Rejection(AbortReason.BAD_SHARE, "a box for each neighbour, no more and no fewer")
        counts = {len(hashes) for hashes in message.hashes.values()}
        if set(message.hashes) != {sender, *message.boxes} or counts != {len(self._kinds)}:
            raise Rejection(AbortReason.BAD_SHARE, "hashes for each holder, no more and no fewer")
        tree = DealtTree(message.stamp, sender, message.boxes, message.hashes, message.seed_hash)
        self._context.roster.verify(sender, DEALT_DOMAIN, tree.digest, message.signature)
        self._dealt[sender], self._trees[sender] = message, tree

    def silent(self, awaited: Set[PartyId]) -> Set[PartyId]:
        return (awaited & self._candidates) - self._dealt.keys()

    def deliveries(self, stamp: Stamp) -> list[Event]:
        return [Send(name, DeliveredShares(stamp, self._boxes_for(name))) for name in sorted(self._dealt)]

    def _boxes_for(self, name: PartyId) -> dict[PartyId, SignedBox]:
        around = self._graph.neighbours_of(name)
        return {other: self._signed_box(other, name) for other in around if other in self._dealt}

    def _signed_box(self, dealer: PartyId, holder: PartyId) -> SignedBox:
        dealt, path = self._dealt[dealer], self._trees[dealer].path_from(holder)
        return SignedBox(dealt.boxes[holder], dealt.hashes[holder], path, dealt.signature)

    def is_share(self, dealer: PartyId, holder: PartyId, kind: ShareKind, share: bytes) -> bool:
        """Whether this is the share that the holder was dealt."""
        dealt = self._dealt[dealer]
        expected = dealt.hashes[holder][self._kinds.index(kind)]
        return share_hash(dealt.stamp, dealer, holder, kind.value, share) == expected

    def is_secret(self, dealer: PartyId, kind: ShareKind, secret: Secret) -> bool:
        """Whether this is the secret that the dealer promised to share."""
        if kind is ShareKind.SELF_MASK:
            dealt = self._dealt[dealer]
            return seed_hash(dealt.stamp, dealer, secret) == dealt.seed_hash
        assert self._masking_keys is not None
        return AgreementKey.from_private(secret).public == self._masking_keys[dealer]

    def require_dealers(self, holder: PartyId, dealers: Iterable[PartyId]) -> None:
        """Refuse a complaint about a box that the holder was never sent."""
        for dealer in dealers:
            if dealer not in self._dealt or dealer not in self._graph.neighbours[holder]:
                raise Rejection(AbortReason.UNEXPECTED_MESSAGE, f"this party has no box of {dealer}")

    def note_refused(self, holder: PartyId, dealers: Iterable[PartyId]) -> None:
        for dealer in dealers:
            self._refusals.setdefault(dealer, set()).add(holder)

    def refused_by(self, dealer: PartyId) -> Set[PartyId]:
        """Those who say that the dealer's box for them does not hold the shares that it signed."""
        return self._refusals.get(dealer, set())

    @property
    def named(self) -> tuple[PartyNamed, ...]:
        """Dealers of whom more holders say that they lied than may collude: one of these is honest."""
        return tuple(
            PartyNamed(
                dealer, AbortReason.BAD_SHARE, f"dealt other shares than it signed to {_some(holders)}"
            )
            for dealer, holders in sorted(self._refusals.items())
            if len(holders) > self._may_lie
        )

    @property
    def _may_lie(self) -> int:
        """As many as are taken to collude, and one in any case: nobody is named on the word of one."""
        return max(1, self._context.parameters.colluders)


def require_refused(relay: ShareRelay | None, holder: PartyId, upload: MaskedInput) -> None:
    """Refuse an upload that complains about a box which the holder was never sent."""
    if relay is not None:
        relay.require_dealers(holder, upload.refused)
    elif upload.refused:
        raise Rejection(AbortReason.UNEXPECTED_MESSAGE, "shares are refused, and nothing is shared")


def _some(names: Iterable[PartyId]) -> str:
    return ", ".join(sorted(names)[:10])
