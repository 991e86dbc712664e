"""A party that comes with another model than the rest, as from a trial run that the others forgot, is said to have it.

The server, that party and all others hear who, and what to do; where hashes are hidden from the server, peers tell them
in their own logs alone.
"""

from __future__ import annotations

import pytest

from tests.support.refusals import require_mentions
from tests.support.tables.lying_table import lying_table, step, told
from veilsum.protocol.chain.state import ChainState, shown_hash
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import RunFailed, RunFinished
from veilsum.roles.process.persistent_state import PersistentState
from veilsum.simulations.testing.table import Table

STRAY, LAST = PartyId("p0"), PartyId("p3")
OTHERS = (PartyId("p1"), PartyId("p2"))


def state_of(table: Table, name: str) -> ChainState:
    chain = table.disks[PartyId(name)].chain
    assert chain is not None
    return chain.known_state


def after_rounds(count: int, scheme: str, *absent: str) -> Table:
    table = lying_table(scheme, 4, rounds=3, min_parties=3, absent=absent)
    here = [name for name in table.participants if name not in absent]
    while min(table.machines[name].rounds_done for name in (SERVER, *here)) < count:
        if table.wire:
            step(table)
        else:
            assert table.advance()
    return table


@pytest.mark.parametrize("scheme", ["masked", "ampc"])
@pytest.mark.parametrize("forgetful", [False, True])
def test_the_server_says_at_once_and_once_who_comes_without_any_round_and_what_to_do(
    scheme: str, forgetful: bool
) -> None:
    """Its state folder was lost; it is given the newest model, takes part, and ends with the model of all."""
    table = after_rounds(2, scheme)
    for name in (SERVER, *table.participants):
        table.crash(name)
    begins = PersistentState(0, table.federation.initial_model)
    begins.join_chain(table.federation.rules_for(STRAY).roster, forgetful=forgetful)
    table.disks[STRAY] = begins
    for name in (SERVER, *table.participants):
        table.restart(name)
    table.run()
    (warning,) = (text for text in told(table, SERVER).warnings if "without any round" in text)
    require_mentions(warning, STRAY, "state", "folder", "--fresh", "vote")
    assert told(table, SERVER).commits[-1].members == tuple(table.participants)
    assert len({state_of(table, name).hash for name in table.participants}) == 1


def strayed(scheme: str, *, too_few: bool) -> tuple[Table, tuple[str, str]]:
    """p0 has the disk of a trial run without p3; all others have the same number of rounds of another run."""
    trial, table = after_rounds(1, scheme, LAST), after_rounds(1, scheme)
    hashes = shown_hash(state_of(trial, STRAY).hash), shown_hash(state_of(table, OTHERS[0]).hash)
    assert state_of(trial, STRAY).position == state_of(table, OTHERS[0]).position == 1
    assert hashes[0] != hashes[1]
    for name in (SERVER, *table.participants):
        table.crash(name)
    table.disks[STRAY] = trial.disks[STRAY].copy()
    for name in (SERVER, STRAY, *OTHERS, *(() if too_few else (LAST,))):
        table.restart(name)
    table.run()
    return table, hashes


@pytest.mark.parametrize("scheme", ["masked", "ampc"])
def test_where_the_others_are_too_few_the_last_word_of_everyone_is_who_has_another_model(scheme: str) -> None:
    """Not that parties are missing: that follows from it."""
    table, hashes = strayed(scheme, too_few=True)
    for name in (SERVER, STRAY, *OTHERS):
        ending = told(table, name).ending
        assert isinstance(ending, RunFailed), name
        assert ending.reason in (AbortReason.WITHDRAWN, AbortReason.WRONG_MODEL), name
        cause = ending.detail.partition("then: ")[0]
        require_mentions(cause, STRAY, "another", "model", "--fresh", *(hashes if scheme == "masked" else ()))
    if scheme == "masked":
        assert any(set(hashes) <= set(text.replace(";", "").split()) for text in told(table, STRAY).warnings)


def test_the_server_of_masked_goes_on_without_waiting_for_it_and_it_is_given_the_common_model() -> None:
    table, hashes = strayed("masked", too_few=False)
    (warning,) = (text for text in told(table, SERVER).warnings if "another model" in text)
    require_mentions(warning, STRAY, *hashes, "--fresh")
    (own,) = (text for text in told(table, STRAY).warnings if "another model" in text)
    require_mentions(own, STRAY, *hashes, "--fresh")
    endings = {name: told(table, name).ending for name in (SERVER, *table.participants)}
    assert all(isinstance(ending, RunFinished) for ending in endings.values()), endings
    assert len({state_of(table, name).hash for name in table.participants}) == 1


def test_peers_go_on_without_it_and_it_hears_why() -> None:
    """The server says who, and no hash; peers tell the hashes to their operators."""
    table, hashes = strayed("ampc", too_few=False)
    for name in (SERVER, *OTHERS, LAST):
        assert isinstance(told(table, name).ending, RunFinished), name
    ending = told(table, STRAY).ending
    assert isinstance(ending, RunFailed)
    assert ending.reason is AbortReason.WRONG_MODEL
    require_mentions(ending.detail, STRAY, "another", "model", *OTHERS, LAST, "--fresh")
    for name in (*OTHERS, LAST):
        (warning,) = (text for text in told(table, name).warnings if "another model" in text)
        require_mentions(warning, STRAY, *hashes, "--fresh")
    at_server = told(table, SERVER)
    said = [*at_server.warnings, *(failure.detail for failure in at_server.failures)]
    assert not [text for text in said for one in hashes if one in text]
