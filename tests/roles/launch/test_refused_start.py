"""A party that refuses to start ends the launch before the first round, unless we are told to go on without it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.support.brokers.broker import needs_mosquitto
from tests.support.federations import make_federation
from tests.support.launches import require_nothing_left, run_veilsum
from tests.support.refusals import require_mentions
from veilsum.roles.launch.ourselves import our_python

pytestmark = needs_mosquitto


def test_a_party_whose_key_others_can_read_is_named_and_no_round_is_begun(tmp_path: Path) -> None:
    """The last line has party and reason, the exit code is that of a wrong request, and no server was started."""
    loaded = make_federation(tmp_path / "fed", "masked", 4)
    key = loaded.folder / "keys" / "p3" / "identity.json"
    key.chmod(0o644)
    out = tmp_path / "out.json"
    launched = run_veilsum("launch", str(loaded.folder), "--json", str(out))
    assert launched.returncode == 2, launched.stderr
    require_mentions(launched.stdout.splitlines()[-1], "p3", key, "644", "chmod")
    assert not (loaded.folder / "logs" / "server.log").exists()
    figures = json.loads(out.read_text())
    assert figures["rounds"] == []
    assert figures["cause"]["party"] == "p3"
    (told,) = (json.loads(line) for line in (loaded.folder / "logs" / "p3.log").read_text().splitlines())
    assert (told["fact"], told["culprit"], told["exit_code"]) == ("start_failed", "p3", 2)
    require_nothing_left(loaded.folder)


def test_a_launch_goes_on_without_who_refuses_when_it_is_told_to(tmp_path: Path) -> None:
    """The run has all its rounds, and names who was missing."""
    loaded = make_federation(tmp_path / "fed", "plain", 3)
    (loaded.folder / "keys" / "p3" / "identity.json").chmod(0o644)
    launched = run_veilsum("launch", str(loaded.folder), "--allow-missing")
    assert launched.returncode == 0, launched.stdout
    log = (loaded.folder / "logs" / "server.log").read_text().splitlines()
    last = [fact for fact in map(json.loads, log) if fact["fact"] == "round_committed"][-1]
    assert (last["round"], last["members"]) == (2, ["p1", "p2"])
    require_mentions(launched.stdout, "lost", "p3", "chmod")


def test_a_launch_whose_own_files_do_not_fit_is_a_wrong_request(tmp_path: Path) -> None:
    loaded = make_federation(tmp_path / "fed", "plain", 2)
    (loaded.folder / "keys" / "server" / "identity.json").chmod(0o644)
    launched = run_veilsum("launch", str(loaded.folder))
    assert launched.returncode == 2
    assert launched.stderr.count("\n") == 1
    require_mentions(launched.stderr, "server", "chmod")


def test_no_folder_on_the_way_shadows_the_package_that_is_launched(tmp_path: Path) -> None:
    """In a folder with a checkout called veilsum, which PYTHONPATH names besides, all processes are of one kind."""
    loaded = make_federation(tmp_path / "fed", "plain", 2)
    shadow = tmp_path / "parent" / "veilsum"
    (shadow / "veilsum").mkdir(parents=True)
    launched = subprocess.run(
        our_python("veilsum", "launch", str(loaded.folder)),
        cwd=shadow.parent,
        env={"PYTHONPATH": str(shadow.parent), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert launched.returncode == 0, launched.stderr
