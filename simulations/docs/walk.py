"""Draws specs/walk.md from traced rounds over MQTT: every file, where it is first visited.

A real federation is launched for each scheme, with every process traced. A machine takes the same way in every run; the
tasks of the transport run beside it whenever something arrives, so their files stand apart, by name.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from veilsum.roles.broker.mosquitto import find_mosquitto
from veilsum.roles.broker.ports import free_port
from veilsum.simulations.docs.traced import CARRYING, ROOT, STARTING

PAGE = "walk.md"
WITHIN_S = 600.0
_SETTINGS = ("--parties", "3", "--task", "digits", "--rounds", "1", "--seed", "7", "--local-epochs", "1")

HEAD = """\
# One round, file by file

Which files does a round go through, from `veilsum launch` to the committed model? Generated from traced runs over MQTT
by `make docs`; do not edit. Three participants train one round on digits. For each process the files stand in the order
of their first visit, under the phase of the machine that was in force then ([machines.md](machines.md)); a file that
was visited before is not repeated, and phases that visit no new file are left out. Tasks of the transport run beside
the machine whenever something arrives; the files that they visit stand apart, by name. Each file is shown with the
first line of its docstring.
"""

Walk = list[tuple[str, list[str]]]
"""The phases of one process in order, each with the files that it visits first."""


class NoBroker(Exception):
    """Neither mosquitto nor the embedded broker is installed."""


def walk_page() -> str:
    """The whole page; takes minutes."""
    require_broker()
    return "\n".join([HEAD, *_round("masked"), *_round("ampc")])


def _round(scheme: str) -> Iterator[str]:
    yield f"## A round of `{scheme}`\n"
    for title, walk in _launched(scheme).items():
        yield from _sections(title, walk)


def require_broker() -> None:
    if find_mosquitto() is None and find_spec("amqtt") is None:
        raise NoBroker(f"no MQTT broker: install mosquitto or veilsum[broker]; {PAGE} is left as it is")


def _launched(scheme: str) -> dict[str, Walk]:
    """The walks of the launching process, the server and the first participant, by title."""
    with tempfile.TemporaryDirectory(prefix="walk") as scratch:
        federation, visits = Path(scratch) / "fed", Path(scratch) / "visits"
        visits.mkdir()
        port = ("--broker-port", str(free_port()))
        _run("-m", "veilsum", "init", str(federation), "--scheme", scheme, *_SETTINGS, *port)
        _run("-m", "veilsum.simulations.docs.traced", str(visits), "launch", str(federation))
        # The newest model is measured at the end, by `veilsum evaluate` under its holder's name.
        (first,) = (one for one in visits.glob("*-p1.visits") if not one.name.startswith("evaluate-"))
        records = {"`veilsum launch`": visits / "launch.visits", "Server": visits / "server-server.visits"}
        records[first.name.partition("-")[0].capitalize()] = first
        return {title: read_walk(record) for title, record in records.items()}


def _run(*arguments: str) -> None:
    done = subprocess.run(  # noqa: S603 - ourselves
        [sys.executable, *arguments], capture_output=True, text=True, check=False, timeout=WITHIN_S
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments)} ended with {done.returncode}: {done.stderr[-2000:]}")


def read_walk(record: Path) -> Walk:
    phases: dict[str, list[str]] = {}
    for line in record.read_text(encoding="utf-8").splitlines():
        phase, _, file = line.partition("\t")
        phases.setdefault(phase, []).append(file)
    carrying = phases.pop(CARRYING, [])
    visited = {file for files in phases.values() for file in files}
    apart = [(CARRYING, sorted(set(carrying) - visited))] if set(carrying) - visited else []
    return [*phases.items(), *apart]


def _sections(title: str, walk: Walk) -> Iterator[str]:
    for phase, files in walk:
        yield f"### {title}{_heading(phase)}\n"
        yield "\n".join(f"- `{file}`: {first_sentence(ROOT / file)}" for file in files) + "\n"


def _heading(phase: str) -> str:
    return {STARTING: ", starting", CARRYING: ", beside the machine: carrying bytes"}.get(phase, f": {phase}")


def first_sentence(file: Path) -> str:
    """The first line of what a file says about itself."""
    words = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return words.partition("\n")[0].rstrip(".:")


def write_page(folder: Path) -> None:
    """Without a broker the page is left as it is."""
    try:
        page = walk_page()
    except NoBroker as refusal:
        sys.stderr.write(f"{refusal}\n")
    else:
        (folder / PAGE).write_text(page, encoding="utf-8")
