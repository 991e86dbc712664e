"""The live page over HTTP: one page, one stream of server-sent events, one script, and nothing that changes anything.

Whoever may read the page may see losses, so that three things keep others of this machine and of the web out: the
server listens on the loopback alone; an address begins with a path that nobody can guess; and a request that does not
name the loopback as its host is refused, so that a site whose name was turned to 127.0.0.1 reads nothing. The page may
run no script but the one it brings, and ask nobody else for anything.

Implements specs/page.md, section 3.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from veilsum.roles.pages.follower import RunFollower
from veilsum.roles.pages.templates import environment

HOSTS = ["127.0.0.1", "localhost"]
MOST_STREAMS = 24
STILL_HERE_S = 10.0
"""A stream says something at least so often: whoever does not take it in is noticed."""
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)


@dataclass
class LivePage:
    """What is served under one secret path."""

    follower: RunFollower
    secret: str
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    streams: int = 0

    def app(self) -> Starlette:
        routes = [
            Route(f"/{self.secret}/", self._page),
            Route(f"/{self.secret}/events", self._events),
            Route(f"/{self.secret}/script.js", self._script),
        ]
        return Starlette(
            routes=routes,
            middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS, www_redirect=False)],
        )

    async def _page(self, request: Request) -> Response:
        text = await self.follower.whole()
        headers = {**HEADERS, "Content-Security-Policy": policy(text)}
        return Response(text, media_type="text/html", headers=headers)

    async def _script(self, request: Request) -> Response:
        source = environment().loader
        assert source is not None
        text, _, _ = source.get_source(environment(), "script.js")
        return Response(text, media_type="text/javascript", headers=HEADERS)

    async def _events(self, request: Request) -> Response:
        if self.streams >= MOST_STREAMS:
            return PlainTextResponse(
                f"{MOST_STREAMS} pages are followed already: close one", 503, {**HEADERS, "Retry-After": "10"}
            )
        return StreamingResponse(self._changes(), media_type="text/event-stream", headers=HEADERS)

    async def _changes(self) -> AsyncIterator[str]:
        """All parts first, then those that change, until the page's server ends."""
        known: dict[str, str] = {}
        self.streams += 1
        try:
            yield "retry: 2000\n\n"
            while not self.closing.is_set():
                changed = await self._next(known)
                known.update(changed)
                yield f"event: parts\ndata: {json.dumps(changed)}\n\n" if changed else ": still here\n\n"
        finally:
            self.streams -= 1

    async def _next(self, known: dict[str, str]) -> dict[str, str]:
        """What changed, or nothing when it is time to say something or to end."""
        waiting = asyncio.create_task(self.follower.next_parts(known, STILL_HERE_S))
        ending = asyncio.create_task(self.closing.wait())
        try:
            await asyncio.wait((waiting, ending), return_when=asyncio.FIRST_COMPLETED)
            return waiting.result() if waiting.done() else {}
        finally:
            for task in (waiting, ending):
                task.cancel()


def policy(text: str) -> str:
    """What a browser may do on a page: its own style and script, its own stream, and nothing else."""
    styles = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'"
        for one in _STYLE.findall(text)
    )
    return (
        f"default-src 'none'; style-src {styles}; script-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
