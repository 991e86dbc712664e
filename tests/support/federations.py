"""Small federations on disk, and their processes, for tests that need the real thing: files, signals, a broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.brokers.broker import MOSQUITTO, BrokerProcess, free_port, mosquitto
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.federation.enrolment import create_federation
from veilsum.roles.federation.folder import LoadedFederation, load_federation

QUICK = {"opening_s": 4.0, "phase_s": 4.0, "training_s": 4.0, "patience_s": 12.0}
"""Deadlines for tests: long enough for a loaded machine, short enough to wait for."""
SECONDS = 120.0


def make_federation(
    folder: Path, scheme: str = "masked", parties: int = 3, **settings: Any
) -> LoadedFederation:
    """A complete federation without TLS on a free port; `vectors:40` unless another task is given."""
    values: dict[str, Any] = {
        "scheme": scheme,
        "parties": parties,
        "task": "vectors:40",
        "rounds": 2,
        "broker_host": "localhost",
        "broker_port": free_port(),
        "broker_tls": False,
        **QUICK,
        **settings,
    }
    create_federation(folder, FederationConfig.from_options(values))
    return load_federation(folder)


def broker_of(loaded: LoadedFederation, folder: Path) -> BrokerProcess:
    """A mosquitto on the federation's port, open to everybody: nothing may depend on the broker's own checks."""
    broker = mosquitto(folder)
    configuration = folder / "mosquitto.conf"
    text = configuration.read_text().replace(
        f"listener {broker.port}", f"listener {loaded.config.broker_port}"
    )
    configuration.write_text(text)
    broker.port = loaded.config.broker_port
    return broker


def own_broker_of(loaded: LoadedFederation, port: int | None = None) -> BrokerProcess:
    """The federation's own mosquitto, with its certificate, logins and access list; at another port if one is named."""
    folder = loaded.folder / "broker"
    configuration = (folder / "mosquitto.conf").read_text()
    port, named = port or loaded.config.broker_port, loaded.config.broker_port
    text = configuration.replace(f"listener {named}", f"listener {port}")
    as_root = "user root\n" if os.geteuid() == 0 else ""
    (folder / "of-a-test.conf").write_text(as_root + text)
    assert MOSQUITTO is not None
    return BrokerProcess([MOSQUITTO, "-c", "of-a-test.conf"], port, folder / "of-a-test.log", folder=folder)


@dataclass
class Role:
    """One role process, with the facts that it told so far."""

    name: str
    process: subprocess.Popen[str]
    facts: list[Mapping[str, Any]] = field(default_factory=list)
    other_lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                try:
                    self.facts.append(json.loads(line))
                except ValueError:
                    self.other_lines.append(line)
                self._news.notify_all()
        self.process.stderr.close()
        with self._news:
            self._news.notify_all()

    def wait_for(self, fact: str, seconds: float = SECONDS, **fields: Any) -> Mapping[str, Any]:
        """The first fact of this name with these fields; fails if the process ends or time passes before it."""
        give_up_at = time.monotonic() + seconds
        with self._news:
            while True:
                for one in self.facts:
                    if one["fact"] == fact and all(one.get(key) == value for key, value in fields.items()):
                        return one
                left = give_up_at - time.monotonic()
                if left <= 0 or (self.process.poll() is not None and not self._reader.is_alive()):
                    raise AssertionError(f"{self.name} never told {fact} {fields}: {self.said()}")
                self._news.wait(min(left, 0.2))

    def told(self, fact: str) -> list[Mapping[str, Any]]:
        return [one for one in self.facts if one["fact"] == fact]

    def said(self) -> str:
        """Everything, as text."""
        return "\n".join([*(json.dumps(fact) for fact in self.facts), *self.other_lines])

    def end(self, seconds: float = SECONDS) -> int:
        """The exit code, when the process has ended by itself and all of its words were read."""
        code = self.process.wait(timeout=seconds)
        self._reader.join(timeout=5.0)
        return code

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def signal(self, which: signal.Signals) -> None:
        self.process.send_signal(which)


class Company:
    """The processes of one federation; whatever is left of them ends with the `with` block."""

    def __init__(self, loaded: LoadedFederation) -> None:
        self.loaded = loaded
        self.roles: list[Role] = []

    def __enter__(self) -> Company:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for role in self.roles:
            if role.process.poll() is None:
                role.process.kill()
        for role in self.roles:
            role.end()

    def start(self, name: str, *arguments: str, program: Sequence[str] = ("-m", "veilsum")) -> Role:
        kind = self.loaded.roster.identity(name).role.value
        file = self.loaded.folder / "federation.toml"
        command = [
            sys.executable,
            *program,
            kind,
            str(file),
            "--name",
            name,
            "--log-format",
            "json",
            *arguments,
        ]
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        role = Role(name, process)
        self.roles.append(role)
        return role

    def start_all(self, *arguments: str) -> dict[str, Role]:
        return {name: self.start(name, *arguments) for name in self.names()}

    def names(self) -> Iterator[str]:
        yield "server"
        yield from self.loaded.roster.participants


def wait_until(true: Callable[[], bool], seconds: float = SECONDS) -> None:
    give_up_at = time.monotonic() + seconds
    while not true():
        if time.monotonic() > give_up_at:
            raise AssertionError("it did not happen in time")
        time.sleep(0.02)


def change_settings(loaded: LoadedFederation, **lines: Any) -> LoadedFederation:
    """The federation after somebody edited values in federation.toml."""
    path = loaded.folder / "federation.toml"
    text = path.read_text()
    for key, value in lines.items():
        (old,) = (line for line in text.splitlines() if line.startswith(f"{key} = "))
        text = text.replace(old, f"{key} = {value}")
    path.write_text(text)
    return load_federation(loaded.folder)
