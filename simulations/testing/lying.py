"""A table at which one party lies in a way that has a name, and everyone else is honest.

    told = tell_lie("server:shift", "masked", parties=5, rounds=2)
    report = told.run()
    assert report.falsified_commits == 0

Implements specs/lies.md, section 5.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from veilsum.protocol.wire.messages import Message
from veilsum.roles.process.observer import Observers
from veilsum.simulations.lies.play import LiePlay, rules_of_liars
from veilsum.simulations.lies.registry import find_lie
from veilsum.simulations.lies.report import LieReport
from veilsum.simulations.testing.table import Table
from veilsum.simulations.testing.trace import InFlight


@dataclass(frozen=True)
class ToldLie:
    """A lie that is told at a table: run it as any other, or in one go."""

    table: Table
    play: LiePlay

    def __repr__(self) -> str:
        return f"ToldLie({self.play.lie.name!r}, {self.table!r})"

    @property
    def report(self) -> LieReport:
        """What became of the lie so far."""
        return self.play.report(self.table.trace.refusals, self.table.trace.endings)

    def run(self) -> LieReport:
        """Start everyone, and go on until all have ended."""
        self.table.start()
        self.table.run()
        return self.report


def _tamper(table: Table, play: LiePlay, flight: InFlight) -> Message | None:
    """The last of what travels; what the liar says before it is on the wire already."""
    told = play.instead_of(flight.sender, flight.receiver, flight.message)
    for one in told[:-1]:
        table.inject(flight.sender, flight.receiver, one)
    return told[-1] if told else None


def tell_lie(lie: str, scheme: str, **settings: Any) -> ToldLie:
    """A table for a scheme at which the lie of this name is told; `settings` are those of `Table.build`."""
    found, honest = find_lie(lie), Table.build(scheme, **settings)
    federation = replace(honest.federation, own_rules=rules_of_liars(found, honest.federation))
    table = Table(federation, inline=honest.inline)
    play = LiePlay(found, federation, table.machines.__getitem__)
    table.tamper = partial(_tamper, table, play)
    table.observer = Observers([honest.observer, play])
    table.liars.update(play.liars.names)
    return ToldLie(table, play)
