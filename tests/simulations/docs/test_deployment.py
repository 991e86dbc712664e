"""The files of specs/deployment say what this version understands, and their paths agree with each other."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.sources import ROOT
from veilsum.protocol.identifiers import SERVER
from veilsum.roles.cli.main import COMMANDS
from veilsum.roles.cli.table import Parser
from veilsum.roles.federation.folder import KEYS_FOLDER, enter_federation

FOLDER = ROOT / "specs" / "deployment"
UNITS = sorted((FOLDER / "systemd").glob("*.service"))
PROGRAM = "/opt/veilsum/bin/veilsum"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
HOSPITALS = ("hospital-a", "hospital-b", "hospital-c", "hospital-d")


def understood(words: Sequence[str]) -> Any:
    """What the program would run for these words; it says what it does not understand."""
    (command,) = (one for one in COMMANDS if one.name == words[0])
    parser = Parser(command.name, "")
    command.load().add_arguments(parser)
    return parser.parse_args(list(words[1:]))


def unit(path: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # systemd knows upper and lower case
    parser.read(path)
    return parser


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_starts_what_its_name_says_and_may_write_where_it_must(path: Path) -> None:
    service = unit(path)["Service"]
    program, *words = shlex.split(service["ExecStart"].replace("%i", "alice"))
    asked = understood(words)
    assert program == PROGRAM
    assert words[0] == path.stem.removeprefix("veilsum-").rstrip("@")
    writable = [Path(one) for one in service["ReadWritePaths"].replace("%i", "alice").split()]
    if words[0] == "broker":
        assert writable == [asked.folder / "broker"]
        return
    assert asked.key in writable
    assert asked.federation.parent in writable, "checkpoints lie there"
    assert asked.resume
    assert ("%i" in service["ExecStart"]) == path.stem.endswith("@")


def test_there_is_a_unit_for_every_role_and_the_page_names_it() -> None:
    page = (FOLDER / "README.md").read_text()
    roles = {path.stem.removeprefix("veilsum-").rstrip("@") for path in UNITS}
    assert roles == {"broker", "server", "client", "peer"}
    assert all(f"(systemd/{path.name})" in page for path in UNITS)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_itself_finds_nothing_wrong_with_the_units(tmp_path: Path) -> None:
    for path in UNITS:
        text = path.read_text().replace(PROGRAM, sys.executable).replace("User=veilsum\n", "")
        (tmp_path / path.name.replace("@.", "@alice.")).write_text(text)
    files = sorted(str(path) for path in tmp_path.iterdir())
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *files], capture_output=True, text=True, check=False
    )
    said = [line for line in done.stderr.splitlines() if str(tmp_path) in line or "veilsum" in line]
    assert not said


def test_compose_has_four_hospitals_a_server_and_a_broker_with_a_folder_each() -> None:
    assert set(SERVICES) == {"broker", "server", *HOSPITALS}
    mounts = [volume for service in SERVICES.values() for volume in service["volumes"]]
    assert mounts == [f"./sites/{name}:/fed" for name in SERVICES]
    for service in SERVICES.values():
        assert service["image"] == "veilsum"
        assert service["user"] == "${OWNER:-1000:1000}"
        assert service["read_only"]
    built = SERVICES["broker"]["build"]
    assert (ROOT / built["dockerfile"]).is_file()


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_runs_a_command_on_its_own_folder(name: str) -> None:
    asked = understood(SERVICES[name]["command"])
    if name == "broker":
        assert asked.folder == Path("/fed")
        return
    assert asked.federation == Path("/fed/federation.toml")
    assert asked.name == name
    assert asked.resume
    assert SERVICES[name]["command"][0] == ("server" if name == SERVER else "client")


def test_the_image_has_everything_that_it_copies_and_the_program_as_its_entry() -> None:
    lines = (FOLDER / "Containerfile").read_text().splitlines()
    assert 'ENTRYPOINT ["veilsum"]' in lines
    assert (ROOT / "constraints.txt").is_file()
    assert any("/source/constraints.txt" in line and "/source[broker]" in line for line in lines)


def script_of_the_page() -> Iterator[str]:
    """The shell commands of section 2, without the last one, which needs an engine."""
    (script,) = re.findall(r"```sh\n(.*?)```", (FOLDER / "README.md").read_text(), re.DOTALL)
    *lines, last = script.strip().splitlines()
    assert "docker compose" in last
    assert f"-f {(FOLDER / 'compose.yaml').relative_to(ROOT)}" in last
    return iter(lines)


def test_the_folders_of_the_page_are_those_of_the_containers_and_let_their_owner_in(tmp_path: Path) -> None:
    (tmp_path / "veilsum").write_text(f'#!/bin/sh\nexec {sys.executable} -m veilsum "$@"\n')
    (tmp_path / "veilsum").chmod(0o755)
    script = "set -e\nPATH=$PWD:$PATH\n" + "\n".join(script_of_the_page())
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    for name, service in SERVICES.items():
        here = tmp_path / service["volumes"][0].partition(":")[0]
        if name == "broker":
            assert (here / "broker" / "mosquitto.conf").is_file()
            assert (here / "federation.toml").is_file()
            assert not (here / KEYS_FOLDER).exists()
            continue
        loaded, identity = enter_federation(here / "federation.toml", here / KEYS_FOLDER / name)
        assert identity.name == name
        assert loaded.config.broker_host == "broker"
        assert (here / str(loaded.config.broker_ca)).is_file()
        assert [path.name for path in (here / KEYS_FOLDER).iterdir()] == [name]
