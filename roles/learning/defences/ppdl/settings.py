"""The settings of selective sharing, and what its choice shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from veilsum.roles.learning.defences.defence import Configuration, Defence, Trial
from veilsum.roles.learning.defences.noise import MECHANISM, SIGMA, budget_problems, on_change
from veilsum.roles.learning.defences.private import Mechanism, PrivateKey
from veilsum.roles.learning.defences.ranges import Number, Rule

if TYPE_CHECKING:
    from veilsum.roles.learning.defences.guard import Guard


@dataclass(frozen=True)
class Ppdl(Defence):
    """Selective sharing: only the largest entries of the uploaded change, alone or with noise."""

    share: float
    sigma: float = 0.0
    mechanism: Mechanism = "gaussian"

    name: ClassVar[str] = "ppdl"
    rules: ClassVar[Mapping[str, Rule]] = {
        "share": Number(0, 1, above=True),
        "sigma": SIGMA,
        "mechanism": MECHANISM,
    }
    required: ClassVar[tuple[str, ...]] = ("share",)
    form: ClassVar[str] = "ppdl:share=0.05,sigma=S"
    trial: ClassVar[Trial] = Trial(
        "share=0.05", ("idlg", "ppdl-adaptive"), "ppdl-adaptive", "sigma", (1e-4, 1e-3, 1e-2, 0.1, 0.5)
    )

    def clashes(self, others: Sequence[Defence]) -> Iterator[str]:
        for other in others:
            if other.moves_every_entry:
                yield (
                    f"{other.name} without clip and ppdl: noise on all entries undoes the selection; write the noise "
                    "as ppdl:share=...,sigma=..., which adds it to the shared entries"
                )

    def problems(self, config: Configuration) -> Iterator[str]:
        yield from budget_problems(self, config)

    def warnings(self, config: Configuration) -> Iterator[str]:
        yield (
            "ppdl shows which entries it shares to whoever sees the upload, and an attacker who uses that "
            "reconstructs single images even from 5 % of the entries when there is little noise"
        )
        if self.sigma:
            yield f"ppdl adds noise without clipping: no epsilon is claimed. {on_change(self, config)}"

    def guard(self, key: PrivateKey) -> Guard:
        from veilsum.roles.learning.defences.ppdl.guard import PpdlGuard

        return PpdlGuard(self.share, self.sigma, self.mechanism, key)
