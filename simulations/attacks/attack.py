"""What an attack is: what it needs of a view, and what it makes of one.

An attack stands in a file of its own and says with itself whose view it needs, which schemes and defences it is made
for, and how much it must know: L0 ignores the defence, as the papers do; L1 knows the algorithm and all public
settings, not the secrets; L2 is L1 for parties that pool what they hold. The audit asks the attack, never its name.

`run` makes findings of a view alone, played or recorded. How the audit measures them, and which rows stand beside the
attack's own, follows from the kind of attack (`audit/experiments.py`); an attack knows nothing of the audit. One's own
extends `Attack` (then found images and models are measured), or `GradientInversion`, which brings the undefended, null
and oracle rows of the published inversions:

    class FirstRow(GradientInversion):
        name = "first-row"
        summary = "input of the first layer, from one of its rows"

        def invert(self, target, budget, seed): ...

Implements specs/attacks.md, sections 1 and 9.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from veilsum.protocol.errors import LocalProtocolError, ParameterError
from veilsum.protocol.numbers.model import Model
from veilsum.roles.views.view import View
from veilsum.simulations.attacks.budget import Budget
from veilsum.simulations.attacks.carried import why_no_gradient
from veilsum.simulations.attacks.gradient.matching import Reconstruction
from veilsum.simulations.attacks.gradient.targets import Target, as_noise, gradients_in
from veilsum.simulations.attacks.misfits import AttackDoesNotFit

Side = Literal["", "server", "client", "both"]


@dataclass(frozen=True, eq=False)
class Findings:
    """What an attack made of a view: images behind gradients, as they are found, or a whole model."""

    images: Iterable[Reconstruction] = ()
    model: Model | None = None


class Attack(ABC):
    """One attack; what it needs is asked before anything is played."""

    name: ClassVar[str] = ""
    knowledge: ClassVar[str] = "L0"
    summary: ClassVar[str] = ""
    model: ClassVar[str] = "dlnet"
    """The architecture that is attacked if the user names none."""
    against: ClassVar[str] = ""
    """The defence or scheme that an adaptive attack is made for."""
    by: ClassVar[Side] = ""
    """Whose view it needs, if not anybody's."""
    heavy: ClassVar[bool] = False
    """Whether it trains generators or many models, and is left out of `all` at smoke scale."""
    bundle: ClassVar[str] = ""
    """Attacks with the same word share what they train, so one worker makes them one after the other."""

    needs_scheme: ClassVar[bool] = False
    """Whether it works under the scheme `against` alone, or one derived from it."""
    needs_chain: ClassVar[bool] = False
    """Whether it works on sums of models that parties hold themselves."""
    needs_defence: ClassVar[bool] = False
    """Whether it works under the defence `against` alone."""
    needs_gradient: ClassVar[bool] = False
    needs_rounds: ClassVar[bool] = False
    """Whether it needs one party's updates over several rounds."""
    needs_steps: ClassVar[bool] = False
    """Whether it needs a model that parties train step by step, which a perturbed one is not."""
    needs_perturbation: ClassVar[bool] = False

    def __repr__(self) -> str:
        return f"<attack {self.name}>"

    @abstractmethod
    def run(self, view: View, budget: Budget, seed: int) -> Findings:
        """What the attack makes of a view."""

    def run_on_noise(self, view: View, budget: Budget, seed: int) -> Findings:
        """What it makes of nothing: the same view with noise in place of what it attacks."""
        return Findings()


class GradientInversion(Attack):
    """Images behind single gradients."""

    needs_gradient = True

    @abstractmethod
    def invert(self, target: Target, budget: Budget, seed: int) -> Reconstruction:
        """The images behind one gradient."""

    def run(self, view: View, budget: Budget, seed: int) -> Findings:
        targets = _targets(view, budget)
        return Findings(self.invert(target, budget, seed) for target in targets)

    def run_on_noise(self, view: View, budget: Budget, seed: int) -> Findings:
        first = as_noise(_targets(view, budget)[0], seed)
        return Findings(self.invert(one, budget, seed) for one in (first,))


class SeriesInversion(Attack):
    """Images behind one party's gradients of several rounds."""

    needs_gradient = True
    needs_rounds = True

    @abstractmethod
    def invert(self, targets: Sequence[Target], budget: Budget, seed: int) -> Reconstruction:
        """The images behind all rounds of one party."""

    def invert_undefended(self, targets: Sequence[Target], budget: Budget, seed: int) -> Reconstruction:
        """What does the same where there is no defence, if it is not this attack."""
        return self.invert(targets, budget, seed)

    def run(self, view: View, budget: Budget, seed: int) -> Findings:
        groups = uploads_by_party(_targets(view, budget))
        if not groups:
            raise AttackDoesNotFit(f"{self.name} needs one party's updates over rounds; this view has none")
        fewer = shared_budget(budget, groups[0])
        return Findings(self.invert(group, fewer, seed) for group in groups)


class ModelRecovery(Attack):
    """The global model, formed from a view."""

    @abstractmethod
    def form(self, view: View) -> Model:
        """The model after the last round of the view, as well as it can be had."""

    def run(self, view: View, budget: Budget, seed: int) -> Findings:
        return Findings(model=self.form(view))


class StagedAttack(Attack):
    """An attack that asks more than a view answers, such as who of some suspects took part: an experiment stages it."""

    def run(self, view: View, budget: Budget, seed: int) -> Findings:
        raise ParameterError(
            [f"{self.name} needs a played federation; a recorded view fits attacks on gradients and models"]
        )


def require_findings(attack: Attack, found: object, dimension: int) -> Findings:
    """What an attack of whatever author gave, if it is findings and a model in them has the right length."""
    if not isinstance(found, Findings):
        raise LocalProtocolError(
            f"attack {attack.name} gave {found!r:.60}, not Findings: correct its method run"
        )
    if found.model is not None:
        require_model(attack, found.model, dimension)
    return found


def require_model(attack: Attack, model: object, dimension: int) -> Model:
    """The model that an attack formed, if it is as long as the true one."""
    if not isinstance(model, np.ndarray) or model.shape != (dimension,):
        given = model.shape if isinstance(model, np.ndarray) else model
        raise LocalProtocolError(
            f"attack {attack.name} formed {given!r:.60}, not a model of {dimension} numbers"
        )
    return model


def uploads_by_party(targets: Iterable[Target]) -> list[list[Target]]:
    """Per party, its uploads of all rounds."""
    groups: dict[str, list[Target]] = defaultdict(list)
    for target in targets:
        if target.kind == "upload":
            groups[target.owners[0]].append(target)
    return list(groups.values())


def shared_budget(budget: Budget, series: Sequence[Target]) -> Budget:
    """The evaluations of one target shared among the rounds of a series."""
    return replace(budget, evaluations=max(1, budget.evaluations // len(series)))


def _targets(view: View, budget: Budget) -> list[Target]:
    targets = gradients_in(view, budget.images)
    if not targets:
        raise AttackDoesNotFit(f"the view of {view.adversary} has no gradient: {why_no_gradient(view)}")
    return targets
