"""The server's waiting: for enough parties by their own word, no longer than its patience, and not deaf to trouble."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.support.federations import make_federation
from veilsum.protocol.agreed.roster import Roster
from veilsum.protocol.crypto.identity import Identity, Role
from veilsum.protocol.crypto.signing import SigningKey
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.rules import StartingPoint
from veilsum.roles.monitor.log import RoleLog
from veilsum.roles.monitor.status import Status, sign_status
from veilsum.roles.process.entropy import SeededEntropy
from veilsum.roles.process.machines import rules_of
from veilsum.roles.process.waiting.quorum import Need, Quorum
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


TWO = Need(2)


def gather(air: Air, within_s: float = 10.0, need: Need = TWO) -> tuple[set[str], str]:
    said = io.StringIO()
    quorum = Quorum(ROSTER, "fed", need, RoleLog(SERVER, "text", said))
    asyncio.run(quorum.wait(air, within_s))
    return quorum.present, said.getvalue()


def test_it_ends_when_enough_different_parties_were_heard() -> None:
    present, said = gather(Air([status_of("p1"), status_of("p1"), status_of("p2")]))
    assert present == {"p1", "p2"}
    assert "warning" not in said


def test_it_goes_on_until_enough_of_those_who_vote_are_there() -> None:
    """p1 alone would be parties enough, and has no vote."""
    need = Need(1, votes=1, voters=frozenset({"p2"}))
    assert gather(Air([status_of("p1"), status_of("p2")]), need=need)[0] == {"p1", "p2"}


def test_when_patience_ends_it_says_whether_parties_lack_or_votes() -> None:
    need = Need(1, votes=1, voters=frozenset({"p2"}))
    present, said = gather(Air([status_of("p1")]), within_s=0.2, need=need)
    assert present == {"p1"}
    assert "only 0 of at least 1 of those who vote came" in said


@pytest.mark.parametrize(
    ("scheme", "threat", "needed"),
    [
        ("masked", "lying", 4),
        ("mpc", "lying", 4),
        ("ampc", "lying", 4),
        ("masked", "semi-honest", 3),
        ("plain", "lying", 1),
    ],
)
def test_it_waits_for_as_many_as_a_session_needs(
    tmp_path: Path, scheme: str, threat: str, needed: int
) -> None:
    """Three of five may be in a sum, and four must vote: with three the machine would end the run."""
    loaded = make_federation(tmp_path / "fed", scheme, 5, threat=threat)
    rules = rules_of(loaded.config, loaded.roster, 40)
    loaded_scheme = loaded.config.load_scheme()
    record = StartingPoint(None).chain_record(loaded.roster) if loaded_scheme.has_chain else None
    need = Need.of(loaded_scheme, rules, record)
    assert need.parties == needed
    names = loaded.roster.participants
    assert need.is_met_by(names[:needed])
    assert not need.is_met_by(names[: needed - 1])


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
