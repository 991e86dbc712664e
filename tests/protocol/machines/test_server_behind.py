"""A server that has fewer rounds done than its parties, as after its folder was lost, ends the run and says so.

Where the server alone holds the model nobody can give it back, and no party repeats a round that it has done. On a
chain the parties prove how far the run is (specs/chain.md, section 9).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.support.refusals import require_mentions
from tests.support.snapshots import picture
from tests.support.tables.lying_table import lying_table, participant, refuses, step, told, until
from veilsum.protocol.agreed.parameters import Timing
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import RunFailed, RunFinished
from veilsum.protocol.machines.session import RoundClosed, RoundOpened, Withdrawn
from veilsum.protocol.wire.messages import Stamp
from veilsum.roles.process.persistent_state import PersistentState
from veilsum.simulations.testing import Table, check_invariants
from veilsum.simulations.testing.table import honest
from veilsum.simulations.testing.trace import InFlight

SCHEMES = ("plain", "perturbed", "bilateral")
TIMING = Timing(opening_s=10, phase_s=20, training_s=20, patience_s=60)
PARTIES = 5


def set_back(
    scheme: str,
    *,
    at: int,
    behind: Sequence[str] = (),
    unaware: Sequence[str] = (),
    parties: int = PARTIES,
) -> Table:
    """A server with an older folder than its parties, which have two rounds, or with an empty one; all are stopped.

    Those `behind` have older folders, too; those `unaware` did not hear the end of the last round.
    """
    table = lying_table(scheme, parties, rounds=5, timing=TIMING, min_parties=3)
    table.tamper = lambda flight: None if missed(flight, unaware) else flight.message
    aware = [name for name in table.participants if name not in unaware]
    older = {name: PersistentState(0, table.federation.initial_model) for name in (SERVER, *behind)}
    while {participant(table, name).rounds_done for name in aware} != {2}:
        step(table)
        for name in older:
            now = table.disks[PartyId(name)]
            if now.rounds_done == at and older[name].rounds_done != at:
                older[name] = now.copy()
    for name in (SERVER, *table.participants):
        table.crash(name)
    table.wire.clear()
    table.tamper = honest
    table.disks |= {PartyId(name): state for name, state in older.items()}
    return table


def missed(flight: InFlight, unaware: Sequence[str]) -> bool:
    """Whether this is the end of the second round, on its way to one that does not hear it."""
    return (
        flight.receiver in unaware
        and isinstance(flight.message, RoundClosed)
        and flight.message.stamp.round == 1
    )


def restart(table: Table, *absent: str) -> float:
    """All but the absent start again and go on to their end; how long that took."""
    began = table.now
    for name in (SERVER, *table.participants):
        if name not in absent:
            table.restart(PartyId(name))
    table.run()
    return table.now - began


def require_named(table: Table, name: str, at: int, rounds: int, *parties: str) -> None:
    """How the run ended there: it was the server, at this round, and these have so many."""
    ending = told(table, name).ending
    assert isinstance(ending, RunFailed), name
    assert ending.reason is AbortReason.SERVER_BEHIND
    require_mentions(ending.detail, at, rounds, *parties, "backup", "--fresh")
    assert "missing" not in ending.detail


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("at", [0, 1])
def test_everyone_hears_at_once_that_the_server_is_behind_and_nothing_of_a_party_changes(
    scheme: str, at: int
) -> None:
    table = set_back(scheme, at=at)
    before = {name: picture(table.disks[name]) for name in table.participants}
    assert restart(table) < TIMING.opening_s
    for name in (SERVER, *table.participants):
        require_named(table, name, at, 2, *table.participants)
    assert {name: picture(table.disks[name]) for name in table.participants} == before


@pytest.mark.parametrize("scheme", SCHEMES)
def test_nobody_is_waited_for_who_could_not_help(scheme: str) -> None:
    """One party stays away; with it there would be one that can do the round, of three that are needed."""
    table = set_back(scheme, at=1)
    assert restart(table, "p3") <= TIMING.opening_s
    for name in (SERVER, "p0", "p1", "p2", "p4"):
        require_named(table, name, 1, 2, "p0", "p1", "p2", "p4")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_one_party_that_claims_rounds_that_never_were_ends_no_run_that_the_others_can_do(scheme: str) -> None:
    table = set_back(scheme, at=2)
    table.disks[PartyId("p0")].rounds_done = 1000
    restart(table)
    check_invariants(table)
    for name in (SERVER, "p1", "p2", "p3", "p4"):
        assert isinstance(told(table, name).ending, RunFinished), name


@pytest.mark.parametrize("scheme", SCHEMES)
def test_one_party_that_everyone_is_needed_with_gets_no_server_named_by_rounds_that_never_were(
    scheme: str,
) -> None:
    """The run cannot go on without it, as if it stayed away; but the others are not told to give up what they have."""
    table = set_back(scheme, at=2, parties=3)
    table.disks[PartyId("p0")].rounds_done = 1000
    restart(table)
    for name in (SERVER, "p1", "p2"):
        ending = told(table, name).ending
        assert isinstance(ending, RunFailed), name
        assert ending.reason is not AbortReason.SERVER_BEHIND
        assert ending.culprit != SERVER


@pytest.mark.parametrize("scheme", SCHEMES)
def test_where_the_others_are_enough_those_who_did_the_round_say_so_and_nobody_waits_for_them(
    scheme: str,
) -> None:
    """The others do it, and then all go on; who did it before gives no second update in it."""
    table = set_back(scheme, at=1, behind=("p2", "p3", "p4"))
    given = {name: table.disks[PartyId(name)].record.given for name in ("p0", "p1")}
    for name in (SERVER, *table.participants):
        table.restart(name)
    while table.server.rounds_done < 2:
        step(table)
    assert table.now < TIMING.opening_s
    assert {name: table.disks[PartyId(name)].record.given for name in given} == given
    warnings = [text for text in told(table, SERVER).warnings if "behind" in text]
    assert len(warnings) == 2
    for name, warning in zip(given, sorted(warnings), strict=True):
        require_mentions(warning, name, 2, "backup", "--fresh")
    table.run()
    for name in (SERVER, *table.participants):
        assert isinstance(told(table, name).ending, RunFinished), name


def test_where_the_round_takes_those_who_did_it_before_everyone_hears_that_the_server_is_behind() -> None:
    """Its sum may be open: the others repeat it with the same parties only."""
    table = set_back("bilateral", at=1, unaware=("p2", "p3", "p4"))
    restart(table)
    for name in (SERVER, *table.participants):
        ending = told(table, name).ending
        assert isinstance(ending, RunFailed), name
        require_mentions(ending.detail.partition("then: ")[0], "p0", "p1", "behind", 2, "backup", "--fresh")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_server_that_begins_a_done_round_again_and_again_is_told_no_more_and_changes_nothing(
    scheme: str,
) -> None:
    """In the session of a later round; a neighbour that says the same, or one of another session, hears nothing."""
    table = lying_table(scheme, PARTIES, rounds=5, timing=TIMING, min_parties=3)
    first = until(table, RoundOpened, "p0").message
    while participant(table, "p0").rounds_done < 2 or not isinstance(table.wire[0].message, RoundOpened):
        step(table)
    session = participant(table, "p0").session
    assert session is not None
    old = Stamp(session.id, 0, 7, first.stamp.model_hash)
    for _ in range(3):
        said = len(table.wire)
        refuses(table, "p0", SERVER, replace(first, stamp=old), AbortReason.REPLAY)
        (answer,) = table.wire[said:]
        assert (answer.receiver, type(answer.message), answer.message.stamp) == (SERVER, Withdrawn, old)
    said = len(table.wire)
    refuses(table, "p0", "p1", replace(first, stamp=old), AbortReason.UNEXPECTED_MESSAGE)
    refuses(
        table, "p0", SERVER, replace(first, stamp=replace(old, session=bytes(32))), AbortReason.WRONG_SESSION
    )
    assert len(table.wire) == said


@pytest.mark.parametrize("scheme", ["masked", "ampc", "mpc"])
def test_a_server_of_a_chain_is_told_how_far_the_run_is_as_before(scheme: str) -> None:
    table = set_back(scheme, at=0)
    restart(table)
    for name in (SERVER, *table.participants):
        assert isinstance(told(table, name).ending, RunFinished), name
