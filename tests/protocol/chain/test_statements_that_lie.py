"""Statements and hellos that lie: a list that a member invents, a second one that a server vouched for, hidden hellos.

Of seven parties two may collude, and five must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from tests.support.refusals import require_mentions
from tests.support.tables.lying_sessions import opening, proposed_session, session_of, signed_hello
from tests.support.tables.lying_table import (
    lying_table,
    messages,
    nobody_has_a_result,
    participant,
    party_names,
    refuses,
    say,
    told,
    until,
)
from veilsum.protocol.chain.hellos import HelloRecord
from veilsum.protocol.chain.statements import LIST_DOMAIN, EnteredAttempt, list_digest
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER, PartyId, SessionId
from veilsum.protocol.machines.events import RunFailed, RunFinished
from veilsum.protocol.machines.phases import ParticipantPhase
from veilsum.protocol.machines.session import Hello, RoundOpened, SessionOpened, SessionTerms
from veilsum.protocol.schemes.ampc.messages import SetupReport
from veilsum.protocol.schemes.masked.messages import CohortKeys, RoundKeys
from veilsum.protocol.secure_sum.group_key import GroupKeyDealt, GroupKeyDelivered, dealer_of
from veilsum.protocol.secure_sum.shares import ReleasedShares
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message, Stamp
from veilsum.simulations.testing import check_invariants
from veilsum.simulations.testing.table import Table, honest
from veilsum.simulations.testing.trace import InFlight

PEERS = ("mpc", "ampc")
SECURE = ("masked", *PEERS)
REASON = AbortReason
PARTIES = 7
P0, P1, *_, P6 = EVERYONE = tuple(party_names(PARTIES))


def stopped_after(scheme: str, kind: type[Message]) -> Table:
    """All seven have uploaded, or released their shares, when the server stops; nobody has heard of a sum."""
    table = lying_table(scheme, PARTIES)
    while len(messages(table, kind)) < PARTIES:
        table.deliver(table.wire[0])
    table.wire.clear()
    table.crash(SERVER)
    return table


def vouched(table: Table, one: EnteredAttempt, released: tuple[PartyId, ...], by: PartyId) -> EnteredAttempt:
    """The same attempt with another list, and somebody's signature under it."""
    digest = list_digest(one.stamp(0), released, one.members)
    signature = table.federation.identities[by].signing.sign(LIST_DOMAIN, digest)
    return replace(one, released=released, voucher=signature)


Change = Callable[[Table, EnteredAttempt], EnteredAttempt]
OTHERS = EVERYONE[:-1]
INVENTED: Mapping[str, Change] = {
    "no voucher": lambda _, one: replace(one, released=OTHERS, voucher=b""),
    "zeros": lambda _, one: replace(one, released=OTHERS, voucher=bytes(64)),
    "its own signature": lambda table, one: vouched(table, one, OTHERS, P0),
    "the voucher of another list": lambda _, one: replace(one, released=OTHERS),
    "of other members": lambda _, one: replace(one, members=(*one.members, PartyId("p9"))),
    "of another attempt": lambda _, one: replace(one, attempt=one.attempt + 1),
    "of another session": lambda _, one: replace(one, session=bytes(32)),
}


def stating(table: Table, change: Change, *liars: PartyId) -> None:
    """These say something else of the attempt that they entered, in every hello."""

    def tamper(flight: InFlight) -> Message | None:
        message = flight.message
        if not isinstance(message, Hello) or flight.sender not in liars or not message.hello.attempts:
            return message
        attempts = tuple(change(table, one) for one in message.hello.attempts)
        return signed_hello(table.federation, flight.sender, message, attempts=attempts)

    table.tamper = tamper


def all_finish(table: Table, *names: PartyId) -> bool:
    endings = [told(table, name).ending for name in (SERVER, *names)]
    return all(isinstance(ending, RunFinished) for ending in endings)


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("lie", [*INVENTED][:4])
def test_a_list_that_a_member_invents_is_refused_by_name_and_the_others_go_on(scheme: str, lie: str) -> None:
    """All had uploaded, and no list was signed: with six who say so nothing can be open."""
    table = stopped_after(scheme, MaskedInput)
    stating(table, INVENTED[lie], P0)
    table.restart(SERVER)
    table.run()
    check_invariants(table)
    refused = {(one.party, one.error.culprit, one.error.reason) for one in table.trace.refusals}
    assert (SERVER, P0, REASON.BAD_SIGNATURE) in refused
    assert [one.members for one in told(table, SERVER).commits] == [EVERYONE[1:]]
    assert all_finish(table, *EVERYONE[1:])


