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

Kind = Literal[
    "gradient", "rounds", "model", "membership", "generative", "gmi", "perturbation", "noise", "seeds"
]
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
    by: Literal["", "server", "client"] = ""
    """Whose view it needs, if not anybody's."""
    heavy: bool = False
    """Whether it trains generators or many models, and is left out of `all` at smoke scale."""

    def load(self) -> Callable[..., Any]:
        module, _, function = f"{_HERE}.{self.place}".partition(":")
        found: Callable[..., Any] = getattr(importlib.import_module(module), function)
        return found


ATTACKS = {
    one.name: one
    for one in (
        AttackEntry(
            "analytic",
            "gradient",
            "L0",
            "input of the first dense layer, by division",
            "gradient.analytic:analytic",
            "mlp2:64",
        ),
        AttackEntry("dlg", "gradient", "L0", "image and label by matching the gradient", "gradient.dlg:dlg"),
        AttackEntry(
            "idlg", "gradient", "L0", "label from the last layer, then the image", "gradient.dlg:idlg"
        ),
        AttackEntry(
            "inverting",
            "gradient",
            "L0",
            "matches the direction, also through local steps",
            "gradient.inverting:inverting",
        ),
        AttackEntry(
            "spn-adaptive",
            "gradient",
            "L1",
            "the private head as an unknown vector",
            "gradient.spn:spn_adaptive",
            against="spn",
        ),
        AttackEntry(
            "ppdl-adaptive",
            "gradient",
            "L1",
            "matches the shared entries alone",
            "gradient.ppdl:ppdl_adaptive",
            against="ppdl",
        ),
        AttackEntry(
            "dp-averaging",
            "rounds",
            "L1",
            "matches all rounds at once",
            "rounds.repeated:dp_averaging",
            against="dp",
        ),
        AttackEntry(
            "sketch-rounds",
            "rounds",
            "L1",
            "a linear system over sketches",
            "rounds.repeated:sketch_rounds",
            "mlp2:64",
            "sketch",
        ),
        AttackEntry("model", "model", "L0", "the best model that the view gives", "model.best:best_model"),
        AttackEntry(
            "ampc-coalition",
            "model",
            "L2",
            "biases off with one peer's seeds",
            "model.ampc_coalition:final_model",
            against="ampc",
        ),
        AttackEntry(
            "mia-loss",
            "membership",
            "L0",
            "members have small losses",
            "membership.membership:loss_threshold",
            "mlp3:128",
        ),
        AttackEntry(
            "mia-network",
            "membership",
            "L0",
            "a network learns to tell members",
            "membership.membership:attack_network",
            "mlp3:128",
        ),
        AttackEntry(
            "mia-shadow",
            "membership",
            "L0",
            "losses against shadow models",
            "membership.shadow:shadow_models",
            "mlp3:128",
            heavy=True,
        ),
        AttackEntry(
            "generative",
            "generative",
            "L0",
            "searches images that a generator makes",
            "gradient.generative:generative",
            heavy=True,
        ),
        AttackEntry(
            "gmi",
            "gmi",
            "L0",
            "images of a class, from the model",
            "model.gmi:invert_model",
            "mlp3:128",
            heavy=True,
        ),
        AttackEntry(
            "perturbation",
            "perturbation",
            "L1",
            "true predictions from a perturbed model",
            "perturbation.predictions:fitted_predictions",
            "mlp2:64",
            "perturbed",
            by="client",
        ),
        AttackEntry(
            "noise-line",
            "perturbation",
            "L1",
            "offset off by least squares on own labels",
            "perturbation.curious_client:line_predictions",
            "mlp2:64",
            "perturbed",
            by="client",
        ),
        AttackEntry(
            "noise-data-free",
            "perturbation",
            "L1",
            "offset off by medians of the head, no data",
            "perturbation.curious_client:data_free_predictions",
            "mlp2:64",
            "perturbed",
            by="client",
        ),
        AttackEntry(
            "noise-exchange",
            "perturbation",
            "L1",
            "offset off by one exchange about softmax",
            "perturbation.curious_client:exchange_predictions",
            "mlp2:64",
            "perturbed",
            by="client",
        ),
        AttackEntry(
            "noise-softmax",
            "noise",
            "L1",
            "a server reads each sample's softmax",
            "perturbation.curious_server:asked_softmax",
            "mlp2:64",
            "perturbed",
            by="server",
        ),
        AttackEntry(
            "noise-factors",
            "noise",
            "L1",
            "secret factors from balancedness",
            "perturbation.curious_client:hidden_factors",
            "mlp2:64",
            "perturbed",
            by="client",
        ),
        AttackEntry(
            "noise-signs",
            "noise",
            "L1",
            "which of two models is perturbed, by signs",
            "perturbation.curious_client:recognise",
            "mlp2:64",
            "perturbed",
            by="client",
        ),
        AttackEntry(
            "noise-shared-mask",
            "noise",
            "L1",
            "a mask read off two terms that share it",
            "perturbation.curious_server:masked_differences",
            "mlp2:64",
            "bilateral",
            by="server",
        ),
        AttackEntry(
            "noise-membership",
            "noise",
            "L1",
            "members told before and after the fit",
            "perturbation.predictions:fit_offset",
            "mlp3:128",
            "perturbed",
            by="client",
        ),
        AttackEntry(
            "seeds-reused",
            "seeds",
            "L1",
            "two sums under the same biases",
            "rounds.seeds:difference_of_rounds",
            "mlp2:16",
            "ampc",
            by="server",
        ),
        AttackEntry(
            "seeds-weak",
            "seeds",
            "L1",
            "biases of short seeds, by trying them",
            "rounds.seeds:search",
            "mlp2:16",
            "ampc",
            by="server",
        ),
    )
}


def find_attack(name: str) -> AttackEntry:
    if name in ATTACKS:
        return ATTACKS[name]
    near = difflib.get_close_matches(name, ATTACKS, n=1)
    remedy = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(ATTACKS)}"
    raise ParameterError([f"unknown attack {name!r}: {remedy}"])
