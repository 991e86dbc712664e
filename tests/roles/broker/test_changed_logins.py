"""Who came in by a password of before has nothing of what its login is given later, however long it stays connected."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from amqtt.contexts import Action, BaseContext
from amqtt.session import Session

from tests.support.brokers.broker import free_port, needs_mosquitto
from tests.support.invited import CONFIG, answer, invited
from veilsum.roles.broker.connect import broker_address
from veilsum.roles.broker.embedded import AccessListPlugin, PasswordFilePlugin, PluginSettings
from veilsum.roles.broker.logins import PASSWORD_FILE, password_line
from veilsum.roles.federation.enrolment import create_federation, evict_party
from veilsum.roles.federation.folder import LoadedFederation, load_federation
from veilsum.roles.invitations.invitation_file import read_invitation
from veilsum.roles.invitations.inviting import enrol, make_server_keys
from veilsum.transport.mqtt.topics import Topics

BOTH_BROKERS = [
    pytest.param((), marks=needs_mosquitto, id="mosquitto"),
    pytest.param(("--embedded",), id="embedded"),
]
WAIT_S = 20.0


@pytest.fixture
def fed(tmp_path: Path) -> LoadedFederation:
    """A federation whose only enrolled identity is the server."""
    config = replace(CONFIG, broker_port=free_port(), broker_host="127.0.0.1")
    create_federation(tmp_path / "fed", config, with_keys=False)
    make_server_keys(tmp_path / "fed", tmp_path / "fed" / "organiser")
    return load_federation(tmp_path / "fed")


@pytest.fixture(params=BOTH_BROKERS)
def reload(request: pytest.FixtureRequest, fed: LoadedFederation) -> Iterator[Callable[[], None]]:
    """Its broker runs; called, it reads its files again."""
    invited(fed.folder)
    command = [sys.executable, "-m", "veilsum", "broker", str(fed.folder), *request.param]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        yield lambda: process.send_signal(signal.SIGHUP)
        process.terminate()


def client_of(fed: LoadedFederation, name: str, password: str) -> aiomqtt.Client:
    address, login = (
        broker_address(fed, "server", fed.key_folder("server")),
        Topics(fed.federation_id).login(name),
    )
    assert address.tls is not None
    return aiomqtt.Client(
        address.host,
        address.port,
        username=login,
        password=password,
        identifier=login,
        protocol=aiomqtt.ProtocolVersion.V311,
        tls_context=address.tls.context(),
        timeout=WAIT_S,
    )


def password_in(key_folder: Path) -> str:
    return (key_folder / PASSWORD_FILE).read_text().strip()


async def stay(fed: LoadedFederation, password: str, change: Callable[[], None]) -> list[str]:
    """Connect as alice before the change, and hear what there is for alice until the broker ends the connection."""
    topics, heard = Topics(fed.federation_id), list[str]()
    wanted = topics.all_datagrams("alice")
    server = client_of(fed, "server", password_in(fed.key_folder("server")))
    async with server, contextlib.AsyncExitStack() as left_open:
        stayed = await left_open.enter_async_context(client_of(fed, "alice", password))
        left_open.push(lambda *_: True)
        with contextlib.suppress(aiomqtt.MqttError):
            await stayed.subscribe(wanted, timeout=WAIT_S)
        change()
        with contextlib.suppress(aiomqtt.MqttError):
            await stayed.subscribe(wanted, timeout=1.0)
        with contextlib.suppress(aiomqtt.MqttError):
            async with asyncio.timeout(WAIT_S):
                speaking = asyncio.create_task(speak(server, topics.datagrams("alice", "server")))
                async for message in stayed.messages:
                    heard.append(message.topic.value)
        speaking.cancel()
    return heard


async def speak(server: aiomqtt.Client, topic: str) -> None:
    while True:
        await server.publish(topic, b"for alice alone")
        await asyncio.sleep(0.05)


def test_a_thief_of_an_invitation_who_stays_is_sent_away_when_the_party_is_enrolled(
    fed: LoadedFederation, reload: Callable[[], None], tmp_path: Path
) -> None:
    path = fed.folder / "invitations" / "alice.invite"
    password = read_invitation(path).password.reveal().decode()
    reply = answer(path, tmp_path / "alice")

    def change() -> None:
        enrol(fed.folder, fed.folder / "organiser", [reply], None)
        reload()

    assert asyncio.run(stay(fed, password, change)) == []

    async def come() -> None:
        async with client_of(fed, "alice", password_in(tmp_path / "alice" / "keys" / "alice")) as alice:
            await alice.subscribe(Topics(fed.federation_id).all_datagrams("alice"))

    asyncio.run(come())


def test_an_evicted_party_that_stays_is_sent_away_also_when_its_name_is_enrolled_again(
    fed: LoadedFederation, reload: Callable[[], None], tmp_path: Path
) -> None:
    organiser = fed.folder / "organiser"
    enrol(
        fed.folder, organiser, [answer(fed.folder / "invitations" / "alice.invite", tmp_path / "one")], None
    )
    reload()

    def change() -> None:
        evict_party(fed.folder, organiser, "alice")
        enrol(fed.folder, organiser, [answer(invited(fed.folder), tmp_path / "two")], None)
        reload()

    assert asyncio.run(stay(fed, password_in(tmp_path / "one" / "keys" / "alice"), change)) == []


@pytest.fixture
def session(fed: LoadedFederation) -> Session:
    """Of the server, before amqtt asked for its password."""
    session = Session()
    session.username = Topics(fed.federation_id).login("server")
    session.password = password_in(fed.key_folder("server"))
    return session


def asked(plugin: type[Any], fed: LoadedFederation, **question: object) -> bool:
    """What a plugin of ours answers to amqtt."""
    context = BaseContext()
    context.config = PluginSettings(str(fed.folder / "broker"))
    made = plugin(context)
    answered = made.topic_filtering(**question) if "topic" in question else made.authenticate(**question)
    return bool(asyncio.run(answered))


def test_what_a_session_may_do_ends_with_the_line_that_let_it_in_and_with_its_login(
    fed: LoadedFederation, session: Session
) -> None:
    topics, passwords = Topics(fed.federation_id), fed.folder / "broker" / "passwords"

    def may() -> bool:
        topic, action = topics.all_datagrams("server"), Action.SUBSCRIBE
        return asked(AccessListPlugin, fed, session=session, topic=topic, action=action)

    assert not may(), "nobody asked for its password yet"
    assert asked(PasswordFilePlugin, fed, session=session)
    assert may()
    session.username = topics.login("observer-1")
    assert not may(), "amqtt writes the login of who asks for the same identifier into a session"
    session.username = topics.login("server")
    assert may()
    before = passwords.read_text()
    other = password_line(topics.login("server"), "another", bytes(12))
    lines = [other if line.startswith(f"{session.username}:") else line for line in before.splitlines()]
    passwords.write_text("\n".join(lines))
    assert not may()
    assert not asked(PasswordFilePlugin, fed, session=session)


def test_a_last_will_that_the_access_list_does_not_allow_is_forgotten(
    fed: LoadedFederation, session: Session
) -> None:
    topics = Topics(fed.federation_id)
    for topic, kept in ((topics.gone("server"), True), (topics.gone("alice"), False)):
        session.will_flag, session.will_topic = True, topic
        assert asked(PasswordFilePlugin, fed, session=session)
        assert session.will_flag is kept


@pytest.mark.parametrize("login", ["server", "nobody"])
def test_whoever_is_not_let_in_leaves_no_last_will(
    fed: LoadedFederation, session: Session, login: str
) -> None:
    """amqtt has written it into the session of the member whose identifier was asked for."""
    topics = Topics(fed.federation_id)
    assert asked(PasswordFilePlugin, fed, session=session)
    session.username, session.password = topics.login(login), "wrong"
    session.will_flag, session.will_topic = True, topics.gone("server")
    assert not asked(PasswordFilePlugin, fed, session=session)
    assert not session.will_flag
