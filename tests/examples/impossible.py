"""What a user may name and nobody can make or use: each class has one fault, and is refused by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from veilsum.protocol.schemes import Masked
from veilsum.roles.learning.defences.defence import Defence
from veilsum.roles.learning.defences.guard import Guard
from veilsum.roles.learning.defences.private import PrivateKey
from veilsum.simulations.attacks.attack import GradientInversion
from veilsum.simulations.attacks.budget import Budget
from veilsum.simulations.attacks.gradient.matching import Reconstruction
from veilsum.simulations.attacks.gradient.targets import Target


class FailingScheme(Masked):
    name = "failing"

    def __init__(self) -> None:
        raise RuntimeError("no licence")


class DemandingScheme(Masked):
    name = "demanding"

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted


class ColonScheme(Masked):
    name = "a:b"


class NamelessScheme(Masked):
    name = ""


@dataclass(frozen=True)
class _Guarded(Defence):
    def guard(self, key: PrivateKey) -> Guard:
        return Guard()


@dataclass(frozen=True)
class DemandingDefence(_Guarded):
    """Its setting has no default and is not in `required`."""

    strength: float

    name: ClassVar[str] = "demanding"


@dataclass(frozen=True)
class RulelessDefence(_Guarded):
    """Its required setting has no rule, so no text can give it."""

    strength: float

    name: ClassVar[str] = "ruleless"
    required: ClassVar[tuple[str, ...]] = ("strength",)


@dataclass(frozen=True)
class FailingDefence(_Guarded):
    name: ClassVar[str] = "failing"

    def __post_init__(self) -> None:
        raise RuntimeError("no licence")


@dataclass(frozen=True)
class NamelessDefence(_Guarded):
    name: ClassVar[str] = ""


@dataclass(frozen=True)
class GuardlessDefence(Defence):
    name: ClassVar[str] = "guardless"


class FailingAttack(GradientInversion):
    name = "failing"

    def __init__(self) -> None:
        raise RuntimeError("no licence")

    def invert(self, target: Target, budget: Budget, seed: int) -> Reconstruction:
        raise AssertionError("it is never made")


class DemandingAttack(FailingAttack):
    name = "demanding"

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted


class IdleAttack(GradientInversion):
    """It inverts nothing."""

    name = "idle"


class FailingTask:
    def __init__(self, options: object) -> None:
        raise RuntimeError("no licence")


class DemandingTask:
    def __init__(self, options: object, wanted: int) -> None:
        self.wanted = wanted


class BrokenTask:
    """Made without complaint; its samples raise."""

    def __init__(self, options: object) -> None:
        self.options = options

    @property
    def train(self) -> object:
        raise RuntimeError("no licence")
