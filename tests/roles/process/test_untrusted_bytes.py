"""Bytes that others made up: no process ends over them, few lines are written, and the run goes on.

In memory for every way in, and with processes on a real broker for statuses, wills and datagrams of any login.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import aiomqtt
import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.roles.process.test_driver import (
    ALICE,
    DONE,
    ENTROPY,
    IDENTITIES,
    ROSTER,
    DrivenParty,
    Script,
    knocks,
)
from tests.support.brokers.broker import BrokerProcess, needs_mosquitto
from tests.support.federations import Company, broker_of, make_federation
from tests.support.refusals import require_mentions
from veilsum.protocol.errors import Rejection, RemoteProtocolError
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.session import Knock
from veilsum.protocol.wire.defects import WireDefect
from veilsum.protocol.wire.envelope import Body, Envelope, encode_envelope, join, sign_envelope
from veilsum.protocol.wire.messages import Message, Stamp
from veilsum.roles.monitor.status import Status
from veilsum.roles.process.envelopes import EnvelopeCodec
from veilsum.transport.base import Buffer
from veilsum.transport.foreign import MOST_LINES
from veilsum.transport.framing.endpoint import Endpoint
from veilsum.transport.memory.switchboard import Switchboard
from veilsum.transport.mqtt.topics import Topics
from veilsum.transport.reliable import FramedTransport


def oversized_messages() -> list[Envelope]:
    """What alice signs: a body and a header whose numbers are beyond the bound, and a body that is none."""
    signing = IDENTITIES[ALICE].signing
    (honest,) = EnvelopeCodec(IDENTITIES[ALICE], ROSTER, bytes(32), start=1).seal(
        [SERVER], Knock(Stamp()), "a"
    )
    hello = {"invitation": bytes(32), "hello": [bytes(32), bytes(32), 2**64 - 1, bytes(64)]}
    fields = msgpack.packb(hello)
    body = Body([len(fields).to_bytes(4, "little") + fields])
    header = replace(honest.header, kind="session.hello")
    return [sign_envelope(header, body, signing), sign_envelope(header, Body([b"\xff" * 9]), signing)]


def test_numbers_beyond_their_bound_are_refused_in_the_name_of_their_signer_and_the_run_goes_on() -> None:
    """Rounds done of 2^64 - 1, a thousand times over: refused at decoding, told in a few lines, all counted."""
    board = Switchboard()
    server = DrivenParty(board, SERVER, Script([], lambda sender, message: [DONE]))
    alice = DrivenParty(board, ALICE, Script([*knocks(1), DONE]))
    beyond = join(encode_envelope(oversized_messages()[0]))
    round_beyond = beyond[:8] + b"\xff" * 8 + beyond[16:]

    async def run() -> None:
        running = asyncio.create_task(server.run())
        async with FramedTransport(board.link(ALICE), Endpoint(ALICE, ENTROPY(8))) as forger:
            for envelope in oversized_messages():
                await forger.send("server", encode_envelope(envelope), 5.0)
            for _ in range(300):
                await forger.send("server", [round_beyond], 5.0)
        await alice.run()
        assert await running is DONE

    asyncio.run(run())
    assert server.driver.tally.refused == 302
    facts = server.facts("refused")
    assert len(facts) < 10
    assert sum(fact.get("count", 1) for fact in facts) == 302
    assert sum(fact["text"].startswith("alice: ") for fact in facts) == 1
    assert any(WireDefect.OUT_OF_BOUNDS.value in fact["text"] for fact in facts)


def test_a_parser_that_fails_in_no_known_way_costs_the_message_and_not_the_process() -> None:
    board = Switchboard()
    server = DrivenParty(board, SERVER, Script([], lambda sender, message: [DONE]))
    alice = DrivenParty(board, ALICE, Script([*knocks(2), DONE]))
    honest, failures = server.codec.open, [OverflowError("int too big to convert\x1b[2J")]

    def failing_once(carrier: str, data: Buffer) -> tuple[PartyId, Message]:
        if failures:
            raise failures.pop()
        return honest(carrier, data)

    server.codec.open = failing_once  # type: ignore[method-assign]  # a parser with a mistake

    async def run() -> None:
        await asyncio.gather(server.run(), alice.run())

    asyncio.run(run())
    (fact,) = server.facts("refused")
    assert fact["sender"] == ALICE
    require_mentions(fact["text"], "OverflowError")


@given(st.binary(max_size=200), st.integers(0, 10**9), st.binary(max_size=40))
def test_only_typed_errors_leave_the_envelope_codec(junk: bytes, at: int, change: bytes) -> None:
    """Any bytes, a good envelope with any part of it changed, and any body under a good signature."""
    codec = EnvelopeCodec(IDENTITIES[SERVER], ROSTER, bytes(32))
    honest = oversized_messages()[0]
    good = join(encode_envelope(honest))
    at %= len(good)
    signed = sign_envelope(honest.header, Body([junk]), IDENTITIES[ALICE].signing)
    for data in (junk, good[:at] + change + good[at + len(change) :], join(encode_envelope(signed))):
        with pytest.raises((Rejection, RemoteProtocolError)):
            codec.open(ALICE, data)


PATIENT = {"opening_s": 20.0, "phase_s": 20.0, "training_s": 20.0, "patience_s": 60.0}


def made_up(topics: Topics) -> Iterator[tuple[str, bytes]]:
    """What a login may publish: statuses with lone surrogates, wills of anyone, junk datagrams, topics of no form."""
    told = asdict(Status("p1", "client", 1, 1, 0, 1, 0, "\ud800", 0, 0, 0))
    statuses = (
        json.dumps({"status": json.dumps(told, ensure_ascii=False), "signature": ""}).encode(),
        b'{"status": "\\ud800", "signature": "\\ud800"}',
        b"[" * 60_000,
    )
    base = topics.status("p1").removesuffix("/p1/status")
    for number in range(40):
        yield from ((topics.status(name), status) for name in ("p1", "server") for status in statuses)
        yield from ((topics.gone(name), b"lost") for name in ("p1", "p2", f"nobody{number}"))
        yield topics.datagrams("server", f"nobody{number}"), b"VS1" + bytes([number]) * 80
        yield topics.datagrams("server", "p1"), b"VS1\1" + b"\xff" * 100
        yield f"{base}/no name/gone", b""
        yield f"{base}/server/from/\u202e", b""


async def flood(company: Company, broker: BrokerProcess) -> None:
    """Publish all that, again and again, from before the first party is there until the run has ended."""
    topics = Topics(company.loaded.federation_id)
    server = company.start("server")
    await asyncio.to_thread(server.wait_for, "waiting")

    async def publish(client: aiomqtt.Client) -> None:
        for topic, payload in made_up(topics):
            await client.publish(topic, payload)

    async with aiomqtt.Client("127.0.0.1", broker.port) as client:
        await publish(client)
        await asyncio.sleep(1.0)
        assert server.process.poll() is None, server.said()
        roles = [server, *(company.start(name) for name in company.loaded.roster.participants)]

        async def go_on() -> None:
            while True:
                await publish(client)
                await asyncio.sleep(1.0)

        flooding = asyncio.create_task(go_on())
        codes = [await asyncio.to_thread(role.end) for role in roles]
        flooding.cancel()
    assert codes == [0] * len(roles), "\n".join(role.said() for role in roles)


@needs_mosquitto
def test_bytes_of_any_login_end_no_process_and_fill_no_log(tmp_path: Path) -> None:
    """The server is attacked while it gathers and everyone while they train: all rounds are committed."""
    fed = make_federation(tmp_path / "fed", "masked", 3, **PATIENT)
    broker = broker_of(fed, tmp_path / "broker")
    broker.start()
    try:
        with Company(fed) as company:
            asyncio.run(flood(company, broker))
            (server, *others) = company.roles
            assert [fact["round"] for fact in server.told("round_committed")] == [1, 2]
            warnings = [fact["text"] for fact in server.told("warning")]
            assert any("status" in text for text in warnings)
            for role in (server, *others):
                assert not role.other_lines
                assert len(role.told("seems_gone")) <= MOST_LINES
                assert len(role.told("warning")) < 100
    finally:
        broker.stop()
