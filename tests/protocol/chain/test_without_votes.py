"""Parties that are here and have no vote: the end of the run names them apart from who stays away, with a way on."""

from __future__ import annotations

import pytest

from tests.support.refusals import mentions
from tests.support.tables.lying_table import nobody_has_a_result, told
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import RunFailed
from veilsum.roles.config.values import party_names
from veilsum.roles.process.persistent_state import PersistentState
from veilsum.simulations.testing.table import Table

NAMES = party_names(5)


def end_of(scheme: str, forgetful: tuple[str, ...], absent: tuple[str, ...]) -> str:
    """What the server says at the end, if these lost what they knew at the anchor, and those do not come."""
    table = Table.build(scheme, NAMES, dimension=6)
    for name in absent:
        table.crash(name)
    for name in forgetful:
        lost = PersistentState(0, table.federation.initial_model)
        lost.join_chain(table.federation.roster, forgetful=True)
        table.disks[PartyId(name)] = lost
        table.crash(name)
    table.start()
    for name in forgetful:
        table.restart(name)
    table.run()
    assert nobody_has_a_result(table)
    ending = told(table, SERVER).ending
    assert isinstance(ending, RunFailed)
    assert ending.reason is AbortReason.NO_QUORUM
    return ending.detail


@pytest.mark.parametrize("scheme", ["masked", "mpc", "ampc"])
def test_who_is_here_without_a_vote_is_named_with_the_way_to_another_chain(scheme: str) -> None:
    said = end_of(scheme, NAMES, ())
    assert all(mentions(said, name) for name in (*NAMES, "checkpoint", "--new-chain", "--fresh"))
    assert "missing" not in said
    said = end_of(scheme, ("p2", "p3"), ("p1",))
    away, _, here = said.partition("without a vote")
    assert mentions(away, "p1") and not mentions(away, "p2")
    assert mentions(here, "p2") and mentions(here, "p3") and not mentions(here, "p1")


@pytest.mark.parametrize("scheme", ["masked", "mpc", "ampc"])
def test_where_all_who_lack_stay_away_the_way_on_is_a_checkpoint(scheme: str) -> None:
    said = end_of(scheme, (), ("p1", "p2"))
    assert all(mentions(said, name) for name in ("p1", "p2", "missing", "checkpoint"))
    assert not mentions(said, "--new-chain")
