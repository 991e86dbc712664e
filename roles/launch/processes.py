"""A whole federation as processes on one machine: broker, server and all parties, watched and stopped together.

Each process is what `veilsum broker`, `server`, `client` or `peer` would be on a computer of its own, in a session of
its own, so that Ctrl-C reaches this process alone and it stops the others in order. The processes tell what happens
as JSON lines; they are kept in FOLDER/logs and are all that the live view and the summary are made from.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from veilsum.protocol.errors import LocalProtocolError
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.roles.config.file import FILE_NAME
from veilsum.roles.federation.folder import LoadedFederation
from veilsum.roles.process.clock import monotonic
from veilsum.roles.process.machines import holds_model

BROKER = "broker"
LOGS_FOLDER = "logs"
STOP_WITHIN_S = 10.0
BROKER_WITHIN_S = 20.0
RESTART_BROKER_S = 1.0
AFTER_END_S = 20.0
"""How long parties may take to end after the server, and the server after too many parties, have ended."""
_LONGEST_LINE = 1 << 20


@dataclass
class Child:
    """One process, what it said, and how it ended."""

    name: str
    process: asyncio.subprocess.Process
    facts: list[Mapping[str, Any]] = field(default_factory=list)
    last_words: str = ""

    @property
    def code(self) -> int | None:
        return self.process.returncode

    async def stop(self) -> None:
        """Ask it to end, and end it if it does not, with all that it may have left behind."""
        self._signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.process.wait(), STOP_WITHIN_S)
        self._signal(signal.SIGKILL)
        await self.process.wait()

    def _signal(self, which: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, which)


@dataclass
class Outcome:
    """What became of a launched federation."""

    loaded: LoadedFederation
    children: Mapping[str, Child]
    wall_s: float
    interrupted: bool = False

    @property
    def server(self) -> Child:
        return self.children[SERVER]

    @property
    def exit_code(self) -> int:
        if self.interrupted:
            return 130
        return 0 if self.server.code == 0 else 1

    @property
    def last_words(self) -> str:
        """What somebody said who ended before it could tell facts; the server first, and never the broker."""
        roles = (self.server, *(child for name, child in self.children.items() if name != BROKER))
        return next((child.last_words for child in roles if child.last_words), "")

    def facts(self, fact: str, who: str | None = None) -> Iterator[Mapping[str, Any]]:
        for name, child in self.children.items():
            if who is None or who == name:
                yield from (one for one in child.facts if one.get("fact") == fact)


@dataclass
class Launch:
    loaded: LoadedFederation
    role_arguments: Sequence[str] = ()
    init: Path | None = None
    views: Path | None = None
    """The folder in which every process records its view."""
    on_fact: Callable[[Mapping[str, Any]], None] | None = None

    def __post_init__(self) -> None:
        self._children: dict[str, Child] = {}
        self._readers: list[asyncio.Task[None]] = []
        self._watching: asyncio.Task[None] | None = None

    async def run(self) -> Outcome:
        """Until the server has ended and the parties, too, or we are interrupted; then nothing is left running."""
        started = monotonic()
        interrupted = False
        async with _interruption() as stop:
            try:
                await self._start_broker()
                for name in (SERVER, *self.loaded.roster.participants):
                    await self._start_role(name)
                interrupted = await self._wait(stop)
            finally:
                await self._stop_all()
        return Outcome(self.loaded, self._children, monotonic() - started, interrupted)

    async def _wait(self, stop: asyncio.Event) -> bool:
        """Whether somebody stopped us before the server had ended."""
        stopped = asyncio.create_task(stop.wait())
        server = asyncio.create_task(self._children[SERVER].process.wait())
        deserted = asyncio.create_task(self._wait_for_parties(self.loaded.config.cohort_floor))
        gone = asyncio.create_task(self._wait_for_parties(1))
        try:
            await asyncio.wait((server, stopped, deserted), return_when=asyncio.FIRST_COMPLETED)
            # Whoever is left needs a moment to hear of the end, or to notice that the others are gone.
            for left in (server, gone):
                if not stopped.done():
                    await asyncio.wait(
                        (left, stopped), timeout=AFTER_END_S, return_when=asyncio.FIRST_COMPLETED
                    )
            return stopped.done() and not server.done()
        finally:
            for task in (stopped, server, deserted, gone):
                task.cancel()

    async def _wait_for_parties(self, enough: int) -> None:
        """Return when fewer than `enough` parties are still running."""
        parties = [child for name, child in self._children.items() if name not in (SERVER, BROKER)]
        waiting = {asyncio.create_task(child.process.wait()) for child in parties}
        try:
            while len(waiting) >= enough:
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()

    async def _start_broker(self) -> None:
        child = await self._start(BROKER, ["broker", str(self.loaded.folder)])
        said = await self._first_words(child)
        if not said:
            await child.process.wait()
            raise LocalProtocolError(f"the broker did not start: {child.last_words or 'no reason given'}")
        self._tell({"party": BROKER, "fact": "broker", "text": said})
        self._watching = asyncio.create_task(self._watch_broker())

    async def _watch_broker(self) -> None:
        """A broker that ends is started again; the parties reconnect by themselves."""
        while True:
            await self._children[BROKER].process.wait()
            self._tell({"party": BROKER, "fact": "warning", "text": "the broker ended and is started again"})
            await asyncio.sleep(RESTART_BROKER_S)
            child = await self._start(BROKER, ["broker", str(self.loaded.folder)])
            self._tell({"party": BROKER, "fact": "broker", "text": await self._first_words(child)})

    async def _first_words(self, child: Child) -> str:
        assert child.process.stdout is not None
        try:
            async with asyncio.timeout(BROKER_WITHIN_S):
                said = await child.process.stdout.readline()
        except TimeoutError:
            return ""
        return said.decode(errors="replace").strip()

    async def _start_role(self, name: str) -> None:
        role = self.loaded.roster.identity(name).role.value
        file = self.loaded.folder / FILE_NAME
        arguments = [role, str(file), "--name", name, "--log-format", "json", *self.role_arguments]
        holder = holds_model(self.loaded.config.load_scheme(), PartyId(name))
        if self.init is not None and (holder or name == SERVER):
            arguments += ["--init", str(self.init)]
        if name != SERVER:
            arguments += ["--measure", "turns"]
        if self.views is not None:
            arguments += ["--record-view", str(self.views / f"{name}.view")]
        child = await self._start(name, arguments)
        assert child.process.stdout is not None
        self._readers.append(asyncio.create_task(self._read(child, child.process.stdout, facts=False)))

    async def _start(self, name: str, arguments: Sequence[str]) -> Child:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-P", "-m", "veilsum", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={"OMP_NUM_THREADS": "1", **os.environ},
            start_new_session=True,
            limit=_LONGEST_LINE,
        )
        child = self._children[name] = Child(name, process)
        assert process.stderr is not None
        self._readers.append(asyncio.create_task(self._read(child, process.stderr, facts=True)))
        return child

    async def _read(self, child: Child, stream: asyncio.StreamReader, *, facts: bool) -> None:
        """Log what the process writes; facts come on standard error, on standard output the user's own code prints."""
        folder = self.loaded.folder / LOGS_FOLDER
        folder.mkdir(mode=0o700, exist_ok=True)
        with (folder / f"{child.name}.log").open("a", encoding="utf-8") as log:
            async for raw in _lines(stream):
                line = raw.decode(errors="replace")
                log.write(line)
                log.flush()
                if facts:
                    self._take(child, line)

    def _take(self, child: Child, line: str) -> None:
        try:
            fact = json.loads(line)
        except ValueError:
            child.last_words = line.strip()
            return
        if isinstance(fact, dict):
            child.facts.append(fact)
            self._tell(fact)

    def _tell(self, fact: Mapping[str, Any]) -> None:
        if self.on_fact is not None:
            self.on_fact(fact)

    async def _stop_all(self) -> None:
        """Parties first, the broker last, so that they can say good-bye."""
        if self._watching is not None:
            self._watching.cancel()
        roles = [child for name, child in self._children.items() if name != BROKER]
        await asyncio.gather(*(child.stop() for child in roles))
        await asyncio.gather(*(child.stop() for child in self._children.values()))
        await asyncio.gather(*self._readers)


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Every line that is not too long; the others are read and dropped, so that the writer's pipe never fills."""
    dropping = False
    while True:
        try:
            line = await stream.readuntil()
        except asyncio.LimitOverrunError as overrun:
            await stream.readexactly(overrun.consumed)
            dropping = True
            continue
        except asyncio.IncompleteReadError as end:
            if end.partial and not dropping:
                yield end.partial
            return
        if not dropping:
            yield line
        dropping = False


@contextlib.asynccontextmanager
async def _interruption() -> AsyncIterator[asyncio.Event]:
    """An event that SIGINT and SIGTERM set."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for which in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(which, stop.set)
    try:
        yield stop
    finally:
        for which in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(which)
