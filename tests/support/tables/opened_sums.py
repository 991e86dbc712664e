"""A table at which a sum was opened to some, who voted, when the server stopped."""

from __future__ import annotations

from veilsum.protocol.agreed.parameters import Recovery
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.schemes.ampc.messages import Aggregate, ResultDigest
from veilsum.protocol.secure_sum.certifying import SumOpened, SumVote
from veilsum.protocol.wire.messages import Message
from veilsum.simulations.testing import Table
from veilsum.simulations.testing.trace import InFlight

ROUNDS = 3


def voted(table: Table, in_round: int) -> set[PartyId]:
    """Whose vote on what came of a round is on its disk, and on the wire."""
    sent = (one for one in table.trace.sent if isinstance(one.message, SumVote | ResultDigest))
    return {one.sender for one in sent if one.message.stamp.round == in_round}


def go_on(table: Table) -> None:
    """One message, or the next deadline."""
    if table.wire:
        table.deliver(table.wire[0])
    else:
        assert table.advance(), "nothing is left to happen"


def opened_to(
    *voters: str,
    scheme: str = "masked",
    in_round: int = 0,
    absent: str = "",
    recovery: Recovery = Recovery.SHARES,
) -> Table:
    """A sum was opened to these alone, who voted; then the server stops, and nothing is left on the wire."""
    table = Table.build(scheme, 5, rounds=ROUNDS, recovery=recovery)

    def tamper(flight: InFlight) -> Message | None:
        here = flight.message.stamp.round == in_round
        kept_back = (
            here and isinstance(flight.message, SumOpened | Aggregate) and flight.receiver not in voters
        )
        return None if kept_back else flight.message

    table.tamper = tamper
    if absent:
        table.crash(absent)
    table.start()
    while len(voted(table, in_round)) < len(voters):
        go_on(table)
    table.crash(SERVER)
    table.wire.clear()
    table.tamper = lambda flight: flight.message
    return table
