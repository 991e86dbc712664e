"""Real brokers on free loopback ports: mosquitto, or the embedded pure-Python one where mosquitto is missing."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.brokers.certificates import make_certificates
from veilsum.transport.mqtt.broker_address import BrokerAddress, MqttVersion, Tls
from veilsum.transport.mqtt.topics import Topics

MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
START_S = 10.0

needs_mosquitto = pytest.mark.skipif(
    MOSQUITTO is None and os.environ.get("CI") != "true",
    reason="mosquitto is not installed (apt install mosquitto); the embedded broker cannot do this",
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class BrokerProcess:
    """A broker as a process that can be killed and started again on the same port."""

    command: Sequence[str]
    port: int
    log: Path
    process: subprocess.Popen[bytes] | None = None
    folder: Path | None = None
    """What the paths in its configuration are relative to."""

    def address(
        self,
        version: MqttVersion = "auto",
        username: str | None = None,
        password: str | None = None,
        tls: Tls | None = None,
    ) -> BrokerAddress:
        host = "127.0.0.1" if tls is None else "localhost"
        return BrokerAddress(host, self.port, username, password, tls, version)

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, cwd=self.folder)
        give_up_at = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1.0).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > give_up_at:
                    raise RuntimeError(f"the broker did not start: {self.log.read_text()}") from None
                time.sleep(0.02)

    def kill(self) -> None:
        """End the broker as a power cut does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def freeze(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(how)
            self.process.send_signal(signal.SIGCONT)
            self.process.wait(timeout=START_S)
            self.process = None


def mosquitto(folder: Path, settings: Iterable[str] = (), listener: Iterable[str] = ()) -> BrokerProcess:
    """A mosquitto with these lines of configuration; without any, its defaults and open to everybody."""
    if MOSQUITTO is None:
        raise RuntimeError("mosquitto is missing: apt install mosquitto (CI must run every test)")
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    lines = [*settings, f"listener {port} 127.0.0.1", *listener]
    if not any(line.startswith(("allow_anonymous", "password_file")) for line in lines):
        lines.append("allow_anonymous true")
    if os.geteuid() == 0:
        lines.insert(0, "user root")
    configuration = folder / "mosquitto.conf"
    configuration.write_text("\n".join(lines) + "\n")
    return BrokerProcess([MOSQUITTO, "-c", str(configuration)], port, folder / "broker.log")


def embedded(folder: Path) -> BrokerProcess:
    """The pure-Python broker, as a process like the other."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [sys.executable, str(Path(__file__).with_name("embedded_broker.py")), str(port)]
    return BrokerProcess(command, port, folder / "broker.log")


def any_broker(folder: Path) -> BrokerProcess:
    """mosquitto if it is there, else the embedded one, with a visible line; where CI=true that is an error."""
    if MOSQUITTO is not None or os.environ.get("CI") == "true":
        return mosquitto(folder)
    sys.stderr.write("\nmosquitto is not installed: these tests run on the embedded broker\n")
    return embedded(folder)


def guarded_mosquitto(folder: Path, federation: str, passwords: dict[str, str]) -> BrokerProcess:
    """A mosquitto with TLS from a private authority, passwords, and the access rules of a federation."""
    make_certificates(folder)
    tool = shutil.which("mosquitto_passwd")
    assert tool is not None, "mosquitto_passwd comes with mosquitto"
    password_file, access_file = folder / "passwords", folder / "access"
    password_file.touch(mode=0o600)
    topics = Topics(federation)
    lines: list[str] = []
    for name, password in passwords.items():
        subprocess.run([tool, "-b", str(password_file), name, password], check=True, capture_output=True)
        lines += [f"user {name}", *(rule.mosquitto() for rule in topics.access_rules(name))]
    access_file.touch(mode=0o600)
    access_file.write_text("\n".join(lines) + "\n")
    listener = [
        f"cafile {folder / 'ca.pem'}",
        f"certfile {folder / 'broker.pem'}",
        f"keyfile {folder / 'broker.key'}",
        "allow_anonymous false",
        f"password_file {password_file}",
        f"acl_file {access_file}",
    ]
    return mosquitto(folder, listener=listener)
