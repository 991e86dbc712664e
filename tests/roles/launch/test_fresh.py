"""A fresh run that cannot begin costs nothing of the one before, whenever and however it ends."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.brokers.broker import needs_mosquitto
from tests.support.federations import make_federation
from tests.support.launches import COMMAND, require_nothing_left, run_veilsum
from tests.support.refusals import refusal, require_mentions
from veilsum.protocol.crypto.identity import Role
from veilsum.protocol.errors import ParameterError
from veilsum.protocol.identifiers import PartyId
from veilsum.roles.federation.enrolment import begin_anew
from veilsum.roles.federation.first_models import STATEMENTS_FOLDER
from veilsum.roles.federation.folder import LoadedFederation, load_federation
from veilsum.roles.federation.signed_roster import ROSTER_FILE, read_roster
from veilsum.roles.launch.earlier_run import FORGOTTEN, NOT_BEGUN, EarlierRun
from veilsum.roles.launch.processes import Launch
from veilsum.roles.monitor.history import RunHistory, RunState
from veilsum.roles.monitor.log_tail import LogTail
from veilsum.roles.process.checkpoint import CheckpointError, StateFolder
from veilsum.roles.process.context import RoleOptions, enter_role
from veilsum.roles.process.disk.launch_lock import EARLIER_RUN_FOLDER, LOCK
from veilsum.roles.process.held_model import held_model
from veilsum.roles.process.persistent_state import PersistentState


def model_of(folder: Path) -> str:
    """The hash of the model that a party holds, as `evaluate` says it."""
    out = folder.with_suffix(".json")
    shown = run_veilsum("evaluate", str(folder), "--name", "p1", "--json", str(out))
    assert shown.returncode == 0, shown.stderr
    sha256: str = json.loads(out.read_text())["model_sha256"]
    return sha256


def told_in(folder: Path) -> RunHistory:
    """What a page of the run would be drawn from."""
    history = RunHistory()
    for writer, fact in LogTail(folder / "logs").facts():
        history.take(fact, writer)
    return history


@needs_mosquitto
@pytest.mark.parametrize("scheme", ["plain", "masked"])
def test_a_refused_fresh_start_leaves_model_page_and_chain_as_they_were_and_the_next_one_begins(
    tmp_path: Path, scheme: str
) -> None:
    """What it had to say is kept apart; the run can go on; a fresh one that begins leaves nothing of the old."""
    folder = make_federation(tmp_path / "fed", scheme, 3).folder
    assert run_veilsum("launch", str(folder)).returncode == 0
    before, key = model_of(folder), folder / "keys" / "p3" / "roster.pin.json"
    key.chmod(0o644)
    refused = run_veilsum("launch", str(folder), "--fresh")
    assert refused.returncode == 2, refused.stdout
    require_mentions(refused.stdout, "p3", "chmod", folder / "logs" / "not-begun")
    assert (folder / "logs" / "not-begun" / "p3.log").exists()
    assert model_of(folder) == before
    told = told_in(folder)
    assert (told.state, len(told.committed())) == (RunState.FINISHED, 2)
    key.chmod(0o600)
    settings = folder / "federation.toml"
    settings.write_text(settings.read_text().replace("rounds = 2", "rounds = 3"))
    gone_on = run_veilsum("launch", str(folder), "--resume")
    assert gone_on.returncode == 0, gone_on.stdout + gone_on.stderr
    assert len(told_in(folder).committed()) == 3
    assert run_veilsum("launch", str(folder), "--fresh").returncode == 0
    told = told_in(folder)
    assert (told.state, len(told.committed())) == (RunState.FINISHED, 3)
    assert not (folder / EARLIER_RUN_FOLDER).exists()
    assert not (folder / "logs" / "not-begun").exists()
    starts = (folder / "logs" / "server.log").read_text().count('"started"')
    assert starts == 1
    require_nothing_left(folder)


def with_a_run(folder: Path, scheme: str) -> LoadedFederation:
    """A federation with what stands for the state and logs of a run."""
    loaded = make_federation(folder, scheme, 3)
    (loaded.folder / "state" / "p1").mkdir(parents=True, mode=0o700)
    for name in ("state/p1/mark", "logs/p1.log"):
        (loaded.folder / name).parent.mkdir(exist_ok=True)
        (loaded.folder / name).write_text("old")
    return loaded


class Killed(BaseException):
    """Stands for kill -9: nothing afterwards happens."""


def begin_and_fail(loaded: LoadedFederation) -> None:
    """Set the run aside, leave marks of another one, and put it back."""
    with EarlierRun(loaded.folder) as earlier:
        earlier.set_aside(loaded)
        if loaded.roster.anchor is not None:
            begin_anew(loaded.folder, loaded.folder / "organiser", None)
        for name in ("state/p1/mark", "logs/p1.log"):
            (loaded.folder / name).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            (loaded.folder / name).write_text("new")


@pytest.mark.parametrize("scheme", ["plain", "masked"])
def test_a_launch_killed_at_any_step_of_setting_aside_and_putting_back_loses_nothing(
    tmp_path: Path, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next launch finds state, logs and chain as they were; the locks of the dead are gone."""
    loaded = with_a_run(tmp_path / "fed", scheme)
    anchor = loaded.roster.anchor
    steps: list[int] = []

    def counted(original: Any, die_at: int) -> Any:
        def step(*arguments: Any, **named: Any) -> Any:
            steps.append(die_at)
            if len(steps) == die_at:
                raise Killed
            return original(*arguments, **named)

        return step

    for die_at in range(1, 40):
        steps.clear()
        with monkeypatch.context() as patch:
            for owner, name in ((Path, "rename"), (shutil, "rmtree"), (Path, "replace")):
                patch.setattr(owner, name, counted(getattr(owner, name), die_at))
            try:
                begin_and_fail(loaded)
                done = True
            except Killed:
                done = False
        with EarlierRun(loaded.folder):
            pass
        assert (loaded.folder / "state/p1/mark").read_text() == "old", die_at
        assert (loaded.folder / "logs/p1.log").read_text() == "old", die_at
        assert read_roster(loaded.folder / ROSTER_FILE).roster.anchor == anchor
        assert not (loaded.folder / EARLIER_RUN_FOLDER).exists()
        loaded = load_federation(loaded.folder)
        if done:
            return
    raise AssertionError("more steps than were tried")


