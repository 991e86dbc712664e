"""A small federation whose server lies, or one of whose uploads is lost: what honest parties make of it.

The machines are the honest ones. What travels is changed on its way out of its sender, so it carries the sender's own
signature; what a lie says is up to the caller. A run may end without a round: then the reasons tell why.
"""

from __future__ import annotations

from dataclasses import dataclass

from veilsum.protocol.errors import AbortReason, RemoteProtocolError
from veilsum.protocol.identifiers import SERVER, PartyId
from veilsum.protocol.machines.events import Event, RoundFailed
from veilsum.roles.process.observer import Observers, RunObserver
from veilsum.simulations.audit.stage import Cast, Played
from veilsum.simulations.run.simulation import InsteadOf, Simulation

LYING_SERVER = "lying server"
"""The adversary of a row in which the server does not follow the protocol."""

_FOLLOWS = (AbortReason.TIMED_OUT, AbortReason.WITHDRAWN)
"""Reasons of those who noticed nothing themselves."""


class Reasons(RunObserver):
    """Why attempts failed at participants, in the order in which it was noticed."""

    def __init__(self) -> None:
        self.found: list[AbortReason] = []

    def noted(self, now: float, party: PartyId, event: Event) -> None:
        if party != SERVER and isinstance(event, RoundFailed):
            self.note(event.reason)

    def note(self, reason: AbortReason) -> None:
        if reason not in (*self.found, *_FOLLOWS):
            self.found.append(reason)


@dataclass(frozen=True, eq=False)
class Told:
    """What became of it: what all saw, and the typed reasons of those who refused."""

    played: Played
    refused: tuple[AbortReason, ...]


def play_told(parties: Cast, instead_of: InsteadOf) -> Told:
    """Run it to whatever end."""
    reasons = Reasons()
    observer = Observers([*parties.observers, reasons])
    simulation = Simulation(parties.federation, observer=observer, instead_of=instead_of)
    simulation.run()
    for one in simulation.refusals:
        if one.party != SERVER and isinstance(one.error, RemoteProtocolError):
            reasons.note(one.error.reason)
    return Told(parties.after(), tuple(reasons.found))
