"""What a defence is: settings with their ranges, what it fits, what it leaves open, its guard, and how it is tried.

A defence is a frozen dataclass whose fields are its settings, so reading one needs no torch. `problems` is asked
before anything starts, `warnings` is printed once at the start: each says what is known to break the defence, so that
nobody takes a name for a guarantee. The guard does the work; a learner that trains asks for it, and a built-in defence
imports torch only then: its guard is given numbers and knows no settings. `trial` tells the audit how to attack the
defence.

    @dataclass(frozen=True)
    class ClippedSigns(Defence):
        step: float = 0.01

        name = "clipped-signs"
        rules = {"step": Number(0, 1, above=True)}

        def guard(self, key):
            return ClippedSignsGuard(self)

Implements specs/defences.md, section 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, Protocol

from veilsum.protocol.errors import ParameterError
from veilsum.roles.learning.defences.ranges import Rule

if TYPE_CHECKING:
    from veilsum.roles.learning.defences.guard import Guard
    from veilsum.roles.learning.defences.private import PrivateKey


class Configuration(Protocol):
    """What a defence needs to know of a federation's configuration."""

    @property
    def scheme(self) -> str: ...
    @property
    def perturbs(self) -> bool: ...
    @property
    def task(self) -> str: ...
    @property
    def payload(self) -> str: ...
    @property
    def learning_rate(self) -> float: ...
    @property
    def clip(self) -> float: ...


class Reach(IntEnum):
    """Where a defence reaches into training; of several, what comes earlier is set up first."""

    LAYERS = 1
    HEADS = 2
    STEPS = 3
    RELEASE = 4


@dataclass(frozen=True)
class Trial:
    """How the audit tries a defence: with which settings, by which attacks, and along which parameter."""

    settings: str = ""
    """As in `spn:SETTINGS`, for `veilsum audit all`."""
    attacks: tuple[str, ...] = ("idlg",)
    """The attacks of `veilsum audit all`, naive ones and those that know of the defence."""
    adaptive: str = "idlg"
    """The attack of a PPC curve that makes most of knowing the defence."""
    walked: str = ""
    """The parameter that a PPC curve walks along; none if it is empty."""
    values: tuple[float, ...] = ()


@dataclass(frozen=True)
class Defence:
    """One defence with its settings; the defaults fit everywhere and state nothing."""

    name: ClassVar[str]
    rules: ClassVar[Mapping[str, Rule]] = {}
    """Setting -> its range; settings without one are not read from texts."""
    required: ClassVar[tuple[str, ...]] = ()
    form: ClassVar[str] = ""
    """How it may be written, for error messages."""
    reach: ClassVar[Reach] = Reach.RELEASE
    trial: ClassVar[Trial] = Trial()

    @property
    def moves_every_entry(self) -> bool:
        """Whether it adds something to every entry of what leaves the party."""
        return False

    def setting_problems(self) -> Iterator[str]:
        """Settings that do not go together."""
        return iter(())

    def clashes(self, others: Sequence[Defence]) -> Iterator[str]:
        """Why it cannot be used beside these."""
        return iter(())

    def problems(self, config: Configuration) -> Iterator[str]:
        """Why it cannot work in this federation."""
        return iter(())

    def warnings(self, config: Configuration) -> Iterator[str]:
        """What it does not protect against."""
        return iter(())

    def guard(self, key: PrivateKey) -> Guard:
        """The defence at work for one party; what it keeps private is drawn from the key."""
        raise ParameterError([f"defence {self.name!r} has no guard: give its class a method `guard(key)`"])