@pytest.mark.parametrize("scheme", SECURE)
def test_a_sum_that_may_be_open_waits_for_the_truth_of_one_who_is_in_it(scheme: str) -> None:
    """It ends typed and names the missing party; once that one states what it signed, the sum is repeated."""
    table = stopped_after(scheme, ReleasedShares)
    stating(table, INVENTED["the voucher of another list"], P0)
    table.restart(SERVER)
    table.run()
    assert nobody_has_a_result(table)
    ending = told(table, SERVER).ending
    assert isinstance(ending, RunFailed)
    assert ending.reason is REASON.DIFFERENCING
    require_mentions(ending.detail, P0, "checkpoint")
    table.tamper = honest
    for name in (SERVER, *EVERYONE):
        table.crash(name)
        table.restart(name)
    table.run()
    check_invariants(table)
    assert [one.members for one in told(table, SERVER).commits] == [EVERYONE]
    assert all_finish(table, *EVERYONE)


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("lie", INVENTED)
def test_members_refuse_a_session_with_an_invented_list_that_the_server_lets_through(
    scheme: str, lie: str
) -> None:
    table = stopped_after(scheme, ReleasedShares)
    true = proposed_session(table, 9, *EVERYONE)
    hello = true.hellos[P0]
    attempts = tuple(INVENTED[lie](table, one) for one in hello.attempts)
    assert attempts
    lied = signed_hello(table.federation, P0, Hello(Stamp(), bytes([9]) * 32, hello), attempts=attempts).hello
    session = session_of_hellos(table, 9, {**true.hellos, P0: lied})
    for name in EVERYONE[1:]:
        refuses(table, name, SERVER, session, REASON.BAD_SIGNATURE)
        assert say(table, SERVER, name, true) is None


def session_of_hellos(table: Table, number: int, hellos: Mapping[PartyId, HelloRecord]) -> SessionOpened:
    terms = SessionTerms(table.federation.roster, table.federation.parameters, bytes([number]) * 32)
    session = terms.open(hellos, 0)
    return SessionOpened(Stamp(session.id, 0, number), session.hellos)


def stating_a_second_list(table: Table, *liars: PartyId) -> None:
    """The server signs a list without p6 for these, who say that they released for it, and start again."""
    for name in liars:
        table.crash(name)
        record = table.disks[name].record
        at, attempts = record.entered
        record.entered = at, tuple(vouched(table, one, EVERYONE[:6], SERVER) for one in attempts)
        table.restart(name)
        table.liars.add(name)


@pytest.mark.parametrize("scheme", SECURE)
def test_a_second_list_that_the_server_vouched_for_binds_nobody_when_all_speak(scheme: str) -> None:
    """Two colluders state it, five deny it: too few can have released for it, and the first sum is repeated."""
    table = stopped_after(scheme, ReleasedShares)
    stating_a_second_list(table, P0, P1)
    table.restart(SERVER)
    table.run()
    check_invariants(table)
    assert [one.members for one in told(table, SERVER).commits] == [EVERYONE]
    assert all_finish(table, *EVERYONE)


@pytest.mark.parametrize("scheme", SECURE)
def test_a_second_list_that_may_be_open_closes_the_position_and_nobody_uploads_again(scheme: str) -> None:
    """Two of the seven are away, and may have released for it: two lists of one attempt, so the server lied.

    By what they remember themselves they would only wait for those two; that is taken away here.
    """
    table = stopped_after(scheme, ReleasedShares)
    stating_a_second_list(table, P0, P1)
    for name in EVERYONE[5:]:
        table.crash(name)
    stamp = session_of(table, 9, *EVERYONE[:5])
    for name in EVERYONE[2:5]:
        participant(table, name).record.spent.clear()
        refuses(table, name, SERVER, opening(table, stamp), REASON.POSITION_LOST)
    assert len(messages(table, MaskedInput)) == PARTIES
    table.wire.clear()
    for name in (SERVER, *EVERYONE[5:]):
        table.restart(name)
    table.run()
    assert [one.members for one in told(table, SERVER).commits] == [EVERYONE]