def test_a_run_is_set_aside_for_one_launch_at_a_time_unread_meanwhile_and_gone_once_the_next_has_begun(
    tmp_path: Path,
) -> None:
    loaded = with_a_run(tmp_path / "fed", "plain")
    with EarlierRun(loaded.folder) as one:
        one.set_aside(loaded)
        with refusal(ParameterError, "launch", str(loaded.folder)), EarlierRun(loaded.folder):
            raise AssertionError("two at once")
        with refusal(ParameterError, "launch", str(loaded.folder)):
            held_model(loaded, "server")
        one.forget()
    with EarlierRun(loaded.folder):
        pass
    assert not any(
        (loaded.folder / name).exists() for name in ("state", "logs", EARLIER_RUN_FOLDER, FORGOTTEN)
    )


def test_a_launch_that_only_goes_on_keeps_others_out_too(tmp_path: Path) -> None:
    """Else a fresh one would take the state away from under parties that have not moved in yet."""
    loaded = with_a_run(tmp_path / "fed", "plain")
    with EarlierRun(loaded.folder):
        refused = run_veilsum("launch", str(loaded.folder), "--fresh")
    assert refused.returncode == 2
    require_mentions(refused.stderr, "launch", loaded.folder)
    assert (loaded.folder / "state/p1/mark").read_text() == "old"


def test_who_starts_by_itself_does_not_begin_while_a_run_lies_aside_and_who_is_launched_does(
    tmp_path: Path,
) -> None:
    loaded = with_a_run(tmp_path / "fed", "plain")
    with EarlierRun(loaded.folder) as killed:
        killed.set_aside(loaded)
        enter_role(Role.CLIENT, RoleOptions(loaded.folder, "p1"))
        killed.is_aside = False
    with refusal(ParameterError, "launch", loaded.folder, EARLIER_RUN_FOLDER):
        enter_role(Role.CLIENT, RoleOptions(loaded.folder, "p1"))
    enter_role(Role.CLIENT, RoleOptions(loaded.folder, "p1", state=tmp_path / "elsewhere"))


def test_a_state_that_a_process_lives_in_is_not_removed_for_the_one_before(tmp_path: Path) -> None:
    loaded = with_a_run(tmp_path / "fed", "plain")
    with EarlierRun(loaded.folder) as killed:
        killed.set_aside(loaded)
        killed.is_aside = False
    living = StateFolder(loaded.folder / "state" / "p1", PartyId("p1"), b"")
    living.acquire()
    with refusal(CheckpointError, "p1"), EarlierRun(loaded.folder):
        raise AssertionError("put back over a process")
    living.release()
    with EarlierRun(loaded.folder):
        assert (loaded.folder / "state/p1/mark").read_text() == "old"


