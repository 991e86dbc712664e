"""The broker of a federation: whom it lets in, what each may do there, and how it starts and stops."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import aiomqtt
import pytest

from tests.support.brokers.broker import free_port, needs_mosquitto
from tests.support.refusals import refusal, require_mentions
from veilsum.protocol.errors import LocalProtocolError, ParameterError
from veilsum.roles.broker.connect import broker_address
from veilsum.roles.broker.embedded import PROGRAM, covers, parse_access_list
from veilsum.roles.broker.files import access_list, is_local, mosquitto_configuration
from veilsum.roles.broker.logins import (
    LOGIN_FILE,
    OBSERVERS,
    create_login,
    password_line,
    password_matches,
    read_password,
    require_login_line,
)
from veilsum.roles.broker.ports import require_free_port
from veilsum.roles.cli import main as cli
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.config.values import party_names
from veilsum.roles.federation.admission import configure_broker
from veilsum.roles.federation.enrolment import create_federation, evict_party
from veilsum.roles.federation.folder import LoadedFederation, load_federation
from veilsum.transport.mqtt.broker_address import BrokerAddress
from veilsum.transport.mqtt.topics import Topics

BOTH_BROKERS = [
    pytest.param((), marks=needs_mosquitto, id="mosquitto"),
    pytest.param(("--embedded",), id="embedded"),
]
WAIT_S = 10.0


@pytest.fixture
def fed(tmp_path: Path) -> LoadedFederation:
    config = FederationConfig(scheme="masked", parties=("alice", "bob", "carol"), broker_port=free_port())
    create_federation(tmp_path / "fed", config)
    return load_federation(tmp_path / "fed")


@pytest.fixture(scope="module", params=BOTH_BROKERS)
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LoadedFederation]:
    """A federation whose broker runs, for tests that change nothing."""
    config = FederationConfig(scheme="masked", parties=("alice", "bob", "carol"), broker_port=free_port())
    folder = tmp_path_factory.mktemp("served") / "fed"
    create_federation(folder, config)
    loaded = load_federation(folder)
    with running(loaded, *request.param):
        yield loaded


@contextmanager
def running(fed: LoadedFederation, *flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The broker as a process of its own, and what it said when it was ready."""
    command = [sys.executable, "-m", "veilsum", "broker", str(fed.folder), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline()
        finally:
            if process.poll() is None:
                process.terminate()
                process.communicate(timeout=WAIT_S)


def client(address: BrokerAddress, identifier: str) -> aiomqtt.Client:
    return aiomqtt.Client(
        address.host,
        address.port,
        username=address.username,
        password=address.password,
        identifier=identifier,
        protocol=aiomqtt.ProtocolVersion.V311,
        tls_context=None if address.tls is None else address.tls.context(),
        timeout=WAIT_S,
    )


def member(fed: LoadedFederation, name: str) -> aiomqtt.Client:
    return client(broker_address(fed, name, fed.key_folder(name)), name)


async def lets_in(address: BrokerAddress) -> bool:
    try:
        async with client(address, "probe"):
            return True
    except aiomqtt.MqttError:
        return False


def test_only_members_with_their_own_password_are_let_in(served: LoadedFederation) -> None:
    alice = broker_address(served, "alice", served.key_folder("alice"))
    bob = broker_address(served, "bob", served.key_folder("bob"))

    async def conversation() -> None:
        for name in ("alice", "bob", "carol", "server", *OBSERVERS):
            assert await lets_in(broker_address(served, name, served.key_folder(name)))
        assert not await lets_in(replace(alice, password=bob.password))
        assert not await lets_in(replace(alice, username="mallory"))
        assert not await lets_in(replace(alice, username=None, password=None))

    asyncio.run(conversation())


def test_each_member_writes_under_its_own_name_and_reads_what_is_meant_for_it(
    served: LoadedFederation,
) -> None:
    topics = Topics(served.federation_id)

    async def conversation() -> None:
        async with (
            member(served, "alice") as alice,
            member(served, "bob") as bob,
            member(served, "carol") as carol,
        ):
            await alice.subscribe(topics.all_datagrams("alice"))
            await alice.subscribe(topics.all_statuses())
            for wanted in ("#", f"veilsum/{topics.federation}/#", topics.all_datagrams("alice")):
                try:
                    await carol.subscribe(wanted)
                except aiomqtt.MqttError:
                    continue
            for forged in (
                topics.datagrams("alice", "carol"),
                topics.status("carol"),
                "veilsum/another/alice/from/bob",
            ):
                await forge(served, forged)
            await bob.publish(topics.datagrams("alice", "bob"), b"datagram", qos=1)
            await bob.publish(topics.status("bob"), b"status", qos=1)
            got = [await take(alice), await take(alice)]
            assert got == [(topics.datagrams("alice", "bob"), b"datagram"), (topics.status("bob"), b"status")]
            await forge(served, topics.datagrams("alice", "bob"))
            await bob.publish(topics.datagrams("alice", "bob"), b"the last", qos=1)
            assert await take(alice) == (topics.datagrams("alice", "bob"), b"the last")
            # A greedy subscription gets what its owner may read, which is no datagram for somebody else.
            await carol.subscribe(topics.all_datagrams("carol"))
            await bob.publish(topics.datagrams("carol", "bob"), b"for carol", qos=1)
            seen = [await take(carol)]
            while seen[-1][1] != b"for carol":
                seen.append(await take(carol))
            assert {topic for topic, _ in seen} <= {topics.datagrams("carol", "bob"), topics.status("bob")}

    asyncio.run(conversation())


async def forge(fed: LoadedFederation, topic: str) -> None:
    """Publish as the server where it may not; mosquitto may end the connection for that."""
    with contextlib.suppress(aiomqtt.MqttError):
        async with member(fed, "server") as forger:
            await forger.publish(topic, b"forged", qos=1, timeout=1.0)


async def take(receiver: aiomqtt.Client) -> tuple[str, bytes]:
    async with asyncio.timeout(WAIT_S):
        message = await anext(aiter(receiver.messages))
    assert isinstance(message.payload, bytes)
    return message.topic.value, message.payload


@pytest.mark.parametrize("flags", BOTH_BROKERS)
def test_an_evicted_member_is_shut_out_once_the_broker_reads_its_files_again(
    fed: LoadedFederation, flags: tuple[str, ...]
) -> None:
    bob = broker_address(fed, "bob", fed.key_folder("bob"))
    with running(fed, *flags) as (process, _):
        assert asyncio.run(lets_in(bob))
        evict_party(fed.folder, fed.folder / "organiser", "bob")
        process.send_signal(signal.SIGHUP)

        async def until_shut_out() -> None:
            async with asyncio.timeout(WAIT_S):
                while await lets_in(bob):
                    await asyncio.sleep(0.1)

        asyncio.run(until_shut_out())
        assert asyncio.run(lets_in(broker_address(fed, "alice", fed.key_folder("alice"))))


def test_the_broker_shows_a_certificate_of_the_federations_own_authority(served: LoadedFederation) -> None:
    port = served.config.broker_port
    trusting = ssl.create_default_context(cafile=str(served.folder / "broker" / "ca.pem"))
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT
    for host in ("localhost", "127.0.0.1"):
        with (
            socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as plain,
            trusting.wrap_socket(plain, server_hostname=host) as wrapped,
        ):
            assert wrapped.version() in ("TLSv1.2", "TLSv1.3")
    with (
        socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as plain,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        ssl.create_default_context().wrap_socket(plain, server_hostname="localhost")


@pytest.mark.parametrize("flags", BOTH_BROKERS)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_the_command_says_which_broker_runs_and_a_signal_stops_it_cleanly(
    fed: LoadedFederation, flags: tuple[str, ...], how: signal.Signals
) -> None:
    with running(fed, *flags) as (process, said):
        kind = PROGRAM if flags else "mosquitto version"
        assert said.startswith(kind)
        assert said.endswith(f"at localhost:{fed.config.broker_port} (TLS)\n")
        trusting = ssl.create_default_context(cafile=str(fed.folder / "broker" / "ca.pem"))
        with (
            socket.create_connection(("127.0.0.1", fed.config.broker_port), timeout=WAIT_S) as plain,
            trusting.wrap_socket(plain, server_hostname="localhost") as hesitant,
        ):
            hesitant.sendall(b"\x10\x20\x00\x04MQTT\x05")
            process.send_signal(how)
            _, complaints = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0
        assert "Traceback" not in complaints
    require_free_port(fed.config.broker_port)


def test_without_mosquitto_the_embedded_broker_is_used_and_announced(
    fed: LoadedFederation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("veilsum.roles.broker.mosquitto.find_mosquitto", lambda: None)
    monkeypatch.setattr("veilsum.roles.broker.embedded.run_embedded", lambda folder, config, ready: ready())
    assert cli.main(["broker", str(fed.folder)]) == 0
    assert capsys.readouterr().out.startswith(f"mosquitto is not installed: {PROGRAM} at localhost")
    assert "push parties off" in PROGRAM


def test_without_any_broker_the_error_says_what_to_install(
    fed: LoadedFederation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("veilsum.roles.broker.mosquitto.find_mosquitto", lambda: None)
    monkeypatch.setitem(sys.modules, "veilsum.roles.broker.embedded", None)
    assert cli.main(["broker", str(fed.folder)]) == 1
    assert "pip install 'veilsum[broker]'" in capsys.readouterr().err


def test_a_port_in_use_is_refused_before_anything_starts(
    fed: LoadedFederation, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", fed.config.broker_port)):
        assert cli.main(["broker", str(fed.folder)]) == 1
    require_mentions(capsys.readouterr().err, "port", fed.config.broker_port)


def test_a_configuration_for_another_port_is_refused_until_it_is_written_anew(
    fed: LoadedFederation, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fed.folder / "federation.toml"
    moved = replace(fed.config, broker_port=free_port(), broker_host="192.0.2.7")
    path.write_text(moved.to_toml())
    assert cli.main(["broker", str(fed.folder)]) == 2
    require_mentions(capsys.readouterr().err, "port", fed.config.broker_port, "TLS", "--configure")
    assert cli.main(["broker", str(fed.folder), "--configure"]) == 0
    monkeypatch.setattr("veilsum.roles.broker.mosquitto.find_mosquitto", lambda: None)
    monkeypatch.setattr("veilsum.roles.broker.embedded.run_embedded", lambda folder, config, ready: ready())
    assert cli.main(["broker", str(fed.folder)]) == 0
    assert f"listener {moved.broker_port}\n" in (fed.folder / "broker" / "mosquitto.conf").read_text()


def test_a_new_certificate_comes_from_the_same_authority(fed: LoadedFederation) -> None:
    broker = fed.folder / "broker"
    before = {name: (broker / name).read_bytes() for name in ("ca.pem", "server.pem", "passwords")}
    configure_broker(fed.folder, fed.folder / "organiser")
    assert (broker / "ca.pem").read_bytes() == before["ca.pem"]
    assert (broker / "passwords").read_bytes() == before["passwords"]
    assert (broker / "server.pem").read_bytes() != before["server.pem"]
    (broker / "ca.pem").unlink()
    with pytest.raises(LocalProtocolError, match=r"ca\.pem is missing"):
        configure_broker(fed.folder, fed.folder / "organiser")


def test_a_federation_without_tls_has_no_certificates(tmp_path: Path) -> None:
    create_federation(tmp_path / "fed", FederationConfig(scheme="masked", broker_tls=False, broker_port=1883))
    fed = load_federation(tmp_path / "fed")
    assert not list((fed.folder / "broker").glob("*.pem"))
    assert broker_address(fed, "p1", fed.key_folder("p1")).tls is None
    assert "certfile" not in (fed.folder / "broker" / "mosquitto.conf").read_text()


def test_a_missing_broker_folder_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "federation.toml").write_text(FederationConfig().to_toml())
    with refusal(ParameterError, "mosquitto.conf"):
        os.environ["VEILSUM_TRACEBACK"] = "1"
        try:
            cli.main(["broker", str(tmp_path)])
        finally:
            del os.environ["VEILSUM_TRACEBACK"]


def test_a_slow_receiver_may_fall_behind_by_what_all_parties_can_have_under_way() -> None:
    lines = mosquitto_configuration(FederationConfig(parties=party_names(50))).splitlines()
    settings = dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))
    assert settings["max_queued_messages"] == "0"
    assert int(settings["max_queued_bytes"]) > 51 * 8 * 2**20
    assert int(settings["max_packet_size"]) == 2 * 2**20
    assert (settings["persistence"], settings["allow_anonymous"]) == ("true", "false")


def test_a_login_line_accepts_its_password_and_no_other() -> None:
    line = password_line("alice", "correct", bytes(12))
    assert password_matches(line, "correct")
    assert not password_matches(line, "wrong")
    assert not password_matches("alice:correct", "correct")
    assert require_login_line(f"{line}\n") == ("alice", line)


# From mosquitto_passwd 2.0.11: mosquitto_passwd -b -c FILE alice secret
MOSQUITTO_LINE = (
    "alice:$7$101$hF3OPBdqLD9YFF3+$W6/Q+MX0S/9A8S+t5onwx9rE31ZGlgCd8ysbkP9hfEzRCDPIwzSltwZHWsVdfHVhFjic"
    "+jtRKysvXs/2EVtH/g=="
)


def test_lines_that_mosquitto_wrote_are_understood() -> None:
    assert password_matches(MOSQUITTO_LINE, "secret")
    assert not password_matches(MOSQUITTO_LINE, "Secret")


@pytest.mark.parametrize(
    "text",
    ["", "alice", "alice:plain", f"{MOSQUITTO_LINE}\nmallory:$7$", "a b:$7$1$AAAA$" + "A" * 88]
    + [MOSQUITTO_LINE.replace("$101$", f"${count}$") for count in (0, 9_999_999)]
    + [MOSQUITTO_LINE.replace("hF3OPBdqLD9YFF3+", salt) for salt in ("A===", "====")],
)
def test_what_is_no_login_line_never_reaches_the_password_file(text: str) -> None:
    with refusal(LocalProtocolError, "login", "name:$7$iterations$salt$hash", LOGIN_FILE):
        require_login_line(text)


def test_every_login_has_a_password_of_its_own(tmp_path: Path) -> None:
    lines = [create_login(tmp_path / name, "alice") for name in ("one", "two")]
    passwords = [read_password(tmp_path / name) for name in ("one", "two")]
    assert len({*passwords, *lines}) == 4
    assert all(password_matches(line, password) for line, password in zip(lines, passwords, strict=True))
    assert all(len(password) >= 43 for password in passwords)


def test_an_observer_reads_statuses_and_writes_nothing() -> None:
    reading, writing = parse_access_list(access_list("fed", ["alice", "observer-1"]))
    topics = Topics("fed")
    login = topics.login("observer-1")
    assert not writing.get(login)
    assert list(reading[login]) == [topics.all_statuses()]
    assert not covers(topics.all_statuses(), topics.datagrams("alice", "bob"))


@pytest.mark.parametrize(
    ("pattern", "topic", "covered"),
    [
        ("a/+/c", "a/b/c", True),
        ("a/+/c", "a/+/c", True),
        ("a/b/c", "a/+/c", False),
        ("a/+/c", "a/#", False),
        ("a/+", "a/#", False),
        ("a/+/c", "#", False),
        ("a/+/c", "a/b/c/d", False),
        ("a/+/c", "a/b", False),
    ],
)
def test_a_pattern_covers_a_filter_only_if_it_covers_all_it_stands_for(
    pattern: str, topic: str, covered: bool
) -> None:
    assert covers(pattern, topic) is covered


@pytest.mark.parametrize(
    ("host", "local"),
    [("localhost", True), ("127.0.0.1", True), ("::1", True), ("192.0.2.7", False), ("example.org", False)],
)
def test_a_broker_for_this_machine_listens_on_this_machine_only(host: str, local: bool) -> None:
    assert is_local(host) is local
    listener = (
        mosquitto_configuration(FederationConfig(broker_host=host)).split("listener ")[1].splitlines()[0]
    )
    assert listener.endswith("127.0.0.1") is local
