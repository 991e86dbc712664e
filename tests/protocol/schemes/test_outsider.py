"""Whoever is not in the roster, not in the session, or not who it says it is gets nothing and changes nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.tables.lying_table import LyingTable, make_identities, party_names
from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.crypto.agreement import AgreementKey
from veilsum.protocol.crypto.identity import Identity
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.session import (
    Farewell,
    Hello,
    HelloRecord,
    Invitation,
    Knock,
    RoundOpened,
    SessionOpened,
    SessionTerms,
    Withdrawn,
)
from veilsum.protocol.schemes.ampc.messages import ModelHeld, ModelWanted, ResultDigest
from veilsum.protocol.schemes.masked.messages import CohortKeys, RoundKeys
from veilsum.protocol.secure_sum.shares import DeliveredShares, ReleasedShares, SealedShares
from veilsum.protocol.secure_sum.survivors import SurvivorList, SurvivorSignature
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message, Stamp

SECURE = ("masked", "mpc", "ampc")
REASON = AbortReason
P0 = PartyId("p0")


def finishes(table: LyingTable) -> bool:
    table.run()
    holders = [SERVER] if table.scheme.server_holds_model else table.names
    models = [table.told[name].commits[0].model for name in holders]
    return all(model is not None and model.tobytes() == table.exact_model(table.names) for model in models)


def hello_of(table: LyingTable, identity: Identity, name: str, invitation: bytes) -> Hello:
    terms = SessionTerms(table.roster, table.parameters, invitation)
    box_key = AgreementKey(Secret(bytes([8]) * 32)).public
    digest = terms.hello_digest(PartyId(name), bytes(32), box_key, 0)
    record = HelloRecord(bytes(32), box_key, 0, identity.signing.sign("hello", digest))
    return Hello(Stamp(), invitation, record)


@pytest.mark.parametrize("scheme", SECURE)
def test_a_stranger_is_not_admitted(scheme: str) -> None:
    table = LyingTable(scheme, 5)
    honest = table.until(Hello).message
    assert isinstance(honest, Hello)
    stranger = make_identities(table.scheme, [PartyId("stranger")], seed=99)[PartyId("stranger")]
    table.refuses("server", "stranger", Knock(Stamp()), REASON.UNKNOWN_PARTY)
    hello = hello_of(table, stranger, "stranger", honest.invitation)
    table.refuses("server", "stranger", hello, REASON.UNKNOWN_PARTY)
    assert finishes(table)


@pytest.mark.parametrize("scheme", SECURE)
def test_the_right_name_with_the_wrong_key_is_not_admitted(scheme: str) -> None:
    """And the real owner of the name still is."""
    table = LyingTable(scheme, 5)
    honest = table.until(Hello, sender="p0").message
    assert isinstance(honest, Hello)
    impostor = make_identities(table.scheme, party_names(5), seed=99)[P0]
    hello = hello_of(table, impostor, "p0", honest.invitation)
    table.refuses("server", "p0", hello, REASON.BAD_SIGNATURE)
    assert finishes(table)


@pytest.mark.parametrize("scheme", SECURE)
def test_an_evicted_party_is_refused_by_the_server_and_in_every_list_of_hellos(scheme: str) -> None:
    """The next roster leaves p4 out; its old key and its old roster open nothing."""
    table = LyingTable(scheme, 5)
    evicted = table.identities[PartyId("p4")]
    table.roster = Roster(2, tuple(one.public for name, one in table.identities.items() if name != "p4"))
    for name in (SERVER, *table.names[:4]):
        table.machines[name] = table._new_machine(name)
    table.names.remove(PartyId("p4"))
    table.lose("p4")
    honest = table.until(Hello).message
    assert isinstance(honest, Hello)
    table.refuses("server", "p4", hello_of(table, evicted, "p4", honest.invitation), REASON.UNKNOWN_PARTY)
    opened = table.until(SessionOpened, "p0").message
    assert isinstance(opened, SessionOpened)
    ghost = hello_of(table, evicted, "p4", honest.invitation).hello
    with_ghost = replace(opened, hellos={**opened.hellos, PartyId("p4"): ghost})
    table.refuses("p0", "server", with_ghost, REASON.UNKNOWN_PARTY)
    assert finishes(table)


@pytest.mark.parametrize("scheme", SECURE)
def test_a_hello_under_another_roster_is_not_admitted(scheme: str) -> None:
    """A hello is bound to the roster and the configuration that its sender believes in."""
    table = LyingTable(scheme, 5)
    honest = table.until(Hello, sender="p0").message
    assert isinstance(honest, Hello)
    table.roster = Roster(2, table.roster.identities)
    hello = hello_of(table, table.identities[P0], "p0", honest.invitation)
    table.refuses("server", "p0", hello, REASON.BAD_SIGNATURE)


def round_messages(stamp: Stamp) -> list[Message]:
    words = np.zeros(8, dtype="<u8")
    return [
        SealedShares(stamp, {}),
        MaskedInput(stamp, words),
        SurvivorSignature(stamp, bytes(64)),
        ReleasedShares(stamp, {}, {}),
        ResultDigest(stamp, bytes(32), bytes(32)),
        ModelHeld(stamp, 0, bytes(32)),
        Withdrawn(stamp, "x"),
    ]


@pytest.mark.parametrize("scheme", SECURE)
def test_an_outsider_has_no_part_in_a_round(scheme: str) -> None:
    """Not at the server, and not at a participant, even with the right session, round and attempt."""
    table = LyingTable(scheme, 5)
    table.until(MaskedInput)
    stamp = table.attempt_of("server").stamp
    for message in round_messages(stamp):
        table.refuses("server", "stranger", message, REASON.UNKNOWN_PARTY)
    for message in (ModelWanted(stamp), ResultDigest(stamp, bytes(32), bytes(32))):
        table.refuses("p0", "stranger", message, REASON.UNKNOWN_PARTY)
    assert finishes(table)


@pytest.mark.parametrize("scheme", SECURE)
def test_a_member_of_the_roster_that_is_not_in_the_session_has_no_part_in_it(scheme: str) -> None:
    table = LyingTable(scheme, 5, absent=["p4"])
    table.until(MaskedInput)
    stamp = table.attempt_of("server").stamp
    for message in round_messages(stamp):
        table.refuses("server", "p4", message, REASON.UNKNOWN_PARTY)
    table.refuses("p0", "p4", ResultDigest(stamp, bytes(32), bytes(32)), REASON.UNKNOWN_PARTY)
    table.run()
    assert table.told[SERVER].commits[0].members == tuple(table.names[:4])


@pytest.mark.parametrize("scheme", SECURE)
def test_messages_without_a_session_belong_to_none(scheme: str) -> None:
    table = LyingTable(scheme, 5)
    table.until(MaskedInput)
    for message in round_messages(Stamp()):
        table.refuses("server", "p0", message, REASON.WRONG_SESSION)
    for message in (
        CohortKeys(Stamp(), {}, 0),
        DeliveredShares(Stamp(), {}),
        SurvivorList(Stamp(), (), (), 0),
    ):
        table.refuses("p0", "server", message, REASON.WRONG_SESSION)
    assert finishes(table)


FROM_SERVER_ONLY = (
    Invitation(Stamp(), bytes(32)),
    SessionOpened(Stamp(), {}),
    RoundOpened(Stamp(), np.zeros(0, dtype="<f4")),
    Farewell(Stamp(), False, "", "", np.zeros(0, dtype="<f4")),
)


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("message", FROM_SERVER_ONLY, ids=lambda message: type(message).__name__)
@pytest.mark.parametrize("impostor", ["p1", "stranger"])
def test_nobody_but_the_server_speaks_for_the_server(scheme: str, message: Message, impostor: str) -> None:
    table = LyingTable(scheme, 5)
    table.until(MaskedInput)
    table.refuses("p0", impostor, message, REASON.UNEXPECTED_MESSAGE)
    assert finishes(table)


@pytest.mark.parametrize("scheme", SECURE)
def test_what_other_parties_say_about_themselves_concerns_only_them(scheme: str) -> None:
    """A knock or a withdrawal of p4 takes nobody else out of the round."""
    table = LyingTable(scheme, 5)
    table.until(MaskedInput, sender="p0")
    stamp = table.attempt_of("server").stamp
    assert table.say("p4", "server", Knock(Stamp())) is None
    assert table.say("p4", "server", Withdrawn(stamp, "bye")) is None
    table.lose("p4")
    table.run()
    assert set(table.told[SERVER].commits[0].members) >= set(table.names[:4])


def test_the_server_refuses_what_only_it_may_say() -> None:
    table = LyingTable("masked", 5)
    table.until(RoundKeys)
    stamp = table.attempt_of("server").stamp
    for message in (CohortKeys(stamp, {}, 0), SurvivorList(stamp, (), (), 0), DeliveredShares(stamp, {})):
        table.refuses("server", "p0", message, REASON.UNEXPECTED_MESSAGE)
    assert finishes(table)
