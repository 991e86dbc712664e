"""The broker of a stranger's folder: nothing is loaded, read or written that veilsum did not name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.brokers.broker import free_port
from tests.support.refusals import refusal, require_mentions
from veilsum.protocol.errors import ParameterError
from veilsum.roles.broker.checked import require_own_configuration
from veilsum.roles.cli import main as cli
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.federation.enrolment import create_federation

LINES = (
    "plugin /tmp/e.so",
    "auth_plugin e.so",
    " plugin e.so",
    "include_dir more",
    "user root",
    "pid_file mosquitto.pid",
    "log_dest file /etc/passwd",
    "log_dest topic",
    "listener 0 /run/other.sock",
    "password_file /etc/shadow",
    "acl_file ../acl",
    "persistence_location /etc/",
    "persistence_location data/../../",
    "certfile server.pem more.pem",
    "# " + "x" * 1100 + "plugin e.so",
    "sys_interval 0\x00plugin",
    " ",
)


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that has the command line of every mosquitto that is started."""
    told, program = tmp_path / "started", tmp_path / "mosquitto"
    program.write_text(f'#!/bin/sh\necho "$@" >> {told}\n')
    program.chmod(0o700)
    monkeypatch.setattr("veilsum.roles.broker.mosquitto.find_mosquitto", lambda: str(program))
    return told


@pytest.fixture
def broker(tmp_path: Path) -> Path:
    config = FederationConfig(scheme="plain", parties=("p1", "p2", "p3"), broker_port=free_port())
    create_federation(tmp_path / "fed", config)
    return tmp_path / "fed" / "broker"


@pytest.mark.parametrize("line", LINES)
def test_a_line_that_veilsum_does_not_write_is_refused_by_its_number_and_nothing_starts(
    broker: Path, started: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    file = broker / "mosquitto.conf"
    count = len(file.read_text().splitlines())
    file.write_text(f"{file.read_text()}{line}\n")
    assert cli.main(["broker", str(broker.parent)]) == 2
    require_mentions(capsys.readouterr().err, count + 1, "--configure", "mosquitto")
    assert not started.exists()


@pytest.mark.parametrize(
    "name", ["mosquitto.conf", "passwords", "acl", "server.pem", "data/mosquitto.db.new", "more", "pipe"]
)
def test_a_link_in_the_folder_is_refused_and_nothing_starts(
    broker: Path, started: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    if name == "pipe":
        os.mkfifo(broker / name)
    else:
        if (broker / name).exists():
            (broker / name).rename(elsewhere)
        (broker / name).symlink_to(elsewhere)
    assert cli.main(["broker", str(broker.parent)]) == 2
    require_mentions(capsys.readouterr().err, broker / name)
    assert not started.exists()


def test_a_configuration_that_is_no_text_is_refused(broker: Path) -> None:
    for content in (b"\xff", b"#\n" * 40_000):
        (broker / "mosquitto.conf").write_bytes(content)
        with refusal(ParameterError, broker / "mosquitto.conf", "--configure"):
            require_own_configuration(broker)


@pytest.mark.parametrize("user", [0, 1000])
def test_what_veilsum_wrote_is_started_with_figures_of_ones_own(
    broker: Path, started: Path, monkeypatch: pytest.MonkeyPatch, user: int
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    file = broker / "mosquitto.conf"
    file.write_text(file.read_text().replace("autosave_interval 60", "autosave_interval 600"))
    assert cli.main(["broker", str(broker.parent)]) == 0
    name = ".mosquitto-as-root.conf" if user == 0 else "mosquitto.conf"
    assert started.read_text() == f"-c {name}\n"
    assert (broker / name).read_text() == ("user root\n" if user == 0 else "") + file.read_text()


def test_root_writes_its_configuration_through_no_link(
    broker: Path, tmp_path: Path, started: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link that appears after the folder was looked at is replaced, not followed."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    text = (broker / "mosquitto.conf").read_text()
    (broker / ".mosquitto-as-root.conf").symlink_to(victim)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for place in ("veilsum.roles.broker.mosquitto", "veilsum.roles.broker.checked"):
        monkeypatch.setattr(f"{place}.require_own_configuration", lambda _: text)
    assert cli.main(["broker", str(broker.parent)]) == 0
    assert victim.read_text() == "mine"
    assert started.exists()
