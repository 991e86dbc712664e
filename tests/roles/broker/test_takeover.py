"""Nobody pushes another off the broker: the login is the client identifier, in every federation that shares a broker.

What mosquitto does with `use_username_as_clientid` is shown on the mosquitto of this machine. A broker that does
without, and somebody who stole a login, can push a party off; it comes back, and the run goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import aiomqtt
import pytest

from tests.support.brokers.broker import BrokerProcess, mosquitto, needs_mosquitto
from tests.support.federations import Company, Role, broker_of, make_federation, wait_until
from tests.support.refusals import refusal, require_mentions
from veilsum.protocol.errors import LocalProtocolError, ParameterError
from veilsum.roles.broker.connect import broker_address, observers_folder, observers_link
from veilsum.roles.broker.files import ACCESS_LIST, CONFIGURATION, LOGIN_IS_IDENTIFIER, PASSWORDS
from veilsum.roles.broker.logins import OBSERVERS
from veilsum.roles.cli import main as cli
from veilsum.roles.federation.enrolment import evict_party
from veilsum.roles.federation.folder import LoadedFederation
from veilsum.transport.mqtt.broker_address import BrokerAddress
from veilsum.transport.mqtt.topics import Topics

pytestmark = needs_mosquitto
VERSIONS = [aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5]
WAIT_S = 20.0


@pytest.fixture
def fed(tmp_path: Path) -> LoadedFederation:
    return make_federation(tmp_path / "fed")


@contextmanager
def running(broker: BrokerProcess) -> Iterator[BrokerProcess]:
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


def guarded(*federations: LoadedFederation) -> BrokerProcess:
    """A mosquitto with the logins of all these federations, configured as `veilsum init` configured the first."""
    first = federations[0]
    folder = first.folder.parent / "shared"
    broker = broker_of(first, folder)
    for name in (PASSWORDS, ACCESS_LIST):
        (folder / name).touch(mode=0o600)
        (folder / name).write_text(
            "\n".join((one.folder / "broker" / name).read_text() for one in federations)
        )
    own = (
        (first.folder / "broker" / CONFIGURATION).read_text().replace("persistence true", "persistence false")
    )
    for name in (PASSWORDS, ACCESS_LIST):
        own = own.replace(f"_file {name}", f"_file {folder / name}")
    user = "user root\n" if os.geteuid() == 0 else ""
    (folder / CONFIGURATION).write_text(f"{user}{own}")
    return broker


def client(
    address: BrokerAddress, identifier: str, version: aiomqtt.ProtocolVersion = VERSIONS[0]
) -> aiomqtt.Client:
    return aiomqtt.Client(
        address.host,
        address.port,
        username=address.username,
        password=address.password,
        identifier=identifier,
        protocol=version,
        timeout=WAIT_S,
    )


def login_of(fed: LoadedFederation, name: str) -> tuple[BrokerAddress, str]:
    """Where and how a party connects, and the client identifier that it asks for."""
    return broker_address(fed, name, fed.key_folder(name)), Topics(fed.federation_id).login(name)


@pytest.mark.parametrize("version", VERSIONS)
def test_who_asks_for_the_identifier_of_another_does_not_get_it(
    fed: LoadedFederation, version: aiomqtt.ProtocolVersion
) -> None:
    """Neither with another login, nor with the login of the other and a wrong password."""
    address, identifier = login_of(fed, "server")
    eve, _ = login_of(fed, "p1")
    topic = Topics(fed.federation_id).datagrams("server", "p1")

    async def conversation() -> None:
        async with client(address, identifier, version) as server:
            await server.subscribe(Topics(fed.federation_id).all_datagrams("server"))
            for number in range(5):
                with pytest.raises(aiomqtt.MqttError):
                    async with client(replace(address, password="guess"), identifier, version):
                        raise AssertionError("the broker let a guess in")
                async with client(eve, identifier, version) as usurper:
                    await usurper.publish(topic, bytes([number]), qos=1)
            async with asyncio.timeout(WAIT_S):
                heard = [(await anext(aiter(server.messages))).payload for _ in range(5)]
            assert heard == [bytes([number]) for number in range(5)]

    with running(guarded(fed)):
        asyncio.run(conversation())


def test_federations_that_share_a_broker_push_nobody_off_and_hear_their_own(tmp_path: Path) -> None:
    one, two = (make_federation(tmp_path / name, name=name) for name in ("one", "two"))
    topics = [Topics(fed.federation_id) for fed in (one, two)]

    async def conversation() -> None:
        servers = [login_of(fed, "server") for fed in (one, two)]
        clients = [login_of(fed, "p1") for fed in (one, two)]
        here = [replace(address, port=one.config.broker_port) for address, _ in (*servers, *clients)]
        async with contextlib.AsyncExitStack() as stack:
            heard = [await stack.enter_async_context(client(here[i], servers[i][1])) for i in range(2)]
            said = [await stack.enter_async_context(client(here[2 + i], clients[i][1])) for i in range(2)]
            for i in range(2):
                await heard[i].subscribe(topics[i].all_datagrams("server"))
            for i in range(2):
                await said[i].publish(topics[i].datagrams("server", "p1"), bytes([i]), qos=1)
            async with asyncio.timeout(WAIT_S):
                assert [(await anext(aiter(one.messages))).payload for one in heard] == [b"\0", b"\1"]

    with running(guarded(one, two)):
        asyncio.run(conversation())


def test_a_revoked_login_loses_its_connection_when_the_broker_reads_its_files_again(
    fed: LoadedFederation,
) -> None:
    address, identifier = login_of(fed, "p1")

    async def until_pushed_off(broker: BrokerProcess) -> None:
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(aiomqtt.MqttError):
                async with client(address, identifier) as party:
                    evict_party(fed.folder, fed.folder / "organiser", "p1")
                    for name in (PASSWORDS, ACCESS_LIST):
                        text = (fed.folder / "broker" / name).read_text()
                        (fed.folder.parent / "shared" / name).write_text(text)
                    assert broker.process is not None
                    broker.process.send_signal(signal.SIGHUP)
                    await anext(aiter(party.messages))
            with pytest.raises(aiomqtt.MqttError):
                async with client(address, identifier):
                    raise AssertionError("the broker let a revoked login in")

    with running(guarded(fed)) as broker:
        asyncio.run(until_pushed_off(broker))


class Hammer(threading.Thread):
    """Connects again and again under the client identifier of the server, with the login of somebody else or none."""

    def __init__(self, fed: LoadedFederation, address: BrokerAddress) -> None:
        super().__init__(daemon=True)
        self._identifier = Topics(fed.federation_id).login("server")
        self._address = address
        self._over = threading.Event()
        self.blows = 0

    def __enter__(self) -> Hammer:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._over.set()
        self.join(WAIT_S)

    def run(self) -> None:
        asyncio.run(self._connect())

    async def _connect(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(aiomqtt.MqttError):
                async with client(self._address, self._identifier):
                    self.blows += 1
                    await asyncio.sleep(0.05)


def pushed_off(role: Role) -> bool:
    return any("another process" in str(one["text"]) for one in role.told("warning"))


def test_a_login_that_hammers_the_servers_identifier_all_the_while_costs_no_round(tmp_path: Path) -> None:
    fed = make_federation(tmp_path / "fed", parties=4, rounds=3)
    eve, _ = login_of(fed, "p4")
    with running(guarded(fed)), Hammer(fed, eve) as hammer, Company(fed) as company:
        roles = [company.start(name) for name in ("server", "p1", "p2", "p3")]
        assert [role.end() for role in roles] == [0, 0, 0, 0]
        assert hammer.blows > 20
        (finished,) = roles[0].told("run_finished")
        assert finished["rounds"] == 3
        assert not pushed_off(roles[0])


def test_a_takeover_on_a_broker_that_allows_it_is_waited_out(tmp_path: Path) -> None:
    fed = make_federation(tmp_path / "fed", rounds=3, patience_s=60.0)
    with running(broker_of(fed, tmp_path / "open")) as broker, Company(fed) as company:
        with Hammer(fed, broker.address()):
            server = company.start("server")
            wait_until(lambda: pushed_off(server))
        roles = [server, *(company.start(name) for name in ("p1", "p2", "p3"))]
        assert [role.end() for role in roles] == [0, 0, 0, 0], server.said()
        assert server.told("run_finished")[0]["rounds"] == 3


def test_two_observers_watch_at_the_same_time(fed: LoadedFederation) -> None:
    command = [
        sys.executable,
        "-P",
        "-m",
        "veilsum",
        "status",
        str(fed.folder),
        "--seconds",
        "5",
        "--json",
        "-",
    ]
    with running(guarded(fed)), Company(fed) as company:
        company.start("server")
        watching = [
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            for _ in range(2)
        ]
        heard = [json.loads(one.communicate(timeout=60)[0])["statuses"] for one in watching]
    assert [set(one) for one in heard] == [{"server"}, {"server"}]


def test_a_login_of_an_observer_is_used_by_one_process_at_a_time(fed: LoadedFederation) -> None:
    with contextlib.ExitStack() as stack:
        taken = [stack.enter_context(observers_folder(fed)) for _ in OBSERVERS]
        assert [one.name for one in taken] == list(OBSERVERS)
        with refusal(LocalProtocolError, *OBSERVERS, "roster", "observer"), observers_folder(fed):
            raise AssertionError("there was another login")
    with observers_folder(fed) as first:
        assert first.name == OBSERVERS[0]
    with refusal(LocalProtocolError, "p1"):
        observers_link(fed, fed.key_folder("p1"))


def test_observers_are_let_in_and_shut_out_by_the_organiser(
    fed: LoadedFederation, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["roster", "observer", str(fed.folder)]
    login = Topics(fed.federation_id).login("observer-office")
    passwords = fed.folder / "broker" / PASSWORDS
    assert cli.main([*command, "observer-office"]) == 0
    assert login in passwords.read_text()
    assert cli.main([*command, "observer-office"]) == 2
    assert cli.main([*command, "mallory"]) == 2
    evict_party(fed.folder, fed.folder / "organiser", "p1")
    assert login in passwords.read_text(), "observers stay when a party goes"
    assert cli.main([*command, "observer-office", "--revoke"]) == 0
    assert login not in passwords.read_text() + (fed.folder / "broker" / ACCESS_LIST).read_text()
    capsys.readouterr()
    for name in ("observer-office", "p2"):
        assert cli.main([*command, name, "--revoke"]) == 2
        require_mentions(capsys.readouterr().err, name, "evict")


def test_a_broker_folder_of_an_earlier_version_is_refused_and_written_anew_with_its_passwords(
    fed: LoadedFederation, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = fed.folder / "broker"
    now = {name: (folder / name).read_text() for name in (CONFIGURATION, PASSWORDS, ACCESS_LIST)}
    prefix = Topics(fed.federation_id).login("x").removesuffix("x")
    for name in (PASSWORDS, ACCESS_LIST):
        (folder / name).write_text(now[name].replace(prefix, ""))
    (folder / CONFIGURATION).write_text(now[CONFIGURATION].replace(LOGIN_IS_IDENTIFIER, ""))
    assert cli.main(["broker", str(fed.folder)]) == 2
    require_mentions(capsys.readouterr().err, LOGIN_IS_IDENTIFIER.split()[0], "--configure")
    assert cli.main(["broker", str(fed.folder), "--configure"]) == 0
    assert {name: (folder / name).read_text() for name in now} == now


def test_names_of_observers_are_not_given_to_parties(tmp_path: Path) -> None:
    with refusal(ParameterError, "observer-2"):
        make_federation(tmp_path / "fed", parties=("p1", "p2", "observer-2"))


def test_a_mosquitto_that_does_not_know_the_line_refuses_to_start_instead_of_doing_without(
    tmp_path: Path,
) -> None:
    broker = mosquitto(tmp_path, listener=[LOGIN_IS_IDENTIFIER.replace("clientid", "id")])
    with pytest.raises(RuntimeError, match="use_username_as_id"):
        broker.start()
