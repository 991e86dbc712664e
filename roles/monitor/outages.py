"""When and for how long this party had no connection, for its log and for its last words.

Who loses its connection hears nobody, and its machine then misses everyone: a server whose broker was away would end a
run with the names of all parties. So the process keeps what it knows of its own link, and whoever ends a run over
silence is told it. What is over is forgotten with the next round that is committed: it did no harm.

Implements specs/guide.md, section 4.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass, field

from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.machines.events import Event, RoundCommitted
from veilsum.roles.monitor.log import RoleLog
from veilsum.roles.process.clock import date, monotonic
from veilsum.roles.process.observer import RunObserver
from veilsum.transport.base import Interrupted, LinkNews
from veilsum.transport.foreign import RateLimit


@dataclass
class Outages(RunObserver):
    """What became of one party's link since a round was committed."""

    party: str
    log: RoleLog
    clock: Callable[[], float] = monotonic
    wall_clock: Callable[[], float] = date
    _count: int = 0
    _past_s: float = 0.0
    _since: float | None = None
    _began: float = 0.0
    _why: str = ""
    _told: int = 0
    _limit: RateLimit = field(default_factory=RateLimit)

    def hear(self, news: LinkNews) -> None:
        """Take in what the link says, and tell it: a broker decides how often, so not every time."""
        if isinstance(news, Interrupted):
            self._why = news.why
            if self._since is None:
                self._count, self._since, self._began = self._count + 1, self.clock(), self.wall_clock()
                self._say("link_lost", text=news.why)
        elif self._since is not None:
            lasted = self.clock() - self._since
            self._past_s, self._since = self._past_s + lasted, None
            self._say("link_restored", after_s=round(lasted, 1))

    def _say(self, fact: str, **fields: object) -> None:
        self._told += 1
        left_out = self._limit.admit(fact, self._told)
        if left_out is not None:
            self.log.say(fact, **fields, **({"count": left_out + 1} if left_out else {}))

    def noted(self, now: float, party: PartyId, event: Event) -> None:
        """A round is committed: what is over did no harm."""
        if isinstance(event, RoundCommitted):
            self._past_s, self._count = 0.0, 0 if self._since is None else 1

    def in_words(self) -> str:
        """What somebody who misses others should know; empty if the link was there all the time."""
        if not self._count:
            return ""
        lasting = 0.0 if self._since is None else self.clock() - self._since
        last = datetime.datetime.fromtimestamp(self._began, datetime.UTC)
        times = f"{self._count} times, the last " if self._count > 1 else ""
        return (
            f"{self.party} had no connection for {self._past_s + lasting:.0f} s ({times}from {last:%H:%M:%S} UTC on; "
            f"{self._why}): see to the broker and the network on the way to it"
        )
