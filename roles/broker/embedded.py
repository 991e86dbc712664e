"""The embedded broker: amqtt, pure Python, for machines without mosquitto. The only importer of amqtt.

It follows the same password file and access list as mosquitto. It speaks MQTT 3.1.1, reaches about half of
mosquitto's rate, and forgets everything when it ends, which the transport survives: good for trying things
out on one machine, not for a federation that matters.

It does not keep a client identifier for its login, and says so when it starts: amqtt takes the subscriptions of an
identifier away before it asks for the password, so that whoever reaches its port can push a party off for a moment.
The party comes back by itself.

amqtt asks for a password when a client connects, and never again. So what a client may do goes by the line of the
password file that it came in by: when its login has another line, or none, everything is refused to it, also what it
subscribed to before, and it is disconnected within a second, or when its keep-alive ends if another client has come in
under its identifier meanwhile. A thief of an invitation who waits for the enrolment has nothing of it.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amqtt.broker import Broker
from amqtt.contexts import Action
from amqtt.errors import BrokerError
from amqtt.plugins.base import BaseAuthPlugin, BaseTopicPlugin

from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.broker.files import ACCESS_LIST, CERTIFICATE, CERTIFICATE_KEY, is_local, read_password_file
from veilsum.roles.broker.logins import password_matches
from veilsum.roles.broker.ports import require_free_port

if TYPE_CHECKING:
    from amqtt.session import Session

    from veilsum.roles.config.federation_config import FederationConfig

PROGRAM = "embedded broker (amqtt; for trials: whoever reaches its port can push parties off)"
"""What it is called, for people, and what they must know about it."""
GRACE_S = 1.0
LOOK_EVERY_S = 0.5
"""How often the clients that came in by a password of before are looked for."""
_CAME_IN_BY = "_veilsum_came_in_by"
"""Of a session: the login and the line of the password file that let it in."""


@dataclass
class PluginSettings:
    """What amqtt hands to a plugin, under the name that it asks for."""

    folder: str = ""


class PasswordFilePlugin(BaseAuthPlugin):  # type: ignore[misc]  # amqtt is untyped
    """Lets in who knows the password behind a line of the password file."""

    Config = PluginSettings

    async def authenticate(self, *, session: Session) -> bool:
        folder, user = Path(self.config.folder), session.username or ""
        vars(session).pop(_CAME_IN_BY, None)
        line = read_password_file(folder).get(user)
        let_in = line is not None and password_matches(line, session.password or "")
        if let_in:
            vars(session)[_CAME_IN_BY] = (user, line)
        # amqtt writes the will of whoever asks for an identifier into the session that has it, before it asks for the
        # password, and publishes it when it takes the session over, whatever the access list says.
        if session.will_flag and not may(folder, session, session.will_topic, Action.PUBLISH):
            session.will_flag = False
        return let_in


class AccessListPlugin(BaseTopicPlugin):  # type: ignore[misc]  # amqtt is untyped
    """Lets each user read and write what the access list says. Rejected: amqtt's own, which cannot limit reading."""

    Config = PluginSettings

    async def topic_filtering(
        self, *, session: Session | None = None, topic: str | None = None, action: Action | None = None
    ) -> bool:
        return may(Path(self.config.folder), session, topic, action)


def may(folder: Path, session: Session | None, topic: str | None, action: Action | None) -> bool:
    """Whether the access list lets a client do this, whose password still is the one of its login."""
    if session is None or topic is None or not is_still_let_in(session, read_password_file(folder)):
        return False
    reading, writing = parse_access_list((folder / ACCESS_LIST).read_text(encoding="ascii"))
    allowed = (writing if action is Action.PUBLISH else reading).get(session.username or "", [])
    return any(covers(pattern, topic) for pattern in allowed)


def is_still_let_in(session: Session, lines: Mapping[str, str]) -> bool:
    """Whether the login of a session has the line that let it in.

    amqtt writes the login of who asks for the same identifier into a session before it asks for the password, so that
    the login is compared, too.
    """
    user, line = vars(session).get(_CAME_IN_BY, ("", ""))
    return bool(line) and user == session.username and lines.get(user) == line


def run_embedded(folder: Path, config: FederationConfig, on_ready: Callable[[], None]) -> None:
    """Serve until SIGINT or SIGTERM."""
    asyncio.run(_serve(folder, config, on_ready))


async def _serve(folder: Path, config: FederationConfig, on_ready: Callable[[], None]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for which in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(which, stop.set)
    # The files are read on every request, so there is nothing to do when we are told to read them again.
    loop.add_signal_handler(signal.SIGHUP, lambda: None)
    loop.set_exception_handler(_report_unless_cancelled)
    broker = Broker(_settings(folder, config))
    try:
        await broker.start()
    except BrokerError:
        require_free_port(config.broker_port)
        raise
    looking = asyncio.create_task(_send_away(broker, folder))
    try:
        on_ready()
        await stop.wait()
    finally:
        looking.cancel()
        await _shut_down(broker)


async def _send_away(broker: Broker, folder: Path) -> None:
    """Disconnect, again and again, who came in by another password than the login has now; without a last will."""
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        # While the file cannot be read, every request is refused; it may be there again the next time.
        with suppress(OSError, LocalProtocolError):
            lines = read_password_file(folder)
            for session, handler in list(broker.sessions.values()):
                if _CAME_IN_BY in vars(session) and not is_still_let_in(session, lines):
                    session.will_flag = False
                    await handler.handle_connection_closed()


async def _shut_down(broker: Broker) -> None:
    """Stop, also while clients hold their connections open: from Python 3.12 on, amqtt's shutdown waits for them.
    Those that are left after the grace are cut when the event loop ends."""
    with suppress(TimeoutError):
        async with asyncio.timeout(GRACE_S):
            await broker.shutdown()


def _report_unless_cancelled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Connections that had not finished their greeting are cancelled when the broker stops; that is no error."""
    if not isinstance(context.get("exception"), asyncio.CancelledError):
        loop.default_exception_handler(context)


def _settings(folder: Path, config: FederationConfig) -> dict[str, Any]:
    host = "127.0.0.1" if is_local(config.broker_host) else "0.0.0.0"  # noqa: S104 - the federation's own port
    listener: dict[str, Any] = {"type": "tcp", "bind": f"{host}:{config.broker_port}"}
    if config.broker_tls:
        listener |= {
            "ssl": True,
            "certfile": str(folder / CERTIFICATE),
            "keyfile": str(folder / CERTIFICATE_KEY),
        }
    plugins = (PasswordFilePlugin, AccessListPlugin)
    return {
        "listeners": {"default": listener},
        "plugins": {f"{__name__}.{plugin.__name__}": {"folder": str(folder)} for plugin in plugins},
    }


def covers(pattern: str, topic: str) -> bool:
    """Whether everything that `topic`, which may be a filter, stands for matches a pattern of our own lists."""
    levels, allowed = topic.split("/"), pattern.split("/")
    return len(levels) == len(allowed) and all(
        one == level or (one == "+" and level != "#") for one, level in zip(allowed, levels, strict=True)
    )


def parse_access_list(text: str) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """User -> patterns it may read, and user -> patterns it may write, from mosquitto's acl file."""
    reading: dict[str, list[str]] = {}
    writing: dict[str, list[str]] = {}
    user = ""
    for line in text.splitlines():
        match line.split():
            case ["user", name]:
                user = name
            case ["topic", "read", pattern]:
                reading.setdefault(user, []).append(pattern)
            case ["topic", "write", pattern]:
                writing.setdefault(user, []).append(pattern)
    return reading, writing
