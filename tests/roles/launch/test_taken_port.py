"""A broker that ended and cannot come back, because its port is another's now, says so once, and comes back later."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.federations import make_federation
from veilsum.roles.cli.failure import ERROR
from veilsum.roles.launch import processes
from veilsum.roles.launch.children import Child
from veilsum.roles.launch.nursery import Forked, Nursery
from veilsum.roles.launch.outcome import BROKER
from veilsum.roles.launch.processes import Launch

TAKEN = "port 1883 is in use on this machine"


class StandIns(Launch):
    """A launch whose broker is started as often as there are words: on standard output, or why it ended."""

    def prepare(self, *said: tuple[str, str]) -> None:
        self.said = list(said)
        self._nursery = Nursery(preloading=False)
        self._children[BROKER] = self.ended("")

    def ended(self, why: str, words: str = "") -> Child:
        process = Forked(0, asyncio.StreamReader(), asyncio.StreamReader())
        process.stdout.feed_data(f"{words}\n".encode() if words else b"")
        process.stdout.feed_eof()
        process.end_with(1)
        return Child(BROKER, process, last_words=f"{ERROR}{why}" if why else "")

    async def _start(self, name: str, arguments: Sequence[str]) -> Child:
        if not self.said:
            await asyncio.Event().wait()
        words, why = self.said.pop(0)
        child = self._children[name] = self.ended(why, words)
        self._watching[name] = asyncio.create_task(asyncio.sleep(0))
        return child


def test_a_broker_whose_port_is_taken_meanwhile_says_so_once_for_the_same_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "RESTART_BROKER_S", 0.0)
    told: list[Mapping[str, Any]] = []

    async def run() -> None:
        launch = StandIns(make_federation(tmp_path / "fed", "plain", 3), on_fact=told.append)
        launch.prepare(("", TAKEN), ("", TAKEN), ("", "another"), ("", TAKEN), ("at last", ""))
        watching = asyncio.create_task(launch._watch_broker())
        async with asyncio.timeout(30):
            while launch.said:
                await asyncio.sleep(0.01)
        watching.cancel()
        launch._nursery.close()

    asyncio.run(run())
    texts = [fact["text"] for fact in told]
    assert all(texts), "no line is empty"
    assert [TAKEN in text for text in texts] == [False, True, False, True, False, False]
