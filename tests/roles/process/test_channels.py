"""Sealed channels: what one life seals, only the life it was meant for opens, and only unchanged."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.crypto.identity import Identity, Role
from veilsum.protocol.crypto.signing import SigningKey
from veilsum.protocol.identifiers import PartyId
from veilsum.roles.process.channels import LIVES_KEPT, Channels
from veilsum.roles.process.entropy import SeededEntropy
from veilsum.transport.framing.datagrams import Ack, Chunk, Head, Probe, associated_data
from veilsum.transport.framing.endpoint import Endpoint

ENTROPY = SeededEntropy(1)
IDENTITIES = {
    name: Identity(PartyId(name), Role.CLIENT, SigningKey.generate(ENTROPY))
    for name in ("alice", "bob", "eve")
}
ROSTER = Roster(1, (IDENTITIES["alice"].public, IDENTITIES["bob"].public))
ROSTER_WITH_EVE = Roster(2, tuple(one.public for one in IDENTITIES.values()))
NO_LIFE = bytes(8)


@dataclass
class Correspondent:
    """One life of one party."""

    name: str
    life: bytes
    channels: Channels

    @classmethod
    def start(cls, name: str, roster: Roster = ROSTER, federation: str = "test") -> Correspondent:
        life = ENTROPY(8)
        return cls(name, life, Channels(IDENTITIES[name], roster, federation, life, ENTROPY))

    def header(self, other: Correspondent, kind: str = "chunk", number: int = 1) -> bytes:
        head = Head(self.life, other.life, 1, number)
        made = {"probe": Probe(head, 0), "ack": Ack(head), "chunk": Chunk(head, 0, 0, 5, 5, 0)}[kind]
        return associated_data(made.header(), self.name, other.name)

    def seal(self, other: Correspondent, data: bytes = b"", kind: str = "chunk") -> tuple[bytes, bytes]:
        header = self.header(other, kind)
        return header, self.channels.seal_chunk(other.name, header, data)

    def opens(self, sender: str, datagram: tuple[bytes, bytes]) -> bytes | None:
        return self.channels.open_chunk(sender, *datagram)


def introduced() -> tuple[Correspondent, Correspondent]:
    """Alice has asked, Bob has answered: both know each other's key."""
    alice, bob = Correspondent.start("alice"), Correspondent.start("bob")
    assert bob.opens("alice", alice.seal(bob, kind="probe")) == b""
    assert alice.opens("bob", bob.seal(alice, b"answer", "ack")) == b"answer"
    return alice, bob


@given(data=st.binary(max_size=200))
def test_a_chunk_opens_at_its_receiver_and_shows_nothing_on_the_way(data: bytes) -> None:
    alice, bob = introduced()
    header, sealed = alice.seal(bob, data)
    assert bob.opens("alice", (header, sealed)) == data
    assert len(data) < 8 or data not in sealed


@given(at=st.integers(min_value=0), flip=st.integers(1, 255))
def test_a_changed_datagram_opens_nowhere(at: int, flip: int) -> None:
    """One changed byte in header or body, for each of the three datagrams, is enough."""
    alice, bob = introduced()
    for kind, data in (("probe", b""), ("ack", b"held"), ("chunk", b"bytes")):
        header, sealed = alice.seal(bob, data, kind)
        whole = bytearray(header + sealed)
        whole[at % len(whole)] ^= flip
        assert bob.opens("alice", (bytes(whole[: len(header)]), bytes(whole[len(header) :]))) is None


@given(
    sender=st.sampled_from(["alice", "bob", "eve", "", "\ud7ff"]),
    header=st.binary(max_size=120),
    sealed=st.binary(max_size=200),
)
def test_anything_at_all_is_dropped_and_never_an_error(sender: str, header: bytes, sealed: bytes) -> None:
    """Neither random bytes nor random bodies under a well-formed header open or raise."""
    alice, bob = introduced()
    assert bob.opens(sender, (header, sealed)) is None
    for kind in ("probe", "ack", "chunk"):
        assert bob.opens(sender, (alice.header(bob, kind), sealed)) is None


