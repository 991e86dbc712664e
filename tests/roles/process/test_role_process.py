"""A role process around its driver: it ends in order whatever happens, and its helpers outlive one mishap."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.federations import make_federation
from tests.support.refusals import refusal, require_mentions
from tests.support.role_processes import LostStatuses, make_driver, make_process
from veilsum.protocol.crypto.identity import Role
from veilsum.protocol.errors import AbortReason, ParameterError
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.events import RunFailed, RunFinished
from veilsum.roles.broker import mosquitto
from veilsum.roles.cli.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from veilsum.roles.monitor.owing import LATE_AFTER_S
from veilsum.roles.monitor.status import MOST_LATE
from veilsum.roles.process import run as process
from veilsum.roles.process.clock import monotonic
from veilsum.roles.process.context import RoleOptions, enter_role
from veilsum.roles.process.disk.unbegun import begin, note_unbegun


def test_an_unexpected_error_is_told_and_the_threads_are_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has it and no executor takes work any more; who asks for tracebacks is given the error itself."""
    executors: list[Any] = []
    codes: list[int] = []

    async def fail(_: object, *given: object) -> RunFinished:
        executors.extend(given)
        raise ZeroDivisionError("by nought")

    monkeypatch.setattr(process.RoleProcess, "_take_part", fail)
    monkeypatch.setattr(process, "leave_threads_behind", codes.append)
    said = io.StringIO()
    role = make_process(tmp_path / "fed", said)
    assert role.run() == EXIT_FAILED
    fact = json.loads(said.getvalue())
    assert (fact["fact"], fact["reason"]) == ("run_failed", "ZeroDivisionError")
    require_mentions(fact["detail"], "nought", process.TRACEBACK)
    monkeypatch.setenv(process.TRACEBACK, "1")
    with pytest.raises(ZeroDivisionError):
        role.run()
    assert codes == [EXIT_FAILED] * 2
    for executor in executors:
        with pytest.raises(RuntimeError, match="after shutdown"):
            executor.submit(print)


def test_a_status_that_cannot_be_told_is_noted_and_the_next_one_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it names a limited number of late parties, however many there are."""
    monkeypatch.setattr(process, "pause_after", lambda number, phase: 0.0)
    said, transport = io.StringIO(), LostStatuses()
    role = make_process(tmp_path / "fed", said)

    async def tell() -> None:
        driver = make_driver(role, transport)
        now = monotonic()
        driver.tally.owing.clock = lambda: now
        with contextlib.ExitStack() as under_way:
            for number in range(5000):
                under_way.enter_context(driver.tally.owing.by(f"p{number}"))
            driver.tally.owing.clock = lambda: now + LATE_AFTER_S
            await role._tell_status(transport, driver)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(tell())
    assert json.loads(said.getvalue())["fact"] == "status_not_told"
    late = json.loads(json.loads(transport.told[1])["status"])["late"]
    assert len(late) == MOST_LATE


@pytest.mark.parametrize(
    ("role", "options", "says"),
    [
        ("nobody", {"name": "p1"}, "'nobody' server client peer"),
        ("peer", {"name": "p1"}, "p1 client"),
        ("client", {"name": "zoe"}, "zoe"),
        ("client", {"name": "p1", "key": "fed/keys/p2"}, "p2 p1"),
        ("client", {"name": "p1", "federation": "absent"}, "absent"),
        ("client", {"name": "p1", "resume": True, "fresh": True}, "resume fresh"),
        ("client", {"name": "p1", "log_format": "xml"}, "'xml' text json"),
        ("client", {"name": "p1", "init": "absent.safetensors"}, "absent.safetensors"),
    ],
)
def test_a_role_that_cannot_begin_raises_a_typed_error_in_a_program_of_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str, options: dict[str, Any], says: str
) -> None:
    """Paths may be texts there; nothing is started, and no checkpoint written."""
    monkeypatch.chdir(tmp_path)
    make_federation(Path("fed"))
    with refusal(ParameterError, *says.split()):
        process.run_role(role, RoleOptions(**{"federation": "fed", **options}))
    assert not list(tmp_path.rglob("checkpoint-*"))


@pytest.mark.parametrize(
    ("file", "content", "mode", "says"),
    [
        ("keys/p1/broker-password", None, 0o600, "exist"),
        ("keys/p1/broker-password", b"secret", 0o644, "chmod"),
        ("keys/p1/broker-password", b"\xff", 0o600, "password"),
        ("broker/ca.pem", None, 0o644, "organiser"),
        ("broker/ca.pem", b"-----BEGIN CERTIFICATE-----", 0o644, "organiser"),
    ],
)
def test_a_login_or_authority_that_cannot_be_read_is_a_wrong_request_before_anything_is_written(
    tmp_path: Path, file: str, content: bytes | None, mode: int, says: str
) -> None:
    folder = make_federation(tmp_path / "fed", broker_tls=True).folder
    path = folder / file
    path.unlink()
    if content is not None:
        path.write_bytes(content)
        path.chmod(mode)
    with refusal(ParameterError, path.name, says):
        process.run_role("client", RoleOptions(folder, "p1"))
    assert not (folder / "state").exists()


def test_a_broker_program_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its version is then unknown, which is no reason not to start."""
    program = tmp_path / "mosquitto"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o700)
    monkeypatch.setattr(mosquitto, "_VERSION_S", 0.2)
    assert mosquitto.version_of(str(program)) == "mosquitto"


