"""Jobs of an audit on several processes, with the same results as on one.

A job is a picklable object with a function `items(steps)` that yields its results one by one. Each follows from the
job alone, so who works on it does not matter, and callers put results back in the order of the jobs. Every worker has
one torch thread: attacks on small images gain nothing from a second one.

Jobs with the same `bundle` go to the same worker, one after the other, so that what it remembers (a played
federation, an attack on the same gradient) is not made twice.

Workers come from a fork server, which imports torch and the modules of the jobs once and has no threads that a fork
could break. They ignore Ctrl-C: the parent hears it, keeps what has arrived and ends them. A worker whose parent is
gone finds its pipe closed with the next step it reports, and ends. Rejected: `ProcessPoolExecutor`, which hands over a
job's results only when all are there, so that Ctrl-C would lose hours of rows.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from veilsum.protocol.errors import LocalProtocolError, ParameterError, ProtocolError
from veilsum.roles.cli.progress import Progress
from veilsum.roles.learning.training.determinism import one_thread
from veilsum.simulations.attacks.gradient.matching import AttackDoesNotFit
from veilsum.simulations.audit.steps import Meter, Steps

_END_S, _HEAVY = 5.0, 6.0


class AuditJob(Protocol):
    """A piece of work; `bundle` names what it shares with others, and heavy ones begin first."""

    @property
    def bundle(self) -> str: ...

    @property
    def heavy(self) -> bool: ...

    def items(self, steps: Steps) -> Iterator[Any]: ...


def meter_of(jobs: Sequence[AuditJob], progress: Progress | None) -> Meter:
    """Progress of these jobs; a heavy one counts as much as several others."""
    return Meter([_HEAVY if job.heavy else 1.0 for job in jobs], progress)


def default_workers() -> int:
    """One for each core that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_jobs(jobs: Sequence[AuditJob], workers: int, meter: Meter) -> Generator[tuple[int, Any], None, None]:
    """(place of the job, result) as results come; with one worker in this process, in the order of the jobs."""
    bundles: dict[str, list[int]] = {}
    for place, job in enumerate(jobs):
        bundles.setdefault(job.bundle, []).append(place)
    workers = min(workers, len(bundles))
    if workers > 1:
        ordered = sorted(bundles.values(), key=lambda places: not any(jobs[place].heavy for place in places))
        yield from _spread(jobs, ordered, workers, meter)
        return
    with one_thread():
        for place, job in enumerate(jobs):
            for item in job.items(Steps(_noting(meter, place))):
                yield place, item
            meter.note(place, 1.0)


def collect(
    jobs: Sequence[AuditJob], workers: int, progress: Progress | None
) -> tuple[list[list[Any]], bool]:
    """What each job gave, in the order of the jobs, and whether someone interrupted: then what was done until then."""
    found: list[list[Any]] = [[] for _ in jobs]
    meter = meter_of(jobs, progress)
    interrupted = False
    try:
        with closing(run_jobs(jobs, workers, meter)) as results:
            for place, item in results:
                found[place].append(item)
    except KeyboardInterrupt:
        interrupted = True
    meter.close()
    return found, interrupted


def _noting(meter: Meter, place: int) -> Callable[[float, str], None]:
    return lambda share, words: meter.note(place, share, words)


def _spread(
    jobs: Sequence[AuditJob], bundles: Sequence[list[int]], workers: int, meter: Meter
) -> Generator[tuple[int, Any], None, None]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch._dynamo", *{type(job).__module__: None for job in jobs}])
    waiting = deque(bundles)
    processes, pipes = [], []
    try:
        for _ in range(workers):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            processes.append(process)
            pipes.append(ours)
        idle, busy = list(pipes), set[Connection]()
        while waiting or busy:
            while waiting and idle:
                pipe = idle.pop()
                pipe.send([(place, jobs[place]) for place in waiting.popleft()])
                busy.add(pipe)
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)
                for kind, place, content in _received(ready):
                    if kind == "item":
                        yield place, content
                    elif kind == "step":
                        meter.note(place, *content)
                    elif kind == "idle":
                        busy.discard(ready)
                        idle.append(ready)
                    else:
                        raise _again(*content)
    finally:
        for pipe in pipes:
            pipe.close()
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(_END_S)
            if process.is_alive():
                process.kill()
                process.join()


def _received(pipe: Connection) -> Iterator[tuple[str, int, Any]]:
    """What lies in the pipe now: at least one message."""
    try:
        yield pipe.recv()
        while pipe.poll():
            yield pipe.recv()
    except (EOFError, ConnectionError) as error:
        raise LocalProtocolError(
            "a worker of the audit ended before its work was done: if nothing above says why, it may have run out of "
            "memory; try --workers 1"
        ) from error


def _work(pipe: Connection) -> None:
    """A worker: bundles in, results and steps out, until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with one_thread():
            while True:
                for place, job in pipe.recv():
                    _do(pipe, place, job)
                pipe.send(("idle", 0, None))
    except (EOFError, ConnectionError):
        return
    except ProtocolError as error:
        problems = error.problems if isinstance(error, ParameterError) else (str(error),)
        pipe.send(("error", 0, (type(error).__name__, problems)))


def _do(pipe: Connection, place: int, job: AuditJob) -> None:
    steps = Steps(lambda share, words: pipe.send(("step", place, (share, words))))
    for item in job.items(steps):
        pipe.send(("item", place, item))
    pipe.send(("step", place, (1.0, "")))


def _again(name: str, problems: Sequence[str]) -> LocalProtocolError:
    """A worker's error, raised anew where the user is."""
    if name == ParameterError.__name__:
        return ParameterError(problems)
    text = "; ".join(problems)
    return AttackDoesNotFit(text) if name == AttackDoesNotFit.__name__ else LocalProtocolError(text)
