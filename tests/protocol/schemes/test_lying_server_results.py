"""A server that lies about models and sums: the lie is refused by whoever is told it, and committed by nobody."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pytest

from tests.support.tables.lying_table import (
    attempt_of,
    exact_model,
    hand_over,
    lying_table,
    messages,
    nobody_has_a_result,
    participant,
    reasons,
    refuses,
    say,
    told,
    until,
)
from veilsum.protocol.chain.state import hash_model
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import RunFailed, RunFinished
from veilsum.protocol.machines.session import Farewell, RoundClosed, RoundOpened, SessionOpened
from veilsum.protocol.schemes.ampc.messages import Aggregate, ResultDigest
from veilsum.protocol.schemes.masked.messages import ROUND_KEY_DOMAIN, CohortKeys, round_key_digest
from veilsum.protocol.secure_sum.certifying import SumOpened
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.secure_sum.verification import TAG_WORDS
from veilsum.protocol.wire.messages import Message, Stamp
from veilsum.simulations.testing.table import Table
from veilsum.simulations.testing.trace import InFlight

REASON = AbortReason
PEERS = ("mpc", "ampc")
SECURE = ("masked", *PEERS)
P0, P1 = PartyId("p0"), PartyId("p1")


def other_model(table: Table) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.ones(table.federation.parameters.dimension, dtype="<f4")


def test_a_client_whose_round_begins_from_another_state_does_not_enter_it() -> None:
    """Nobody takes a model from the server's word: all of them hold the state that the organiser signed."""
    table = lying_table("masked", 5)
    honest = until(table, RoundOpened, "p0").message
    assert isinstance(honest, RoundOpened)
    crafted = replace(
        honest,
        stamp=replace(honest.stamp, model_hash=hash_model(other_model(table))),
        model=other_model(table),
    )
    detail = refuses(table, "p0", "server", crafted, REASON.WRONG_MODEL)
    assert "another state" in detail
    table.run()
    assert told(table, P0).commits


def test_a_round_key_signed_for_another_state_ends_the_round_at_all_who_see_it() -> None:
    """p0 is the server's and signs another state than the others hold: they stop before they mask anything."""
    table = lying_table("masked", 5)
    cohort = until(table, CohortKeys, "p1").message
    assert isinstance(cohort, CohortKeys)
    record = replace(cohort.keys[P0], model_hash=bytes(32))
    signing = table.federation.identities[P0].signing
    signature = signing.sign(ROUND_KEY_DOMAIN, round_key_digest(cohort.stamp, P0, record))
    lured = {**cohort.keys, P0: replace(record, signature=signature)}
    for name in table.participants[1:]:
        detail = refuses(table, name, "server", replace(cohort, keys=lured), REASON.WRONG_MODEL)
        assert "p0" in detail
    forged = {**cohort.keys, P0: record}
    refuses(table, "p1", "server", replace(cohort, keys=forged), REASON.WRONG_MODEL)
    assert not messages(table, MaskedInput)


@pytest.mark.parametrize("lie", ["other model", "length", "type"])
def test_a_model_that_comes_along_unasked_changes_nothing(lie: str) -> None:
    """p0 has the state of this round: what else a server adds to its opening is not looked at."""
    table = lying_table("masked", 5)
    honest = until(table, RoundOpened, "p0").message
    assert isinstance(honest, RoundOpened)
    dimension = table.federation.parameters.dimension
    model = {
        "other model": other_model(table),
        "length": np.zeros(dimension + 1, dtype="<f4"),
        "type": np.zeros(dimension, dtype="<f8"),
    }[lie]
    assert say(table, "server", "p0", replace(honest, model=model)) is None
    held = participant(table, "p0").model
    assert held is not None
    assert held.tobytes() == table.federation.initial_model.tobytes()
    table.run()
    assert {told(table, name).commits[0].model_hash for name in table.participants} == {
        told(table, SERVER).commits[0].model_hash
    }


@pytest.mark.parametrize("scheme", PEERS)
@pytest.mark.parametrize("lie", ["model", "hash"])
def test_peers_take_no_model_and_no_hash_of_one_from_the_server(scheme: str, lie: str) -> None:
    table = lying_table(scheme, 5)
    honest = until(table, RoundOpened, "p0").message
    assert isinstance(honest, RoundOpened)
    message = (
        replace(honest, model=other_model(table))
        if lie == "model"
        else replace(honest, stamp=replace(honest.stamp, model_hash=bytes(32)))
    )
    refuses(table, "p0", "server", message, REASON.WRONG_MODEL)
    table.run()
    assert all(told(table, name).commits for name in table.participants)


