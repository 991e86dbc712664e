"""What a process takes from the network is bounded by what its federation agreed on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.federations import make_federation
from tests.support.tables.framing_table import introduced_member
from veilsum.protocol.crypto.identity import Role
from veilsum.protocol.identifiers import PartyId
from veilsum.roles.cli.exit_codes import EXIT_FAILED
from veilsum.roles.process.context import RoleOptions
from veilsum.roles.process.run import run_role
from veilsum.transport.base import ConnectionRequest, RoleTransport
from veilsum.transport.errors import AnnouncedTooLarge, TooLarge, TransportError
from veilsum.transport.framing.datagrams import Chunk
from veilsum.transport.framing.endpoint import Endpoint
from veilsum.transport.limits import KIB, MIB, Limits
from veilsum.transport.memory.switchboard import Switchboard
from veilsum.transport.reliable import FramedTransport

ANNOUNCED = 256 * MIB


def limits_of(folder: Path, role: Role, name: str) -> Limits:
    """The limits that the process of a party asks its transport for."""
    asked: list[ConnectionRequest] = []

    def refuse(request: ConnectionRequest) -> RoleTransport:
        asked.append(request)
        raise TransportError("nobody is connected here")

    assert run_role(role, RoleOptions(folder, PartyId(name)), refuse) == EXIT_FAILED
    (request,) = asked
    return Limits().for_messages(request.largest_message)


@pytest.mark.parametrize("scheme", ["plain", "masked", "ampc"])
def test_a_federation_of_1000_parameters_keeps_nothing_of_an_announced_256_mib(
    tmp_path: Path, scheme: str
) -> None:
    """The refusal has a type and names the member; what fits is still taken from it."""
    make_federation(tmp_path, scheme, 3, task="vectors:1000")
    participant = Role.PEER if scheme == "ampc" else Role.CLIENT
    for role, name in ((Role.SERVER, "server"), (participant, "p1")):
        limits = limits_of(tmp_path, role, name)
        assert limits.max_message_bytes < 9 * MIB
        endpoint = Endpoint(name, b"12345678", limits)
        member = introduced_member(endpoint, "p2")
        fields = Chunk(b"lifetime", 1, 0, 0, ANNOUNCED, 8 * KIB, 0).fields()
        for datagram in member.carry(name, fields, bytes(8 * KIB), 0.0):
            endpoint.receive_datagram("p2", datagram, 0.0)
        refusal = endpoint.next_refusal()
        assert isinstance(refusal, AnnouncedTooLarge)
        assert (refusal.sender, refusal.size, refusal.limit) == ("p2", ANNOUNCED, limits.max_message_bytes)
        assert endpoint.next_refusal() is None
        assert endpoint.held_bytes("p2") == 0
        fields = Chunk(b"lifetime", 2, 1, 1, 5, 8 * KIB, 0).fields()
        for datagram in member.carry(name, fields, b"hello", 0.0):
            endpoint.receive_datagram("p2", datagram, 0.0)
        taken = endpoint.take()
        assert taken is not None
        assert bytes(taken.payload) == b"hello"


def test_a_larger_model_is_given_more_room_and_a_scheme_that_states_no_bound_the_limit_of_the_transport(
    tmp_path: Path,
) -> None:
    folders = {task: tmp_path / task.replace(":", "-") for task in ("vectors:1000", "vectors:3000000")}
    for task, folder in folders.items():
        make_federation(folder, "masked", 3, task=task)
    small, large = (limits_of(folder, Role.SERVER, "server") for folder in folders.values())
    assert large.max_message_bytes - small.max_message_bytes == 20 * (3_000_000 - 1000)
    assert Limits().for_messages(None) == Limits() == Limits().for_messages(2**40)


def test_a_transport_counts_who_announced_too_much_and_goes_on() -> None:
    board, endpoint = Switchboard(), Endpoint("bob", b"bob12345", Limits().for_messages(1000))
    mallory = introduced_member(endpoint, "mallory")
    lie = Chunk(b"lifetime", 1, 0, 0, 1001, KIB, 0).fields()
    word = Chunk(b"lifetime", 2, 1, 1, 5, KIB, 0).fields()

    async def meet() -> None:
        bob = FramedTransport(board.link("bob"), endpoint)
        async with bob, board.link("mallory") as link:
            for fields, body in ((lie, bytes(1001)), (word, b"hello")):
                for datagram in mallory.carry("bob", fields, body, 0.0):
                    await link.send("bob", datagram)
            assert bytes((await bob.receive()).payload) == b"hello"
            assert bob.foreign.counts == {"message": 1}

    asyncio.run(meet())


def test_an_honest_sender_with_another_limit_is_told_ours() -> None:
    board = Switchboard()

    async def meet() -> None:
        alice = FramedTransport(board.link("alice"), Endpoint("alice", b"alice123"))
        bob = FramedTransport(board.link("bob"), Endpoint("bob", b"bob12345", Limits().for_messages(1000)))
        async with alice, bob:
            with pytest.raises(TooLarge) as told:
                await alice.send("bob", [bytes(2000)], deadline_s=20.0)
            assert (told.value.limit, told.value.receiver) == (1000, "bob")

    asyncio.run(meet())
