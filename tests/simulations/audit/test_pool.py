"""Work on several processes: the same results in the same order, errors and Ctrl-C as on one."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from veilsum.protocol.errors import LocalProtocolError, ParameterError
from veilsum.simulations.attacks.gradient.matching import AttackDoesNotFit, Budget
from veilsum.simulations.audit.pool import meter_of, run_jobs
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.runner import run_requests, share_references
from veilsum.simulations.audit.scales import find_scale
from veilsum.simulations.audit.steps import Steps
from veilsum.simulations.audit.sweeps.ppc import measure

TINY = replace(
    find_scale("smoke"),
    budget=Budget(20, 0),
    ppc_budget=Budget(10, 0),
    training_rounds=1,
    grid_points=1,
    members=40,
    epochs=2,
)


@dataclass(frozen=True)
class Counting:
    """Counts up, and does what it is told at the end."""

    bundle: str
    numbers: int
    end: str = ""
    folder: str = ""
    heavy = False

    def items(self, steps: Steps) -> Iterator[tuple[str, int, int]]:
        for number in range(self.numbers):
            steps(f"number {number}")
            yield self.bundle, number, os.getpid()
        if self.end == "refuse":
            raise ParameterError(["first problem", "second problem"])
        if self.end == "misfit":
            raise AttackDoesNotFit("nothing fits")
        if self.end == "die":
            os._exit(3)
        if self.end == "wait":
            (Path(self.folder) / str(os.getpid())).touch()
            time.sleep(60)


def numbers_of(jobs: list[Counting], workers: int) -> list[list[tuple[str, int]]]:
    found: list[list[tuple[str, int]]] = [[] for _ in jobs]
    for place, (name, number, _) in run_jobs(jobs, workers, meter_of(jobs, None)):
        found[place].append((name, number))
    return found


def test_several_processes_give_what_one_gives() -> None:
    jobs = [Counting(str(place % 3), place) for place in range(7)]
    assert numbers_of(jobs, 2) == numbers_of(jobs, 1)


def test_a_bundle_stays_with_one_worker() -> None:
    jobs = [Counting("a", 2), Counting("b", 2), Counting("a", 2), Counting("c", 2)]
    where: dict[str, set[int]] = {}
    for _, (name, _, process) in run_jobs(jobs, 2, meter_of(jobs, None)):
        where.setdefault(name, set()).add(process)
    assert all(len(processes) == 1 for processes in where.values())
    assert os.getpid() not in set.union(*where.values())


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(("end", "error"), [("refuse", ParameterError), ("misfit", AttackDoesNotFit)])
def test_an_error_is_the_same_on_one_and_on_several(
    workers: int, end: str, error: type[LocalProtocolError]
) -> None:
    with pytest.raises(error) as caught:
        numbers_of([Counting("a", 1, end), Counting("b", 1)], workers)
    if end == "refuse":
        assert isinstance(caught.value, ParameterError)
        assert caught.value.problems == ("first problem", "second problem")


def test_a_worker_that_dies_is_told_with_a_remedy() -> None:
    with pytest.raises(LocalProtocolError, match="--workers 1"):
        numbers_of([Counting("a", 1, "die"), Counting("b", 1)], 2)


@pytest.fixture
def _listening_to_ctrl_c() -> Iterator[None]:
    """Also where the tests run in the background of a shell, which has its children ignore the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_listening_to_ctrl_c")
def test_ctrl_c_keeps_what_is_done_and_leaves_no_process_behind(tmp_path: Path) -> None:
    jobs = [Counting("a", 3, "wait", str(tmp_path)), Counting("b", 2, "wait", str(tmp_path))]
    found: list[tuple[int, int]] = []

    def interrupt() -> None:
        while len(list(tmp_path.iterdir())) < 2:
            time.sleep(0.05)
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        for place, (_, number, _) in run_jobs(jobs, 2, meter_of(jobs, None)):
            found.append((place, number))
    assert sorted(found) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    for name in tmp_path.iterdir():
        with pytest.raises(ProcessLookupError):
            os.kill(int(name.name), 0)


def test_rows_do_not_depend_on_the_number_of_workers() -> None:
    requests = [
        Request("plain", "server", "analytic", TINY),
        Request("masked", "server", "idlg", TINY, parties=3),
        Request("plain", "server", "idlg", TINY),
        Request("masked", "client", "idlg", TINY, parties=3),
    ]
    one, two = (
        [
            {name: value for name, value in row.figures().items() if name != "cpu_s"}
            for row in run_requests(requests, shared=True, workers=workers).rows
        ]
        for workers in (1, 2)
    )
    assert one == two


@pytest.mark.long
def test_points_do_not_depend_on_the_number_of_workers() -> None:
    one, two = (measure(["dp", "spn"], TINY, 7, "digits", None, workers=workers) for workers in (1, 2))
    assert [replace(point, cpu_s=0) for point in one.points] == [
        replace(point, cpu_s=0) for point in two.points
    ]
    assert [row.ssim for row in one.rows] == [row.ssim for row in two.rows]


def test_reference_rows_are_made_by_the_first_request_of_an_attack() -> None:
    requests = [Request("plain", "server", name, TINY) for name in ("idlg", "dlg", "idlg", "dlg")]
    assert [one.references for one in share_references(requests)] == [True, True, False, False]
