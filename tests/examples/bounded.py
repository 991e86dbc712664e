"""A third-party scheme, outside the package: `bounded`, which is `perturbed` with a limit that all parties agree on.

No term of a client may be larger than the option `largest`: the server refuses an upload that exceeds it, and a
client whose own terms do withdraws from the attempt instead of sending them. So one party with exploding gradients
cannot spoil the mean of the others. The machines are those of `perturbed`; the limit is a part that they are handed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from veilsum.protocol.schemes import (
    AbortReason,
    AttemptMachine,
    Parameters,
    ParticipantContext,
    Perturbed,
    PerturbedClient,
    PerturbedServer,
    Rejection,
    ServerContext,
    Tensor,
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


def require_bounded(terms: Tensor, options: Mapping[str, str]) -> None:
    limit, found = limit_of(options), float(np.abs(terms).max(initial=0.0))
    if found > limit:
        raise Rejection(AbortReason.OVER_BUDGET, f"a term of {found:g}, and {LARGEST} is {limit:g}")


@register
class Bounded(Perturbed):
    name = "bounded"
    options = (LARGEST,)
    machines = {"bounded server": PerturbedServer, "bounded client": PerturbedClient}

    def server_round(self, context: ServerContext) -> AttemptMachine:
        return PerturbedServer(context, partial(require_bounded, options=context.parameters.options))

    def participant_round(self, context: ParticipantContext) -> AttemptMachine:
        return PerturbedClient(context, partial(require_bounded, options=context.parameters.options))

    def problems(self, parameters: Parameters) -> Iterator[str]:
        yield from super().problems(parameters)
        if not 0 < limit_of(parameters.options) < math.inf:
            yield f"option {LARGEST} must be a number above 0, not {parameters.options.get(LARGEST)!r}"
