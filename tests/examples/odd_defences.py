"""Defences from outside that get in the way of others: one trains in its own loop, one keeps a state of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from veilsum.roles.learning.defences.defence import Defence, Reach
from veilsum.roles.learning.defences.guard import Guard, Party, PlainFitter
from veilsum.roles.learning.defences.private import PrivateKey


@dataclass(frozen=True)
class OwnLoop(Defence):
    """It is set up before every built-in defence, and trains as an undefended party does."""

    name: ClassVar[str] = "own-loop"
    reach: ClassVar[Reach] = Reach.LAYERS

    def guard(self, key: PrivateKey) -> Guard:
        return _OwnLoopGuard()


class _OwnLoopGuard(Guard):
    def attach(self, party: Party) -> None:
        self.fitter = PlainFitter(party.options)


@dataclass(frozen=True)
class Keeper(Defence):
    """What it keeps is b"kept" from the start; its guard calls itself by the name of a built-in defence."""

    name: ClassVar[str] = "keeper"

    def guard(self, key: PrivateKey) -> Guard:
        return KeeperGuard()


class KeeperGuard(Guard):
    name = "spn"

    def __init__(self) -> None:
        self.restored = b""

    def state(self) -> bytes:
        return b"kept"

    def restore(self, state: bytes) -> None:
        self.restored = state


@dataclass(frozen=True)
class SecondKeeper(Keeper):
    name: ClassVar[str] = "second-keeper"
