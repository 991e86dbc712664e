"""A third-party scheme, outside the package: `bounded`, which is `perturbed` with a limit that all parties agree on.

No term of a client may be larger than the option `largest`: the server refuses an upload that exceeds it, and a
client whose own terms do withdraws from the attempt instead of sending them. So one party with exploding gradients
cannot spoil the mean of the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from veilsum.protocol.schemes import (
    AbortReason,
    AttemptMachine,
    Event,
    LocalResult,
    Parameters,
    ParticipantContext,
    PartyId,
    Perturbed,
    PerturbedClient,
    PerturbedServer,
    PerturbedTerms,
    Rejection,
    ServerContext,
    handles,
    register,
)

LARGEST = "largest"
DEFAULT_LARGEST = "1000"


def limit_of(options: Mapping[str, str]) -> float:
    """The agreed limit, or not a number if the text is none."""
    try:
        return float(options.get(LARGEST, DEFAULT_LARGEST))
    except ValueError:
        return math.nan


def require_bounded(terms: np.ndarray, options: Mapping[str, str]) -> None:
    limit, found = limit_of(options), float(np.abs(terms).max(initial=0.0))
    if found > limit:
        raise Rejection(AbortReason.OVER_BUDGET, f"a term of {found:g}, and {LARGEST} is {limit:g}")


class BoundedServer(PerturbedServer):
    @handles(PerturbedTerms)
    def collect(self, sender: PartyId, message: PerturbedTerms, now: float) -> list[Event]:
        require_bounded(message.terms, self._context.parameters.options)
        return super().collect(sender, message, now)


class BoundedClient(PerturbedClient):
    def _report(self, result: LocalResult, now: float) -> list[Event]:
        try:
            require_bounded(result.payload, self._context.parameters.options)
        except Rejection as refusal:
            return self._context.withdraw(refusal, now)
        return super()._report(result, now)


@register
class Bounded(Perturbed):
    name = "bounded"
    options = (LARGEST,)
    machines = {"bounded server": BoundedServer, "bounded client": BoundedClient}

    def server_round(self, context: ServerContext) -> AttemptMachine:
        return BoundedServer(context)

    def participant_round(self, context: ParticipantContext) -> AttemptMachine:
        return BoundedClient(context)

    def problems(self, parameters: Parameters) -> Iterator[str]:
        yield from super().problems(parameters)
        if not 0 < limit_of(parameters.options) < math.inf:
            yield f"option {LARGEST} must be a number above 0, not {parameters.options.get(LARGEST)!r}"
