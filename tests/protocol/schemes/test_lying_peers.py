"""Peers of AMPC and MPC that lie to each other: about seeds, shares, models, results and how far they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.tables.lying_table import Flight, LyingTable
from veilsum.protocol.agreed.parameters import ShareMode
from veilsum.protocol.crypto.boxes import seal_box
from veilsum.protocol.crypto.sealing import seal
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.participant import EARLY_MESSAGES_PER_SENDER
from veilsum.protocol.machines.session import Hello, Invitation, RoundOpened, SessionTerms
from veilsum.protocol.schemes.ampc.messages import (
    SEEDS_DOMAIN,
    Aggregate,
    ModelGiven,
    ModelHeld,
    ModelWanted,
    ResultDigest,
    SealedRecord,
    SeedsForNeighbour,
    ShareVector,
    seal_label,
    sealed_digest,
)
from veilsum.protocol.schemes.ampc.setup import SessionSetup
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.messages import Message, Stamp
from veilsum.roles.process.entropy import SeededEntropy

PEERS = ("mpc", "ampc")
REASON = AbortReason
P0, P1, P2 = (PartyId(f"p{index}") for index in range(3))


def all_agree(table: LyingTable) -> bool:
    table.run()
    return {table.told[name].commits[-1].model_hash for name in table.names} == {
        table.told[P0].commits[-1].model_hash
    }


def sealed_seeds(
    table: LyingTable, stamp_of: Message, plaintext: bytes, signer: PartyId = P0
) -> SealedRecord:
    """Seeds from p0 to p1 as p0 itself, or someone else, would seal them."""
    label = seal_label(stamp_of.stamp, P0, P1)
    rsa = table.identities[P1].public.rsa
    assert rsa is not None
    ciphertext = seal(rsa, plaintext, label, SeededEntropy(3))
    signing = table.identities[signer].signing
    return SealedRecord(ciphertext, signing.sign(SEEDS_DOMAIN, sealed_digest(label, ciphertext)))


@pytest.mark.parametrize("scheme", PEERS)
@pytest.mark.parametrize("lie", ["signed by another", "altered", "sealed to another", "too many seeds"])
def test_seeds_that_are_not_what_they_should_be_are_refused(scheme: str, lie: str) -> None:
    table = LyingTable(scheme, 5)
    flight = table.hold(SeedsForNeighbour, "p1", "p0")
    honest = flight.message
    assert isinstance(honest, SeedsForNeighbour)
    (for_p2,) = table.messages(SeedsForNeighbour, "p0", "p2")
    label = seal_label(honest.stamp, P0, P1)
    foreign = for_p2.sealed.ciphertext
    resigned = table.identities[P0].signing.sign(SEEDS_DOMAIN, sealed_digest(label, foreign))
    sealed, reason = {
        "signed by another": (sealed_seeds(table, honest, bytes(64), P2), REASON.BAD_SIGNATURE),
        "altered": (replace(honest.sealed, ciphertext=foreign), REASON.BAD_SIGNATURE),
        "sealed to another": (SealedRecord(foreign, resigned), REASON.BAD_SEAL),
        "too many seeds": (sealed_seeds(table, honest, bytes(96)), REASON.BAD_SEAL),
    }[lie]
    table.refuses("p1", "p0", replace(honest, sealed=sealed), reason)
    table.deliver(flight)
    assert all_agree(table)


@pytest.mark.parametrize("scheme", PEERS)
def test_seeds_are_taken_once(scheme: str) -> None:
    table = LyingTable(scheme, 5)
    later = table.hold(SeedsForNeighbour, "p1", "p2")
    (taken,) = table.messages(SeedsForNeighbour, "p0", "p1")
    table.refuses("p1", "p0", taken, REASON.REPLAY)
    table.deliver(later)
    assert all_agree(table)


def test_different_bias_seeds_for_different_peers_end_the_session() -> None:
    """The key of the hash that all peers compare comes from every bias seed, so a second seed cannot stay unseen."""
    table = LyingTable("ampc", 5)

    def tamper(flight: Flight) -> Message | None:
        message = flight.message
        if isinstance(message, SeedsForNeighbour) and (flight.sender, flight.receiver) == (P0, P1):
            return replace(message, sealed=sealed_seeds(table, message, bytes(64)))
        return message

    table.tamper = tamper
    table.run()
    assert table.nobody_has_a_result()
    assert not table.messages(MaskedInput)
    assert REASON.WRONG_MODEL in table.reasons()


def test_different_share_seeds_at_the_two_ends_are_seen_in_the_check_coordinate() -> None:
    """Under `mpc` no bias tells; the shares do not cancel, and the sum is not taken for a result."""
    table = LyingTable("mpc", 5)

    def tamper(flight: Flight) -> Message | None:
        message = flight.message
        if isinstance(message, SeedsForNeighbour) and (flight.sender, flight.receiver) == (P0, P1):
            return replace(message, sealed=sealed_seeds(table, message, bytes(32)))
        return message

    table.tamper = tamper
    table.run()
    assert table.nobody_has_a_result()
    assert table.reasons() == {REASON.CHECK_FAILED}


@pytest.mark.parametrize("lie", ["does not open", "short", "odd", "twice", "from the server"])
def test_share_vectors_that_are_no_shares_are_refused(lie: str) -> None:
    table = LyingTable("ampc", 5, share_mode=ShareMode.TENSOR)
    flight = table.hold(ShareVector, "p1", "p0")
    honest = flight.message
    assert isinstance(honest, ShareVector)
    (taken,) = table.messages(ShareVector, "p2", "p1")
    giver = table.attempt_of("p0")
    key = giver._shares._box_key(P0, P1, P1)  # type: ignore[attr-defined]  # the liar knows its own keys
    box, reason = {
        "does not open": (bytes(80), REASON.BAD_SEAL),
        "short": (seal_box(key, bytes(8), b""), REASON.BAD_VECTOR),
        "odd": (seal_box(key, bytes(63), b""), REASON.BAD_VECTOR),
        "twice": (taken.box.tobytes(), REASON.REPLAY),
        "from the server": (honest.box.tobytes(), REASON.UNEXPECTED_MESSAGE),
    }[lie]
    sender = {"from the server": "server", "twice": "p2"}.get(lie, "p0")
    table.refuses("p1", sender, ShareVector(honest.stamp, np.frombuffer(box, dtype=np.uint8)), reason)
    table.deliver(flight)
    assert all_agree(table)


@pytest.mark.parametrize("scheme", PEERS)
@pytest.mark.parametrize("field", ["aggregate", "result"])
def test_a_lying_digest_leaves_everyone_who_hears_it_without_a_result(scheme: str, field: str) -> None:
    """A lie about the sum cannot be told from a lying server; a lie about the result names the peer."""
    table = LyingTable(scheme, 5)

    def tamper(flight: Flight) -> Message | None:
        if isinstance(flight.message, ResultDigest) and flight.sender == P0:
            return replace(flight.message, **{field: bytes(32)})
        return flight.message

    table.tamper = tamper
    table.run()
    honest = table.names[1:]
    assert table.nobody_has_a_result(*honest)
    culprits = {failure.culprit for name in honest for failure in table.told[name].failures}
    assert table.reasons(*honest) == {REASON.AGGREGATES_DIFFER}
    assert culprits == {SERVER if field == "aggregate" else P0}


def test_a_digest_that_lies_to_one_peer_costs_that_peer_the_round_and_no_more() -> None:
    """p1 ends round 0 without a result, sits out the round under way, returns, and all end with the same model."""
    table = LyingTable("ampc", 5, rounds=3)

    def tamper(flight: Flight) -> Message | None:
        message = flight.message
        if isinstance(message, ResultDigest) and (flight.sender, flight.receiver) == (P0, P1):
            return replace(message, result=bytes(32)) if message.stamp.round == 0 else message
        return message

    table.tamper = tamper
    table.run()
    assert [failure.reason for failure in table.told[P1].failures][:1] == [REASON.AGGREGATES_DIFFER]
    assert [commit.round for commit in table.told[P1].commits] == [2]
    assert all_agree(table)


@pytest.mark.parametrize("scheme", PEERS)
def test_digests_of_those_who_are_not_in_the_sum_count_for_nothing(scheme: str) -> None:
    table = LyingTable(scheme, 6)
    table.tamper = lambda flight: (
        None if isinstance(flight.message, MaskedInput) and flight.sender == "p5" else flight.message
    )
    aggregate = table.until(Aggregate, "p0")
    table.drop(aggregate)
    table.deliver(aggregate)
    digest = ResultDigest(aggregate.message.stamp, bytes(32), bytes(32))
    table.refuses("p0", "p5", digest, REASON.SURVIVOR_LIST)
    table.refuses("server", "p5", digest, REASON.SURVIVOR_LIST)
    table.run()
    assert all(table.told[name].commits for name in table.names[:5])


@pytest.mark.parametrize("scheme", PEERS)
@pytest.mark.parametrize("claim", [1, 10**9])
def test_one_peer_that_claims_to_be_ahead_does_not_replace_the_model_of_the_others(
    scheme: str, claim: int
) -> None:
    """Being behind is believed only if more than half of the others say so."""
    table = LyingTable(scheme, 5)

    def tamper(flight: Flight) -> Message | None:
        message = flight.message
        if not isinstance(message, Hello) or flight.sender != P0:
            return message
        terms = SessionTerms(table.roster, table.parameters, message.invitation)
        record = message.hello
        digest = terms.hello_digest(P0, record.nonce, record.box_key, claim)
        signature = table.identities[P0].signing.sign("hello", digest)
        table.participant("p0")._greeting = replace(  # type: ignore[type-var]  # the liar believes itself
            table.participant("p0")._greeting,
            hello=replace(record, rounds_done=claim, signature=signature),
        )
        return replace(message, hello=replace(record, rounds_done=claim, signature=signature))

    table.tamper = tamper
    table.run()
    assert table.nobody_has_a_result()
    for name in table.names[1:]:
        peer = table.participant(name)
        assert peer.rounds_done == 0
        assert peer.model is not None
        assert peer.model.tobytes() == table.initial_model.tobytes()
    assert REASON.WRONG_MODEL in table.reasons(*table.names[1:])
    assert not table.messages(ModelWanted)


@pytest.mark.parametrize("scheme", PEERS)
def test_a_peer_cannot_tell_the_server_that_the_run_is_over(scheme: str) -> None:
    """The server takes the number of rounds from the signed hellos, not from whoever speaks last."""
    table = LyingTable(scheme, 5, rounds=3)
    honest = table.until(ModelHeld, "server").message
    assert isinstance(honest, ModelHeld)
    table.refuses("server", "p0", replace(honest, rounds_done=3), REASON.WRONG_ROUND)
    table.refuses("p1", "p0", replace(honest, rounds_done=3), REASON.WRONG_ROUND)
    table.run()
    assert [commit.round for commit in table.told[P1].commits] == [0, 1, 2]


@pytest.mark.parametrize("scheme", PEERS)
def test_a_peer_that_claims_another_model_stops_the_session_and_is_named(scheme: str) -> None:
    table = LyingTable(scheme, 5)

    def tamper(flight: Flight) -> Message | None:
        if isinstance(flight.message, ModelHeld) and flight.sender == P0:
            return replace(flight.message, keyed_hash=bytes(32))
        return flight.message

    table.tamper = tamper
    table.run()
    honest = table.names[1:]
    assert table.nobody_has_a_result(*honest)
    named = {(one.reason, one.culprit) for name in honest for one in table.told[name].failures}
    assert (REASON.WRONG_MODEL, "p0") in named
    assert not table.messages(MaskedInput, "p1")


@pytest.mark.parametrize("scheme", PEERS)
def test_a_peer_whose_set_up_failed_enters_no_round(scheme: str) -> None:
    """p0 lies to p1 alone, so the server, which heard nothing of it, opens the round."""
    table = LyingTable(scheme, 5)

    def tamper(flight: Flight) -> Message | None:
        message = flight.message
        if isinstance(message, ModelHeld) and (flight.sender, flight.receiver) == (P0, P1):
            return replace(message, keyed_hash=bytes(32))
        return message

    table.tamper = tamper
    opened = table.until(RoundOpened, "p1").message
    while table.participant("p1").machine is not None:
        table.step()
    table.refuses("p1", "server", opened, REASON.WRONG_SESSION)
    table.run()
    assert not [commit for commit in table.told[P1].commits if commit.attempt == 0]


def joining_table(scheme: str) -> LyingTable:
    """p4 comes in while round 0 is under way, and asks p0 for the model of round 1."""
    table = LyingTable(scheme, 5, rounds=2, absent=["p4"])
    table.until(MaskedInput)
    table.seat("p4")
    return table


@pytest.mark.parametrize("scheme", PEERS)
@pytest.mark.parametrize("lie", ["another model", "another length", "does not open", "not asked"])
def test_a_joiner_fed_a_false_model_does_not_take_it(scheme: str, lie: str) -> None:
    table = joining_table(scheme)
    honest = table.until(ModelGiven, "p4").message
    assert isinstance(honest, ModelGiven)
    giver = table.attempt_of("p0")
    assert isinstance(giver, SessionSetup)
    key = giver._box_secret(P0, PartyId("p4"), PartyId("p4"))
    box, sender, reason = {
        "another model": (seal_box(key, bytes(24), b""), "p0", REASON.WRONG_MODEL),
        "another length": (seal_box(key, bytes(20), b""), "p0", REASON.BAD_VECTOR),
        "does not open": (bytes(40), "p0", REASON.BAD_SEAL),
        "not asked": (honest.box.tobytes(), "p1", REASON.UNEXPECTED_MESSAGE),
    }[lie]
    message = ModelGiven(honest.stamp, np.frombuffer(box, dtype=np.uint8))
    table.refuses("p4", sender, message, reason)
    assert all_agree(table)


@pytest.mark.parametrize("scheme", PEERS)
def test_the_model_is_given_once_and_only_to_those_who_are_behind(scheme: str) -> None:
    table = joining_table(scheme)
    flight = table.until(ModelWanted, "p0", "p4")
    table.refuses("p0", "p1", flight.message, REASON.UNEXPECTED_MESSAGE)
    table.drop(flight)
    table.deliver(flight)
    table.refuses("p0", "p4", flight.message, REASON.REPLAY)
    assert all_agree(table)
    assert len(table.messages(ModelGiven)) == 1


def test_a_flood_of_early_messages_crowds_out_nobody() -> None:
    """Each sender has its own small share of the waiting room."""
    table = LyingTable("ampc", 5)
    table.until(Invitation, "p1")
    junk = ModelWanted(Stamp())
    for _ in range(EARLY_MESSAGES_PER_SENDER):
        assert table.say("p0", "p1", junk) is None
    table.refuses("p1", "p0", junk, REASON.UNEXPECTED_MESSAGE)
    assert table.say("p2", "p1", junk) is None
    assert all_agree(table)
