"""Peers of AMPC and MPC that lie to each other: about seeds, shares, models, results and how far they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.tables.lying_sessions import proposed_session, signed_hello
from tests.support.tables.lying_table import (
    attempt_of,
    hand_over,
    hold,
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
from veilsum.protocol.agreed.parameters import ShareMode
from veilsum.protocol.crypto.boxes import open_box, seal_box
from veilsum.protocol.crypto.sealing import seal
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.early_messages import MESSAGES_PER_SENDER, early_share
from veilsum.protocol.machines.session import Hello, Invitation, SessionOpened, SessionTerms
from veilsum.protocol.schemes.ampc.messages import (
    SEEDS_DOMAIN,
    Aggregate,
    ModelGiven,
    ModelWanted,
    ResultDigest,
    SealedRecord,
    SeedsForNeighbour,
    ShareVector,
    StateContent,
    seal_label,
    sealed_digest,
)
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.codec import decode_message, encode_message
from veilsum.protocol.wire.envelope import join
from veilsum.protocol.wire.fields import DEFAULT_MAX_INTEGER
from veilsum.protocol.wire.messages import Message, Stamp, kind_of
from veilsum.roles.process.entropy import SeededEntropy
from veilsum.simulations.testing.table import Table
from veilsum.simulations.testing.trace import InFlight

PEERS = ("mpc", "ampc")
REASON = AbortReason
P0, P1, P2 = (PartyId(f"p{index}") for index in range(3))


def all_agree(table: Table) -> bool:
    table.run()
    return {told(table, name).commits[-1].model_hash for name in table.participants} == {
        told(table, P0).commits[-1].model_hash
    }


def sealed_seeds(table: Table, stamp_of: Message, plaintext: bytes, signer: PartyId = P0) -> SealedRecord:
    """Seeds from p0 to p1 as p0 itself, or someone else, would seal them."""
    label = seal_label(stamp_of.stamp, P0, P1)
    rsa = table.federation.identities[P1].public.rsa
    assert rsa is not None
    ciphertext = seal(rsa, plaintext, label, SeededEntropy(3))
    signing = table.federation.identities[signer].signing
    return SealedRecord(ciphertext, signing.sign(SEEDS_DOMAIN, sealed_digest(label, ciphertext)))


@pytest.mark.parametrize("scheme", PEERS)
@pytest.mark.parametrize("lie", ["signed by another", "altered", "sealed to another", "too many seeds"])
def test_seeds_that_are_not_what_they_should_be_are_refused(scheme: str, lie: str) -> None:
    table = lying_table(scheme, 5)
    flight = hold(table, SeedsForNeighbour, "p1", "p0")
    honest = flight.message
    assert isinstance(honest, SeedsForNeighbour)
    (for_p2,) = messages(table, SeedsForNeighbour, "p0", "p2")
    label = seal_label(honest.stamp, P0, P1)
    foreign = for_p2.sealed.ciphertext
    resigned = table.federation.identities[P0].signing.sign(SEEDS_DOMAIN, sealed_digest(label, foreign))
    sealed, reason = {
        "signed by another": (sealed_seeds(table, honest, bytes(64), P2), REASON.BAD_SIGNATURE),
        "altered": (replace(honest.sealed, ciphertext=foreign), REASON.BAD_SIGNATURE),
        "sealed to another": (SealedRecord(foreign, resigned), REASON.BAD_SEAL),
        "too many seeds": (sealed_seeds(table, honest, bytes(96)), REASON.BAD_SEAL),
    }[lie]
    refuses(table, "p1", "p0", replace(honest, sealed=sealed), reason)
    hand_over(table, flight)
    assert all_agree(table)


@pytest.mark.parametrize("scheme", PEERS)
def test_seeds_are_taken_once(scheme: str) -> None:
    table = lying_table(scheme, 5)
    later = hold(table, SeedsForNeighbour, "p1", "p2")
    (taken,) = messages(table, SeedsForNeighbour, "p0", "p1")
    refuses(table, "p1", "p0", taken, REASON.REPLAY)
    hand_over(table, later)
    assert all_agree(table)


def lying_seeds(table: Table, common: int, share: int) -> None:
    """p0 seals other seeds for p1 than it uses itself, or than it gives the others: so many wrong bytes of each."""

    def tamper(flight: InFlight) -> Message | None:
        message = flight.message
        if isinstance(message, SeedsForNeighbour) and (flight.sender, flight.receiver) == (P0, P1):
            machine: Any = attempt_of(table, "p0")
            true = machine._given[P1].reveal(), machine._common[P0].reveal()
            wrong = bytes(share) + true[0][share:] + bytes(common) + true[1][common:]
            return replace(message, sealed=sealed_seeds(table, message, wrong))
        return message

    table.tamper = tamper


@pytest.mark.parametrize("scheme", PEERS)
def test_different_share_seeds_at_the_two_ends_are_seen_in_the_tags(scheme: str) -> None:
    """The shares do not cancel, and the sum is not taken for a result."""
    table = lying_table(scheme, 5)
    lying_seeds(table, common=0, share=32)
    table.run()
    assert nobody_has_a_result(table)
    assert reasons(table) == {REASON.SUM_FALSIFIED}


@pytest.mark.parametrize("lie", ["does not open", "short", "odd", "twice", "from the server"])
def test_share_vectors_that_are_no_shares_are_refused(lie: str) -> None:
    table = lying_table("ampc", 5, share_mode=ShareMode.TENSOR)
    flight = hold(table, ShareVector, "p1", "p0")
    honest = flight.message
    assert isinstance(honest, ShareVector)
    (taken,) = messages(table, ShareVector, "p2", "p1")
    giver = attempt_of(table, "p0")
    key = giver._shares._box_secret(P0, P1)  # type: ignore[attr-defined]  # the liar knows its own keys
    box, reason = {
        "does not open": (bytes(80), REASON.BAD_SEAL),
        "short": (seal_box(key, bytes(8), b""), REASON.BAD_VECTOR),
        "odd": (seal_box(key, bytes(63), b""), REASON.BAD_VECTOR),
        "twice": (taken.box.tobytes(), REASON.REPLAY),
        "from the server": (honest.box.tobytes(), REASON.UNEXPECTED_MESSAGE),
    }[lie]
    sender = {"from the server": "server", "twice": "p2"}.get(lie, "p0")
    refuses(table, "p1", sender, ShareVector(honest.stamp, np.frombuffer(box, dtype=np.uint8)), reason)
    hand_over(table, flight)
    assert all_agree(table)


@pytest.mark.parametrize("scheme", PEERS)
def test_a_lying_digest_is_outvoted_and_blamed_on_nobody(scheme: str) -> None:
    """Four of five vote for one state: what the fifth says of its result stops neither them nor itself."""
    table = lying_table(scheme, 5, rounds=2)

    def tamper(flight: InFlight) -> Message | None:
        if isinstance(flight.message, ResultDigest) and flight.sender == P0:
            return replace(flight.message, result=bytes(32))
        return flight.message

    table.tamper = tamper
    table.run()
    honest = table.participants[1:]
    assert {len(told(table, name).commits) for name in honest} == {2}
    assert not [failure for name in honest for failure in told(table, name).failures]
    assert all_agree(table)


def test_a_digest_that_lies_to_one_peer_costs_that_peer_nothing() -> None:
    table = lying_table("ampc", 5, rounds=3)

    def tamper(flight: InFlight) -> Message | None:
        message = flight.message
        if isinstance(message, ResultDigest) and (flight.sender, flight.receiver) == (P0, P1):
            return replace(message, result=bytes(32)) if message.stamp.round == 0 else message
        return message

    table.tamper = tamper
    table.run()
    assert [commit.round for commit in told(table, P1).commits] == [0, 1, 2]
    assert all_agree(table)


@pytest.mark.parametrize("scheme", PEERS)
def test_digests_of_those_who_are_not_in_the_sum_count_for_nothing(scheme: str) -> None:
    table = lying_table(scheme, 6)
    table.tamper = lambda flight: (
        None if isinstance(flight.message, MaskedInput) and flight.sender == "p5" else flight.message
    )
    aggregate = until(table, Aggregate, "p0")
    table.drop(aggregate)
    hand_over(table, aggregate)
    digest = ResultDigest(aggregate.message.stamp, bytes(32), bytes(64), b"")
    refuses(table, "p0", "p5", digest, REASON.SURVIVOR_LIST)
    refuses(table, "server", "p5", digest, REASON.SURVIVOR_LIST)
    table.run()
    assert all(told(table, name).commits for name in table.participants[:5])


@pytest.mark.parametrize("scheme", ("masked", *PEERS))
@pytest.mark.parametrize("claim", [1, 10**9, DEFAULT_MAX_INTEGER])
def test_one_who_claims_to_be_ahead_is_refused_by_name_and_the_others_go_on(scheme: str, claim: int) -> None:
    """A position counts with its certificate: the server turns the claim away, and no set-up waits for anyone."""
    table = lying_table(scheme, 5, rounds=2)

    def tamper(flight: InFlight) -> Message | None:
        message = flight.message
        if not isinstance(message, Hello) or flight.sender != P0:
            return message
        return signed_hello(table.federation, "p0", message, rounds_done=claim)

    table.tamper = tamper
    table.run()
    refused = {(one.error.culprit, one.error.reason) for one in table.trace.refusals}
    assert (P0, REASON.BAD_CERTIFICATE) in refused
    others = table.participants[1:]
    assert {tuple(commit.round for commit in told(table, name).commits) for name in others} == {(0, 1)}
    assert told(table, SERVER).commits[0].members == others
    assert not messages(table, ModelWanted)


@pytest.mark.parametrize("scheme", ("masked", *PEERS))
@pytest.mark.parametrize("claim", [1, DEFAULT_MAX_INTEGER])
def test_a_claim_that_the_server_lets_through_is_no_vote_and_moves_nobody(scheme: str, claim: int) -> None:
    """The server and p0 together: there is no way to the claimed position, nor a session behind it."""
    table = lying_table(scheme, 5)
    opened = proposed_session(table, 3, *table.participants)
    liar = Hello(Stamp(), bytes([3]) * 32, opened.hellos[P0])
    claimed = signed_hello(table.federation, "p0", liar, rounds_done=claim).hello
    terms = SessionTerms(table.federation.roster, table.federation.parameters, bytes([3]) * 32)
    far, near = (
        SessionOpened(Stamp(session.id, position, 3), session.hellos)
        for position in (claim, 0)
        for session in [terms.open({**opened.hellos, P0: claimed}, position)]
    )
    for name in table.participants[1:]:
        refuses(table, name, "server", far, REASON.BAD_CERTIFICATE)
        refuses(table, name, "server", near, REASON.REPLAY)
        held = participant(table, name)
        assert held.rounds_done == 0
        assert held.model is not None
        assert held.model.tobytes() == table.federation.initial_model.tobytes()


def joining_table(scheme: str) -> Table:
    """p4 comes in while round 0 is under way, and asks p0 for the model of round 1."""
    table = lying_table(scheme, 5, rounds=2, absent=["p4"])
    until(table, MaskedInput)
    table.restart("p4")
    return table


@pytest.mark.parametrize("scheme", PEERS)
@pytest.mark.parametrize(
    "lie", ["another model", "another memory", "another past", "another length", "no state", "not asked"]
)
def test_a_joiner_fed_a_false_state_does_not_take_it(scheme: str, lie: str) -> None:
    table = joining_table(scheme)
    honest = until(table, ModelGiven, "p4").message
    assert isinstance(honest, ModelGiven)
    states: Any = attempt_of(table, "p0")._states  # type: ignore[attr-defined]  # the liar knows its own keys
    key = states._box_secret(P0, PartyId("p4"))
    plain = open_box(key, honest.box.tobytes(), b"")
    true = decode_message(kind_of(StateContent), states._stamp, plain)
    assert isinstance(true, StateContent)
    content, reason = {
        "another model": (replace(true, model=true.model + np.float32(1)), REASON.WRONG_MODEL),
        "another memory": (replace(true, memory=np.ones(3, dtype=np.uint8)), REASON.WRONG_MODEL),
        "another past": (replace(true, before=bytes(32)), REASON.WRONG_MODEL),
        "another length": (replace(true, model=true.model[:-1]), REASON.BAD_VECTOR),
        "no state": (None, REASON.BAD_SEAL),
        "not asked": (true, REASON.UNEXPECTED_MESSAGE),
    }[lie]
    box = bytes(40) if content is None else seal_box(key, join(encode_message(content)), b"")
    message = ModelGiven(honest.stamp, np.frombuffer(box, dtype=np.uint8))
    refuses(table, "p4", "p1" if lie == "not asked" else "p0", message, reason)
    assert all_agree(table)


@pytest.mark.parametrize("scheme", PEERS)
def test_the_model_is_given_once_to_whoever_asks(scheme: str) -> None:
    table = joining_table(scheme)
    flight = until(table, ModelWanted, "p0", "p4")
    table.drop(flight)
    hand_over(table, flight)
    refuses(table, "p0", "p4", flight.message, REASON.REPLAY)
    assert all_agree(table)
    assert len(messages(table, ModelGiven)) == 1


def test_a_flood_of_early_messages_crowds_out_nobody() -> None:
    """Each sender has its own small share of the waiting room."""
    table = lying_table("ampc", 5)
    until(table, Invitation, "p1")
    junk = ModelWanted(Stamp())
    for _ in range(MESSAGES_PER_SENDER):
        assert say(table, "p0", "p1", junk) is None
    refuses(table, "p1", "p0", junk, REASON.UNEXPECTED_MESSAGE)
    assert say(table, "p2", "p1", junk) is None
    assert all_agree(table)


def test_early_messages_are_bounded_in_bytes_too() -> None:
    """What may wait follows from the agreed dimension; more is refused in the name of its sender, and not held."""
    table = lying_table("ampc", 5)
    until(table, Invitation, "p1")
    share = early_share(table.federation.rules.parameters, 5)
    fits, too_large = (
        ShareVector(Stamp(), np.zeros(size, "|u1")) for size in (share.bytes // 2, share.bytes)
    )
    refuses(table, "p1", "p0", too_large, REASON.UNEXPECTED_MESSAGE)
    assert say(table, "p0", "p1", fits) is None
    refuses(table, "p1", "p0", fits, REASON.UNEXPECTED_MESSAGE)
    assert say(table, "p2", "p1", fits) is None
    assert all_agree(table)
