"""A broker's port is its own: another's listener there is never taken for it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.brokers.broker import free_port
from tests.support.refusals import refusal
from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.broker import mosquitto
from veilsum.roles.broker.embedded import run_embedded
from veilsum.roles.broker.ports import listens
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.federation.enrolment import create_federation

LISTENER = "import socket, sys; one = socket.create_server(('127.0.0.1', 0)); print(one.getsockname()[1], flush=True); "


@pytest.mark.parametrize("system_tells", [True, False])
def test_a_listener_of_another_is_not_taken_for_a_mosquitto_that_then_finds_its_port_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system_tells: bool
) -> None:
    """Two are started at once: the port is free when it is looked at, and another's when mosquitto asks for it."""
    if not system_tells:
        monkeypatch.setattr(mosquitto, "listens", lambda *_: None, raising=False)
    fed, port = tmp_path / "fed", free_port()
    create_federation(
        fed, FederationConfig(scheme="masked", parties=("alice", "bob", "carol"), broker_port=port)
    )
    late = tmp_path / "mosquitto"
    late.write_text("#!/bin/sh\nsleep 0.3\nexit 1\n")
    late.chmod(0o700)
    ready: list[int] = []
    with socket.create_server(("127.0.0.1", port)), refusal(LocalProtocolError, "port", port):
        mosquitto.run_mosquitto(str(late), (fed / "broker").resolve(), port, lambda: ready.append(port))
    assert not ready


def test_an_embedded_broker_that_finds_its_port_taken_names_it(tmp_path: Path) -> None:
    fed, port = tmp_path / "fed", free_port()
    config = FederationConfig(scheme="masked", parties=("alice", "bob", "carol"), broker_port=port)
    create_federation(fed, config)
    ready: list[int] = []
    with socket.create_server(("127.0.0.1", port)), refusal(LocalProtocolError, "port", port):
        run_embedded((fed / "broker").resolve(), config, lambda: ready.append(port))
    assert not ready


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system does not tell who listens")
def test_who_listens_on_a_port_is_told_of_that_process_alone() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LISTENER + "sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        port = int(other.stdout.readline())
        assert listens(other.pid, port) is True
        assert listens(os.getpid(), port) is False
        other.communicate()
    assert listens(other.pid, port) is None, "it is gone"
