"""A server that picks its sessions to suit those who work with it: no second list counts, and nobody is isolated.

Of a roster of twenty, six may work with the server. It opens a session with these six and a few others, where six are
most of the members.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.tables.lying_sessions import proposed_session
from tests.support.tables.lying_table import (
    lying_table,
    messages,
    nobody_has_a_result,
    refuses,
    say,
    told,
    until,
)
from veilsum.protocol.agreed.parameters import Parameters
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import RunFailed
from veilsum.protocol.machines.session import SessionOpened
from veilsum.protocol.schemes.ampc.messages import SeedsRevealed
from veilsum.protocol.secure_sum.shares import ReleasedShares
from veilsum.protocol.secure_sum.survivors import SURVIVOR_DOMAIN, SurvivorList, SurvivorProof
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message
from veilsum.simulations.testing.table import Table
from veilsum.simulations.testing.trace import InFlight

SECURE = ("masked", "mpc", "ampc")
ROSTER = 20
COLLUDERS = tuple(PartyId(f"p{index}") for index in range(6))


def session_with(scheme: str, honest: tuple[PartyId, ...]) -> Table:
    """A table at which nobody but the colluders and these answers the server."""
    present = {*COLLUDERS, *honest}
    absent = [f"p{index}" for index in range(ROSTER) if f"p{index}" not in present]
    return lying_table(scheme, ROSTER, dimension=ROSTER, absent=absent)


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("honest", [2, 4, 7])
def test_a_session_with_too_few_voters_is_not_entered(scheme: str, honest: int) -> None:
    """Six colluders and a few others: 14 of the 20 who vote must be there, whoever the server invites."""
    others = tuple(PartyId(f"p{6 + index}") for index in range(honest))
    table = session_with(scheme, others)
    opened = proposed_session(table, 0, *others, *COLLUDERS)
    refuses(table, others[0], "server", opened, AbortReason.NO_QUORUM)
    table.run()
    ending = told(table, SERVER).ending
    assert isinstance(ending, RunFailed)
    assert ending.reason is AbortReason.NO_QUORUM
    assert not messages(table, MaskedInput)
    assert nobody_has_a_result(table)


def listing(shown: Message, survivors: set[PartyId]) -> SurvivorList:
    """The list that the server showed, with these survivors and the others gone."""
    assert isinstance(shown, SurvivorList)
    dropped = {*shown.survivors, *shown.dropped} - survivors
    return replace(
        shown, survivors=tuple(sorted(survivors)), dropped=tuple(sorted(dropped)), total=len(survivors)
    )


def proof_of(table: Table, shown: SurvivorList) -> SurvivorProof:
    """The signatures of all that the list calls survivors: every colluder signs whatever the server wants."""
    signatures = {
        name: table.federation.identities[name].signing.sign(SURVIVOR_DOMAIN, shown.digest)
        for name in shown.survivors
    }
    return SurvivorProof(shown.stamp, signatures)


FIRST, SECOND = (tuple(PartyId(f"p{index}") for index in places) for places in (range(6, 10), range(10, 14)))
"""The halves of the honest members in the smallest session that is entered."""


def shown_two_lists(scheme: str) -> tuple[Table, SurvivorList]:
    """Each half was shown a list of itself and the colluders, and signed it; also what the server would have shown."""
    table = session_with(scheme, (*FIRST, *SECOND))

    def tamper(flight: InFlight) -> Message | None:
        if isinstance(flight.message, SurvivorList):
            half = SECOND if flight.receiver in SECOND else FIRST
            return listing(flight.message, {*COLLUDERS, *half}).vouched(table.federation.identities[SERVER])
        return None if isinstance(flight.message, SurvivorProof) else flight.message

    table.tamper = tamper
    shown = until(table, SurvivorList, "p6").message
    assert isinstance(shown, SurvivorList)
    table.deliver_all()
    return table, shown


@pytest.mark.parametrize("scheme", [*SECURE, "bilateral"])
def test_two_lists_that_share_the_colluders_do_not_count_in_the_smallest_session(scheme: str) -> None:
    """Each half of the honest members signs its list, all colluders sign both: ten of fourteen, and eleven count."""
    table, shown = shown_two_lists(scheme)
    for half in (FIRST, SECOND):
        listed = listing(shown, {*COLLUDERS, *half})
        for victim in half:
            detail = refuses(table, victim, "server", proof_of(table, listed), AbortReason.SURVIVOR_LIST)
            assert "10 holders" in detail
            assert "11 are needed" in detail
    table.run()
    assert not messages(table, ReleasedShares)
    assert not messages(table, SeedsRevealed)
    assert nobody_has_a_result(table)


@pytest.mark.parametrize("scheme", SECURE)
def test_with_two_thirds_of_the_session_both_lists_count_and_both_halves_release(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it once was: so the test above can fail."""
    monkeypatch.setattr(Parameters, "threshold_of", lambda _, voters: 2 * voters // 3 + 1)
    table, shown = shown_two_lists(scheme)
    for half in (FIRST, SECOND):
        for victim in half:
            assert say(table, "server", victim, proof_of(table, listing(shown, {*COLLUDERS, *half}))) is None
    given = ReleasedShares if scheme == "masked" else SeedsRevealed
    assert {one.sender for one in table.trace.sent if isinstance(one.message, given)} >= {*FIRST, *SECOND}


@pytest.mark.parametrize("scheme", [*SECURE, "bilateral"])
def test_server_and_two_clients_cannot_open_a_session_with_one_victim(scheme: str) -> None:
    table = lying_table(scheme, ROSTER, dimension=ROSTER)
    until(table, SessionOpened)
    victim = "p6"
    for accomplices in (COLLUDERS[:2], COLLUDERS):
        opened = proposed_session(table, len(accomplices), victim, *accomplices)
        refuses(table, victim, "server", opened, AbortReason.COHORT_TOO_SMALL)
