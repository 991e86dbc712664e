"""Processes that record what they see, over a real broker: the files are attacked as anybody could attack them."""

from __future__ import annotations

import json
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.brokers.broker import BrokerProcess, needs_mosquitto
from tests.support.federations import Company, broker_of, make_federation
from tests.support.refusals import require_mentions
from veilsum.roles.cli import main as cli
from veilsum.roles.federation.folder import LoadedFederation
from veilsum.roles.learning.contract import sha256_of
from veilsum.roles.process.held_model import held_model
from veilsum.roles.views.file import load_view
from veilsum.simulations.attacks.metrics import ssim
from veilsum.simulations.audit.recorded import attack_view
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.scales import find_scale

pytestmark = needs_mosquitto


@pytest.fixture
def fed(tmp_path: Path) -> LoadedFederation:
    return make_federation(tmp_path / "fed", "ampc")


@pytest.fixture
def broker(fed: LoadedFederation, tmp_path: Path) -> Iterator[BrokerProcess]:
    process = broker_of(fed, tmp_path / "broker")
    process.start()
    yield process
    process.stop()


def test_the_files_of_server_and_one_peer_give_the_global_model_that_the_server_must_not_see(
    fed: LoadedFederation, broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each process writes its own view with mode 0600; pooled by `audit run`, the biases come off the sums."""
    with Company(fed) as company:
        roles = {
            name: company.start(name, "--record-view", str(tmp_path / f"{name}.view"))
            for name in company.names()
        }
        assert [role.end() for role in roles.values()] == [0] * 4, roles["server"].said()
    files = {name: tmp_path / f"{name}.view" for name in roles}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files.values()} == {0o600}
    assert "secrets included" in roles["p1"].said()
    assert [one.round for one in load_view(files["p2"]).results] == [0, 1]
    command = ["audit", "run", "--view", str(files["server"]), "--attack", "ampc-coalition", "--json", "-"]
    assert cli.main(command) == 2, "the server alone has no seeds: the request cannot work"
    capsys.readouterr()
    assert cli.main([*command, "--view", str(files["p1"])]) == 0
    shown = json.loads(capsys.readouterr().out)
    (row,), (_, found, _) = shown["rows"], shown["summary"]
    require_mentions(found, row["model_sha256"][:16])
    assert "failed" not in found
    assert row["model_sha256"] == sha256_of(held_model(fed, "p2")[0])


def test_a_process_that_is_stopped_leaves_a_whole_file(
    fed: LoadedFederation, broker: BrokerProcess, tmp_path: Path
) -> None:
    with Company(fed) as company:
        server = company.start("server", "--record-view", str(tmp_path / "server.view"))
        peer = company.start("p1")
        server.wait_for("started")
        peer.wait_for("started")
        server.signal(signal.SIGTERM)
        assert server.end() == 130
    view = load_view(tmp_path / "server.view")
    assert view.members == ("server",)
    assert view.results == ()


@pytest.mark.long
def test_the_servers_file_of_a_launched_plain_federation_gives_the_parties_images_back(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Single images behind each update: every upload is rebuilt, and the truth is in the files of the parties."""
    fed = make_federation(
        tmp_path / "fed",
        "plain",
        2,
        task="digits",
        model="dlnet",
        payload="gradient",
        gradient_batch="mini",
        batch_size=1,
        rounds=1,
        min_parties=2,
        phase_s=30.0,
        opening_s=60.0,
        patience_s=120.0,
    )
    views = tmp_path / "views"
    assert cli.main(["launch", str(fed.folder), "--record-views", str(views)]) == 0
    assert {path.name for path in views.iterdir()} == {"server.view", "p1.view", "p2.view"}
    capfd.readouterr()
    request = Request("plain", "server", "idlg", find_scale("smoke"))
    outcome = attack_view(load_view(views / "server.view"), request)
    found = {row.target[-2:]: row.pictures[0].found for row in outcome.rows if row.row == "attack"}
    assert found.keys() == {"p1", "p2"}
    for name, image in found.items():
        own = load_view(views / f"{name}.view").own_data[name].inputs
        assert ssim(np.repeat(image[None], len(own), axis=0), own).max() >= 0.95
