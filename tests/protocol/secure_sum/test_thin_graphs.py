"""A liar that is named and left out, on graphs on which not everyone is everyone's neighbour."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.tables.lying_table import lying_table, told
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import PartyNamed, RunFailed, RunFinished
from veilsum.protocol.secure_sum.dealt import DEALT_DOMAIN, DealtTree
from veilsum.protocol.secure_sum.shares import SealedShares
from veilsum.protocol.wire.messages import Message
from veilsum.simulations.testing.table import Table
from veilsum.simulations.testing.trace import InFlight

LIAR = PartyId("p3")


def with_boxes_that_do_not_open(scheme: str, graph: str) -> Table:
    """Nine parties, of whom one deals boxes that it signed and that hold nothing."""
    table = lying_table(scheme, 9, rounds=2, graph=graph)
    me = table.federation.identities[LIAR]

    def tamper(flight: InFlight) -> Message | None:
        message = flight.message
        if not isinstance(message, SealedShares) or flight.sender != LIAR:
            return message
        boxes = {name: bytes(len(box)) for name, box in message.boxes.items()}
        stamp = message.stamp.without_model()
        tree = DealtTree(stamp, LIAR, boxes, message.hashes, message.seed_hash)
        return replace(message, boxes=boxes, signature=me.signing.sign(DEALT_DOMAIN, tree.digest))

    table.tamper = tamper
    table.run()
    named = {one.event.party for one in table.trace.entries if isinstance(one.event, PartyNamed)}
    assert named == {LIAR}
    return table


@pytest.mark.parametrize(
    ("scheme", "graph"),
    [
        *((scheme, graph) for scheme in ("mpc", "ampc") for graph in ("complete", "ring", "k-regular:4")),
        ("masked", "complete"),
        ("masked", "ring"),
    ],
)
def test_the_others_commit_every_round(scheme: str, graph: str) -> None:
    table = with_boxes_that_do_not_open(scheme, graph)
    honest = tuple(name for name in table.participants if name != LIAR)
    assert [commit.members for commit in told(table, SERVER).commits] == [honest, honest]
    assert all(isinstance(told(table, name).ending, RunFinished) for name in honest)


@pytest.mark.parametrize("graph", ["k-regular:4", "k-regular:6"])
def test_where_shares_follow_a_thin_graph_everyone_must_say_what_it_signed_so_a_checkpoint_goes_on(
    graph: str,
) -> None:
    """A few neighbours could have opened a list there, and the one that is left out may be among them."""
    table = with_boxes_that_do_not_open("masked", graph)
    ending = told(table, SERVER).ending
    assert isinstance(ending, RunFailed)
    assert (ending.reason, told(table, SERVER).commits) == (AbortReason.DIFFERENCING, [])
    assert LIAR in ending.detail
