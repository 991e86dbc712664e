"""The attacks by name: built-in ones, one line each, and a user's own as `package.module:Name`.

Implements specs/attacks.md, section 1.
"""

from __future__ import annotations

import inspect

from veilsum.protocol.errors import ParameterError
from veilsum.roles.config.spelling import which_then
from veilsum.roles.config.user_code import load_named, making
from veilsum.simulations.attacks.attack import Attack
from veilsum.simulations.attacks.crafted.imprint import Imprint
from veilsum.simulations.attacks.crafted.trap import TrapWeights
from veilsum.simulations.attacks.gradient.analytic import Analytic
from veilsum.simulations.attacks.gradient.dlg import Dlg, Idlg
from veilsum.simulations.attacks.gradient.generative import Generative
from veilsum.simulations.attacks.gradient.inverting import Inverting
from veilsum.simulations.attacks.gradient.ppdl import PpdlAdaptive
from veilsum.simulations.attacks.gradient.spn import SpnAdaptive
from veilsum.simulations.attacks.membership.loss import LossThreshold
from veilsum.simulations.attacks.membership.network import AttackNetwork
from veilsum.simulations.attacks.membership.shadow import ShadowModels
from veilsum.simulations.attacks.model.ampc_coalition import AmpcCoalition
from veilsum.simulations.attacks.model.best import BestModel
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
from veilsum.simulations.attacks.rounds.repeated import DpAveraging, SketchRounds
from veilsum.simulations.attacks.rounds.seeds import ReusedSeeds, WeakSeeds

_BUILT_IN: tuple[Attack, ...] = (
    Analytic(),
    Dlg(),
    Idlg(),
    Inverting(),
    SpnAdaptive(),
    PpdlAdaptive(),
    DpAveraging(),
    SketchRounds(),
    BestModel(),
    AmpcCoalition(),
    LossThreshold(),
    AttackNetwork(),
    ShadowModels(),
    Generative(),
    Gmi(),
    OffsetFit(),
    LineFit(),
    DataFree(),
    ExchangeReading(),
    AskedSoftmax(),
    HiddenFactors(),
    Recognition(),
    SharedMask(),
    PerturbedMembership(),
    ReusedSeeds(),
    WeakSeeds(),
    Imprint(),
    TrapWeights(),
    ExactDifferencing(),
    RoundDifferencing(),
)
ATTACKS = {one.name: one for one in _BUILT_IN}


def find_attack(name: str) -> Attack:
    """The attack of a built-in name, or of `package.module:Name` as a party's own command line has it."""
    if name in ATTACKS:
        return ATTACKS[name]
    if ":" in name:
        return _own_attack(name)
    raise ParameterError([f"unknown attack {name!r}: {which_then(name, ATTACKS)}"])


def _own_attack(place: str) -> Attack:
    code = load_named("attack", place)
    found = code.value()
    if not isinstance(found, type) or not issubclass(found, Attack):
        raise ParameterError(
            [f"attack {place!r}: {code.module.__name__} has no class {code.name} that extends Attack"]
        )
    if inspect.isabstract(found):
        missing = ", ".join(sorted(found.__abstractmethods__))
        raise ParameterError([f"attack {place!r} does nothing yet: give {code.name} the method {missing}"])
    with making("attack", place, "an attack is made without arguments"):
        made = found()
    if not isinstance(made.name, str) or not made.name or made.name in ATTACKS:
        raise ParameterError([f"attack {place!r}: give it a name of its own, which {made.name!r} is not"])
    return made
