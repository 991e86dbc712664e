"""The settings of noise, with and without an account of privacy, and what each leaves open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from veilsum.roles.learning.defences.defence import Configuration, Defence, Reach, Trial
from veilsum.roles.learning.defences.noise import MECHANISM, SIGMA, budget_problems, on_change
from veilsum.roles.learning.defences.private import Mechanism, PrivateKey
from veilsum.roles.learning.defences.ranges import Number, Rule

if TYPE_CHECKING:
    from veilsum.roles.learning.defences.guard import Guard

DEFAULT_DELTA = 1e-5


@dataclass(frozen=True)
class Dp(Defence):
    """Noise: on the uploaded change, or, with `clip`, on clipped gradients with an account of privacy."""

    sigma: float
    mechanism: Mechanism = "gaussian"
    clip: float | None = None
    delta: float | None = None

    name: ClassVar[str] = "dp"
    rules: ClassVar[Mapping[str, Rule]] = {
        "sigma": SIGMA,
        "mechanism": MECHANISM,
        "clip": Number(0, 1e6, above=True),
        "delta": Number(0, 0.5, above=True),
    }
    required: ClassVar[tuple[str, ...]] = ("sigma",)
    form: ClassVar[str] = "dp:sigma=S,mechanism=gaussian,clip=C,delta=D"
    reach: ClassVar[Reach] = Reach.STEPS
    trial: ClassVar[Trial] = Trial(
        "sigma=0.01", ("idlg", "dp-averaging"), "idlg", "sigma", (1e-4, 1e-3, 1e-2, 0.1, 0.5)
    )

    @property
    def moves_every_entry(self) -> bool:
        return self.clip is None

    def setting_problems(self) -> Iterator[str]:
        if self.delta is not None and self.clip is None:
            yield "dp: delta needs clip: without clipping there is no account of privacy"
        if self.delta is not None and self.mechanism == "laplace":
            yield "dp: delta belongs to mechanism=gaussian: Laplace noise is accounted for with delta 0"

    def problems(self, config: Configuration) -> Iterator[str]:
        if self.clip is None:
            yield from budget_problems(self, config)

    def warnings(self, config: Configuration) -> Iterator[str]:
        if self.clip is None:
            yield (
                f"dp without clip is noise, not differential privacy: no epsilon is claimed. {on_change(self, config)}"
            )
        else:
            yield (
                "dp protects single samples, not a party's data as a whole, and counts one upload per round; "
                "how many samples a party holds is not protected"
            )

    def guard(self, key: PrivateKey) -> Guard:
        from veilsum.roles.learning.defences.dp.guard import NoiseGuard, PrivateStepsGuard

        if self.clip is None:
            return NoiseGuard(self.sigma, self.mechanism, key)
        delta = DEFAULT_DELTA if self.delta is None else self.delta
        return PrivateStepsGuard(self.clip, self.sigma, self.mechanism, delta, key)
