"""What an attack is: what it needs of a view, and what it makes of one.

An attack stands in a file of its own and says with itself whose view it needs, which schemes and defences it is made
for, and how much it must know: L0 ignores the defence, as the papers do; L1 knows the algorithm and all public
settings, not the secrets; L2 is L1 for parties that pool what they hold. The audit asks the attack, never its name.

`run` makes findings of a view alone, played or recorded. How the audit measures them, and which rows stand beside the
attack's own, is its experiment. One's own attack extends `Attack` (then found images and models are measured), or
`GradientInversion`, which brings the undefended, null and oracle rows of the published inversions:

    @dataclass(frozen=True)
    class FirstRow(GradientInversion):
        name: str = "first-row"
        summary: str = "input of the first layer, from one of its rows"

        def invert(self, target, budget, seed): ...
"""

from __future__ import annotations

import importlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from veilsum.protocol.errors import ParameterError
from veilsum.roles.views.view import View
from veilsum.simulations.attacks.budget import Budget
from veilsum.simulations.attacks.gradient.targets import Target, as_noise, gradients_in
from veilsum.simulations.attacks.misfits import AttackDoesNotFit

if TYPE_CHECKING:
    from veilsum.protocol.numbers.model import Model
    from veilsum.simulations.attacks.gradient.matching import Reconstruction

_ATTACKS = "veilsum.simulations.attacks"
_ROWS = "veilsum.simulations.audit.rows"
Side = Literal["", "server", "client", "both"]


@dataclass(frozen=True, eq=False)
class Findings:
    """What an attack made of a view: images behind gradients, as they are found, or a whole model."""

    images: Iterable[Reconstruction] = ()
    model: Model | None = None


@dataclass(frozen=True)
class Attack:
    """One attack; what it needs is asked before anything is played."""

    name: str = ""
    knowledge: str = "L0"
    summary: str = ""
    place: str = ""
    """Where a built-in attack lives, so that listing it loads nothing."""
    model: str = "dlnet"
    """The architecture that is attacked if the user names none."""
    against: str = ""
    """The defence or scheme that an adaptive attack is made for."""
    by: Side = ""
    """Whose view it needs, if not anybody's."""
    heavy: bool = False
    """Whether it trains generators or many models, and is left out of `all` at smoke scale."""
    experiment: str = "findings:found_rows"
    """Which rows measure it, as `module:function` of the audit's rows."""
    needs_scheme: bool = False
    """Whether it works under the scheme `against` alone, or one derived from it."""
    needs_defence: bool = False
    """Whether it works under the defence `against` alone."""
    bundle: str = ""
    """Attacks with the same word share what they train, so one worker makes them one after the other."""

    needs_gradient: ClassVar[bool] = False
    needs_rounds: ClassVar[bool] = False
    """Whether it needs one party's updates over several rounds."""
    needs_steps: ClassVar[bool] = False
    """Whether it needs a model that parties train step by step, which a perturbed one is not."""
    needs_perturbation: ClassVar[bool] = False

    def run(self, view: View, budget: Budget, seed: int) -> Findings:
        """What the attack makes of a view."""
        raise ParameterError(
            [f"{self.name} needs a played federation; a recorded view fits attacks on gradients and models"]
        )

    def run_on_noise(self, view: View, budget: Budget, seed: int) -> Findings:
        """What it makes of nothing: the same view with noise in place of what it attacks."""
        return Findings()

    def load(self) -> Callable[..., Any]:
        """The function of a built-in attack."""
        if not self.place:
            raise ParameterError(
                [
                    f"attack {type(self).__name__} does nothing yet: give it a method of its own: invert, form or run"
                ]
            )
        return _find(f"{_ATTACKS}.{self.place}")

    def rows(self, request: Any, steps: Any) -> Iterator[Any]:
        """The rows that the audit of a request has."""
        found: Iterator[Any] = self._find_rows()(request, steps)
        return found

    def require_findable(self) -> None:
        """Raise if the audit has no rows for it; asked of a user's attack, whose own `rows` need none."""
        if type(self).rows is Attack.rows:
            self._find_rows()

    def _find_rows(self) -> Callable[..., Any]:
        try:
            return _find(f"{_ROWS}.{self.experiment}")
        except (AttributeError, ModuleNotFoundError) as error:
            raise ParameterError(
                [
                    f"attack {type(self).__name__}: experiment {self.experiment!r} is not there ({error}): "
                    f"name one of a built-in attack, such as {Attack.experiment!r}, or leave it out"
                ]
            ) from error


@dataclass(frozen=True)
class GradientInversion(Attack):
    """Images behind single gradients."""

    experiment: str = "gradient:gradient_rows"
    needs_gradient: ClassVar[bool] = True

    def invert(self, target: Target, budget: Budget, seed: int) -> Reconstruction:
        found: Reconstruction = self.load()(target, budget, seed)
        return found

    def run(self, view: View, budget: Budget, seed: int) -> Findings:
        targets = _targets(view, budget)
        return Findings(self.invert(target, budget, seed) for target in targets)

    def run_on_noise(self, view: View, budget: Budget, seed: int) -> Findings:
        first = as_noise(_targets(view, budget)[0], seed)
        return Findings(self.invert(one, budget, seed) for one in (first,))


@dataclass(frozen=True)
class SeriesInversion(Attack):
    """Images behind one party's gradients of several rounds."""

    experiment: str = "repeated:repeated_rows"
    undefended: str = ""
    """The inversion that does the same where there is no defence, if it is not this one."""
    needs_gradient: ClassVar[bool] = True
    needs_rounds: ClassVar[bool] = True

    def invert(self, targets: Sequence[Target], budget: Budget, seed: int) -> Reconstruction:
        found: Reconstruction = self.load()(targets, budget, seed)
        return found

    def invert_undefended(self, targets: Sequence[Target], budget: Budget, seed: int) -> Reconstruction:
        if not self.undefended:
            return self.invert(targets, budget, seed)
        found: Reconstruction = _find(f"{_ATTACKS}.{self.undefended}")(targets[0], budget, seed)
        return found

    def run(self, view: View, budget: Budget, seed: int) -> Findings:
        groups = uploads_by_party(_targets(view, budget))
        if not groups:
            raise AttackDoesNotFit(f"{self.name} needs one party's updates over rounds; this view has none")
        fewer = shared_budget(budget, groups[0])
        return Findings(self.invert(group, fewer, seed) for group in groups)


@dataclass(frozen=True)
class ModelRecovery(Attack):
    """The global model, formed from a view."""

    experiment: str = "models:model_rows"

    def form(self, view: View) -> Model:
        found: Model = self.load()(view)
        return found

    def run(self, view: View, budget: Budget, seed: int) -> Findings:
        return Findings(model=self.form(view))


@dataclass(frozen=True)
class StagedAttack(Attack):
    """An attack that needs more than a view, such as suspects: its experiment stages that."""


@dataclass(frozen=True)
class StepwiseAttack(StagedAttack):
    """One on a model that parties train step by step."""

    needs_steps: ClassVar[bool] = True


@dataclass(frozen=True)
class PriorAttack(StagedAttack):
    """One on gradients, with a prior over images."""

    needs_gradient: ClassVar[bool] = True


@dataclass(frozen=True)
class PerturbationAttack(StagedAttack):
    """One on the perturbation of a model by its server."""

    bundle: str = "perturbation"
    needs_perturbation: ClassVar[bool] = True


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
        raise AttackDoesNotFit(f"the view of {view.adversary} holds no gradient of anyone else")
    return targets


def _find(place: str) -> Callable[..., Any]:
    module, _, function = place.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found