@needs_mosquitto
def test_a_fresh_run_counts_though_nobody_reads_what_its_launch_shows(tmp_path: Path) -> None:
    """Its standard error leads nowhere: the run goes on, and is not thrown away for the one before."""
    folder = make_federation(tmp_path / "fed", "plain", 3).folder
    assert run_veilsum("launch", str(folder)).returncode == 0
    settings = folder / "federation.toml"
    settings.write_text(settings.read_text().replace("rounds = 2", "rounds = 3"))
    reading, writing = os.pipe()
    os.close(reading)
    command = [*COMMAND, "launch", str(folder), "--fresh"]
    try:
        shown = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=writing, text=True, timeout=120, check=False
        )
    finally:
        os.close(writing)
    assert shown.returncode == 0, shown.stdout
    assert "as it was" not in shown.stdout
    told = told_in(folder)
    assert (told.state, len(told.committed())) == (RunState.FINISHED, 3)


def fresh_over(loaded: LoadedFederation, rounds_done: int) -> None:
    """A launch that is gone before it heard of a fresh run, whose party has come so far."""
    with EarlierRun(loaded.folder) as killed:
        killed.set_aside(loaded)
        party = StateFolder(loaded.folder / "state" / "p2", PartyId("p2"), b"")
        party.acquire()
        party.save(PersistentState(rounds_done, None))
        party.release()
        killed.is_aside = False


def test_a_run_with_a_round_on_disk_is_not_removed_for_the_one_before(tmp_path: Path) -> None:
    """Whether its launch heard of that round or not: a fresh run without one gives way."""
    loaded = with_a_run(tmp_path / "fed", "plain")
    fresh_over(loaded, 0)
    with EarlierRun(loaded.folder):
        assert (loaded.folder / "state/p1/mark").read_text() == "old"
        assert not (loaded.folder / "state/p2").exists()
    fresh_over(loaded, 1)
    with EarlierRun(loaded.folder):
        assert not (loaded.folder / "state/p1").exists()
        assert any((loaded.folder / "state/p2").glob("checkpoint-*"))
        assert not (loaded.folder / EARLIER_RUN_FOLDER).exists()


def test_what_a_start_had_to_say_is_kept_apart_though_the_run_before_had_no_logs(tmp_path: Path) -> None:
    loaded = with_a_run(tmp_path / "fed", "plain")
    shutil.rmtree(loaded.folder / "logs")
    begin_and_fail(loaded)
    assert [path.name for path in (loaded.folder / "logs").iterdir()] == [NOT_BEGUN]
    assert (loaded.folder / "logs" / NOT_BEGUN / "p1.log").read_text() == "new"


@needs_mosquitto
def test_a_launch_that_cannot_take_in_what_is_said_stops_at_once_and_says_why(tmp_path: Path) -> None:
    """It would judge the run by half of it, and wait for a word that was said."""

    def fail(fact: Mapping[str, Any]) -> None:
        if fact.get("fact") == "started":
            raise ZeroDivisionError("nobody expected this")

    loaded = make_federation(tmp_path / "fed", "plain", 3)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(asyncio.wait_for(Launch(loaded, on_fact=fail).run(), 60))
    require_nothing_left(loaded.folder)


def test_a_lock_that_a_stranger_linked_is_not_followed(tmp_path: Path) -> None:
    loaded = with_a_run(tmp_path / "fed", "plain")
    (loaded.folder / EARLIER_RUN_FOLDER).mkdir()
    (loaded.folder / LOCK).symlink_to(tmp_path / "target")
    with refusal(ParameterError, LOCK), EarlierRun(loaded.folder):
        raise AssertionError("held by a link")
    with refusal(ParameterError, LOCK):
        enter_role(Role.CLIENT, RoleOptions(loaded.folder, "p1"))
    assert not (tmp_path / "target").exists()


def test_a_disk_without_room_for_what_is_kept_of_a_run_is_named_and_the_run_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = with_a_run(tmp_path / "fed", "masked")
    statement = next((loaded.folder / STATEMENTS_FOLDER).iterdir())

    def no_room(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(shutil, "copyfile", no_room)
        with refusal(ParameterError, statement, "space") as refused, EarlierRun(loaded.folder) as earlier:
            earlier.set_aside(loaded)
    assert "[(" not in str(refused.value)
    assert (loaded.folder / "state" / "p1" / "mark").read_text() == "old"
    assert not (loaded.folder / EARLIER_RUN_FOLDER).exists()
