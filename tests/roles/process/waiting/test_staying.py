"""A party that has all rounds leaves where no server is heard, and stays with one that is there."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.role_processes import LostStatuses, make_driver, make_process
from veilsum.protocol.errors import AbortReason
from veilsum.protocol.machines.events import RunFailed, RunFinished
from veilsum.protocol.machines.phases import ParticipantPhase
from veilsum.roles.federation.keystore import load_identity
from veilsum.roles.monitor.status import Status, sign_status
from veilsum.roles.process import run as process
from veilsum.roles.process.driver import Driver
from veilsum.roles.process.pump import Ended
from veilsum.roles.process.waiting import staying
from veilsum.roles.process.waiting.staying import Stay
from veilsum.transport.base import Datagram

STAY_S = 0.01


def take_part_briefly(role: process.RoleProcess, transport: LostStatuses) -> Ended:
    """With a stay of no time to speak of."""

    async def take() -> Ended:
        driver, federation = make_driver(role, transport), role.context.loaded.federation_id
        return await staying.take_part(driver, transport, role.rules, federation, STAY_S)

    return asyncio.run(take())


def status_of(role: process.RoleProcess, name: str, number: int) -> bytes:
    """What a party of the federation on disk tells as its status of this number."""
    loaded = role.context.loaded
    status = Status(name, "server", 1, number, 0, 2, 0, "knocking", 0, 0, 0)
    return sign_status(load_identity(loaded.folder / "keys" / name), loaded.federation_id, status)


@pytest.mark.parametrize(("rounds_done", "holds_model"), [(2, True), (2, False), (1, True)])
def test_who_has_all_rounds_and_hears_no_server_leaves_as_finished_and_nobody_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds_done: int, holds_model: bool
) -> None:
    said = io.StringIO()
    role = make_process(tmp_path / "fed", said)
    role.state.rounds_done = rounds_done
    role.state.model = np.ones(40, dtype="<f4") if holds_model else None

    stays = rounds_done == role.rules.rounds and holds_model

    async def silence(self: Driver) -> Ended:
        if stays:
            await asyncio.Event().wait()
        return RunFailed(AbortReason.TIMED_OUT, "server", "silent")

    monkeypatch.setattr(Driver, "run", silence)
    ended = take_part_briefly(role, LostStatuses())
    assert isinstance(ended, RunFinished) is stays
    told = [json.loads(line)["fact"] for line in said.getvalue().splitlines()]
    assert told == (["staying", "run_finished"] if isinstance(ended, RunFinished) else [])


def test_who_has_all_rounds_stays_with_a_server_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = make_process(tmp_path / "fed", io.StringIO())
    role.state.rounds_done, role.state.model = role.rules.rounds, np.ones(40, dtype="<f4")

    async def in_session(self: Driver) -> Ended:
        self.machine.phase = ParticipantPhase.RUNNING
        for _ in range(100):
            await asyncio.sleep(0)
        return RunFailed(AbortReason.TIMED_OUT, "server", "silent")

    monkeypatch.setattr(Driver, "run", in_session)
    assert isinstance(take_part_briefly(role, LostStatuses()), RunFailed)


def test_who_has_all_rounds_stays_as_long_as_a_server_says_that_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers nobody before enough parties came. The clock moves between its statuses only."""
    role = make_process(tmp_path / "fed", io.StringIO())
    role.state.rounds_done, role.state.model = role.rules.rounds, np.ones(40, dtype="<f4")
    now, others_came = [0.0], asyncio.Event()
    monkeypatch.setattr(staying, "monotonic", lambda: now[0])

    class Waiting(LostStatuses):
        async def statuses(self) -> AsyncIterator[Datagram]:
            for number in range(5):
                now[0] += 0.9 * STAY_S
                yield Datagram("server", status_of(role, "server", number))
                await asyncio.sleep(2 * STAY_S)
            others_came.set()

    async def knock(self: Driver) -> Ended:
        await others_came.wait()
        return RunFailed(AbortReason.TIMED_OUT, "server", "in a session")

    monkeypatch.setattr(Driver, "run", knock)
    assert isinstance(take_part_briefly(role, Waiting()), RunFailed)


def test_a_stay_is_prolonged_by_new_words_of_the_server_alone_and_not_beyond_its_most(tmp_path: Path) -> None:
    role, now = make_process(tmp_path / "fed", io.StringIO()), [0.0]
    stay = Stay(role.rules.roster, role.context.loaded.federation_id, 60.0, 100.0, lambda: now[0])

    def left_after(name: str, number: int) -> float:
        stay.hear(Datagram("server", status_of(role, name, number)))
        return stay.left_s

    now[0] = 10.0
    assert left_after("server", 2) == 60.0
    now[0] = 20.0
    assert [left_after(*said) for said in (("server", 2), ("server", 1), ("p2", 9))] == [50.0] * 3
    stay.hear(Datagram("server", b"nothing that is signed"))
    assert stay.left_s == 50.0
    now[0] = 50.0
    assert left_after("server", 3) == 50.0
