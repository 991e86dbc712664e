"""A federation over a transport from outside the package: the same rounds, without a broker and without MQTT."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples import own_transport
from tests.support.federations import SECONDS, make_federation
from veilsum.protocol.identifiers import SERVER
from veilsum.roles.federation.folder import LoadedFederation
from veilsum.roles.learning.contract import sha256_of
from veilsum.roles.process.held_model import newest_model
from veilsum.simulations.run.simulate import simulate


@pytest.fixture
def sockets() -> Iterator[Path]:
    """The path of a socket must be short."""
    with tempfile.TemporaryDirectory(prefix="veilsum-") as folder:
        yield Path(folder)


def start(loaded: LoadedFederation, name: str, sockets: Path) -> subprocess.Popen[str]:
    role = loaded.roster.identity(name).role.value
    command = [sys.executable, own_transport.__file__, role, str(loaded.folder), name, str(sockets)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("scheme", ["ampc", "masked"])
def test_a_federation_over_a_transport_of_ones_own_ends_with_the_model_of_the_simulation(
    tmp_path: Path, sockets: Path, scheme: str
) -> None:
    """Every role is a process, all of them finish, and nobody could have used the broker: none is running."""
    loaded = make_federation(tmp_path / "fed", scheme, 3, task="vectors:30000", seed=5)
    processes = [start(loaded, name, sockets) for name in (SERVER, *loaded.roster.participants)]
    told = [process.communicate(timeout=SECONDS)[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, told
    for text in told:
        assert json.loads(text.splitlines()[-1])["fact"] == "run_finished"
    newest = newest_model(loaded)
    assert newest is not None
    assert sha256_of(newest[0]) == simulate(loaded.config).figures()["model_sha256"]
    assert not list(sockets.iterdir())
