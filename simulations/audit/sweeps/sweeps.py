"""How far an attack reaches as an update stands for more: images, parties, local steps.

Single uploads under `plain` and the opened sum under `masked`, one setting at a time. From what settings on an
attack fails is a statement about this attack and its budget, not about the setting: another optimiser may get further.

Implements specs/attacks.md, section 8.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from veilsum.roles.config.schemes import load_scheme
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.scales import Scale


@dataclass(frozen=True)
class Setting:
    scheme: str
    attack: str
    parties: int
    images: int
    steps: int = 1


SMALL = (Setting("plain", "idlg", 2, 4), Setting("masked", "idlg", 8, 1))
LARGE = (
    *(Setting("plain", "idlg", 2, images) for images in (2, 4, 8)),
    *(Setting("masked", "idlg", parties, 1) for parties in (2, 8, 16)),
    *(Setting("plain", "inverting", 2, 1, steps) for steps in (2, 5)),
    *(Setting("masked", "inverting", 4, 1, steps) for steps in (2, 5)),
)
_FEWEST_EVALUATIONS = 120


def sweep_requests(scale: Scale, seed: int, task: str, data: str | None) -> Iterator[Request]:
    """One request for each setting, with about as many images as the other rows of the scale have.

    An evaluation through several local steps costs as many: their number goes down in proportion.
    """
    for one in LARGE if scale.heavy else SMALL:
        draws = max(1, -(-4 * scale.draws // (one.parties * one.images)))
        budget = scale.budget
        if one.steps > 1:
            fewer = max(_FEWEST_EVALUATIONS, budget.evaluations // one.steps)
            budget = replace(budget, evaluations=fewer, restarts=0)
        yield Request(
            one.scheme,
            "server",
            one.attack,
            replace(scale, draws=draws, budget=budget),
            seed,
            "",
            task,
            data,
            parties=one.parties,
            images=one.images,
            payload="delta" if one.steps > 1 else "gradient",
            local_epochs=one.steps,
            only_sums=load_scheme(one.scheme).hides_updates,
        )
