"""Runs the embedded broker on a loopback port until it is ended: `embedded_broker.py PORT`."""

from __future__ import annotations

import asyncio
import sys

from amqtt.broker import Broker


async def serve(port: int) -> None:
    configuration = {
        "listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{port}"}},
        "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
    }
    broker = Broker(configuration)
    await broker.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