def shifted(sum_shown: Message, by: int, *, coordinate: slice) -> Message:
    """The sum as the server shows it, with `by` added to some of its words."""
    field = "words" if isinstance(sum_shown, SumOpened) else "vector"
    vector = np.array(getattr(sum_shown, field))
    vector[coordinate] += vector.dtype.type(by)
    return replace(sum_shown, **{field: vector})


def showing_others(table: Table, victims: Collection[str], coordinate: slice, by: int = 1 << 30) -> None:
    """From here on the server shows these parties another sum."""

    def tamper(flight: InFlight) -> Message | None:
        shows = isinstance(flight.message, SumOpened | Aggregate) and flight.receiver in victims
        return shifted(flight.message, by, coordinate=coordinate) if shows else flight.message

    table.tamper = tamper


def stays_at_the_first_state(table: Table, *names: str) -> bool:
    first = table.federation.initial_model.tobytes()
    models = [participant(table, name).model for name in names or table.participants]
    return all(model is not None and model.tobytes() == first for model in models)


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("victims", [2, 4, 5])
def test_a_shifted_sum_is_refused_by_each_who_is_shown_it_and_committed_by_nobody(
    scheme: str, victims: int
) -> None:
    """Two of five who refuse leave three votes, and four are needed."""
    table = lying_table(scheme, 5)
    fooled = table.participants[:victims]
    showing_others(table, fooled, slice(0, 1))
    table.run()
    assert nobody_has_a_result(table)
    assert reasons(table, *fooled) == {REASON.SUM_FALSIFIED}
    assert stays_at_the_first_state(table)
    assert isinstance(told(table, SERVER).ending, RunFailed)


@pytest.mark.parametrize("scheme", SECURE)
def test_one_who_alone_is_shown_another_sum_refuses_it_and_commits_no_other_state_than_all(
    scheme: str,
) -> None:
    """Clients certify the true sum without p0, which takes that state over; peers want to hear all."""
    table = lying_table(scheme, 5)
    showing_others(table, ["p0"], slice(0, 1))
    table.run()
    assert reasons(table, "p0") == {REASON.SUM_FALSIFIED}
    held = {commit.model_hash for name in table.participants for commit in told(table, name).commits}
    assert len(held) <= 1
    expected = {exact_model(table, table.participants), table.federation.initial_model.tobytes()}
    models = [participant(table, name).model for name in table.participants]
    assert all(model is not None and model.tobytes() in expected for model in models)


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("coordinates", [slice(0, -2 - TAG_WORDS), slice(None)])
def test_a_constant_shift_of_the_sum_is_seen_by_everyone(scheme: str, coordinates: slice) -> None:
    """The same lie to all is a lie to each: the sum is not what they tagged."""
    table = lying_table(scheme, 5)
    showing_others(table, table.participants, coordinates, 1 << 20)
    table.run()
    assert nobody_has_a_result(table)
    assert reasons(table) == {REASON.SUM_FALSIFIED}
    assert stays_at_the_first_state(table)
    ending = told(table, SERVER).ending
    assert isinstance(ending, RunFailed)
    assert ending.reason is REASON.SUM_FALSIFIED


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("coordinate", [-1 - TAG_WORDS, -2 - TAG_WORDS])
def test_a_shift_of_the_count_or_the_weight_is_seen_by_everyone(scheme: str, coordinate: int) -> None:
    table = lying_table(scheme, 5)
    showing_others(table, table.participants, slice(coordinate, coordinate + 1), 1)
    table.run()
    assert nobody_has_a_result(table)
    assert reasons(table) == {REASON.SUM_FALSIFIED}


@pytest.mark.parametrize("scheme", PEERS)
def test_keeping_the_votes_of_two_groups_apart_does_not_help(scheme: str) -> None:
    """No group of 3 or 2 commits by itself; their next hellos add the votes up, for the one sum that was true."""
    table = lying_table(scheme, 5)
    one = set(table.participants[:2])

    def tamper(flight: InFlight) -> Message | None:
        between = (flight.sender in one) != (flight.receiver in one)
        return None if isinstance(flight.message, ResultDigest) and between else flight.message

    table.tamper = tamper
    table.run()
    true = exact_model(table, table.participants)
    for name in table.participants:
        (failure,), (commit,) = told(table, name).failures, told(table, name).commits
        assert failure.reason is REASON.TIMED_OUT
        assert commit.model is not None
        assert commit.model.tobytes() == true


