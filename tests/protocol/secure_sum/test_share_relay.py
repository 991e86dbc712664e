"""The server passes on every sealed box that it was given, to the party it is for and to nobody else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import refusal
from tests.support.snapshots import picture
from tests.support.tables.lying_shares import made_up_shares
from tests.support.tables.server_context import opened_session
from veilsum.protocol.crypto.shamir import SHARE_BYTES
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.graphs.graph import complete, ring
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.events import Send
from veilsum.protocol.secure_sum.dealt import require_signed
from veilsum.protocol.secure_sum.relay import ShareRelay
from veilsum.protocol.secure_sum.shares import DeliveredShares, SealedShares
from veilsum.protocol.wire.messages import Stamp

NAMES = tuple(PartyId(f"p{index}") for index in range(6))
GRAPH = ring(NAMES)
P0, P1, P2, P3 = NAMES[:4]
FEDERATION, CONTEXT = opened_session(6)


def box(sender: PartyId, receiver: PartyId) -> bytes:
    return f"{sender} to {receiver}".encode()


def sealed(sender: PartyId, *receivers: PartyId) -> SealedShares:
    boxes = {name: box(sender, name) for name in receivers or GRAPH.neighbours_of(sender)}
    return made_up_shares(FEDERATION, CONTEXT.stamp, sender, boxes, bytes(SHARE_BYTES))


def relay_of(*senders: PartyId) -> ShareRelay:
    relay = ShareRelay(CONTEXT, GRAPH, set(NAMES[:5]), dict.fromkeys(NAMES, bytes(32)))
    for sender in senders:
        relay.add(sender, sealed(sender))
    return relay


@given(st.sets(st.sampled_from(NAMES[:5])))
def test_who_sent_shares_gets_the_box_of_each_neighbour_who_did_too(senders: set[PartyId]) -> None:
    delivered = {}
    for event in relay_of(*senders).deliveries(Stamp()):
        assert isinstance(event, Send)
        assert isinstance(event.message, DeliveredShares)
        assert event.receiver not in delivered
        delivered[event.receiver] = {other: one.box for other, one in event.message.boxes.items()}
        for dealer, signed in event.message.boxes.items():
            require_signed(CONTEXT.roster, CONTEXT.stamp, dealer, event.receiver, signed)
    assert delivered == {
        name: {other: box(other, name) for other in GRAPH.neighbours_of(name) if other in senders}
        for name in senders
    }


@given(st.sets(st.sampled_from(NAMES[:5])), st.sets(st.sampled_from(NAMES)))
def test_silent_are_the_candidates_who_are_awaited_and_sent_nothing(
    senders: set[PartyId], awaited: set[PartyId]
) -> None:
    assert relay_of(*senders).silent(awaited) == awaited - senders - {NAMES[5]}


BAD_SHARES = {
    "a second time": (P0, sealed(P0), AbortReason.REPLAY),
    "of someone outside the attempt": (NAMES[5], sealed(NAMES[5]), AbortReason.UNEXPECTED_MESSAGE),
    "one box missing": (P2, sealed(P2, P1), AbortReason.BAD_SHARE),
    "one box too many": (P2, sealed(P2, P0, P1, P3), AbortReason.BAD_SHARE),
    "a box for oneself": (P2, sealed(P2, P1, P2, P3), AbortReason.BAD_SHARE),
}


@given(st.sets(st.sampled_from(NAMES[1:])))
def test_a_dealer_is_named_by_more_holders_than_may_lie_and_by_two_at_least(accusers: set[PartyId]) -> None:
    """Of six parties two may lie."""
    relay = ShareRelay(CONTEXT, complete(NAMES), set(NAMES), dict.fromkeys(NAMES, bytes(32)))
    relay.add(P0, sealed(P0, *NAMES[1:]))
    for accuser in accusers:
        relay.require_dealers(accuser, [P0])
        relay.note_refused(accuser, [P0])
    assert relay.refused_by(P0) == accusers
    assert [one.party for one in relay.named] == ([P0] if len(accusers) > 2 else [])


@pytest.mark.parametrize("defect", BAD_SHARES)
def test_refused_shares_change_nothing(defect: str) -> None:
    sender, message, reason = BAD_SHARES[defect]
    relay = relay_of(P0, P1)
    before = picture(relay)
    with refusal(Rejection, reason=reason):
        relay.add(sender, message)
    assert picture(relay) == before
