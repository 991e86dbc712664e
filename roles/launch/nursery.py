"""What `launch` holds of the nursery: it asks for children, and hears of their ends.

The nursery is started before anything else, so that it imports while `launch` reads settings and keys. Requests are
answered one at a time; the end of a child is told whenever it comes. A nursery that is gone takes its children with it
(roles/launch/lifeline.py), and whoever waits for one of them hears that it was killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from veilsum.protocol.errors import LocalProtocolError
from veilsum.roles.launch.ourselves import our_python
from veilsum.roles.launch.titles import ROOM

PROGRAM = "veilsum.roles.launch.nursery_process"
ROLES = "roles"
LEARNING = "learning"
LONGEST_LINE = 1 << 20
ANSWER_WITHIN_S = 120.0


class NurseryLost(LocalProtocolError):
    """The process that forks the others is gone, and they with it."""

    def __init__(self) -> None:
        super().__init__("the process that all others are forked from has ended, and they with it")


@dataclass
class Forked:
    """One child of the nursery: its outputs, and how it ended."""

    pid: int
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader
    returncode: int | None = None
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def end_with(self, code: int) -> None:
        self.returncode = code
        self._ended.set()

    def signal_group(self, which: signal.Signals) -> None:
        """Tell the child and all that it has started; after its end its number may be that of others."""
        if self.returncode is None:
            try:
                os.killpg(self.pid, which)
            except ProcessLookupError:
                # Just forked, it leads no group yet: it holds the signal back until it knows what to do with it.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, which)


class Nursery:
    """Started at once; `async with` it to have children forked. `preloading=False` lets each child import by itself."""

    def __init__(self, *, preloading: bool = True) -> None:
        self._preloading = preloading
        self._control, theirs = socket.socketpair()
        reading, self._lifeline = os.pipe()
        command = our_python(PROGRAM, str(theirs.fileno()), str(reading), ROOM)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - ourselves
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), reading),
                start_new_session=True,
            )
        os.close(reading)
        self._children: dict[int, Forked] = {}
        self._asking = asyncio.Lock()
        self._answers: asyncio.Queue[Mapping[str, Any] | None] = asyncio.Queue()
        self._listening: asyncio.Task[None] | None = None
        self._outputs: Sequence[asyncio.StreamReader] = ()
        self._unanswered = preloading
        if preloading:
            self._send({"load": ROLES})

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def lost(self) -> bool:
        """Whether it ended without having been told to."""
        return self._listening is not None and self._listening.done()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        self._control.setblocking(False)
        self._listening = asyncio.create_task(self._listen())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
        self.close()

    def close(self) -> None:
        """Let go of it; whatever is left of its children ends with it."""
        if self._control.fileno() >= 0:
            self._control.close()
            os.close(self._lifeline)
            self._process.kill()
            self._process.wait()

    async def load(self, stage: str) -> None:
        """Have it import what a stage needs, before those who need it are forked."""
        if self._preloading:
            async with self._asking:
                await self._ask({"load": stage})

    async def fork(self, words: Sequence[str]) -> Forked:
        """A process that runs the `veilsum` command with these words."""
        reading, writing = zip(os.pipe(), os.pipe(), strict=True)
        async with self._asking:
            self._outputs = [await _reader(end) for end in reading]
            try:
                answer = await self._ask({"fork": list(words)}, writing)
            finally:
                for end in writing:
                    os.close(end)
            if "refused" in answer:
                raise LocalProtocolError(f"{answer['refused']}: veilsum launch --no-preload does without")
            return self._children[answer["forked"]]

    def _send(self, request: Mapping[str, Any], pipes: Sequence[int] = ()) -> None:
        try:
            socket.send_fds(self._control, [json.dumps(request).encode() + b"\n"], list(pipes))
        except ConnectionError as error:
            raise NurseryLost from error

    async def _ask(self, request: Mapping[str, Any], pipes: Sequence[int] = ()) -> Mapping[str, Any]:
        """The answer to a request, sent once the one before is answered: two in the socket would be read as one."""
        if self._unanswered:
            await self._answer()
        self._unanswered = True
        self._send(request, pipes)
        answer = await self._answer()
        self._unanswered = False
        return answer

    async def _answer(self) -> Mapping[str, Any]:
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                answer = await self._answers.get()
        except TimeoutError:
            raise LocalProtocolError(
                f"the process that all others are forked from has not answered for {ANSWER_WITHIN_S:g} s: "
                "veilsum launch --no-preload does without it"
            ) from None
        if answer is None:
            self._answers.put_nowait(None)
            raise NurseryLost
        return answer

    async def _listen(self) -> None:
        loop, heard = asyncio.get_running_loop(), b""
        with contextlib.suppress(ConnectionError):
            while more := await loop.sock_recv(self._control, LONGEST_LINE):
                *lines, heard = (heard + more).split(b"\n")
                for line in lines:
                    self._take(json.loads(line))
        for child in self._children.values():
            if child.returncode is None:
                child.signal_group(signal.SIGKILL)
                child.end_with(-signal.SIGKILL)
        self._answers.put_nowait(None)

    def _take(self, said: Mapping[str, Any]) -> None:
        if "ended" in said:
            self._children[said["ended"]].end_with(said["code"])
            return
        if "forked" in said:
            stdout, stderr = self._outputs
            self._children[said["forked"]] = Forked(said["forked"], stdout, stderr)
        self._answers.put_nowait(said)


async def _reader(pipe: int) -> asyncio.StreamReader:
    loop = asyncio.get_running_loop()
    stream = asyncio.StreamReader(limit=LONGEST_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(pipe, "rb", 0))
    return stream
