"""Draws specs/machines.md from the transition tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from veilsum.protocol.machines.phases import PARTICIPANT_TABLE, SERVER_TABLE
from veilsum.protocol.machines.scheme import Scheme
from veilsum.protocol.machines.transitions import TransitionTable, Trigger
from veilsum.protocol.schemes.registry import find_scheme, scheme_names
from veilsum.protocol.wire.messages import kind_of

PAGE = "machines.md"

HEAD = """\
# The machines

Generated from the transition tables in the code by `make docs`; do not edit. A machine moves along these arrows and
no others. A message that its phase does not list is refused: the sender is named, and nothing changes. Words in
*italics* are not messages: a *deadline* passes, *training* or other heavy *work* is done, a party leaves (*loss*), the
attempt under way has an *outcome*.

The server and the participants each run one outer machine, which opens sessions and begins rounds. While it is
`preparing` or `running`, one of the scheme's own machines is inside it and takes the other messages.
"""


def machines_page() -> str:
    """The whole page."""
    parts = [HEAD, *_section("Server, between rounds", SERVER_TABLE)]
    parts += _section("Participant, between rounds", PARTICIPANT_TABLE)
    drawn: dict[type, str] = {}
    for scheme in _own_schemes():
        parts.append(f"## Scheme `{scheme.name}`\n")
        for name, machine in scheme.machines.items():
            if machine in drawn:
                parts.append(f"{name[0].upper() + name[1:]}: the same machine as {drawn[machine]}.\n")
                continue
            drawn[machine] = name
            parts += _section(name[0].upper() + name[1:], machine.table, level=3)
    return "\n".join(parts)


def _own_schemes() -> Iterator[Scheme]:
    """Those of this package, whatever else is registered."""
    schemes = (find_scheme(name) for name in scheme_names())
    return (scheme for scheme in schemes if type(scheme).__module__.startswith("veilsum."))


def _section(title: str, table: TransitionTable, level: int = 2) -> list[str]:
    rows = [
        f"| {phase.value} | {_trigger_text(trigger)} | {', '.join(target.value for target in targets)} |"
        for phase in table.phases
        for (source, trigger), targets in table.moves.items()
        if source is phase
    ]
    return [
        f"{'#' * level} {title}\n",
        f"```mermaid\n{table.diagram()}\n```\n",
        "| while | on | goes on to |\n|---|---|---|",
        "\n".join(rows) + "\n",
    ]


def _trigger_text(trigger: Trigger) -> str:
    return f"*{trigger}*" if isinstance(trigger, str) else f"`{kind_of(trigger)}`"


def write_page(folder: Path) -> None:
    (folder / PAGE).write_text(machines_page(), encoding="utf-8")
