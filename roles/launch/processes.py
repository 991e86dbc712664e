"""A whole federation as processes on one machine: broker, server and all parties, watched and stopped together.

Each process is what `veilsum broker`, `server`, `client` or `peer` would be on a computer of its own, in a session of
its own, so that Ctrl-C reaches this process alone and it stops the others in order. They are forked from a nursery
(roles/launch/nursery_process.py), and none outlives this process. What they tell as JSON lines is kept in FOLDER/logs,
and is all that the live view and the summary are made from.

    broker -> parties -> every party has said that it started -> server -> rounds -> server ends -> parties end

The server comes last, so that a party that refuses to start is known before there is a round that could leave it out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veilsum.protocol.errors import LocalProtocolError, ParameterError
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.roles.cli.exit_codes import EXIT_BAD_REQUEST
from veilsum.roles.cli.signals import stopping_in_order
from veilsum.roles.config.file import FILE_NAME
from veilsum.roles.federation.folder import LoadedFederation
from veilsum.roles.launch.children import LOGS_FOLDER, Child, keep_log
from veilsum.roles.launch.nursery import LEARNING, Nursery, NurseryLost
from veilsum.roles.launch.outcome import AFTER_END_S, BROKER, Outcome
from veilsum.roles.process.clock import monotonic
from veilsum.roles.process.machines import holds_model

BROKER_WITHIN_S = 20.0
RESTART_BROKER_S = 1.0


@dataclass
class Launch:
    loaded: LoadedFederation
    role_arguments: Sequence[str] = ()
    init: Path | None = None
    views: Path | None = None
    """The folder in which every process records its view."""
    on_fact: Callable[[Mapping[str, Any]], None] | None = None
    allow_missing: bool = False
    """Go on without parties that end before the first round."""
    fresh_for: Collection[str] = ()
    """Parties that begin anew where all others resume."""

    def __post_init__(self) -> None:
        self._children: dict[str, Child] = {}
        self._watching: dict[str, asyncio.Task[None]] = {}
        self._broker: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._stopped = False
        self._unheard: BaseException | None = None
        """What ended the reading of a process, which is then judged by no more than half of what it says."""

    async def run(self, nursery: Nursery | None = None) -> Outcome:
        """Until the server has ended and the parties, too, or we are interrupted; then none of them is left running.

        A nursery of one's own must be entered, and can be used further.
        """
        if nursery is None:
            async with Nursery() as own:
                return await self.run(own)
        self._nursery = nursery
        started = monotonic()
        refused: Sequence[str] = ()
        missing: Sequence[str] = ()
        with stopping_in_order(self._stop):
            try:
                await self._start_broker()
                for name in self._parties:
                    if not self._stopped:
                        await self._start_role(name)
                refused = await self._wait_for_starts()
                missing = [] if refused else [name for name in self._parties if self._has_ended(name)]
                if not refused and not self._stopped:
                    await self._start_role(SERVER)
                    refused = await self._wait_for_end()
            except NurseryLost:
                self._stopped = False
            finally:
                unfinished = SERVER not in self._children or self._children[SERVER].code is None
                interrupted = self._stopped and unfinished
                await self._stop_all()
        if self._unheard is not None:
            raise self._unheard
        wall_s = monotonic() - started
        return Outcome(self.loaded, self._children, wall_s, interrupted, refused, missing, nursery.lost)

    @property
    def _parties(self) -> Sequence[str]:
        return self.loaded.roster.participants

    def _stop(self) -> None:
        self._stopped = True
        self._news.set()

    # Waiting.

    async def _wait_until(self, enough: Callable[[], bool], within_s: float | None = None) -> None:
        """Return when it is true, when we are to stop, when the nursery is gone, or when the time is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not (self._stopped or self._nursery.lost or enough()):
                    self._news.clear()
                    await self._news.wait()

    async def _wait_for_starts(self) -> Sequence[str]:
        """Who refused to start, unless we go on without them.

        Whoever is slow is not missing: the others knock as long as their patience lasts, so the server comes before.
        """
        patience_s = self.loaded.config.timing.patience_s / 2
        await self._wait_until(lambda: bool(self._refusals()) or self._all_have_begun(), patience_s)
        return self._refusals()

    def _all_have_begun(self) -> bool:
        return all(self._children[name].told("started") or self._has_ended(name) for name in self._parties)

    async def _wait_for_end(self) -> Sequence[str]:
        """Until the run is over; who ended before it had begun, unless we go on without them."""
        server = self._children[SERVER]
        await self._wait_until(
            lambda: self._has_ended(SERVER) or server.told("round_began") or bool(self._refusals())
        )
        if (refused := self._refusals()) and not self._has_ended(SERVER):
            return refused
        floor = self.loaded.config.cohort_floor
        await self._wait_until(lambda: self._has_ended(SERVER) or self._count_left() < floor)
        # Whoever is left needs a moment to hear of the end, or to notice that the others are gone.
        await self._wait_until(lambda: self._has_ended(SERVER), AFTER_END_S)
        await self._wait_until(lambda: self._count_left() == 0, AFTER_END_S)
        return ()

    def _refusals(self) -> Sequence[str]:
        """The parties that ended with an error before the first round."""
        if self.allow_missing:
            return ()
        return [name for name in self._parties if self._has_ended(name) and self._children[name].code != 0]

    def _has_ended(self, name: str) -> bool:
        """Whether a process has ended and all that it said was read."""
        return name in self._watching and self._watching[name].done()

    def _count_left(self) -> int:
        return sum(not self._has_ended(name) for name in self._parties)

    # Starting.

    async def _start_broker(self) -> None:
        child = await self._start(BROKER, ["broker", str(self.loaded.folder)])
        if not self.loaded.config.task_is_numbers:
            await self._nursery.load(LEARNING)
        said = await self._first_words(child)
        if not said:
            code = await child.process.wait()
            await asyncio.wait([self._watching[BROKER]])
            refusal = f"the broker did not start: {child.reason or 'no reason given'}"
            raise ParameterError([refusal]) if code == EXIT_BAD_REQUEST else LocalProtocolError(refusal)
        self._tell({"party": BROKER, "fact": "broker", "text": said})
        self._broker = asyncio.create_task(self._watch_broker())

    async def _watch_broker(self) -> None:
        """A broker that ends is started again; the parties reconnect by themselves."""
        trouble = ""
        while True:
            await self._children[BROKER].process.wait()
            if self._nursery.lost:
                return
            await self._children[BROKER].stop()
            if not trouble:
                self._warn_of_broker("the broker ended and is started again")
            await asyncio.sleep(RESTART_BROKER_S)
            child = await self._start(BROKER, ["broker", str(self.loaded.folder)])
            if said := await self._first_words(child):
                trouble = ""
                self._tell({"party": BROKER, "fact": "broker", "text": said})
                continue
            await asyncio.wait([self._watching[BROKER]])
            before, trouble = trouble, child.reason or "no reason given"
            if trouble != before:
                self._warn_of_broker(f"the broker did not start again, and is tried further: {trouble}")

    def _warn_of_broker(self, text: str) -> None:
        self._tell({"party": BROKER, "fact": "warning", "text": text})

    async def _first_words(self, child: Child) -> str:
        try:
            async with asyncio.timeout(BROKER_WITHIN_S):
                said = await child.process.stdout.readline()
        except TimeoutError:
            await child.stop()
            return ""
        return said.decode(errors="replace").strip()

    async def _start_role(self, name: str) -> None:
        role = self.loaded.roster.identity(name).role.value
        file = self.loaded.folder / FILE_NAME
        arguments = [role, str(file), "--name", name, "--log-format", "json", *self._arguments_of(name)]
        holder = holds_model(self.loaded.config.load_scheme(), PartyId(name))
        if self.init is not None and (holder or name == SERVER):
            arguments += ["--init", str(self.init)]
        if name != SERVER or self.loaded.config.perturbs:
            arguments += ["--measure", "always" if self.loaded.config.measures_own_tests else "turns"]
        if self.views is not None:
            arguments += ["--record-view", str(self.views / f"{name}.view")]
        await self._start(name, arguments)

    def _arguments_of(self, name: str) -> Sequence[str]:
        anew = {"--resume": "--fresh"} if name in self.fresh_for else {}
        return [anew.get(word, word) for word in self.role_arguments]

    async def _start(self, name: str, arguments: Sequence[str]) -> Child:
        process = await self._nursery.fork(arguments)
        child = self._children[name] = Child(name, process)
        logs = self.loaded.folder / LOGS_FOLDER

        def take(line: str) -> None:
            self._hear(child.take(line))

        def lacking(log: Path, error: OSError) -> None:
            self._hear(child.lack(log, error))

        readers = [asyncio.create_task(keep_log(logs, name, process.stderr, lacking, take))]
        if name != BROKER:
            readers.append(asyncio.create_task(keep_log(logs, name, process.stdout, lacking)))
        for reader in readers:
            reader.add_done_callback(self._require_heard)
        watching = self._watching[name] = asyncio.create_task(child.watch(*readers))
        watching.add_done_callback(lambda _: self._news.set())
        return child

    # Hearing, and stopping.

    def _hear(self, fact: Mapping[str, Any] | None) -> None:
        if fact is not None:
            self._tell(fact)
            self._news.set()

    def _require_heard(self, reader: asyncio.Task[None]) -> None:
        """Stop where a process is not read to its end: it would wait at a full pipe, and we for what it said."""
        if not reader.cancelled() and reader.exception() is not None:
            self._unheard = self._unheard or reader.exception()
            self._stop()

    def _tell(self, fact: Mapping[str, Any]) -> None:
        if self.on_fact is not None:
            self.on_fact(fact)

    async def _stop_all(self) -> None:
        """Parties first, the broker last, so that they can say good-bye."""
        if self._broker is not None:
            self._broker.cancel()
        roles = [child for name, child in self._children.items() if name != BROKER]
        await asyncio.gather(*(child.stop() for child in roles))
        await asyncio.gather(*(child.stop() for child in self._children.values()))
        await asyncio.gather(*self._watching.values())
