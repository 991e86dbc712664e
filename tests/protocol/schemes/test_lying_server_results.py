"""A server that lies about models and sums: no result, or the one lie that nobody can see, the same for all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.tables.lying_table import (
    attempt_of,
    exact_model,
    hand_over,
    input_of,
    lying_table,
    messages,
    nobody_has_a_result,
    reasons,
    refuses,
    say,
    told,
    until,
)
from veilsum.protocol.chain.state import hash_model
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import RunFinished
from veilsum.protocol.machines.session import Farewell, RoundOpened
from veilsum.protocol.schemes.ampc.messages import Aggregate, ResultDigest
from veilsum.protocol.schemes.masked.messages import CohortKeys, RoundKeys
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message, Stamp
from veilsum.simulations.testing.table import Table
from veilsum.simulations.testing.trace import InFlight

REASON = AbortReason
PEERS = ("mpc", "ampc")
P0, P1 = PartyId("p0"), PartyId("p1")


def other_model(table: Table) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.ones(table.federation.parameters.dimension, dtype="<f4")


def opened_with(honest: RoundOpened, model: np.ndarray[tuple[int], np.dtype[np.float32]]) -> RoundOpened:
    return RoundOpened(replace(honest.stamp, model_hash=hash_model(model)), model)


def test_a_client_given_another_model_ends_the_round_at_all_who_share_masks_with_it() -> None:
    """p0 answers a model made for it alone; the others see the hash that it signed, and stop."""
    table = lying_table("masked", 5)

    def tamper(flight: InFlight) -> Message | None:
        message = flight.message
        if isinstance(message, RoundOpened) and flight.receiver == P0:
            return opened_with(message, other_model(table))
        return message

    table.tamper = tamper
    lured = until(table, RoundKeys, sender="p0").message
    assert isinstance(lured, RoundKeys)
    until(table, RoundKeys, sender="p4")
    keys = {
        flight.sender: flight.message.keys
        for flight in table.trace.sent
        if isinstance(flight.message, RoundKeys)
    }
    cohort = CohortKeys(replace(lured.stamp, model_hash=b""), keys, len(keys))
    for name in table.participants[1:]:
        detail = refuses(table, name, "server", cohort, REASON.WRONG_MODEL)
        assert "p0" in detail
    refuses(table, "p0", "server", cohort, REASON.WRONG_MODEL)
    forged = {**keys, P0: replace(keys[P0], model_hash=keys[P1].model_hash)}
    refuses(table, "p1", "server", replace(cohort, keys=forged), REASON.BAD_SIGNATURE)
    refuses(table, "server", "p0", lured, REASON.WRONG_MODEL)
    assert not messages(table, MaskedInput)


@pytest.mark.parametrize("lie", ["hash", "length", "type", "empty"])
def test_a_model_that_is_not_the_announced_one_is_refused(lie: str) -> None:
    table = lying_table("masked", 5)
    honest = until(table, RoundOpened, "p0").message
    assert isinstance(honest, RoundOpened)
    dimension = table.federation.parameters.dimension
    message, reason = {
        "hash": (replace(honest, model=other_model(table)), REASON.WRONG_MODEL),
        "length": (opened_with(honest, np.zeros(dimension + 1, dtype="<f4")), REASON.BAD_VECTOR),
        "type": (replace(honest, model=np.zeros(dimension, dtype="<f8")), REASON.BAD_VECTOR),
        "empty": (replace(honest, model=np.zeros(0, dtype="<f4")), REASON.BAD_VECTOR),
    }[lie]
    refuses(table, "p0", "server", message, reason)
    table.run()
    assert told(table, P0).commits


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


def shifted(aggregate: Aggregate, by: int, *, coordinate: slice) -> Aggregate:
    vector = np.array(aggregate.vector)
    vector[coordinate] += vector.dtype.type(by)
    return replace(aggregate, vector=vector)


@pytest.mark.parametrize("scheme", PEERS)
@pytest.mark.parametrize("victims", [1, 2, 4])
def test_different_sums_for_different_peers_are_committed_by_nobody(scheme: str, victims: int) -> None:
    table = lying_table(scheme, 5)

    def tamper(flight: InFlight) -> Message | None:
        if isinstance(flight.message, Aggregate) and flight.receiver in table.participants[:victims]:
            return shifted(flight.message, 1 << 30, coordinate=slice(0, 1))
        return flight.message

    table.tamper = tamper
    table.run()
    assert nobody_has_a_result(table)
    for name in table.participants:
        (failure,) = told(table, name).failures
        assert (failure.reason, failure.culprit) == (REASON.AGGREGATES_DIFFER, SERVER)
    assert [failure.reason for failure in told(table, SERVER).failures] == [REASON.AGGREGATES_DIFFER]


@pytest.mark.parametrize("scheme", PEERS)
def test_keeping_the_digests_of_two_groups_apart_does_not_help(scheme: str) -> None:
    """Even a network that belongs to the server gets no group of 3 and 2 to the 4 who must agree."""
    table = lying_table(scheme, 5)
    fooled = set(table.participants[:2])

    def tamper(flight: InFlight) -> Message | None:
        if isinstance(flight.message, Aggregate) and flight.receiver in fooled:
            return shifted(flight.message, 1 << 30, coordinate=slice(0, 1))
        between = (flight.sender in fooled) != (flight.receiver in fooled)
        return None if isinstance(flight.message, ResultDigest) and between else flight.message

    table.tamper = tamper
    table.run()
    assert nobody_has_a_result(table)
    assert reasons(table) == {REASON.TIMED_OUT}


@pytest.mark.parametrize("scheme", PEERS)
def test_a_constant_shift_of_the_sum_is_seen_by_nobody_and_is_the_same_for_all(scheme: str) -> None:
    """Documented as undetectable: the server can move the result, but blindly, and for everyone alike."""
    table = lying_table(scheme, 5)

    def tamper(flight: InFlight) -> Message | None:
        if isinstance(flight.message, Aggregate):
            return shifted(flight.message, 1 << 40, coordinate=slice(0, -2))
        return flight.message

    table.tamper = tamper
    table.run()
    results = {told(table, name).commits[0].model_hash for name in table.participants}
    assert len(results) == 1
    model = told(table, P0).commits[0].model
    assert model is not None
    honest = np.frombuffer(exact_model(table, table.participants), dtype=np.float32)
    weight = sum(input_of(table, name, 0).samples for name in table.participants) / 1000
    assert np.allclose(model - honest, 1 / weight, atol=1e-6)


@pytest.mark.parametrize("scheme", PEERS)
@pytest.mark.parametrize("coordinate", [-1, -2])
def test_a_shift_that_touches_the_last_coordinates_is_seen_by_everyone(scheme: str, coordinate: int) -> None:
    """The check coordinate counts the parties; the weights of n parties are at most n."""
    table = lying_table(scheme, 5)

    def tamper(flight: InFlight) -> Message | None:
        if isinstance(flight.message, Aggregate):
            return shifted(flight.message, 1 << 50, coordinate=slice(coordinate, coordinate + 1 or None))
        return flight.message

    table.tamper = tamper
    table.run()
    assert nobody_has_a_result(table)
    assert reasons(table) == {REASON.CHECK_FAILED}


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


@pytest.mark.parametrize("lie", ["length", "type", "empty"])
def test_a_farewell_with_a_model_of_the_wrong_shape_is_refused(lie: str) -> None:
    table = lying_table("masked", 5)
    honest = until(table, Farewell, "p0").message
    assert isinstance(honest, Farewell)
    model = {
        "length": honest.model[:-1],
        "type": honest.model.astype("<f8"),
        "empty": honest.model[:0],
    }[lie]
    refuses(table, "p0", "server", replace(honest, model=model), REASON.BAD_VECTOR)
    table.run()
    assert isinstance(told(table, P0).ending, RunFinished)


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
