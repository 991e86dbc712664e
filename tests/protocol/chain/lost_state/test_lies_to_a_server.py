"""What a party cannot plant in a server that lost its state, and what a server cannot get out of a party.

Five parties, of whom one may lie.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.protocol.chain.lost_state.test_lost_state import (
    NOTHING,
    back_with,
    finals,
    given_by,
    started,
    undisturbed,
)
from tests.support.tables.lying_table import participant, refuses, until
from veilsum.protocol.chain.asking import StateGiven, StateWanted
from veilsum.protocol.errors import AbortReason, RemoteProtocolError
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.session import Hello, SessionOpened
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Stamp
from veilsum.simulations.testing import Table

REASON = AbortReason


def asked() -> tuple[Table, StateWanted]:
    """After a round the server lost its folder, and its question to p0 is on the wire."""
    table = started()
    while table.server.rounds_done < 1:
        table.deliver(table.wire[0])
    back_with(table, NOTHING)
    wanted = until(table, StateWanted, "p0").message
    assert isinstance(wanted, StateWanted)
    return table, wanted


def answered() -> tuple[Table, StateGiven]:
    table, _ = asked()
    flight = until(table, StateGiven, SERVER)
    assert isinstance(flight.message, StateGiven)
    table.drop(flight)
    return table, flight.message


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "other"},
        {"model": "first"},
        {"before": bytes(32)},
        {"before": b""},
        {"memory": np.ones(3, dtype=np.uint8)},
    ],
    ids=["another model", "the model before", "another past", "no past", "another memory"],
)
def test_another_state_than_the_certified_one_is_refused_and_changes_nothing(
    changes: dict[str, object],
) -> None:
    """One that lies costs its turn: the next one is asked, and the run ends as without the lie."""
    table, given = answered()
    models = {"other": given.model + np.float32(1), "first": table.federation.initial_model}
    told_instead = {
        name: models.get(str(one), one) if name == "model" else one for name, one in changes.items()
    }
    refuses(table, SERVER, "p0", replace(given, **told_instead), REASON.WRONG_MODEL)
    table.run()
    assert finals(table) == undisturbed()
    assert given_by(table) == ["p0", "p1"]


def test_a_state_of_another_shape_position_or_opening_is_refused() -> None:
    table, given = answered()
    refuses(table, SERVER, "p0", replace(given, model=given.model[:-1]), REASON.BAD_VECTOR)
    refuses(
        table,
        SERVER,
        "p0",
        replace(given, stamp=Stamp(b"", 2, 0, given.stamp.model_hash)),
        REASON.WRONG_ROUND,
    )
    refuses(table, SERVER, "p0", replace(given, stamp=Stamp(b"", 1, 0, bytes(32))), REASON.WRONG_ROUND)
    refuses(table, SERVER, "p0", replace(given, invitation=bytes(32)), REASON.WRONG_ROUND)
    table.run()
    assert finals(table) == undisturbed()


def test_a_state_is_taken_from_those_alone_who_were_asked_and_once() -> None:
    """Two give different ones: the first that fits is taken, and another is not looked at."""
    table, given = answered()
    refuses(table, SERVER, "p3", given, REASON.UNEXPECTED_MESSAGE)
    refuses(table, SERVER, "p3", replace(given, model=given.model * 2), REASON.UNEXPECTED_MESSAGE)
    table.deliver(table.inject("p0", SERVER, given))
    held = table.server.model
    assert held is not None
    assert held.tobytes() == given.model.tobytes()
    refuses(table, SERVER, "p0", replace(given, model=given.model * 2), REASON.UNEXPECTED_MESSAGE)
    table.run()
    assert finals(table) == undisturbed()


def after_one_round(seed: int = 0) -> Table:
    """Everyone has committed the first round, and the second one is under way."""
    table = Table.build("masked", 5, rounds=3, seed=seed)
    table.start()
    while until(table, MaskedInput).message.stamp.round < 1:
        table.deliver(table.wire[0])
    return table


def test_nobody_is_believed_to_hold_what_no_certificate_of_this_chain_shows() -> None:
    """p4 shows a certificate of another federation, or none: its hello is refused, and others are asked."""
    table, stranger = after_one_round(), participant(after_one_round(seed=99), "p4")._chain
    assert stranger is not None
    back_with(table, NOTHING)
    hello = until(table, Hello, SERVER, "p4").message
    assert isinstance(hello, Hello)
    assert hello.hello.rounds_done == 1
    foreign = replace(hello, certificate=stranger.record.certificate)
    refuses(table, SERVER, "p4", foreign, REASON.BAD_SIGNATURE)
    refuses(table, SERVER, "p4", replace(hello, certificate=None), REASON.BAD_CERTIFICATE)
    assert until(table, StateWanted).message.stamp.round == 1
    table.run()
    assert finals(table) == undisturbed()


def test_a_party_gives_a_state_that_it_holds_once_to_the_server_alone_and_while_a_session_opens() -> None:
    table, wanted = asked()
    table.drop(until(table, StateWanted, "p0"))
    refuses(table, "p0", SERVER, replace(wanted, stamp=Stamp(b"", 1, 0, bytes(32))), REASON.WRONG_MODEL)
    refuses(
        table,
        "p0",
        SERVER,
        replace(wanted, stamp=Stamp(b"", 2, 0, wanted.stamp.model_hash)),
        REASON.WRONG_MODEL,
    )
    refuses(table, "p0", SERVER, replace(wanted, invitation=bytes(32)), REASON.WRONG_SESSION)
    table.deliver(table.inject(SERVER, "p0", wanted))
    assert given_by(table) == ["p0"]
    refuses(table, "p0", SERVER, wanted, REASON.REPLAY)
    patient_until = participant(table, "p0").next_deadline()
    assert patient_until is not None
    with pytest.raises(RemoteProtocolError):
        participant(table, "p0").receive(SERVER, wanted, patient_until - 0.001)
    assert participant(table, "p0").next_deadline() == patient_until
    until(table, SessionOpened, "p0")
    table.deliver(until(table, SessionOpened, "p0"))
    refuses(table, "p0", SERVER, wanted, REASON.UNEXPECTED_MESSAGE)
    assert given_by(table) == ["p0"]


@pytest.mark.parametrize("scheme", ["mpc", "ampc", "plain", "bilateral"])
def test_no_party_gives_its_model_to_a_server_that_must_not_or_need_not_have_it(scheme: str) -> None:
    """In mpc and ampc peers hold it; in plain and bilateral the server does, and parties hold none of a chain."""
    table = Table.build(scheme, 5, rounds=2)
    table.start()
    hello = until(table, Hello, SERVER, "p0").message
    assert isinstance(hello, Hello)
    chain = participant(table, "p0")._chain
    known = b"" if chain is None else chain.state.hash
    error = table.deliver(table.inject(SERVER, "p0", StateWanted(Stamp(b"", 0, 0, known), hello.invitation)))
    assert error is not None
    assert error.reason in (REASON.UNEXPECTED_MESSAGE, REASON.WRONG_SESSION)
    assert given_by(table) == []


def test_a_member_that_asks_for_a_state_gets_none() -> None:
    table, wanted = asked()
    error = table.deliver(table.inject("p1", "p0", wanted))
    assert error is None, "it waits with what is of a later session, and is refused there"
    table.run()
    assert [one.receiver for one in table.trace.sent if isinstance(one.message, StateGiven)] == [SERVER]
    refused = [one for one in table.trace.refusals if isinstance(one.flight.message, StateWanted)]
    assert {one.error.culprit for one in refused} <= {PartyId("p1")}