FIRST, SECOND = EVERYONE[3:], EVERYONE[:3]


def two_sessions(table: Table) -> dict[tuple[PartyId, ...], SessionOpened]:
    """The first group is not shown the hello of p0, the second not that of p6; each has its own dealer in it."""
    until(table, RoundOpened)
    for number in range(9, 99):
        table.wire.clear()
        whole = proposed_session(table, number, *EVERYONE)
        shown = {}
        for names, gone in ((FIRST, P0), (SECOND, P6)):
            part = {name: one for name, one in whole.hellos.items() if name != gone}
            shown[names] = session_of_hellos(table, number, part)
        dealers = {names: dealer_of(SessionId(one.stamp.session), one.hellos) for names, one in shown.items()}
        if all(dealer in names for names, dealer in dealers.items()):
            break
    for names, opened in shown.items():
        for name in names:
            assert say(table, SERVER, name, opened) is None
    return shown


@pytest.mark.parametrize("scheme", SECURE)
def test_a_hello_left_out_of_the_list_changes_the_id_of_the_session(scheme: str) -> None:
    """Under the id of all hellos, or with its own hello gone, nobody enters; with the whole list everyone does."""
    table = lying_table(scheme, PARTIES)
    table.wire.clear()
    whole = proposed_session(table, 9, *EVERYONE)
    part = {name: one for name, one in whole.hellos.items() if name != P6}
    for name in EVERYONE:
        refuses(table, name, SERVER, replace(whole, hellos=part), REASON.WRONG_SESSION)
    refuses(table, P6, SERVER, session_of_hellos(table, 9, part), REASON.WRONG_SESSION)
    for name in EVERYONE:
        assert say(table, SERVER, name, whole) is None


@pytest.mark.parametrize("scheme", PEERS)
def test_peers_that_are_shown_different_hellos_never_complete_a_set_up(scheme: str) -> None:
    """What they seal for each other is bound to two ids: the opening of a round waits, and no update leaves."""
    table = lying_table(scheme, PARTIES)
    shown = two_sessions(table)
    table.deliver_all()
    for names, opened in shown.items():
        for name in names:
            assert say(table, SERVER, name, opening(table, opened.stamp)) is None
            assert participant(table, name).phase is ParticipantPhase.PREPARING
    table.deliver_all()
    assert not messages(table, MaskedInput)
    assert not [one for one in messages(table, SetupReport) if one.complete and one.stamp.attempt >= 9]


def test_clients_that_are_shown_different_hellos_agree_on_no_cohort() -> None:
    """Keys of the other session are of another group and do not verify; those of one's own certify nothing."""
    table = lying_table("masked", PARTIES)
    shown = two_sessions(table)
    table.deliver_all()
    for names, opened in shown.items():
        for dealt in messages(table, GroupKeyDealt):
            for name in set(names) & set(dealt.boxes) if dealt.stamp.session == opened.stamp.session else ():
                assert say(table, SERVER, name, GroupKeyDelivered(dealt.stamp, dealt.boxes[name])) is None
        for name in names:
            assert say(table, SERVER, name, opening(table, opened.stamp)) is None
    sessions = {opened.stamp.session for opened in shown.values()}
    keys = {
        one.sender: one.message.keys
        for one in table.trace.sent
        if isinstance(one.message, RoundKeys) and one.message.stamp.session in sessions
    }
    assert keys.keys() == set(EVERYONE)
    for names, opened in shown.items():
        stamp, listed = (
            opening(table, opened.stamp).stamp,
            [name for name in EVERYONE if name in opened.hellos],
        )
        own = {name: keys[name] for name in names}
        mixed = {name: keys[name] for name in listed}
        group = own[names[0]].group
        alike = {name: replace(one, group=group) for name, one in mixed.items()}
        alone = REASON.NO_QUORUM if len(own) >= 4 else REASON.COHORT_TOO_SMALL
        for name in names:
            refuses(table, name, SERVER, CohortKeys(stamp, own, len(own)), alone)
            refuses(table, name, SERVER, CohortKeys(stamp, mixed, len(mixed)), REASON.BAD_KEY)
            refuses(table, name, SERVER, CohortKeys(stamp, alike, len(alike)), REASON.BAD_SIGNATURE)
    assert not messages(table, MaskedInput)
