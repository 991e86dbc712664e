"""How long a launch takes from the command to the first session, and what its processes cost.

The command is started as a person would: its own Python, imports, settings, broker with TLS, server and parties, all on
the cores of this machine. Processor time and memory are told beside the seconds, because other work on the machine
slows down the seconds alone. Memory is what a process has for itself, with its part of what it shares (PSS): pages
that forked processes have in common count once in all.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.broker.ports import free_port
from veilsum.roles.config.federation_config import FederationConfig
from veilsum.roles.config.values import party_names
from veilsum.roles.federation.enrolment import create_federation
from veilsum.roles.launch.children import LOGS_FOLDER
from veilsum.roles.launch.ourselves import COMMAND, our_python

GIVE_UP_S = 300.0
_MIB = 1024.0


def measure_start(parties: int, scheme: str, task: str, *, preload: bool) -> dict[str, float]:
    """Seconds to the first session and to the end of one round, processor seconds of all, MiB of a party."""
    config = FederationConfig(
        scheme=scheme,
        parties=party_names(parties),
        rounds=1,
        task=task,
        broker_port=free_port(),
        opening_s=120.0,
    )
    with tempfile.TemporaryDirectory(prefix="veilsum-bench-") as scratch:
        folder = Path(scratch) / "fed"
        create_federation(folder, config)
        words = ["launch", str(folder), *([] if preload else ["--no-preload"])]
        used_before, started_at, started = _processor_s(), time.time(), time.monotonic()
        with _running(our_python(COMMAND, *words)) as process:
            session = _first(folder, "session_began", process)
            memory = _mean_memory_mib(folder)
            _, problems = process.communicate(timeout=GIVE_UP_S)
        whole_s = time.monotonic() - started
        if process.returncode != 0:
            raise LocalProtocolError(f"the launched federation did not finish: {problems.strip()[-500:]}")
    return {
        "start_s": datetime.fromisoformat(session["at"]).timestamp() - started_at,
        "whole_s": whole_s,
        "processor_s": _processor_s() - used_before,
        "party_mib": memory,
    }


@contextlib.contextmanager
def _running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(  # noqa: S603 - ourselves
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _first(folder: Path, fact: str, process: subprocess.Popen[str]) -> Mapping[str, Any]:
    """The first such fact of the server, as soon as it is told."""
    log, give_up_at = folder / LOGS_FOLDER / "server.log", time.monotonic() + GIVE_UP_S
    while time.monotonic() < give_up_at and process.poll() is None:
        lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        for line in lines:
            with contextlib.suppress(ValueError):
                if (told := json.loads(line)).get("fact") == fact:
                    found: Mapping[str, Any] = told
                    return found
        time.sleep(0.05)
    said = process.communicate()[1] if process.poll() is not None else "nothing in time"
    raise LocalProtocolError(f"the launched federation began no session: {said.strip()[-500:]}")


def _mean_memory_mib(folder: Path) -> float:
    """What a party has in memory, in the mean; 0 where the system does not tell."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            words = path.joinpath("cmdline").read_bytes().decode().split("\0")
            if str(folder) in " ".join(words) and "--name" in words and "server" not in words:
                text = path.joinpath("smaps_rollup").read_text()
                found.append(int(text.partition("\nPss:")[2].split()[0]) / _MIB)
    return sum(found) / len(found) if found else 0.0


def _processor_s() -> float:
    """Of all children that have ended, and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cores() -> int:
    return os.cpu_count() or 1