@pytest.mark.parametrize("scheme", PEERS)
@pytest.mark.parametrize("lie", ["another set", "length", "type", "twice", "by a peer"])
def test_a_malformed_sum_is_refused(scheme: str, lie: str) -> None:
    table = lying_table(scheme, 5)
    flight = until(table, Aggregate, "p0")
    honest = flight.message
    assert isinstance(honest, Aggregate)
    message, reason = {
        "another set": (replace(honest, survivors=honest.survivors[:-1]), REASON.SURVIVOR_LIST),
        "length": (replace(honest, vector=honest.vector[:-1]), REASON.BAD_VECTOR),
        "type": (replace(honest, vector=honest.vector.astype("<u4")), REASON.BAD_VECTOR),
        "twice": (honest, REASON.UNEXPECTED_MESSAGE),
        "by a peer": (honest, REASON.UNEXPECTED_MESSAGE),
    }[lie]
    if lie == "twice":
        table.drop(flight)
        hand_over(table, flight)
    refuses(table, "p0", "p1" if lie == "by a peer" else "server", message, reason)
    table.run()
    assert {told(table, name).commits[0].model_hash for name in table.participants} == {
        told(table, P0).commits[0].model_hash
    }


@pytest.mark.parametrize("lie", ["another model", "another memory", "length", "type", "no certificate"])
def test_a_farewell_gives_a_client_that_is_behind_the_certified_state_or_none(lie: str) -> None:
    """p0 hears neither the sum nor the closing word: it lacks the last state, and takes no other one."""
    table = lying_table("masked", 5)
    table.tamper = lambda flight: (
        None
        if isinstance(flight.message, SumOpened | RoundClosed) and flight.receiver == P0
        else flight.message
    )
    honest = until(table, Farewell, "p0").message
    assert isinstance(honest, Farewell)
    assert len(honest.model)
    message, reason = {
        "another model": (replace(honest, model=other_model(table)), REASON.WRONG_MODEL),
        "another memory": (replace(honest, memory=np.ones(4, dtype=np.uint8)), REASON.WRONG_MODEL),
        "length": (replace(honest, model=honest.model[:-1]), REASON.BAD_VECTOR),
        "type": (replace(honest, model=honest.model.astype("<f8")), REASON.BAD_VECTOR),
        "no certificate": (replace(honest, certificate=None), REASON.BAD_CERTIFICATE),
    }[lie]
    refuses(table, "p0", "server", message, reason)
    table.run()
    ending = told(table, P0).ending
    assert isinstance(ending, RunFinished)
    assert ending.model is not None
    assert ending.model.tobytes() == exact_model(table, table.participants)


@pytest.mark.parametrize("scheme", PEERS)
def test_a_farewell_cannot_change_the_model_that_peers_hold(scheme: str) -> None:
    table = lying_table(scheme, 5)
    honest = until(table, Farewell, "p0").message
    assert isinstance(honest, Farewell)
    assert say(table, "server", "p0", replace(honest, model=other_model(table))) is None
    ending = told(table, P0).ending
    assert isinstance(ending, RunFinished)
    assert ending.model is not None
    assert ending.model.tobytes() == exact_model(table, table.participants)


@pytest.mark.parametrize("scheme", PEERS)
def test_a_farewell_that_claims_rounds_we_do_not_have_is_no_success(scheme: str) -> None:
    table = lying_table(scheme, 5, rounds=2)
    until(table, MaskedInput, sender="p0")
    claim = Farewell(Stamp(attempt_of(table, "p0").stamp.session, 2), True, "", "", np.zeros(0, dtype="<f4"))
    assert say(table, "server", "p0", claim) is None
    assert not isinstance(told(table, P0).ending, RunFinished)


@pytest.mark.parametrize("scheme", SECURE)
def test_a_run_that_is_called_complete_before_its_rounds_are_done_has_failed(scheme: str) -> None:
    table = lying_table(scheme, 5, rounds=3)
    until(table, SessionOpened, "p0")
    early = Farewell(Stamp(), True, "", "", np.zeros(0, dtype="<f4"))
    for name in table.participants:
        assert say(table, "server", name, early) is None
        ending = told(table, name).ending
        assert isinstance(ending, RunFailed)
        assert (ending.reason, ending.culprit) == (AbortReason.WITHDRAWN, "server")
