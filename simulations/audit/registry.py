"""The attacks of the audit by name, one line each; a user's own comes as `package.module:Name`.

The table is data, so that `veilsum audit list` and the checks before a run need neither torch nor the attacks.
"""

from __future__ import annotations

import difflib

from veilsum.protocol.errors import ParameterError
from veilsum.roles.config.user_code import load_named, making
from veilsum.simulations.attacks.attack import (
    Attack,
    GradientInversion,
    ModelRecovery,
    PerturbationAttack,
    PriorAttack,
    SeriesInversion,
    StagedAttack,
    StepwiseAttack,
)

ATTACKS: dict[str, Attack] = {
    one.name: one
    for one in (
        GradientInversion(
            "analytic",
            "L0",
            "input of the first dense layer, by division",
            "gradient.analytic:analytic",
            "mlp2:64",
        ),
        GradientInversion("dlg", "L0", "image and label by matching the gradient", "gradient.dlg:dlg"),
        GradientInversion("idlg", "L0", "label from the last layer, then the image", "gradient.dlg:idlg"),
        GradientInversion(
            "inverting",
            "L0",
            "matches the direction, also through local steps",
            "gradient.inverting:inverting",
        ),
        GradientInversion(
            "spn-adaptive",
            "L1",
            "the private head as an unknown vector",
            "gradient.spn:spn_adaptive",
            against="spn",
        ),
        GradientInversion(
            "ppdl-adaptive",
            "L1",
            "matches the shared entries alone",
            "gradient.ppdl:ppdl_adaptive",
            against="ppdl",
        ),
        SeriesInversion(
            "dp-averaging", "L1", "matches all rounds at once", "rounds.repeated:dp_averaging", against="dp"
        ),
        SeriesInversion(
            "sketch-rounds",
            "L1",
            "a linear system over sketches",
            "rounds.repeated:sketch_rounds",
            "mlp2:64",
            "sketch",
            needs_defence=True,
            undefended="gradient.analytic:analytic",
        ),
        ModelRecovery("model", "L0", "the best model that the view gives", "model.best:best_model"),
        ModelRecovery(
            "ampc-coalition",
            "L2",
            "biases off with one peer's seeds",
            "model.ampc_coalition:final_model",
            against="ampc",
            by="both",
            needs_scheme=True,
        ),
        StepwiseAttack(
            "mia-loss",
            "L0",
            "members have small losses",
            "membership.membership:loss_threshold",
            "mlp3:128",
            experiment="members:membership_rows",
        ),
        StepwiseAttack(
            "mia-network",
            "L0",
            "a network learns to tell members",
            "membership.membership:attack_network",
            "mlp3:128",
            experiment="members:membership_rows",
        ),
        StepwiseAttack(
            "mia-shadow",
            "L0",
            "losses against shadow models",
            "membership.shadow:shadow_models",
            "mlp3:128",
            heavy=True,
            experiment="members:shadow_rows",
        ),
        PriorAttack(
            "generative",
            "L0",
            "searches images that a generator makes",
            "gradient.generative:generative",
            heavy=True,
            experiment="generators:generative_rows",
        ),
        StepwiseAttack(
            "gmi",
            "L0",
            "images of a class, from the model",
            "model.gmi:invert_model",
            "mlp3:128",
            heavy=True,
            experiment="generators:gmi_rows",
        ),
        PerturbationAttack(
            "perturbation",
            "L1",
            "true predictions from a perturbed model",
            "perturbation.predictions:fitted_predictions",
            "mlp2:64",
            "perturbed",
            by="client",
            experiment="perturbation:fit_rows",
        ),
        PerturbationAttack(
            "noise-line",
            "L1",
            "offset off by least squares on own labels",
            "perturbation.curious_client:line_predictions",
            "mlp2:64",
            "perturbed",
            by="client",
            experiment="perturbation:line_rows",
        ),
        PerturbationAttack(
            "noise-data-free",
            "L1",
            "offset off by medians of the head, no data",
            "perturbation.curious_client:data_free_predictions",
            "mlp2:64",
            "perturbed",
            by="client",
            experiment="perturbation:data_free_rows",
        ),
        PerturbationAttack(
            "noise-exchange",
            "L1",
            "offset off by one exchange about softmax",
            "perturbation.curious_client:exchange_predictions",
            "mlp2:64",
            "perturbed",
            by="client",
            experiment="perturbation:exchange_rows",
        ),
        PerturbationAttack(
            "noise-softmax",
            "L1",
            "a server reads each sample's softmax",
            "perturbation.curious_server:asked_softmax",
            "mlp2:64",
            "perturbed",
            by="server",
            experiment="perturbation_secrets:softmax_rows",
        ),
        PerturbationAttack(
            "noise-factors",
            "L1",
            "secret factors from balancedness",
            "perturbation.curious_client:hidden_factors",
            "mlp2:64",
            "perturbed",
            by="client",
            experiment="perturbation_secrets:factor_rows",
        ),
        PerturbationAttack(
            "noise-signs",
            "L1",
            "which of two models is perturbed, by signs",
            "perturbation.curious_client:recognise",
            "mlp2:64",
            "perturbed",
            by="client",
            experiment="perturbation_secrets:sign_rows",
        ),
        PerturbationAttack(
            "noise-shared-mask",
            "L1",
            "a mask read off two terms that share it",
            "perturbation.curious_server:masked_differences",
            "mlp2:64",
            "bilateral",
            by="server",
            experiment="perturbation_secrets:mask_rows",
            needs_scheme=True,
        ),
        PerturbationAttack(
            "noise-membership",
            "L1",
            "members told before and after the fit",
            "perturbation.predictions:fit_offset",
            "mlp3:128",
            "perturbed",
            by="client",
            experiment="perturbation_members:perturbation_membership_rows",
        ),
        StagedAttack(
            "seeds-reused",
            "L1",
            "two sums under the same biases",
            "rounds.seeds:difference_of_rounds",
            "mlp2:16",
            "ampc",
            by="server",
            experiment="seeds:reused_rows",
            needs_scheme=True,
        ),
        StagedAttack(
            "seeds-weak",
            "L1",
            "biases of short seeds, by trying them",
            "rounds.seeds:search",
            "mlp2:16",
            "ampc",
            by="server",
            experiment="seeds:weak_rows",
            needs_scheme=True,
        ),
    )
}


def find_attack(name: str) -> Attack:
    """The attack of a built-in name, or of `package.module:Name` as a party's own command line has it."""
    if name in ATTACKS:
        return ATTACKS[name]
    if ":" in name:
        return _own_attack(name)
    near = difflib.get_close_matches(name, ATTACKS, n=1)
    remedy = f"did you mean {near[0]}?" if near else f"choose one of {', '.join(ATTACKS)}"
    raise ParameterError([f"unknown attack {name!r}: {remedy}"])


def _own_attack(place: str) -> Attack:
    code = load_named("attack", place)
    found = code.value()
    if not isinstance(found, type) or not issubclass(found, Attack):
        raise ParameterError(
            [f"attack {place!r}: {code.module.__name__} has no class {code.name} that extends Attack"]
        )
    with making("attack", place, "an attack is made without arguments: give every field a default"):
        made = found()
    if not isinstance(made.name, str) or not made.name or made.name in ATTACKS:
        raise ParameterError([f"attack {place!r}: give it a name of its own, which {made.name!r} is not"])
    made.require_findable()
    return made
