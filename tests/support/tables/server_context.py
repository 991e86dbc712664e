"""What the server's parts of a secure sum stand on, taken from a session that really opened."""

from __future__ import annotations

from typing import Any

from tests.support.tables.lying_table import lying_table, until
from veilsum.protocol.identifiers import SERVER
from veilsum.protocol.machines.attempt import ServerContext
from veilsum.protocol.machines.participation import ParticipationRecord
from veilsum.protocol.machines.session import RoundOpened
from veilsum.simulations.testing.federation import TableFederation


def opened_session(parties: int, **fields: Any) -> tuple[TableFederation, ServerContext]:
    """The first attempt of a masked round that nobody has taken part in yet."""
    table = lying_table("masked", parties, **fields)
    opening = until(table, RoundOpened).message
    federation, session = table.federation, table.server.session
    assert session is not None
    context = ServerContext(
        me=federation.identities[SERVER],
        rules=federation.rules,
        random=federation.entropy.for_party("parts"),
        session=session,
        stamp=opening.stamp,
        model=federation.initial_model,
        next_model=lambda model, mean: model,
        record=ParticipationRecord(),
    )
    return federation, context
