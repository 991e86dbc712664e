"""One process of a launched federation: what it says, line by line, and how it ends.

What a role tells are JSON lines on standard error; on standard output the user's own code prints. Both are kept in
FOLDER/logs/NAME.log.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from veilsum.roles.cli.failure import ERROR
from veilsum.roles.process.clock import told_time

LOGS_FOLDER = "logs"
STOP_WITHIN_S = 10.0
LAST_WORDS_WITHIN_S = 2.0
"""How long after its end a process is read: somebody whom it left behind may hold its outputs open."""
FAILURES = ("start_failed", "run_failed")


class Process(Protocol):
    """What is known of a process from outside."""

    @property
    def returncode(self) -> int | None: ...
    @property
    def stdout(self) -> asyncio.StreamReader: ...
    @property
    def stderr(self) -> asyncio.StreamReader: ...
    async def wait(self) -> int: ...
    def signal_group(self, which: signal.Signals) -> None: ...


@dataclass
class Child:
    """One process, what it said, and how it ended."""

    name: str
    process: Process
    facts: list[Mapping[str, Any]] = field(default_factory=list)
    last_words: str = ""
    told_to_stop: bool = False
    ended_at: str = ""
    """When we saw it end, as facts tell the time."""
    logged: bool = True
    """Whether its log has all that it said."""

    @property
    def code(self) -> int | None:
        return self.process.returncode

    def told(self, fact: str) -> bool:
        return any(one.get("fact") == fact for one in self.facts)

    @property
    def finished(self) -> bool:
        """Whether it came to the end of the run, however it left after that."""
        return self.code == 0 or self.told("run_finished")

    @property
    def reason(self) -> str:
        """Its last words, without those that every command's error begins with."""
        return self.last_words.removeprefix(ERROR)

    @property
    def failure(self) -> Mapping[str, Any] | None:
        """The fact in which it said why it ended."""
        return next((one for one in reversed(self.facts) if one.get("fact") in FAILURES), None)

    async def stop(self) -> None:
        """Ask it to end, and end it if it does not, with all that it may have left behind."""
        self.told_to_stop = self.told_to_stop or self.code is None
        self.process.signal_group(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.process.wait(), STOP_WITHIN_S)
        self.process.signal_group(signal.SIGKILL)
        await self.process.wait()

    def take(self, line: str) -> Mapping[str, Any] | None:
        """The fact of a line; any other line is remembered as the last words."""
        try:
            fact = json.loads(line)
        except (ValueError, RecursionError):
            self.last_words = line.strip() or self.last_words
            return None
        if not isinstance(fact, dict):
            return None
        self.facts.append(fact)
        return fact

    def lack(self, log: Path, error: OSError) -> Mapping[str, Any] | None:
        """Its log misses a line: a warning the first time."""
        if self.logged:
            self.logged = False
            text = f"{log} lacks lines ({error.strerror}); the run goes on: make room there"
            return self.take(
                json.dumps({"at": told_time(), "party": self.name, "fact": "warning", "text": text})
            )
        return None

    async def watch(self, *readers: asyncio.Task[None]) -> None:
        """Return when it has ended and all that it said was read."""
        await self.process.wait()
        self.ended_at = told_time()
        await asyncio.wait(readers, timeout=LAST_WORDS_WITHIN_S)


async def keep_log(
    folder: Path,
    name: str,
    stream: asyncio.StreamReader,
    lacking: Callable[[Path, OSError], None],
    take: Callable[[str], None] | None = None,
) -> None:
    """Log what a process writes, line by line, and hand each line on; a line that the disk does not take is `lacking`.

    Whatever becomes of the log, the lines are read: their writer must not wait, and a run is judged by them.
    """
    path = folder / f"{name}.log"
    async for raw in lines_of(stream):
        line = raw.decode(errors="replace")
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            with path.open("ab") as log:
                log.write(line.encode())
        except OSError as error:
            lacking(path, error)
        if take is not None:
            take(line)


async def lines_of(stream: asyncio.StreamReader) -> AsyncIterator[bytes]:
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
