"""Listening to the statuses of a federation, as an observer with a login of its own and no key.

Who is late: a party that was not heard while others were, or that is behind the round of the server's status before the
newest, or that has not acknowledged what the server sent it. Behind the newest one everybody is for a moment, whenever
a round ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from veilsum.protocol.identifiers import SERVER, shown_number
from veilsum.roles.cli.output import Table
from veilsum.roles.federation.folder import LoadedFederation
from veilsum.roles.monitor.history import metric_words
from veilsum.roles.monitor.status import Status, open_status
from veilsum.transport.base import Datagram, StatusSource
from veilsum.transport.foreign import Defect, ForeignReader
from veilsum.transport.printable import printable


def _tell_nobody(defect: Defect) -> None:
    """The table ends with the number of statuses that did not verify."""


@dataclass
class Board:
    """The newest status of each party, and how many did not verify; of the server also the one before."""

    statuses: dict[str, Status] = field(default_factory=dict)
    server_before: Status | None = None
    foreign: ForeignReader = field(default_factory=lambda: ForeignReader(tell=_tell_nobody))

    @property
    def refused(self) -> int:
        return self.foreign.counts.total()

    def hear(self, loaded: LoadedFederation, datagram: Datagram) -> None:
        """Take what a source heard, if it is a status of a member."""
        read = partial(open_status, loaded.roster, loaded.federation_id, bytes(datagram.data))
        status = self.foreign.read("status", datagram.sender_hint, read)
        if status is not None:
            self.take(status)

    def take(self, status: Status) -> None:
        known = self.statuses.get(status.party)
        if known is None or known.order < status.order:
            if status.party == SERVER:
                self.server_before = known
            self.statuses[status.party] = status


async def listen(loaded: LoadedFederation, source: StatusSource, seconds: float) -> Board:
    """Collect what the source hears for so many seconds."""
    board = Board()
    async with source:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                async for datagram in source.statuses():
                    board.hear(loaded, datagram)
    return board


def late_parties(loaded: LoadedFederation, board: Board) -> dict[str, str]:
    """Name -> why it is late."""
    return dict(_late(loaded, board))


def _late(loaded: LoadedFederation, board: Board) -> Iterator[tuple[str, str]]:
    server = board.statuses.get(SERVER)
    told = board.server_before or server
    for name in (SERVER, *loaded.roster.participants):
        status = board.statuses.get(name)
        if status is None:
            yield name, "not heard"
        elif server is not None and told is not None and status.round < min(told.round, server.round):
            yield name, f"behind by {server.round - status.round}"
        elif server is not None and name in server.late:
            yield name, "owes an acknowledgement"


def describe(loaded: LoadedFederation, board: Board) -> str:
    late = late_parties(loaded, board)
    rows = [
        _row(name, board.statuses.get(name), late.get(name, ""))
        for name in (SERVER, *loaded.roster.participants)
    ]
    columns = ("party", "round", "attempt", "phase", "KiB sent", "KiB received", "refused", "late")
    text = Table(f"federation {loaded.config.name}, scheme {loaded.config.scheme}", columns, rows).render()
    text += "".join(f"{line}\n" for line in _measured(board))
    return text + (f"{board.refused} statuses did not verify\n" if board.refused else "")


def newest_measured(board: Board) -> Status | None:
    """The status with the newest metrics, if any tells some."""
    told = [one for one in board.statuses.values() if one.metrics]
    return max(told, key=lambda one: (one.measured, one.party), default=None)


def _measured(board: Board) -> Iterator[str]:
    newest = newest_measured(board)
    if newest is not None:
        yield f"after round {newest.measured}: {printable(metric_words(newest.metrics))}"


def _row(name: str, status: Status | None, late: str) -> tuple[str, ...]:
    if status is None:
        return (name, "", "", "", "", "", "", late)
    return (
        name,
        f"{round_in_work(status)}/{status.rounds}",
        str(shown_number(status.attempt)),
        status.phase,
        f"{status.sent_bytes / 1024:.1f}",
        f"{status.received_bytes / 1024:.1f}",
        str(status.refused),
        late,
    )


def round_in_work(status: Status) -> int:
    """The round that a party is in, counted from 1; after the run its last. A status carries how many are done."""
    return min(shown_number(status.round), status.rounds)


def _shown(status: Status) -> dict[str, Any]:
    numbers = {"round": round_in_work(status), "attempt": shown_number(status.attempt)}
    return asdict(status) | numbers | {"rounds_done": status.round}


def figures_of(loaded: LoadedFederation, board: Board) -> dict[str, Any]:
    return {
        "federation": loaded.config.name,
        "statuses": {name: _shown(status) for name, status in sorted(board.statuses.items())},
        "late": late_parties(loaded, board),
        "refused_statuses": board.refused,
    }
