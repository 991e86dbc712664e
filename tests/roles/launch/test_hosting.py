"""Who hosts a federation runs its broker: it comes back when it dies, and it does not outlive its host."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import aiomqtt
import pytest

from tests.support.brokers.broker import free_port, needs_mosquitto
from tests.support.federations import QUICK, wait_until
from tests.support.launches import processes_of, require_nothing_left
from tests.support.refusals import require_mentions
from veilsum.protocol.errors import LocalProtocolError, ParameterError
from veilsum.roles.broker.logins import read_password
from veilsum.roles.cli import main as cli
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.federation.admission import revoke_observer
from veilsum.roles.federation.enrolment import create_federation
from veilsum.roles.federation.folder import load_federation
from veilsum.roles.invitations.invitation_file import read_invitation
from veilsum.roles.invitations.inviting import enrol, invite, make_server_keys
from veilsum.roles.invitations.joining import Place, settle, write_reply
from veilsum.roles.launch import hosting
from veilsum.roles.monitor.log import RoleLog
from veilsum.transport.mqtt.topics import Topics

pytestmark = needs_mosquitto
NAMES = ("alice", "bob", "carol")


@pytest.fixture
def fed(tmp_path: Path) -> Path:
    """A federation at an office whose parties have answered their invitations, in folders beside it."""
    values = {
        "name": "clinics",
        "scheme": "masked",
        "parties": NAMES,
        "task": "vectors:7",
        "rounds": 2,
        "broker_port": free_port(),
        **QUICK,
        "patience_s": 60.0,
    }
    fed = tmp_path / "office" / "fed"
    create_federation(fed, FederationConfig.from_options(values), with_keys=False)
    make_server_keys(fed, fed / "organiser")
    replies = []
    for one in invite(fed, fed / "organiser", [], days=30):
        name = one.invitation.name
        (tmp_path / f"{name}.invite").write_bytes(one.path.read_bytes())
        place = Place(tmp_path / name, read_invitation(one.path))
        settle(place)
        write_reply(place, None, None)
        replies.append(place.reply_file)
    enrol(fed, fed / "organiser", replies, None)
    return fed


@pytest.fixture
def host(fed: Path) -> Iterator[subprocess.Popen[str]]:
    process = begin("host", str(fed))
    assert process.stdout is not None
    try:
        assert any(line.startswith("broker:") for line in process.stdout)
        yield process
    finally:
        process.kill()
        process.communicate()


def begin(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "veilsum", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def brokers(fed: Path) -> list[int]:
    return [number for number, words in processes_of(fed).items() if words.split()[0].endswith("mosquitto")]


def test_a_broker_that_dies_is_started_again_and_the_parties_take_roster_and_part(
    fed: Path, host: subprocess.Popen[str]
) -> None:
    (first,) = brokers(fed)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: bool(brokers(fed)) and first not in brokers(fed))
    parties = [begin("join", str(fed.parents[1] / f"{name}.invite")) for name in NAMES]
    said = [process.communicate(timeout=120)[0] for process in (*parties, host)]
    assert [process.returncode for process in (*parties, host)] == [0] * 4, said
    assert not [words for words in said if "--fresh" in words], "nobody lost anything"
    require_nothing_left(fed)
    for folder in (fed, *(fed.parents[1] / name for name in NAMES)):
        html = folder / "run.html"
        assert cli.main(["page", str(folder), "--html", str(html)]) == 0
        assert "finished: round 2 of 2 committed by 3 parties" in html.read_text()
    again = begin("join", str(fed.parents[1] / "alice.invite"))
    assert "all its rounds" in again.communicate(timeout=60)[0]
    assert again.returncode == 0


def test_a_broker_that_never_serves_keeps_no_host_waiting(fed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosting, "START_WITHIN_S", 0.1)
    monkeypatch.setattr(hosting, "our_python", lambda *_: ["sleep", "600"])
    with pytest.raises(LocalProtocolError) as refusal, hosting.hosting(load_federation(fed)):
        raise AssertionError("it was hosted without a broker")
    require_mentions(str(refusal.value), "broker", "start")


def test_a_host_that_is_killed_leaves_no_broker(fed: Path, host: subprocess.Popen[str]) -> None:
    host.kill()
    require_nothing_left(fed)


def lets_in(fed: Path, port: int, name: str) -> bool:
    """Whether the broker of a federation takes the login of an observer."""
    login = Topics(load_federation(fed).federation_id).login(name)
    password = read_password(fed / "keys" / name)

    async def knock() -> bool:
        try:
            async with aiomqtt.Client("127.0.0.1", port, username=login, password=password, identifier=login):
                return True
        except aiomqtt.MqttError:
            return False

    return asyncio.run(knock())


@pytest.mark.parametrize("flags", [[], ["--embedded"]], ids=["mosquitto", "embedded"])
def test_a_broker_reads_changed_logins_again_whatever_its_host_is_called(
    tmp_path: Path, flags: list[str]
) -> None:
    fed, port = tmp_path / "fed", free_port()
    config = FederationConfig(
        scheme="masked",
        parties=NAMES,
        task="vectors:7",
        broker_tls=False,
        broker_host="embedded.example.org",
        broker_port=port,
    )
    create_federation(fed, config)
    broker = hosting._Broker(fed, flags)
    try:
        assert broker.start()
        assert lets_in(fed, port, "observer-1")
        revoke_observer(fed, "observer-1")
        broker.look_after()
        wait_until(lambda: not lets_in(fed, port, "observer-1"))
        broker.look_after()
        assert lets_in(fed, port, "observer-2"), "it goes on after it was told"
    finally:
        broker.stop()


class Looked:
    """Stands for the broker, and counts how often it is looked after."""

    def __init__(self) -> None:
        self.looks = 0

    def look_after(self) -> None:
        self.looks += 1


@pytest.mark.parametrize(
    "trouble",
    [FileNotFoundError(2, "is gone", "roster.json"), ParameterError(["chmod 600 it"]), ValueError("odd")],
)
def test_whatever_keeps_the_roster_from_being_handed_out_is_told_once_and_tried_again_and_no_more(
    fed: Path, trouble: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker is looked after all the while, and the end is in order."""
    tries: list[int] = []

    async def fail(*_: object) -> None:
        tries.append(1)
        raise trouble

    monkeypatch.setattr(hosting, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(hosting, "publish_notices", fail)
    broker = Looked()
    handing = hosting._Handing(
        load_federation(fed), fed, cast("Any", broker), hosting._Trouble(RoleLog("broker"))
    )
    with handing:
        wait_until(lambda: len(tries) > 3 and broker.looks > 3)
    (warned,) = [record.getMessage() for record in caplog.records if "roster" in record.getMessage()]
    require_mentions(warned, str(trouble.args[-1]).split()[-1])
    assert handing._loop.is_closed()


def test_a_roster_that_was_away_is_handed_out_as_soon_as_it_is_back(
    fed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[bytes] = []

    async def publish(_: object, __: object, content: Callable[[], bytes]) -> None:
        given.append(content())
        await asyncio.sleep(0.01)

    monkeypatch.setattr(hosting, "LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(hosting, "publish_notices", publish)
    roster, broker = fed / "roster.json", Looked()
    log = hosting._Trouble(RoleLog("broker"))
    with hosting._Handing(load_federation(fed), fed, cast("Any", broker), log):
        wait_until(lambda: bool(given))
        roster.rename(fed / "away")
        seen = broker.looks
        wait_until(lambda: bool(log.told) and broker.looks > seen + 3)
        (fed / "away").rename(roster)
        given.clear()
        wait_until(lambda: bool(given) and not log.told)


def test_a_host_without_its_port_says_so_in_lines_that_programs_read(
    fed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = load_federation(fed).config.broker_port
    with socket.create_server(("127.0.0.1", port)):
        assert cli.main(["host", str(fed), "--log-format", "json"]) == 1
    facts = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (facts[-1]["fact"], facts[-1]["party"]) == ("start_failed", "server")
    require_mentions(facts[-1]["detail"], "broker", "port", port)


def test_a_host_tells_of_its_broker_in_lines_that_programs_read(
    fed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What mosquitto writes to standard error is among them."""
    broker = hosting._Broker(fed, [], RoleLog("broker", "json"))
    try:
        assert broker.start()
    finally:
        broker.stop()
    facts = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert {fact["party"] for fact in facts} == {"broker"}
    (started,) = [fact["text"] for fact in facts if fact["fact"] == "broker"]
    require_mentions(started, "mosquitto", load_federation(fed).config.broker_port)
    assert any(fact["fact"] == "printed" for fact in facts)
