"""A third-party scheme, outside the package: `metered`, which is `masked` with a meter that every party carries along.

A client uploads at most as often as the option `uploads` allows, and withdraws when it is asked once more; the server
counts the attempts that it opens. The meters are equipment that the scheme brings itself: machines find them in their
context, and the role that runs them knows nothing of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from veilsum.protocol.schemes import (
    SERVER,
    AbortReason,
    AttemptMachine,
    Event,
    LocalProtocolError,
    LocalResult,
    Masked,
    Parameters,
    ParticipantContext,
    PartyId,
    Rejection,
    ServerContext,
    WhenTrained,
    register,
)

UPLOADS = "uploads"
DEFAULT_UPLOADS = "100"


@dataclass
class Meter:
    """How often something happened, and how often it may; without a limit it only counts."""

    limit: int | None = None
    used: int = 0

    def count(self) -> None:
        if self.limit is not None and self.used >= self.limit:
            raise Rejection(AbortReason.OVER_BUDGET, f"{self.used} uploads, and {UPLOADS} is {self.limit}")
        self.used += 1


def meter_of(equipment: object | None) -> Meter:
    if not isinstance(equipment, Meter):
        raise LocalProtocolError(f"metered needs a meter, not {type(equipment).__name__}")
    return equipment


@register
class Metered(Masked):
    name = "metered"
    options = (UPLOADS,)

    def equipment_of(self, party: PartyId, parameters: Parameters) -> Meter:
        return Meter() if party == SERVER else Meter(int(parameters.options.get(UPLOADS, DEFAULT_UPLOADS)))

    def require_equipment(self, equipment: object | None, *, at_server: bool) -> None:
        meter_of(equipment)

    def server_round(self, context: ServerContext) -> AttemptMachine:
        meter_of(context.equipment).count()
        return super().server_round(context)

    def participant_round(self, context: ParticipantContext) -> AttemptMachine:
        meter = meter_of(context.equipment)

        def train(then: WhenTrained, now: float) -> list[Event]:
            def upload(result: LocalResult, later: float) -> list[Event]:
                try:
                    meter.count()
                except Rejection as refusal:
                    return context.withdraw(refusal, later)
                return then(result, later)

            return context.train(upload, now)

        return super().participant_round(replace(context, train=train))

    def problems(self, parameters: Parameters) -> Iterator[str]:
        yield from super().problems(parameters)
        given = parameters.options.get(UPLOADS, DEFAULT_UPLOADS)
        if not given.isdecimal():
            yield f"option {UPLOADS} must be a whole number, not {given!r}"
