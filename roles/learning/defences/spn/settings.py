"""The settings of the secret polarization network, and what is known to break it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from veilsum.roles.learning.defences.defence import Configuration, Defence, Reach, Trial
from veilsum.roles.learning.defences.private import PrivateKey
from veilsum.roles.learning.defences.ranges import Number, Rule

if TYPE_CHECKING:
    from veilsum.roles.learning.defences.guard import Guard


@dataclass(frozen=True)
class Spn(Defence):
    """Secret polarization network: a private second head whose loss perturbs the shared gradients."""

    bits: int = 64
    alpha1: float = 1.0
    alpha2: float = 0.1
    margin: float = 1.0

    name: ClassVar[str] = "spn"
    rules: ClassVar[Mapping[str, Rule]] = {
        "bits": Number(1, 4096, whole=True),
        "alpha1": Number(0, 1, above=True),
        "alpha2": Number(0, 1),
        "margin": Number(1, 100),
    }
    form: ClassVar[str] = "spn:bits=64,alpha1=1,alpha2=0.1,margin=1"
    reach: ClassVar[Reach] = Reach.HEADS
    trial: ClassVar[Trial] = Trial(
        "alpha2=0.1",
        ("dlg", "idlg", "spn-adaptive"),
        "spn-adaptive",
        "alpha2",
        (1e-4, 1e-3, 1e-2, 0.1, 0.2, 0.3, 0.4, 0.5),
    )

    def warnings(self, config: Configuration) -> Iterator[str]:
        yield (
            "spn stops attacks that do not know of it. The gradient of the shared head is not perturbed: "
            "labels and penultimate features can be read from it, and an attacker who treats the private "
            "term as unknown reconstructs single images"
        )

    def guard(self, key: PrivateKey) -> Guard:
        from veilsum.roles.learning.defences.spn.guard import SpnGuard

        return SpnGuard(self.bits, self.alpha1, self.alpha2, self.margin, key)
