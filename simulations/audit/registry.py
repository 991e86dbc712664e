"""The attacks of the audit by name: what each does, what it must know, and where it lives.

The table is data, so that `veilsum audit list` and the checks before a run need neither torch nor the attacks.
Knowledge: L0 ignores the defence, as the papers do; L1 knows the algorithm and all public settings, not the secrets;
L2 is L1 for parties that pool what they hold.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from veilsum.protocol.errors import ParameterError

Kind = Literal["gradient", "rounds", "model", "membership", "inversion", "perturbation", "seeds"]
_HERE = "veilsum.simulations.attacks"


@dataclass(frozen=True)
class AttackEntry:
    name: str
    kind: Kind
    knowledge: str
    summary: str
    place: str
    model: str = "dlnet"
    """The architecture that is attacked if the user names none."""
    against: str = ""
    """The defence or scheme that an adaptive attack is made for."""
    generative: bool = False

    def load(self) -> Callable[..., Any]:
        module, _, function = f"{_HERE}.{self.place}".partition(":")
        found: Callable[..., Any] = getattr(importlib.import_module(module), function)
        return found


ATTACKS = {
    one.name: one
    for one in (
        AttackEntry(
            "analytic", "gradient", "L0", "input of the first dense layer, by division", "analytic:analytic", "mlp2:64"
        ),
        AttackEntry("dlg", "gradient", "L0", "image and label by matching the gradient", "dlg:dlg"),
        AttackEntry("idlg", "gradient", "L0", "label from the last layer, then the image", "dlg:idlg"),
        AttackEntry(
            "inverting", "gradient", "L0", "matches the direction, also through local steps", "inverting:inverting"
        ),
        AttackEntry(
            "spn-adaptive", "gradient", "L1", "the private head as an unknown vector", "spn:spn_adaptive", against="spn"
        ),
        AttackEntry(
            "ppdl-adaptive", "gradient", "L1", "matches the shared entries alone", "ppdl:ppdl_adaptive", against="ppdl"
        ),
    )
}  # fmt: skip


def find_attack(name: str) -> AttackEntry:
    if name in ATTACKS:
        return ATTACKS[name]
    near = difflib.get_close_matches(name, ATTACKS, n=1)
    remedy = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(ATTACKS)}"
    raise ParameterError([f"unknown attack {name!r}: {remedy}"])
