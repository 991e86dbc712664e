"""How much work an audit may do: smoke to see that it runs, quick to see a trend, full to say something.

Attack budgets count evaluations, so that a result depends on the seed and not on the machine's load. `draws` is how
many small federations are played, each with other images: parties x images x draws is the n of a row.
"""

from __future__ import annotations

from dataclasses import dataclass

from veilsum.protocol.errors import ParameterError
from veilsum.roles.config.spelling import did_you_mean
from veilsum.simulations.attacks.budget import Budget


@dataclass(frozen=True)
class Scale:
    name: str
    draws: int
    budget: Budget
    grid_points: int
    """Parameters of each defence on a PPC curve."""
    ppc_images: int
    ppc_budget: Budget
    training_rounds: int
    members: int
    """Members, and as many others, in a membership inference."""
    epochs: int
    shadows: int
    heavy: bool
    """Whether attacks that train a generator or many shadow models run in `all`."""
    generator_steps: int


SCALES = {
    one.name: one
    for one in (
        Scale("smoke", 1, Budget(300, 1, 20.0), 3, 2, Budget(100, 0, 10.0), 5, 300, 60, 2, False, 400),
        Scale("quick", 2, Budget(400, 1, 30.0), 5, 3, Budget(150, 0, 15.0), 8, 400, 100, 4, True, 1200),
        Scale("full", 13, Budget(800, 2, 60.0), 8, 50, Budget(400, 0, 60.0), 30, 600, 150, 8, True, 4000),
    )
}


def find_scale(name: str) -> Scale:
    if name not in SCALES:
        raise ParameterError(
            [f"scale {name!r} is not one of {', '.join(SCALES)}{did_you_mean(name, SCALES)}"]
        )
    return SCALES[name]
