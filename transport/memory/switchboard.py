"""An in-memory broker for asyncio: links of one process, with the interface and the manners of an MQTT link.

Datagrams travel at once and in order unless faults are given; then the same dice as in simulations decide
their fate, in real time. Like a broker, the switchboard drops what is addressed to nobody.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from veilsum.transport.base import Datagram, GoneHint, LinkEvent, Reconnected
from veilsum.transport.memory.faults import Dice, Faults

if TYPE_CHECKING:
    from veilsum.transport.base import Address


class Switchboard:
    """Connects the links of one process."""

    def __init__(self, faults: Faults | None = None, seed: int = 0) -> None:
        self._dice = Dice(faults or Faults(), seed)
        self._links: dict[Address, MemoryLink] = {}

    def link(self, address: Address) -> MemoryLink:
        """A link for an address; it is reachable while it is open, and a later one takes its place."""
        return MemoryLink(self, address)

    def interrupt(self) -> None:
        """Lose what is under way and tell every link that it was interrupted, as a broker restart does."""
        for link in self._links.values():
            link.interrupt()

    def attach(self, link: MemoryLink) -> None:
        self._links[link.address] = link

    def detach(self, link: MemoryLink) -> None:
        if self._links.get(link.address) is link:
            del self._links[link.address]
            for other in self._links.values():
                other.deliver(GoneHint(link.address))

    def carry(self, sender: Address, receiver: Address, datagram: bytes) -> None:
        for arrival in self._dice.arrivals():
            data = self._dice.damaged(datagram) if arrival.corrupted else datagram
            if arrival.extra_delay_s:
                loop = asyncio.get_running_loop()
                loop.call_later(arrival.extra_delay_s, self._hand_over, sender, receiver, data)
            else:
                self._hand_over(sender, receiver, data)

    def _hand_over(self, sender: Address, receiver: Address, data: bytes) -> None:
        link = self._links.get(receiver)
        if link is not None:
            link.deliver(Datagram(sender, data))


class MemoryLink:
    """One address at a switchboard."""

    largest_datagram: int | None = None

    def __init__(self, switchboard: Switchboard, address: Address) -> None:
        self.address = address
        self._switchboard = switchboard
        self._events: asyncio.Queue[LinkEvent] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        self._switchboard.attach(self)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._switchboard.detach(self)

    async def send(self, receiver: Address, datagram: bytes) -> None:
        self._switchboard.carry(self.address, receiver, datagram)
        await asyncio.sleep(0)

    async def receive(self) -> LinkEvent:
        return await self._events.get()

    def deliver(self, event: LinkEvent) -> None:
        self._events.put_nowait(event)

    def interrupt(self) -> None:
        while not self._events.empty():
            self._events.get_nowait()
        self.deliver(Reconnected())
