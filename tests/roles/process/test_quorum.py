"""The server's waiting: for enough parties by their own word, no longer than its patience, and not deaf to trouble."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict
from typing import Any

import pytest

from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.crypto.identity import Identity, Role
from veilsum.protocol.crypto.signing import SigningKey
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.roles.monitor.log import RoleLog
from veilsum.roles.monitor.status import Status, sign_status
from veilsum.roles.process.entropy import SeededEntropy
from veilsum.roles.process.quorum import Quorum
from veilsum.transport.base import Datagram, Received
from veilsum.transport.errors import Closed
from veilsum.transport.foreign import MOST_LINES

ENTROPY = SeededEntropy(5)
IDENTITIES = {
    name: Identity(PartyId(name), role, SigningKey.generate(ENTROPY))
    for name, role in (
        ("server", Role.SERVER),
        ("p1", Role.CLIENT),
        ("p2", Role.CLIENT),
        ("eve", Role.CLIENT),
    )
}
ROSTER = Roster(1, tuple(one.public for name, one in IDENTITIES.items() if name != "eve"))


def status_of(name: str, signer: str | None = None) -> bytes:
    status = Status(name, "client", 1, 1, 0, 1, 0, "knocking", 0, 0, 0)
    return sign_status(IDENTITIES[signer or name], "fed", status)


def status_text(name: str, **changed: Any) -> str:
    """As its signer would encode it, but for lone surrogates, which stay as they are."""
    fields = asdict(Status(name, "client", 1, 1, 0, 1, 0, "knocking", 0, 0, 0)) | changed
    return json.dumps(fields, ensure_ascii=False)


class Air:
    """Statuses that are in the air, and a transport that may break."""

    def __init__(self, statuses: Sequence[bytes], trouble: Exception | None = None) -> None:
        self._statuses = statuses
        self._trouble = trouble

    async def statuses(self) -> AsyncIterator[Datagram]:
        for status in self._statuses:
            yield Datagram("hint", status)
        await asyncio.sleep(3600)

    async def receive(self) -> Received:
        if self._trouble is not None:
            await asyncio.sleep(0.01)
            raise self._trouble
        await asyncio.sleep(3600)
        raise AssertionError


def gather(air: Air, within_s: float = 10.0) -> tuple[set[str], str]:
    said = io.StringIO()
    quorum = Quorum(ROSTER, "fed", 2, RoleLog(SERVER, "text", said))
    asyncio.run(quorum.wait(air, within_s))
    return quorum.present, said.getvalue()


def test_it_ends_when_enough_different_parties_were_heard() -> None:
    present, said = gather(Air([status_of("p1"), status_of("p1"), status_of("p2")]))
    assert present == {"p1", "p2"}
    assert "warning" not in said


def test_strangers_forgeries_garbage_and_the_server_itself_do_not_count() -> None:
    """Only p1 is really there, and patience ends."""
    air = Air(
        [status_of("eve"), status_of("p2", signer="eve"), b"garbage", status_of("server"), status_of("p1")]
    )
    present, said = gather(air, within_s=0.2)
    assert present == {"p1"}
    assert "only 1 of at least 2 parties came" in said


BROKEN = [
    b"\xff",
    b'{"status": "\\ud800", "signature": ""}',
    json.dumps({"status": status_text("p1", phase="\ud800"), "signature": ""}).encode(),
    json.dumps({"status": status_text("p1", phase="\ud800"), "signature": "\ud800"}).encode(),
    json.dumps({"status": status_text("\ud800"), "signature": ""}).encode(),
    json.dumps({"status": status_text("p1", round=10**400), "signature": ""}).encode(),
    b"[" * 60_000,
]


def test_no_status_of_any_login_ends_the_server_or_fills_its_log(caplog: pytest.LogCaptureFixture) -> None:
    """A lone surrogate in a status, and other bytes of that kind, a thousand times: the parties are still heard."""
    present, said = gather(Air([*BROKEN * 150, status_of("p1"), status_of("p2")]))
    assert present == {"p1", "p2"}
    assert said.count("\n") == 3
    lines = [record.getMessage() for record in caplog.records]
    assert 1 <= len(lines) <= MOST_LINES
    assert all("status" in line and "hint" in line and line.isprintable() for line in lines)


def test_trouble_of_the_transport_is_not_waited_out() -> None:
    with pytest.raises(Closed):
        gather(Air([status_of("p1")], Closed("server")))
