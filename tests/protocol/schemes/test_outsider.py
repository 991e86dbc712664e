"""Whoever is not in the roster, not in the session, or not who it says it is gets nothing and changes nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.tables.lying_sessions import signed_hello
from tests.support.tables.lying_table import (
    attempt_of,
    exact_model,
    lying_table,
    make_identities,
    party_names,
    refuses,
    say,
    told,
    until,
)
from veilsum.protocol.agreed.anchor import first_anchor
from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.chain.hellos import HelloRecord
from veilsum.protocol.chain.state import hash_model
from veilsum.protocol.crypto.agreement import AgreementKey
from veilsum.protocol.crypto.identity import Identity
from veilsum.protocol.crypto.secret import Secret
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.session import (
    Farewell,
    Hello,
    Invitation,
    Knock,
    RoundOpened,
    SessionOpened,
    Withdrawn,
)
from veilsum.protocol.schemes.ampc.messages import ModelHeld, ModelWanted, ResultDigest
from veilsum.protocol.schemes.masked.messages import CohortKeys, RoundKeys
from veilsum.protocol.secure_sum.certifying import SumVote
from veilsum.protocol.secure_sum.group_key import GroupKeyDealt
from veilsum.protocol.secure_sum.shares import DeliveredShares, ReleasedShares, SealedShares
from veilsum.protocol.secure_sum.survivors import SurvivorList, SurvivorSignature
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message, Stamp
from veilsum.simulations.testing.federation import TableFederation
from veilsum.simulations.testing.table import Table

SECURE = ("masked", "mpc", "ampc")
EVERY = ("plain", *SECURE, "perturbed", "bilateral")
REASON = AbortReason
P0 = PartyId("p0")


def finishes(table: Table) -> bool:
    table.run()
    if table.federation.scheme.name not in SECURE:
        return set(told(table, SERVER).commits[0].members) == set(table.participants)
    holders = [SERVER] if table.federation.scheme.server_holds_model else table.participants
    models = [told(table, name).commits[0].model for name in holders]
    return all(
        model is not None and model.tobytes() == exact_model(table, table.participants) for model in models
    )


def hello_of(federation: TableFederation, identity: Identity, name: str, invitation: bytes) -> Hello:
    box_key = AgreementKey(Secret(bytes([8]) * 32)).public
    unsigned = Hello(Stamp(), invitation, HelloRecord(bytes(32), box_key, 0, bytes(64)))
    return signed_hello(federation, name, unsigned, signer=identity)


@pytest.mark.parametrize("scheme", EVERY)
def test_a_stranger_is_not_admitted(scheme: str) -> None:
    table = lying_table(scheme, 5)
    honest = until(table, Hello).message
    assert isinstance(honest, Hello)
    stranger = make_identities(table.federation.scheme, [PartyId("stranger")], seed=99)[PartyId("stranger")]
    refuses(table, "server", "stranger", Knock(Stamp()), REASON.UNKNOWN_PARTY)
    hello = hello_of(table.federation, stranger, "stranger", honest.invitation)
    refuses(table, "server", "stranger", hello, REASON.UNKNOWN_PARTY)
    assert finishes(table)


@pytest.mark.parametrize("scheme", EVERY)
def test_the_right_name_with_the_wrong_key_is_not_admitted(scheme: str) -> None:
    """And the real owner of the name still is."""
    table = lying_table(scheme, 5)
    honest = until(table, Hello, sender="p0").message
    assert isinstance(honest, Hello)
    impostor = make_identities(table.federation.scheme, party_names(5), seed=99)[P0]
    hello = hello_of(table.federation, impostor, "p0", honest.invitation)
    refuses(table, "server", "p0", hello, REASON.BAD_SIGNATURE)
    assert finishes(table)


@pytest.mark.parametrize("scheme", EVERY)
def test_an_evicted_party_is_refused_by_the_server_and_in_every_list_of_hellos(scheme: str) -> None:
    """The next roster leaves p4 out; its old key and its old roster open nothing."""
    table = lying_table(scheme, 5)
    evicted = table.federation.identities[PartyId("p4")]
    kept = {name: one for name, one in table.federation.identities.items() if name != "p4"}
    people = tuple(one.public for one in kept.values())
    anchor = first_anchor(bytes(32), hash_model(table.federation.initial_model), table.participants[:4])
    roster = Roster(2, people, anchor)
    table = Table(
        replace(table.federation, identities=kept, rules=replace(table.federation.rules, roster=roster))
    )
    table.start()
    honest = until(table, Hello).message
    assert isinstance(honest, Hello)
    refuses(
        table,
        "server",
        "p4",
        hello_of(table.federation, evicted, "p4", honest.invitation),
        REASON.UNKNOWN_PARTY,
    )
    opened = until(table, SessionOpened, "p0").message
    assert isinstance(opened, SessionOpened)
    ghost = hello_of(table.federation, evicted, "p4", honest.invitation).hello
    with_ghost = replace(opened, hellos={**opened.hellos, PartyId("p4"): ghost})
    refuses(table, "p0", "server", with_ghost, REASON.UNKNOWN_PARTY)
    assert finishes(table)


@pytest.mark.parametrize("scheme", EVERY)
def test_a_hello_under_another_roster_is_not_admitted(scheme: str) -> None:
    """A hello is bound to the roster and the configuration that its sender believes in."""
    table = lying_table(scheme, 5)
    honest = until(table, Hello, sender="p0").message
    assert isinstance(honest, Hello)
    rules = replace(table.federation.rules, roster=Roster(2, table.federation.roster.identities))
    other = replace(table.federation, rules=rules)
    hello = hello_of(other, table.federation.identities[P0], "p0", honest.invitation)
    refuses(table, "server", "p0", hello, REASON.BAD_SIGNATURE)


def no_digest(stamp: Stamp) -> ResultDigest:
    return ResultDigest(stamp, bytes(32), bytes(64), b"")


def round_messages(stamp: Stamp) -> list[Message]:
    words = np.zeros(8, dtype="<u8")
    return [
        SealedShares(stamp, {}, {}, bytes(32), bytes(64)),
        MaskedInput(stamp, words),
        SurvivorSignature(stamp, bytes(64)),
        ReleasedShares(stamp, {}, {}),
        no_digest(stamp),
        SumVote(stamp, bytes(32), bytes(64)),
        GroupKeyDealt(stamp, {}),
        ModelHeld(stamp, bytes(32), b""),
        Withdrawn(stamp, "x"),
    ]


@pytest.mark.parametrize("scheme", SECURE)
def test_an_outsider_has_no_part_in_a_round(scheme: str) -> None:
    """Not at the server, and not at a participant, even with the right session, round and attempt."""
    table = lying_table(scheme, 5)
    until(table, MaskedInput)
    stamp = attempt_of(table, "server").stamp
    for message in round_messages(stamp):
        refuses(table, "server", "stranger", message, REASON.UNKNOWN_PARTY)
    for message in (ModelWanted(stamp), no_digest(stamp)):
        refuses(table, "p0", "stranger", message, REASON.UNKNOWN_PARTY)
    assert finishes(table)


@pytest.mark.parametrize("scheme", SECURE)
def test_a_member_of_the_roster_that_is_not_in_the_session_has_no_part_in_it(scheme: str) -> None:
    table = lying_table(scheme, 5, absent=["p4"])
    until(table, MaskedInput)
    stamp = attempt_of(table, "server").stamp
    for message in round_messages(stamp):
        refuses(table, "server", "p4", message, REASON.UNKNOWN_PARTY)
    refuses(table, "p0", "p4", no_digest(stamp), REASON.UNKNOWN_PARTY)
    table.run()
    assert told(table, SERVER).commits[0].members == tuple(table.participants[:4])


@pytest.mark.parametrize("scheme", SECURE)
def test_messages_without_a_session_belong_to_none(scheme: str) -> None:
    table = lying_table(scheme, 5)
    until(table, MaskedInput)
    for message in round_messages(Stamp()):
        refuses(table, "server", "p0", message, REASON.WRONG_SESSION)
    for message in (
        CohortKeys(Stamp(), {}, 0),
        DeliveredShares(Stamp(), {}),
        SurvivorList(Stamp(), (), (), 0),
    ):
        refuses(table, "p0", "server", message, REASON.WRONG_SESSION)
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
    table = lying_table(scheme, 5)
    until(table, MaskedInput)
    refuses(table, "p0", impostor, message, REASON.UNEXPECTED_MESSAGE)
    assert finishes(table)


@pytest.mark.parametrize("scheme", SECURE)
def test_what_other_parties_say_about_themselves_concerns_only_them(scheme: str) -> None:
    """A knock or a withdrawal of p4 takes nobody else out of the round."""
    table = lying_table(scheme, 5)
    until(table, MaskedInput, sender="p0")
    stamp = attempt_of(table, "server").stamp
    assert say(table, "p4", "server", Knock(Stamp())) is None
    assert say(table, "p4", "server", Withdrawn(stamp, "bye")) is None
    table.crash("p4")
    table.run()
    assert set(told(table, SERVER).commits[0].members) >= set(table.participants[:4])


def test_the_server_refuses_what_only_it_may_say() -> None:
    table = lying_table("masked", 5)
    until(table, RoundKeys)
    stamp = attempt_of(table, "server").stamp
    for message in (CohortKeys(stamp, {}, 0), SurvivorList(stamp, (), (), 0), DeliveredShares(stamp, {})):
        refuses(table, "server", "p0", message, REASON.UNEXPECTED_MESSAGE)
    assert finishes(table)
