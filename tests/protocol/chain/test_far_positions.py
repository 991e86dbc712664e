"""A few peers and the server would install a model of their own, at a position far away: nobody goes there.

Of nine peers three may collude; here two do. Their machines are the honest ones over disks that they made up together:
a state of their own making at a distant position, and a certificate that they signed themselves.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.refusals import refusal
from tests.support.snapshots import picture
from tests.support.tables.lying_sessions import signed_hello
from tests.support.tables.lying_table import (
    hand_over,
    hold,
    lying_table,
    participant,
    party_names,
    refuses,
    told,
    until,
)
from tests.support.tables.still_server import careless
from veilsum.protocol.chain.member import ChainTerms
from veilsum.protocol.chain.record import ChainRecord
from veilsum.protocol.chain.state import ChainState
from veilsum.protocol.chain.votes import Ballot, Certificate, Vote
from veilsum.protocol.crypto.boxes import seal_box
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import RunFinished
from veilsum.protocol.machines.session import Hello
from veilsum.protocol.schemes.ampc import common_state
from veilsum.protocol.schemes.ampc.decomposition import SessionSecrets, peers_box_key
from veilsum.protocol.schemes.ampc.messages import ChainProof, ModelHeld
from veilsum.protocol.secure_sum.uploads import MaskedInput
from veilsum.protocol.wire.codec import decode_message, encode_message
from veilsum.protocol.wire.defects import WireError
from veilsum.protocol.wire.envelope import join
from veilsum.protocol.wire.fields import DEFAULT_MAX_INTEGER
from veilsum.protocol.wire.messages import Message, Stamp, kind_of
from veilsum.roles.process.persistent_state import PersistentState
from veilsum.simulations.testing import check_invariants
from veilsum.simulations.testing.table import FINISHING, Table
from veilsum.simulations.testing.trace import InFlight

PEERS = ("mpc", "ampc")
SECURE = ("masked", *PEERS)
REASON = AbortReason
PARTIES, ROUNDS, FAR = 9, 2, 2**40
P0, P1, *HONEST = party_names(PARTIES)
COLLUDERS = (P0, P1)
VICTIM = HONEST[-1]
ELECTORATES = {
    "all": tuple(party_names(PARTIES)),
    "the two": COLLUDERS,
    "as few as can have a certificate": tuple(party_names(4)),
}


def vote_of(table: Table, name: PartyId, ballot: Ballot) -> Vote:
    anchor = table.federation.roster.anchor
    assert anchor is not None
    return Vote.cast(table.federation.identities[name], anchor.digest, ballot)


def signed_by(table: Table, ballot: Ballot, names: tuple[PartyId, ...]) -> Certificate:
    return Certificate(ballot, {name: vote_of(table, name, ballot).signature for name in names})


def made_up(table: Table, position: int, electorate: tuple[PartyId, ...]) -> ChainRecord:
    """What the two would have others hold: a crafted model far away, voted for by themselves."""
    anchor = table.federation.roster.anchor
    assert anchor is not None
    crafted = np.full(table.federation.parameters.dimension, 7, dtype=np.float32)
    state = ChainState.of(anchor.chain, position, bytes(32), crafted)
    ballot = Ballot(position, state.before, state.hash, electorate, electorate)
    sealed = signed_by(table, ballot, COLLUDERS)
    public = signed_by(table, ballot.without_hashes(), COLLUDERS)
    if table.federation.scheme.server_holds_model:
        public = sealed
    return ChainRecord(
        position, state, public, sealed, votes_here=True, anchor=anchor.digest, chain=anchor.chain
    )


def disk_of(record: ChainRecord, *, of_server_without_model: bool = False) -> PersistentState:
    kept = replace(record, state=None, sealed_certificate=None) if of_server_without_model else record
    return PersistentState(record.position, record.known_state.model, chain=kept)


def colluding(scheme: str, electorate: tuple[PartyId, ...], position: int) -> Table:
    """All have committed the first round when the server stops, and the two get themselves other disks."""
    table = lying_table(scheme, PARTIES, rounds=ROUNDS, dimension=PARTIES)
    while any(table.disks[name].rounds_done < 1 for name in table.participants):
        table.deliver(table.wire[0])
    table.wire.clear()
    table.crash(SERVER)
    table.liars.update(COLLUDERS)
    for name in COLLUDERS:
        table.crash(name)
        table.disks[name] = disk_of(made_up(table, position, electorate))
    return table


def server_lies_too(table: Table) -> None:
    """It has what the two have on their disks, without a model where it holds none."""
    record = table.disks[P0].chain
    assert record is not None
    table.liars.add(SERVER)
    holds = table.federation.scheme.server_holds_model
    table.disks[SERVER] = disk_of(record, of_server_without_model=not holds)


def restart(table: Table) -> None:
    for name in list(table.machines):
        if name in table.crashed:
            table.restart(name)


def finish_without_the_two(table: Table) -> None:
    """The server has its true disk; seven of nine are enough voters, and everyone of them gets to the last round."""
    table.run()
    check_invariants(table)
    refused = {(one.error.culprit, one.error.reason) for one in table.trace.refusals if one.party == SERVER}
    assert refused == {(name, REASON.BAD_CERTIFICATE) for name in COLLUDERS}
    endings = [told(table, name).ending for name in (SERVER, *HONEST)]
    assert all(isinstance(ending, RunFinished) and ending.rounds == ROUNDS for ending in endings)
    assert [one.members for one in told(table, SERVER).commits] == [table.participants, tuple(HONEST)]
    assert len({models_of(table, name) for name in HONEST}) == 1


def models_of(table: Table, name: PartyId) -> bytes:
    held, kept = participant(table, name).model, table.disks[name].model
    assert held is not None
    assert kept is not None
    assert held.tobytes() == kept.tobytes()
    return held.tobytes()


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("electorate", ELECTORATES.values(), ids=ELECTORATES)
@pytest.mark.parametrize("position", [2, DEFAULT_MAX_INTEGER])
def test_two_who_show_a_state_of_their_own_are_named_and_the_others_finish(
    scheme: str, electorate: tuple[PartyId, ...], position: int
) -> None:
    table = colluding(scheme, electorate, position)
    restart(table)
    finish_without_the_two(table)


def play_together(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server asks for no proof and has rounds without end; it goes on until it gives up or is believed."""
    rules = replace(table.federation.rules, rounds=DEFAULT_MAX_INTEGER)
    table.federation = replace(table.federation, own_rules=dict.fromkeys((SERVER, *COLLUDERS), rules))
    careless(monkeypatch)
    restart(table)
    while table.server.phase not in FINISHING and table.disks[VICTIM].rounds_done == 1:
        if table.wire:
            table.deliver(table.wire[0])
        else:
            assert table.advance()


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("electorate", ELECTORATES.values(), ids=ELECTORATES)
def test_server_and_two_install_nothing_and_the_others_finish_when_the_server_is_honest_again(
    scheme: str, electorate: tuple[PartyId, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody's disk changes by a bit, and everyone refuses in the name of the server."""
    table = colluding(scheme, electorate, FAR)
    true_disk = table.disks[SERVER].copy()
    server_lies_too(table)
    before = {name: picture(table.disks[name]) for name in HONEST}
    with monkeypatch.context() as lying:
        play_together(table, lying)
    refused = {(one.party, one.error.culprit, one.error.reason) for one in table.trace.refusals}
    assert {(name, SERVER, REASON.BAD_CERTIFICATE) for name in HONEST} <= refused
    assert {name: picture(table.disks[name]) for name in HONEST} == before
    assert {participant(table, name).rounds_done for name in HONEST} == {1}
    table.federation = replace(table.federation, own_rules={})
    table.crash(SERVER)
    table.wire.clear()
    table.disks[SERVER] = true_disk
    table.trace.refusals.clear()
    for name in table.participants:
        if table.machines[name].phase in FINISHING:
            table.crash(name)
    restart(table)
    finish_without_the_two(table)


@pytest.mark.parametrize("scheme", PEERS)
def test_without_the_check_of_certificates_the_same_lie_installs_their_model(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the victim's memory and on its disk: so the test above can fail."""
    monkeypatch.setattr(ChainTerms, "require_proved", lambda *_: None)
    monkeypatch.setattr(ChainTerms, "missing_voters", lambda *_: ())
    monkeypatch.setattr(common_state, "require_certificate", lambda *_: None)
    table = colluding(scheme, ELECTORATES["all"], FAR)
    server_lies_too(table)
    play_together(table, monkeypatch)
    assert table.disks[VICTIM].rounds_done == FAR
    assert set(np.frombuffer(models_of(table, VICTIM), dtype="<f4")) == {7}


def behind(scheme: str) -> tuple[Table, InFlight, ChainRecord]:
    """The victim comes in at position 1; it has heard everyone but p0, which is held back."""
    table = lying_table(scheme, PARTIES, rounds=ROUNDS, dimension=PARTIES, absent=[VICTIM])
    until(table, MaskedInput)
    table.restart(VICTIM)
    flight = hold(table, ModelHeld, VICTIM, P0)
    record = table.disks[HONEST[0]].chain
    assert record is not None
    assert record.sealed_certificate is not None
    return table, flight, record


def held_by_p0(
    table: Table, honest: InFlight, certificate: Certificate | None, vote: Vote | None
) -> ModelHeld:
    """What p0 says it holds, with this as the proof: it knows the key that peers seal it under."""
    secrets, stamp = participant(table, P0).secrets, honest.message.stamp
    assert isinstance(secrets, SessionSecrets)
    key = peers_box_key(secrets.group, stamp, P0, "proof")
    box = seal_box(key, join(encode_message(ChainProof(stamp, certificate, vote))), b"")
    assert isinstance(honest.message, ModelHeld)
    return replace(honest.message, proof=box)


@pytest.mark.parametrize("scheme", PEERS)
@pytest.mark.parametrize(
    "lie",
    ["far", "their own", "few electors", "stripped", "without hashes", "forged", "a vote", "a far vote"],
)
def test_a_sealed_proof_that_proves_nothing_is_refused_by_name_in_the_set_up(scheme: str, lie: str) -> None:
    table, honest, record = behind(scheme)
    true = record.sealed_certificate
    assert true is not None
    other = replace(true.ballot, after=bytes([7]) * 32)
    few = replace(other, electorate=COLLUDERS, survivors=COLLUDERS)
    far = replace(other, position=FAR)
    forking = replace(other, survivors=COLLUDERS)
    bad, forged = REASON.BAD_CERTIFICATE, REASON.BAD_SIGNATURE
    certificate, vote, reason = {
        "far": (signed_by(table, far, table.participants), None, bad),
        "their own": (signed_by(table, other, COLLUDERS), None, bad),
        "few electors": (signed_by(table, few, COLLUDERS), None, bad),
        "stripped": (replace(true, signatures=dict(list(true.signatures.items())[:3])), None, bad),
        "without hashes": (record.certificate, None, bad),
        "forged": (replace(true, ballot=other), None, forged),
        "a vote": (None, vote_of(table, P0, forking), bad),
        "a far vote": (None, vote_of(table, P0, far), bad),
    }[lie]
    before = picture(table.disks[VICTIM])
    refuses(table, VICTIM, P0, held_by_p0(table, honest, certificate, vote), reason)
    assert picture(table.disks[VICTIM]) == before
    hand_over(table, honest)
    table.run()
    endings = [told(table, name).ending for name in (SERVER, *table.participants)]
    assert all(isinstance(ending, RunFinished) and ending.rounds == ROUNDS for ending in endings)
    assert len({models_of(table, name) for name in table.participants}) == 1


@pytest.mark.parametrize("scheme", SECURE)
@pytest.mark.parametrize("claim", [1, FAR, DEFAULT_MAX_INTEGER])
@pytest.mark.parametrize("lie", ["alone", "fresh", "with a vote", "with the certificate of another position"])
def test_a_hello_far_ahead_is_refused_by_name_whatever_it_brings_along(
    scheme: str, claim: int, lie: str
) -> None:
    """Two say so in every session; the server names them, and seven of nine finish."""
    table = lying_table(scheme, PARTIES, rounds=ROUNDS, dimension=PARTIES)
    everyone = ELECTORATES["all"]

    def tamper(flight: InFlight) -> Message | None:
        message = flight.message
        if not isinstance(message, Hello) or flight.sender not in COLLUDERS:
            return message
        ballot = Ballot(min(claim, DEFAULT_MAX_INTEGER - 1) + 1, b"", bytes(32), everyone, everyone)
        told_so = signed_hello(
            table.federation, flight.sender, message, rounds_done=claim, fresh=lie == "fresh"
        )
        if lie == "with a vote":
            return replace(told_so, vote=vote_of(table, flight.sender, ballot))
        other = signed_by(table, replace(ballot, position=max(1, claim - 1)), everyone)
        return replace(told_so, certificate=other) if "certificate" in lie and claim > 1 else told_so

    table.tamper = tamper
    table.run()
    refused = {(one.error.culprit, one.error.reason) for one in table.trace.refusals if one.party == SERVER}
    assert refused == {(name, REASON.BAD_CERTIFICATE) for name in COLLUDERS}
    endings = [told(table, name).ending for name in (SERVER, *HONEST)]
    assert all(isinstance(ending, RunFinished) and ending.rounds == ROUNDS for ending in endings)
    assert {one.members for one in told(table, SERVER).commits} == {tuple(HONEST)}


@pytest.mark.parametrize("claim", [DEFAULT_MAX_INTEGER + 1, 2**63, 2**64 - 1])
def test_a_hello_with_more_rounds_than_can_be_counted_is_no_message(claim: int) -> None:
    """Its bytes are refused as they are read, typed, before any machine sees them."""
    table = lying_table("ampc", 5)
    honest = until(table, Hello, sender="p0").message
    assert isinstance(honest, Hello)
    largest = signed_hello(table.federation, "p0", honest, rounds_done=DEFAULT_MAX_INTEGER)
    body = join(encode_message(largest))
    packed = b"\xcf" + DEFAULT_MAX_INTEGER.to_bytes(8, "big")
    assert decode_message(kind_of(Hello), Stamp(), body) == largest
    assert body.count(packed) == 1
    with refusal(WireError, "rounds_done", reason=REASON.BAD_ENCODING):
        decode_message(kind_of(Hello), Stamp(), body.replace(packed, b"\xcf" + claim.to_bytes(8, "big")))
