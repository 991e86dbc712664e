"""Which experiment measures which kind of attack: the rows of an attack follow from its class, never from its name.

An attack of a user's own has the rows of the kind that it extends; the audit knows attacks, attacks do not know the
audit.

Implements specs/attacks.md, section 9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from veilsum.simulations.attacks.attack import Attack, GradientInversion, ModelRecovery, SeriesInversion
from veilsum.simulations.attacks.crafted.craft import CraftedGradients
from veilsum.simulations.attacks.gradient.generative import Generative
from veilsum.simulations.attacks.membership.membership import MembershipInference
from veilsum.simulations.attacks.model.gmi import Gmi
from veilsum.simulations.attacks.perturbation.balancedness import HiddenFactors
from veilsum.simulations.attacks.perturbation.data_free import DataFree
from veilsum.simulations.attacks.perturbation.exchange import ExchangeReading
from veilsum.simulations.attacks.perturbation.fit import OffsetFit
from veilsum.simulations.attacks.perturbation.line import LineFit
from veilsum.simulations.attacks.perturbation.members import PerturbedMembership
from veilsum.simulations.attacks.perturbation.shared_mask import SharedMask
from veilsum.simulations.attacks.perturbation.signs import Recognition
from veilsum.simulations.attacks.perturbation.softmax import AskedSoftmax
from veilsum.simulations.attacks.rounds.differencing import ExactDifferencing, RoundDifferencing
from veilsum.simulations.attacks.rounds.seeds import ReusedSeeds, WeakSeeds
from veilsum.simulations.audit.lying.crafted import crafted_rows
from veilsum.simulations.audit.lying.differencing import exact_rows, round_rows
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.rows.findings import found_rows
from veilsum.simulations.audit.rows.generators import generative_rows, gmi_rows
from veilsum.simulations.audit.rows.gradient import gradient_rows
from veilsum.simulations.audit.rows.members import membership_rows
from veilsum.simulations.audit.rows.models import model_rows
from veilsum.simulations.audit.rows.perturbation import data_free_rows, exchange_rows, fit_rows, line_rows
from veilsum.simulations.audit.rows.perturbation_members import perturbation_membership_rows
from veilsum.simulations.audit.rows.perturbation_secrets import (
    factor_rows,
    mask_rows,
    sign_rows,
    softmax_rows,
)
from veilsum.simulations.audit.rows.repeated import repeated_rows
from veilsum.simulations.audit.rows.row import Row
from veilsum.simulations.audit.rows.seeds import reused_rows, weak_rows
from veilsum.simulations.audit.steps import Steps

EXPERIMENTS: dict[type[Any], Callable[[Any, Request, Steps], Iterator[Row]]] = {
    GradientInversion: gradient_rows,
    SeriesInversion: repeated_rows,
    ModelRecovery: model_rows,
    MembershipInference: membership_rows,
    Generative: generative_rows,
    Gmi: gmi_rows,
    OffsetFit: fit_rows,
    LineFit: line_rows,
    DataFree: data_free_rows,
    ExchangeReading: exchange_rows,
    AskedSoftmax: softmax_rows,
    HiddenFactors: factor_rows,
    Recognition: sign_rows,
    SharedMask: mask_rows,
    PerturbedMembership: perturbation_membership_rows,
    ReusedSeeds: reused_rows,
    WeakSeeds: weak_rows,
    CraftedGradients: crafted_rows,
    ExactDifferencing: exact_rows,
    RoundDifferencing: round_rows,
    Attack: found_rows,
}


def rows_of(request: Request, steps: Steps) -> Iterator[Row]:
    """The rows of one request: those of the nearest kind that its attack is of."""
    attack = request.entry
    kind = next(one for one in type(attack).__mro__ if one in EXPERIMENTS)
    return EXPERIMENTS[kind](attack, request, steps)
