"""Peers pass a result on among themselves: what the server or one of them could make of it.

Five peers, one of whom may lie: four votes certify, and two bear a ballot. A sum was opened to p0 and p1, who voted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.tables.lying_sessions import proposed_session
from tests.support.tables.lying_table import messages, participant, refuses, say, told
from tests.support.tables.opened_sums import ROUNDS, go_on, opened_to
from veilsum.protocol.chain.votes import Ballot, SupportedBallot, Vote
from veilsum.protocol.crypto.boxes import seal_box
from veilsum.protocol.crypto.kdf import Purpose
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import RunFinished
from veilsum.protocol.machines.session import RoundClosed, RoundOpened, SessionOpened, Withdrawn
from veilsum.protocol.schemes.ampc.messages import ModelGiven, ModelWanted
from veilsum.protocol.schemes.ampc.passing import PassingPeer, VoteAdded, VoteShown
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message, Stamp
from veilsum.simulations.testing import Table, check_invariants
from veilsum.simulations.testing.trace import InFlight

REASON = AbortReason
PEERS = ("mpc", "ampc")
P0, P1, P2, P3, P4 = (PartyId(f"p{index}") for index in range(5))
HERE = (P0, P1, P2, P3)


def signature(table: Table, name: PartyId, ballot: Ballot, anchor: bytes | None = None) -> bytes:
    known = table.federation.roster.anchor
    assert known is not None
    return Vote.cast(table.federation.identities[name], anchor or known.digest, ballot).signature


def sealed_vote(table: Table, name: PartyId = P0) -> Vote:
    chain = table.disks[name].chain
    assert chain is not None
    assert chain.sealed_vote is not None
    return chain.sealed_vote


def supported(table: Table, *voters: PartyId, **changes: Any) -> SupportedBallot:
    """Genuine votes under the ballot without hashes; by default those that p0 and p1 cast."""
    ballot = replace(sealed_vote(table).ballot.without_hashes(), **changes)
    return SupportedBallot(ballot, {name: signature(table, name, ballot) for name in voters or (P0, P1)})


def proposed(table: Table) -> SessionOpened:
    """What a lying server would open a session with, once those who voted have waited in vain."""
    while any((one := participant(table, name).machine) is not None and one.is_decisive for name in HERE):
        assert table.advance()
    table.wire.clear()
    return proposed_session(table, 7, *HERE)


def passing(table: Table, *names: PartyId) -> Stamp:
    """A lying server opens a session that passes the result on, and its round, with these peers."""
    opened = replace(proposed(table), supported=supported(table))
    for name in names:
        assert say(table, "server", name, opened) is None
        assert say(table, "server", name, RoundOpened(opened.stamp, np.zeros(0, dtype="<f4"))) is None
    return opened.stamp


def shown_by(table: Table, sender: PartyId, receiver: PartyId, plain: bytes) -> VoteShown:
    """What a peer tells another, whatever that is."""
    machine = participant(table, sender).machine
    assert isinstance(machine, PassingPeer)
    context, stamp = machine._context, machine.stamp
    secret = context.box_secret(Purpose.SEAL, stamp, sender, receiver, "passed-vote")
    return VoteShown(stamp, seal_box(secret, plain, b""))


@pytest.mark.parametrize(
    "lie", ["as many as may lie", "with hashes", "another position", "another electorate"]
)
@pytest.mark.parametrize("scheme", PEERS)
def test_a_session_whose_result_too_few_bear_out_is_entered_by_no_peer(scheme: str, lie: str) -> None:
    table = opened_to("p0", "p1", scheme=scheme)
    opened = proposed(table)
    ballot = sealed_vote(table).ballot
    false = {
        "as many as may lie": supported(table, P0),
        "with hashes": supported(table, before=ballot.before, after=ballot.after),
        "another position": supported(table, position=2),
        "another electorate": supported(table, electorate=HERE),
    }[lie]
    for name in HERE:
        refuses(table, name, "server", replace(opened, supported=false), REASON.BAD_CERTIFICATE)


@pytest.mark.parametrize(
    "lie", ["forged", "another state", "another past", "another anchor", "cut short", "unreadable"]
)
def test_a_vote_that_is_not_what_it_says_bears_nothing(lie: str) -> None:
    """p1 works with the server; with the vote of p0 alone p2 asks nobody for a state and votes for nothing."""
    table = opened_to("p0", "p1", scheme="ampc")
    passing(table, *HERE[:3])
    for own in [one for one in table.wire if isinstance(one.message, VoteShown) and one.sender == P1]:
        table.drop(own)
    honest = sealed_vote(table, P1)
    hash_, other = honest.ballot.after, bytes(32)
    past = signature(table, P1, replace(honest.ballot, before=other))
    plain = {
        "forged": hash_ + bytes(64),
        "another state": other + honest.signature,
        "another past": hash_ + past,
        "another anchor": hash_ + signature(table, P1, honest.ballot, other),
        "cut short": hash_ + honest.signature[:-1],
        "unreadable": hash_ + honest.signature,
    }[lie]
    said = shown_by(table, P1, P2, plain)
    if lie == "unreadable":
        said = replace(said, box=said.box[:-1] + bytes([said.box[-1] ^ 1]))
    reason = {"cut short": REASON.BAD_CERTIFICATE, "unreadable": REASON.BAD_SEAL}.get(
        lie, REASON.BAD_SIGNATURE
    )
    refuses(table, "p2", "p1", said, reason)
    table.deliver_all()
    assert VoteShown in {type(one.message) for one in table.trace.sent if one.sender == P0}
    assert not messages(table, ModelWanted, "p2")


def test_two_votes_for_different_states_bear_neither() -> None:
    """p1 lies: it voted for one state and signs another, which nobody else voted for."""
    table = opened_to("p0", "p1", scheme="mpc")
    passing(table, *HERE[:3])
    for own in [one for one in table.wire if isinstance(one.message, VoteShown) and one.sender == P1]:
        table.drop(own)
    other = replace(sealed_vote(table).ballot, after=bytes(32))
    assert say(table, "p1", "p2", shown_by(table, P1, P2, bytes(32) + signature(table, P1, other))) is None
    table.deliver_all()
    assert not messages(table, ModelWanted, "p2")


def test_a_peer_that_did_not_vote_has_nothing_to_show_or_to_give() -> None:
    table = opened_to("p0", "p1", scheme="ampc")
    stamp = passing(table, *HERE)
    said = shown_by(table, P3, P2, bytes(96))
    refuses(table, "p2", "p3", said, REASON.UNEXPECTED_MESSAGE)
    refuses(table, "p3", "p2", ModelWanted(stamp.without_model()), REASON.UNEXPECTED_MESSAGE)
    refuses(table, "p0", "p1", ModelWanted(stamp.without_model()), REASON.UNEXPECTED_MESSAGE)


def run_with(table: Table, tamper: Any) -> None:
    table.crash("p4")
    table.tamper = tamper
    table.restart(SERVER)
    table.run()
    check_invariants(table)
    for name in (SERVER, *HERE):
        ending = told(table, name).ending
        assert isinstance(ending, RunFinished), (name, ending)
        assert ending.rounds == ROUNDS
    models = [participant(table, name).model for name in HERE]
    assert len({one.tobytes() for one in models if one is not None}) == 1


@pytest.mark.parametrize("scheme", PEERS)
@pytest.mark.parametrize("lie", ["silent", "another state"])
def test_one_that_gives_no_state_or_another_keeps_nobody_from_it(scheme: str, lie: str) -> None:
    """p0 is asked first; then p1 is."""
    table = opened_to("p0", "p1", scheme=scheme)
    refused: list[InFlight] = []

    def tamper(flight: InFlight) -> Message | None:
        message = flight.message
        if not isinstance(message, ModelGiven) or flight.sender != P0 or message.stamp.round:
            return message
        refused.append(flight)
        return None if lie == "silent" else replace(message, box=message.box[::-1].copy())

    run_with(table, tamper)
    assert {one.receiver for one in refused} >= {P2, P3}


@pytest.mark.parametrize("scheme", PEERS)
def test_whoever_adds_its_vote_has_it_on_disk_under_both_ballots(scheme: str) -> None:
    table = opened_to("p0", "p1", scheme=scheme)

    def tamper(flight: InFlight) -> Message | None:
        if isinstance(flight.message, VoteAdded):
            chain = table.disks[flight.sender].chain
            assert chain is not None
            assert chain.vote is not None
            assert chain.vote.signature == flight.message.vote
            assert sealed_vote(table, flight.sender).ballot == sealed_vote(table).ballot
        return flight.message

    run_with(table, tamper)
    assert {one.sender for one in table.trace.sent if isinstance(one.message, VoteAdded)} == {P2, P3}


@pytest.mark.parametrize("lie", ["forged", "of another", "twice"])
def test_the_server_counts_no_vote_that_its_author_did_not_add(lie: str) -> None:
    table = opened_to("p0", "p1", scheme="ampc")
    table.crash("p4")
    table.restart(SERVER)
    while not messages(table, VoteAdded, "p2"):
        go_on(table)
    (flight,) = [one for one in table.wire if isinstance(one.message, VoteAdded) and one.sender == P2]
    honest = flight.message
    assert isinstance(honest, VoteAdded)
    if lie == "twice":
        table.deliver(flight)
        refuses(table, "server", "p2", honest, REASON.REPLAY)
        return
    stolen = bytes(64) if lie == "forged" else honest.vote
    sender = "p2" if lie == "forged" else "p3"
    refuses(table, "server", sender, replace(honest, vote=stolen), REASON.BAD_SIGNATURE)


@pytest.mark.parametrize("scheme", PEERS)
def test_in_a_session_that_passes_a_result_on_no_peer_uploads_and_its_attempt_is_stated_by_none(
    scheme: str,
) -> None:
    table = opened_to("p0", "p1", scheme=scheme)
    uploads = len(messages(table, MaskedInput))
    stamp = passing(table, *HERE)
    table.deliver_all()
    closed = RoundClosed(stamp.without_model(), False, (), b"", REASON.TIMED_OUT.value)
    for name in HERE:
        assert say(table, "server", name, closed) is None
        assert len(table.disks[name].record.attempts_at(0)) == 1
        following = RoundOpened(replace(stamp, round=1), np.zeros(0, dtype="<f4"))
        refuses(table, name, "server", following, REASON.WRONG_SESSION)
    assert len(messages(table, MaskedInput)) == uploads


def test_whoever_voted_otherwise_bears_no_other_list() -> None:
    table = opened_to("p0", "p1", "p2", scheme="ampc")
    opened = replace(proposed(table), supported=supported(table, survivors=(P0, P1, P3, P4)))
    assert say(table, "server", "p2", opened) is None
    assert say(table, "server", "p2", RoundOpened(opened.stamp, np.zeros(0, dtype="<f4"))) is None
    assert [one.reason for one in messages(table, Withdrawn, "p2")] == [REASON.POSITION_LOST.value]


def test_votes_that_nobody_bears_out_among_peers_do_not_keep_the_sum_from_being_repeated() -> None:
    """p1 shows the server its vote and its peers none: with everyone here the next session repeats the sum."""
    table = opened_to("p0", "p1", scheme="mpc")
    table.tamper = lambda flight: (
        None if isinstance(flight.message, VoteShown) and flight.sender == P1 else flight.message
    )
    table.restart(SERVER)
    table.run()
    check_invariants(table)
    opened = messages(table, SessionOpened, receiver="p0")
    assert any(one.supported is not None for one in opened)
    ending = told(table, SERVER).ending
    assert isinstance(ending, RunFinished)
    assert len([one for one in messages(table, MaskedInput) if one.stamp.round == 0]) == 10
