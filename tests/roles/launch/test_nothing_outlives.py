"""Whatever ends a launch, its broker, server and parties end with it, and the next launch goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.brokers.broker import needs_mosquitto
from tests.support.federations import change_settings, make_federation
from tests.support.launches import launching, processes_of, require_nothing_left, run_veilsum

pytestmark = needs_mosquitto


def committed(folder: Path) -> int:
    return (folder / "logs" / "server.log").read_text().count('"round_committed"')


def test_a_launch_that_is_killed_leaves_nothing_running_and_the_next_one_goes_on(tmp_path: Path) -> None:
    """kill -9: neither mosquitto nor a role is left, the port and the state folders are free, no round is lost."""
    loaded = make_federation(tmp_path / "fed", "plain", 2, rounds=100_000)
    with launching(loaded.folder) as process:
        names = " ".join(processes_of(loaded.folder).values())
        assert all(word in names for word in ("mosquitto", "server", "p1", "p2"))
        process.kill()
        require_nothing_left(loaded.folder)
    done = committed(loaded.folder)
    change_settings(loaded, rounds=done + 2)
    resumed = run_veilsum("launch", str(loaded.folder), "--resume")
    assert resumed.returncode == 0, resumed.stdout
    assert f"round {done + 2}/{done + 2} committed" in resumed.stderr
    require_nothing_left(loaded.folder)


@pytest.mark.long
@pytest.mark.parametrize("which", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
def test_a_launch_that_is_told_to_end_stops_all_in_order(tmp_path: Path, which: signal.Signals) -> None:
    """Every role tells that it stopped; the exit code is 130 and the last line says how far it came, and no failure."""
    loaded = make_federation(tmp_path / "fed", "plain", 2, rounds=100_000)
    with launching(loaded.folder) as process:
        process.send_signal(which)
        said = process.communicate(timeout=60)[0]
    assert process.returncode == 130
    assert said.splitlines()[-1].startswith("stopped after ")
    assert "failed" not in said
    assert "lost" not in said
    require_nothing_left(loaded.folder)
    for name in ("server", "p1", "p2"):
        assert '"fact": "stopped"' in (loaded.folder / "logs" / f"{name}.log").read_text().splitlines()[-1]


@pytest.mark.long
def test_a_launch_whose_nursery_is_killed_ends_and_says_so(tmp_path: Path) -> None:
    """The processes forked from it end, too, and the launch fails with the cause as its last line."""
    loaded = make_federation(tmp_path / "fed", "plain", 2, rounds=100_000)
    with launching(loaded.folder) as process:
        (nursery,) = (
            int(path.parent.name)
            for path in Path("/proc").glob("[0-9]*/stat")
            if is_child_of(path, process.pid)
        )
        os.kill(nursery, signal.SIGKILL)
        said = process.communicate(timeout=60)[0]
    assert process.returncode == 1
    assert "forked from has ended" in said.splitlines()[-1]
    require_nothing_left(loaded.folder)


def is_child_of(stat: Path, parent: int) -> bool:
    try:
        return stat.read_text().rpartition(")")[2].split()[1] == str(parent)
    except OSError:
        return False
