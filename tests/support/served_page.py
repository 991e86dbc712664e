"""A live page, served by another thread of this process, of a run that a test tells."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.told_runs import ToldRun
from veilsum.roles.federation.folder import LoadedFederation
from veilsum.roles.pages import serving
from veilsum.roles.pages.follower import RunFollower
from veilsum.roles.pages.live import LivePage

SECRET = "a-path"
WITHIN_S = 30.0


@dataclass
class Served:
    port: int
    run: ToldRun
    page: LivePage

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/{SECRET}/"

    def ask(
        self, path: str = f"/{SECRET}/", method: str = "GET", host: str | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WITHIN_S)
        with contextlib.closing(connection):
            connection.request(method, path, headers={} if host is None else {"Host": host})
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=WITHIN_S)

    @contextlib.contextmanager
    def stream(self) -> Iterator[Iterator[dict[str, str]]]:
        """The parts that a stream of events brings."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WITHIN_S)
        with contextlib.closing(connection):
            connection.request("GET", f"/{SECRET}/events")
            answer = connection.getresponse()
            assert answer.status == 200
            lines = iter(lambda: answer.readline(), b"")
            yield (json.loads(line[6:]) for line in lines if line.startswith(b"data: "))


@contextlib.contextmanager
def serving_page(loaded: LoadedFederation, folder: Path) -> Iterator[Served]:
    """A live page, served by another thread of this process."""
    run, ready, box = ToldRun(folder), threading.Event(), {}
    run.start()
    listening = serving.open_port(0)

    async def main() -> None:
        follower = RunFollower(loaded, run.logs, folder)
        page = LivePage(follower, SECRET)
        server = serving.make_server(page.app())
        box.update(page=page, server=server, loop=asyncio.get_running_loop())
        async with follower.following():
            ready.set()
            await server.serve(sockets=[listening])

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        assert ready.wait(WITHIN_S)
        yield Served(listening.getsockname()[1], run, box["page"])
    finally:
        box["loop"].call_soon_threadsafe(box["page"].closing.set)
        box["server"].should_exit = True
        thread.join(WITHIN_S)
        assert not thread.is_alive()
