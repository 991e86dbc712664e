"""A lying server without accomplices wants several sums of one model, whose differences would be one party's update.

It leaves {v, a}, {v, b} and {a, b} out in turn. What it gets is one sum, whatever it calls the rounds, whoever restarts
and whatever `differencing` says. Where the rule is taken away, it gets all of them and finds v's words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import pytest

from tests.support.tables.lying_table import messages, party_names, told
from tests.support.tables.still_server import (
    PARTIES,
    TURNS,
    VICTIM,
    FromModel,
    StillServer,
    careless,
    solve_for,
    words_of,
)
from veilsum.protocol.agreed.parameters import Differencing, Recovery, Weights
from veilsum.protocol.chain.member import ChainMember
from veilsum.protocol.chain.statements import PositionRules
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import RunFinished
from veilsum.protocol.machines.on_chain import ParticipantOnChain
from veilsum.protocol.machines.participation import ParticipationRecord
from veilsum.protocol.machines.session import Hello
from veilsum.simulations.testing import Table, check_invariants

SECURE = ("masked", "mpc", "ampc")
REASON = AbortReason
DIMENSION = 6
Turns: TypeAlias = Sequence[tuple[PartyId, ...]]
ROUNDS = 4


def table_of(scheme: str, differencing: Differencing = Differencing.WARN, **fields: Any) -> Table:
    weights = Weights.BUCKETED if differencing is Differencing.REFUSE else Weights.SAMPLES
    table = Table.build(
        scheme,
        party_names(PARTIES),
        dimension=DIMENSION,
        rounds=ROUNDS,
        learner=FromModel(DIMENSION),
        differencing=differencing,
        weights=weights,
        **fields,
    )
    table.start()
    return table


def reasons_of(table: Table) -> set[AbortReason]:
    """Why honest parties refused what the server said, each time in its name."""
    assert {one.error.culprit for one in table.trace.refusals if one.party != SERVER} == {SERVER}
    return {one.error.reason for one in table.trace.refusals if one.party != SERVER}


def gets_nothing_more(
    table: Table, liar: StillServer, numbers: Sequence[int], turns: Turns, **how: bool
) -> None:
    """The server plays its turns; the first gives it a sum, and no other does."""
    liar.turn(numbers[0], turns[0], **how)
    (first,) = liar.sums.values()
    assert first.cohort == set(table.participants) - set(turns[0])
    for number, left_out in zip(numbers[1:], turns[1:], strict=True):
        liar.turn(number, left_out, **how)
    assert list(liar.sums.values()) == [first]
    assert solve_for(VICTIM, liar.sums.values()) is None


ORDERS = [TURNS, (*TURNS[1:], TURNS[0])]


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("differencing", Differencing)
@pytest.mark.parametrize(
    ("turns", "all_restart"),
    [(ORDERS[0], False), (ORDERS[1], False), (ORDERS[1], True)],
    ids=["all first", "pairs first", "all restart"],
)
def test_at_one_model_the_server_gets_one_sum_and_cannot_solve_for_anyone(
    scheme: str,
    differencing: Differencing,
    all_restart: bool,
    turns: Turns,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = table_of(scheme, differencing)
    liar = StillServer(table)
    careless(monkeypatch)
    gets_nothing_more(table, liar, [0] * len(turns), turns, all_restart=all_restart)
    assert reasons_of(table) == {REASON.DIFFERENCING}
    check_invariants(table)


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("all_restart", [False, True], ids=["server restarts", "all restart"])
def test_without_recovery_what_each_remembers_of_its_own_upload_is_enough(
    scheme: str, all_restart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No list is signed there and none stated: whoever uploaded knows over whom, and uploads with no others."""
    table = table_of(scheme, recovery=Recovery.NONE)
    liar = StillServer(table)
    careless(monkeypatch)
    gets_nothing_more(table, liar, [0] * len(TURNS), TURNS, all_restart=all_restart)
    assert reasons_of(table) == {REASON.DIFFERENCING}
    stated = [attempt for one in messages(table, Hello) for attempt in one.hello.attempts]
    assert not [attempt for attempt in stated if attempt.released]


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("all_restart", [False, True], ids=["server restarts", "all restart"])
@pytest.mark.parametrize("numbers", [(0, 1, 2, 3), (0, 3, 3, 3)])
def test_other_round_numbers_for_one_model_get_the_server_no_further(
    scheme: str, all_restart: bool, numbers: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody goes to a position without the votes for it."""
    table = table_of(scheme)
    liar = StillServer(table)
    careless(monkeypatch)
    gets_nothing_more(table, liar, numbers, TURNS, all_restart=all_restart)
    assert reasons_of(table) == {REASON.BAD_CERTIFICATE}
    check_invariants(table)


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("turns", ORDERS, ids=["all first", "pairs first"])
def test_when_the_server_tells_the_truth_again_all_rounds_are_committed(
    scheme: str, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over the list of the sum that it kept for itself, and then over everyone."""
    table = table_of(scheme)
    liar = StillServer(table)
    with monkeypatch.context() as lying:
        careless(lying)
        liar.turn(0, turns[0])
        disk = table.disks[SERVER].copy()
        for left_out in turns[1:]:
            liar.turn(0, left_out)
    liar.repent(disk)
    check_invariants(table)
    endings = [told(table, name).ending for name in (SERVER, *table.participants)]
    assert all(isinstance(ending, RunFinished) and ending.rounds == ROUNDS for ending in endings)
    kept = tuple(name for name in table.participants if name not in turns[0])
    assert [one.members for one in told(table, SERVER).commits] == [
        kept,
        *[table.participants] * (ROUNDS - 1),
    ]


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("differencing", Differencing)
@pytest.mark.parametrize("all_restart", [False, True], ids=["server restarts", "all restart"])
def test_a_server_that_goes_back_to_the_first_model_gets_no_second_sum_of_it(
    scheme: str, differencing: Differencing, all_restart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first round is committed by everyone before the server begins to lie."""
    table = table_of(scheme, differencing)
    while any(table.disks[name].rounds_done < 1 for name in table.participants):
        table.deliver(table.wire[0])
    liar = StillServer(table)
    careless(monkeypatch)
    for left_out in TURNS[1:]:
        liar.turn(0, left_out, all_restart=all_restart)
    assert not liar.sums
    assert reasons_of(table) == {REASON.REPLAY}
    assert {table.disks[name].rounds_done for name in table.participants} == {1}
    check_invariants(table)


def without_the_rule(monkeypatch: pytest.MonkeyPatch, *, any_number: bool = False) -> None:
    """Parties that give their update to any sum at a model; `any_number`: whatever the server calls the round."""
    for rule in ("require_upload", "require_list"):
        monkeypatch.setattr(PositionRules, rule, lambda *_: None)
    for rule in ("require_repeatable", "require_same_cohort"):
        monkeypatch.setattr(ParticipationRecord, rule, lambda *_: None)
    if any_number:
        monkeypatch.setattr(ChainMember, "consider_session", lambda *_: None)
        monkeypatch.setattr(ParticipantOnChain, "enter_round", lambda *_: [])


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("turns", ORDERS, ids=["all first", "pairs first"])
def test_without_the_rule_the_same_server_finds_the_victims_update_and_sample_count(
    scheme: str, turns: Turns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit: so the tests above can fail."""
    without_the_rule(monkeypatch)
    table = table_of(scheme)
    liar = StillServer(table)
    careless(monkeypatch)
    for left_out in turns:
        liar.turn(0, left_out)
    assert len(liar.sums) == len(turns)
    assert solve_for(VICTIM, liar.sums.values()) == words_of(table, VICTIM)


def test_without_the_rule_round_numbers_of_its_choice_serve_the_server_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without_the_rule(monkeypatch, any_number=True)
    table = table_of("masked")
    liar = StillServer(table)
    careless(monkeypatch)
    for number, left_out in enumerate(TURNS):
        liar.turn(number, left_out)
    assert solve_for(VICTIM, liar.sums.values()) == words_of(table, VICTIM)