@pytest.mark.parametrize(
    ("ended", "code", "facts"),
    [
        (RunFinished(2), EXIT_OK, []),
        (RunFailed(AbortReason.TIMED_OUT, "server", "silent"), EXIT_FAILED, []),
        (None, EXIT_INTERRUPTED, ["stopped"]),
    ],
)
def test_a_process_that_is_stopped_after_its_end_has_come_to_that_end(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ended: RunFinished | RunFailed | None,
    code: int,
    facts: list[str],
) -> None:
    """It only stayed for the others; before the end it was stopped, and says so."""

    async def stop(role: process.RoleProcess, *_: object) -> RunFinished:
        role.driver = make_driver(role, LostStatuses())
        role.driver._pump.ended = ended
        raise process.Stopped

    monkeypatch.setattr(process.RoleProcess, "_take_part", stop)
    monkeypatch.setattr(process, "leave_threads_behind", lambda _: None)
    said = io.StringIO()
    assert make_process(tmp_path / "fed", said).run() == code
    assert [json.loads(line)["fact"] for line in said.getvalue().splitlines()] == facts


def test_a_party_that_is_to_go_on_and_has_no_checkpoint_says_so_and_what_to_do(tmp_path: Path) -> None:
    """Its state folder was lost, or it never took part; who is not told to go on begins without a word."""
    for resume in (True, False):
        said = io.StringIO()
        role = make_process(tmp_path / f"fed-{resume}", said)
        context = replace(role.context, options=replace(role.context.options, resume=resume))
        assert process._saved_state(context, role.checkpoints, role.scheme, role.log) is None
        warnings = [json.loads(line)["text"] for line in said.getvalue().splitlines()]
        assert len(warnings) == resume
        for text in warnings:
            require_mentions(text, role.checkpoints.folder, "checkpoint", "anew")


def test_a_party_that_never_took_part_begins_without_a_warning_and_is_warned_once_it_did(
    tmp_path: Path,
) -> None:
    """However its state was lost: the checkpoints alone, the folder, or all of it for a copy of before the run."""
    said = io.StringIO()
    role = make_process(tmp_path / "fed", said)
    context = replace(role.context, options=replace(role.context.options, resume=True))
    folder, copy = role.checkpoints.folder, tmp_path / "copy"
    note_unbegun(folder, role.context.identity.public)
    shutil.copytree(folder, copy)

    def warned() -> bool:
        before = len(said.getvalue())
        assert process._saved_state(context, role.checkpoints, role.scheme, role.log) is None
        return len(said.getvalue()) > before

    assert not warned()
    begin(folder)
    assert warned()
    shutil.rmtree(folder)
    assert warned()
    shutil.copytree(copy, folder)
    assert warned()
    note_unbegun(folder, enter_role(Role.CLIENT, RoleOptions(tmp_path / "fed", "p2")).identity.public)
    assert warned()


@pytest.mark.parametrize(
    ("name", "rounds_kept", "holds_model", "code", "fact"),
    [
        ("p1", 2, True, EXIT_OK, "run_finished"),
        ("p1", 2, False, EXIT_INTERRUPTED, "stopped"),
        ("p1", 1, True, EXIT_INTERRUPTED, "stopped"),
        ("server", 2, False, EXIT_OK, "run_finished"),
        ("server", 1, True, EXIT_INTERRUPTED, "stopped"),
    ],
)
def test_whoever_has_all_rounds_on_disk_has_finished_although_it_is_stopped_before_the_last_word(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    rounds_kept: int,
    holds_model: bool,
    code: int,
    fact: str,
) -> None:
    """Unless that word is to bring it the model; a server may hold none in any case."""
    said = io.StringIO()
    role = make_process(tmp_path / "fed", said)
    assert role.rules.rounds == 2

    async def stop(self: process.RoleProcess, *_: object) -> RunFinished:
        self.state.rounds_done = rounds_kept
        self.driver = make_driver(self, LostStatuses())
        self.driver.party = PartyId(name)
        self.state.model = np.ones(40, dtype="<f4") if holds_model else None
        raise process.Stopped

    monkeypatch.setattr(process.RoleProcess, "_take_part", stop)
    monkeypatch.setattr(process, "leave_threads_behind", lambda _: None)
    assert role.run() == code
    (told,) = (json.loads(line) for line in said.getvalue().splitlines())
    assert told["fact"] == fact