def test_only_the_addressed_life_opens_a_chunk() -> None:
    """Not a third party of the roster, not the receiver's next life, and not its sender when it is reflected."""
    alice, bob = introduced()
    header, sealed = alice.seal(bob, b"content")
    eve, reborn = Correspondent.start("eve", ROSTER_WITH_EVE), Correspondent.start("bob")
    eve.opens("alice", alice.seal(eve, kind="probe"))
    reborn.opens("alice", alice.seal(reborn, kind="probe"))
    assert eve.opens("alice", (header, sealed)) is None
    assert reborn.opens("alice", (header, sealed)) is None
    assert alice.opens("bob", (header, sealed)) is None
    assert alice.opens("alice", (header, sealed)) is None


def test_nobody_outside_the_roster_is_listened_to(caplog: pytest.LogCaptureFixture) -> None:
    """Eve's valid signature counts for nothing where her key is not listed, and is told once."""
    bob, eve = Correspondent.start("bob"), Correspondent.start("eve", ROSTER_WITH_EVE)
    for _ in range(3):
        assert bob.opens("eve", eve.seal(bob, kind="probe")) is None
    assert [record.message for record in caplog.records if "eve is not in roster" in record.message] == [
        caplog.records[0].message
    ]


def test_eve_cannot_introduce_herself_as_alice() -> None:
    """A probe or an ack under another name needs that identity's signature."""
    alice, bob = introduced()
    eve = Correspondent.start("eve", ROSTER_WITH_EVE)
    eve.opens("bob", bob.seal(eve, kind="probe"))
    eve.name = "alice"
    for kind in ("probe", "ack"):
        assert bob.opens("alice", eve.seal(bob, b"lie", kind)) is None
    assert bob.opens("alice", alice.seal(bob, b"still open")) == b"still open"


def test_two_keys_for_one_life_are_refused_and_the_first_stays() -> None:
    """A party that equivocates about its key cannot cut its own line either."""
    alice, bob = introduced()
    twin = Correspondent(
        "alice", alice.life, Channels(IDENTITIES["alice"], ROSTER, "test", alice.life, ENTROPY)
    )
    assert bob.opens("alice", twin.seal(bob, kind="probe")) is None
    assert bob.opens("alice", alice.seal(bob, b"first")) == b"first"


def test_federations_with_the_same_parties_do_not_mix() -> None:
    bob = Correspondent.start("bob")
    alice = Correspondent.start("alice", federation="another")
    assert bob.opens("alice", alice.seal(bob, kind="probe")) is None


def test_replayed_introductions_of_old_lives_do_not_push_out_a_life_that_speaks() -> None:
    """Lives that have sealed something are kept before those that only introduced themselves."""
    alice, bob = introduced()
    assert bob.opens("alice", alice.seal(bob, b"proof")) == b"proof"
    for _ in range(3 * LIVES_KEPT):
        bob.opens("alice", Correspondent.start("alice").seal(bob, kind="probe"))
    assert bob.opens("alice", alice.seal(bob, b"still here")) == b"still here"


def test_what_is_addressed_to_a_forgotten_life_is_lost_and_not_an_error() -> None:
    alice, stranger = Correspondent.start("alice"), Correspondent.start("bob")
    assert alice.seal(stranger, b"anything") == (alice.header(stranger), b"")


def test_framing_over_channels_delivers_and_survives_a_restart_of_the_receiver() -> None:
    """Two endpoints talk through their channels; after bob starts anew, alice's next message arrives as well."""
    alice, bob = Correspondent.start("alice"), Correspondent.start("bob")
    ends = {one.name: _endpoint(one) for one in (alice, bob)}
    assert _exchange(ends, b"before") == b"before"
    ends["bob"] = _endpoint(Correspondent.start("bob"))
    assert _exchange(ends, b"after") == b"after"


def _endpoint(party: Correspondent) -> Endpoint:
    return Endpoint(
        party.name, party.life, seal_chunk=party.channels.seal_chunk, open_chunk=party.channels.open_chunk
    )


def _exchange(ends: dict[str, Endpoint], message: bytes) -> bytes | None:
    ends["alice"].send("bob", [message], give_up_at=1000.0)
    now = 0.0
    while now < 100.0:
        now += 0.1
        for name, end in ends.items():
            end.handle_deadline(now)
            while (datagram := end.next_datagram(now)) is not None:
                ends[datagram[0]].receive_datagram(name, datagram[1], now)
        if (delivered := ends["bob"].take()) is not None:
            return bytes(delivered.payload)
    return None
