"""Follows a run for a page: reads what is new in the logs, listens to statuses, and says when something changed.

Both sources may be missing: logs where the roles run elsewhere, statuses before and after the run. A broker that is not
there is asked again and again, because a run may begin or go on while the page is open.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from veilsum.protocol.errors import ProtocolError
from veilsum.roles.broker.connect import observers_folder, observers_link
from veilsum.roles.federation.folder import LoadedFederation
from veilsum.roles.monitor.history import RunHistory
from veilsum.roles.monitor.log_tail import LogTail
from veilsum.roles.monitor.status import Status
from veilsum.roles.monitor.watching import Board
from veilsum.roles.pages.run_facts import Seen
from veilsum.roles.pages.run_page import run_page, run_parts
from veilsum.roles.process.clock import Clock, monotonic
from veilsum.transport.errors import TransportError
from veilsum.transport.printable import printable

LOOK_EVERY_S = 0.5
LISTEN_AGAIN_S = 3.0
FRESH_S = 5.0


@dataclass
class LiveBoard(Board):
    """A board that knows when it heard whom."""

    clock: Clock = monotonic
    heard: dict[str, float] = field(default_factory=dict)

    def take(self, status: Status) -> None:
        before = self.statuses.get(status.party)
        super().take(status)
        if self.statuses.get(status.party) is not before:
            self.heard[status.party] = self.clock()

    def fresh(self) -> frozenset[str]:
        since = self.clock() - FRESH_S
        return frozenset(name for name, at in self.heard.items() if at >= since)


@dataclass
class RunFollower:
    """One for a server of pages, however many pages are open; `parts` are those of the page as it is now."""

    loaded: LoadedFederation
    logs: Path
    key: Path | None = None
    """The login to listen with; the first free of the federation's folder if not given."""
    parts: dict[str, str] = field(default_factory=dict)
    board: LiveBoard = field(default_factory=LiveBoard)
    history: RunHistory = field(default_factory=RunHistory)

    def __post_init__(self) -> None:
        self._tail = LogTail(self.logs)
        self._changed = asyncio.Condition()
        self._one_at_a_time = asyncio.Lock()
        self._listening = "no status was heard"
        self._drawn: object = None

    @contextlib.asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follow the run in the background."""
        tasks = [asyncio.create_task(self._look()), asyncio.create_task(self._listen())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def once(self, listen_s: float) -> str:
        """The page as it is after listening for a moment."""
        listening = asyncio.create_task(self._listen())
        await asyncio.wait({listening}, timeout=listen_s)
        listening.cancel()
        await asyncio.wait({listening})
        return await asyncio.to_thread(self._draw_whole)

    async def whole(self) -> str:
        async with self._one_at_a_time:
            return await asyncio.to_thread(run_page, self.seen(), live=True)

    async def next_parts(self, known: dict[str, str], within_s: float) -> dict[str, str]:
        """The parts that differ from the known ones, as soon as some do; none if nothing changes in that time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s), self._changed:
                await self._changed.wait_for(lambda: self.parts != known)
        return {name: text for name, text in self.parts.items() if known.get(name) != text}

    def seen(self) -> Seen:
        where = f"logs in {self.logs}" if self.history.parties else f"there are no logs in {self.logs}"
        return Seen(self.loaded, self.history, self.board, self.board.fresh(), f"{where}; {self._listening}.")

    def _draw_whole(self) -> str:
        while self._read():
            pass
        return run_page(self.seen())

    def _read(self) -> bool:
        """Take in what is new, or the next part of it; whether there was any."""
        return self.history.take_all(self._tail.facts())

    async def _look(self) -> None:
        """Look again and again; a page that cannot be drawn stands still, and says so."""
        while True:
            try:
                await self._draw_what_is_new()
            except Exception as error:  # noqa: BLE001 - of logs that others wrote: it must not end in silence
                self._drawn = None
                problem = printable(f"This page stands still: it could not be drawn ({error!r}).")
                await self._show({**self.parts, "source": html.escape(problem)})
            await asyncio.sleep(LOOK_EVERY_S)

    async def _draw_what_is_new(self) -> None:
        """Read and draw away from the event loop, and never both at once."""
        async with self._one_at_a_time:
            new = await asyncio.to_thread(self._read)
        now = (
            tuple(status.order for status in self.board.statuses.values()),
            self.board.fresh(),
            self._listening,
        )
        if new or now != self._drawn:
            async with self._one_at_a_time:
                parts = await asyncio.to_thread(run_parts, self.seen())
            self._drawn = now
            await self._show(parts)

    async def _show(self, parts: dict[str, str]) -> None:
        async with self._changed:
            self.parts = parts
            self._changed.notify_all()

    async def _listen(self) -> None:
        while True:
            try:
                with observers_folder(self.loaded, self.key) as login:
                    async with observers_link(self.loaded, login) as source:
                        self._listening = f"listening for statuses as {login.name}"
                        async for datagram in source.statuses():
                            self.board.hear(self.loaded, datagram)
            except (TransportError, ProtocolError, OSError) as error:
                self._listening = f"no statuses are heard: {error}"
            await asyncio.sleep(LISTEN_AGAIN_S)
