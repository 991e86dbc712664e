"""The server passes on every sealed box that it was given, to the party it is for and to nobody else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refusals import refusal
from tests.support.snapshots import picture
from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.graphs.graph import ring
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.events import Send
from veilsum.protocol.secure_sum.relay import ShareRelay
from veilsum.protocol.secure_sum.shares import DeliveredShares, SealedShares
from veilsum.protocol.wire.messages import Stamp

NAMES = tuple(PartyId(f"p{index}") for index in range(6))
GRAPH = ring(NAMES)
P0, P1, P2, P3 = NAMES[:4]


def box(sender: PartyId, receiver: PartyId) -> bytes:
    return f"{sender} to {receiver}".encode()


def sealed(sender: PartyId) -> SealedShares:
    return SealedShares(Stamp(), {name: box(sender, name) for name in GRAPH.neighbours_of(sender)})


def relay_of(*senders: PartyId) -> ShareRelay:
    relay = ShareRelay(GRAPH, set(NAMES[:5]))
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
        delivered[event.receiver] = dict(event.message.boxes)
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
    "one box missing": (P2, SealedShares(Stamp(), {P1: b"box"}), AbortReason.BAD_SHARE),
    "one box too many": (P2, SealedShares(Stamp(), {P0: b"", P1: b"", P3: b""}), AbortReason.BAD_SHARE),
    "a box for oneself": (P2, SealedShares(Stamp(), {P1: b"", P2: b"", P3: b""}), AbortReason.BAD_SHARE),
}


@pytest.mark.parametrize("defect", BAD_SHARES)
def test_refused_shares_change_nothing(defect: str) -> None:
    sender, message, reason = BAD_SHARES[defect]
    relay = relay_of(P0, P1)
    before = picture(relay)
    with refusal(Rejection, reason=reason):
        relay.add(sender, message)
    assert picture(relay) == before
