"""A defence at work: the places where it may reach into a round of one party.

    attach    once, with the party's model and data: refuse what does not fit, draw what is private
    prepare   wrap the module and the objective before training
    fitter    replace the loop that computes gradients, which one defence of a party can do
    finish    keep what must outlive the round, after training
    release   change the vector before it leaves the party

Each has a harmless default, so a defence states only what it changes. A learner without a defence runs
through the same places, with the defaults.

Rejected: one class with a `train` of its own per defence. Four copies of a training call could not be
combined, and would drift apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import nn

from veilsum.protocol.errors import LocalProtocolError, ParameterError, ProtocolError
from veilsum.roles.learning.contract import FloatVector
from veilsum.roles.learning.training.loop import Feed, Objective, average_gradient, train_epochs
from veilsum.roles.learning.training.settings import TrainingOptions
from veilsum.roles.learning.training.vectorize import Entry

Gradients = tuple[list[torch.Tensor], float]


@dataclass(frozen=True)
class Party:
    """What a defence may know of the party it protects."""

    network: nn.Module
    layout: tuple[Entry, ...]
    feed: Feed
    options: TrainingOptions
    seed: int

    @property
    def samples(self) -> int:
        return len(self.feed.samples)

    @property
    def parameters(self) -> int:
        """How many numbers of the vector are parameters; buffers follow them."""
        return sum(entry.size for entry in self.layout if entry.kind == "parameter")


@dataclass(frozen=True, eq=False)
class RoundWork:
    """One call of `train`: which round, from which model, with which network in memory."""

    round: int
    learning_rate: float
    start: FloatVector
    network: nn.Module
    anew: tuple[int, ...] = ()
    """The number of the checkpoint after which it is done, if there was one."""

    @cached_property
    def label(self) -> bytes:
        """Names this piece of work and no other: the round, the model it starts from, and the checkpoint before it."""
        numbers = (self.round, *self.anew)
        framed = b"".join(number.to_bytes(8, "big") for number in numbers)
        return framed + hashlib.sha256(self.start.tobytes()).digest()


class Fitter(Protocol):
    """Computes gradients: the plain loop, or one that clips and adds noise."""

    def train(
        self, module: nn.Module, objective: Objective, feed: Feed, order: np.random.Generator, work: RoundWork
    ) -> float:
        """Train in place; returns the mean loss."""

    def gradient(
        self, module: nn.Module, objective: Objective, feed: Feed, positions: np.ndarray, work: RoundWork
    ) -> Gradients:
        """The average gradient by trainable parameter, and the mean loss."""


@dataclass(frozen=True)
class PlainFitter:
    """The loop of an undefended party."""

    options: TrainingOptions

    def train(
        self, module: nn.Module, objective: Objective, feed: Feed, order: np.random.Generator, work: RoundWork
    ) -> float:
        return train_epochs(module, objective, feed, self.options, work.learning_rate, order)

    def gradient(
        self, module: nn.Module, objective: Objective, feed: Feed, positions: np.ndarray, work: RoundWork
    ) -> Gradients:
        return average_gradient(module, objective, feed, positions)


class Guard:
    """A defence of one party; the defaults defend nothing."""

    fitter: Fitter | None = None

    def attach(self, party: Party) -> None:
        """Get to know the party; raises if the defence does not fit its model or data."""

    def prepare(
        self, module: nn.Module, objective: Objective, work: RoundWork
    ) -> tuple[nn.Module, Objective]:
        """What is trained, and on what."""
        return module, objective

    def finish(self, module: nn.Module, gradients: Sequence[torch.Tensor] | None, work: RoundWork) -> None:
        """Training is over; `gradients`, by trainable parameter, where the round was one gradient."""

    def release(self, payload: FloatVector, unchanged: FloatVector, work: RoundWork) -> FloatVector:
        """What leaves the party; `unchanged` is the payload that would change nothing."""
        return payload

    def state(self) -> bytes:
        """What must survive a restart, besides the party's key."""
        return b""

    def restore(self, state: bytes) -> None:
        """Take over what `state` gave before a restart; a foreign one changes nothing."""

    def notes(self, rounds: int) -> list[str]:
        """What the defence gives in figures, after so many rounds."""
        return []

    def account(self) -> list[str]:
        """What the updates made so far have spent, in figures; nothing where nothing is spent."""
        return []


class ReleaseGuard(Guard):
    """A defence of the parameters in what leaves the party; buffers, which follow them, are left alone."""

    parameters = 0

    def attach(self, party: Party) -> None:
        self.parameters = party.parameters


class DefenceFailed(LocalProtocolError):
    """A defence, be it a user's own, raised or gave what is no update."""

    told = "its defence failed; let it read its log, and correct the defence"


@contextmanager
def _blaming(name: str) -> Iterator[None]:
    """Whatever the code of a defence raises is its own error, not one of the model or the data."""
    try:
        yield
    except ProtocolError:
        raise
    except Exception as error:
        raise DefenceFailed(f"defence {name} raised {type(error).__name__}: {error}; correct it") from error


def _require_like(payload: object, unchanged: FloatVector) -> None:
    if isinstance(payload, np.ndarray) and payload.dtype == np.float32 and payload.shape == unchanged.shape:
        return
    given = (
        f"{payload.dtype} values of shape {payload.shape}"
        if isinstance(payload, np.ndarray)
        else type(payload)
    )
    raise TypeError(f"release gave {given}, not float32 values of shape {unchanged.shape}")


class Guards(Guard):
    """Several defences at once. Each place is passed in the order in which they are listed."""

    def __init__(self, by_defence: Mapping[str, Guard]) -> None:
        for name, guard in by_defence.items():
            if not isinstance(guard, Guard):
                raise ParameterError(
                    [f"defence {name}: its method guard(key) gave {guard!r:.60}, not a Guard"]
                )
        self.by_defence = dict(by_defence)
        self.guards = tuple(self.by_defence.values())

    def attach(self, party: Party) -> None:
        for name, guard in self.by_defence.items():
            with _blaming(name):
                guard.attach(party)
        fitters = {name: guard.fitter for name, guard in self.by_defence.items() if guard.fitter is not None}
        if len(fitters) > 1:
            raise ParameterError(
                [
                    f"defences {' and '.join(fitters)} each bring a training loop of their own, and a party trains in "
                    "one: use one of them"
                ]
            )
        self.fitter = next(iter(fitters.values()), None)

    def prepare(
        self, module: nn.Module, objective: Objective, work: RoundWork
    ) -> tuple[nn.Module, Objective]:
        for name, guard in self.by_defence.items():
            with _blaming(name):
                module, objective = guard.prepare(module, objective, work)
        return module, objective

    def finish(self, module: nn.Module, gradients: Sequence[torch.Tensor] | None, work: RoundWork) -> None:
        for name, guard in self.by_defence.items():
            with _blaming(name):
                guard.finish(module, gradients, work)

    def release(self, payload: FloatVector, unchanged: FloatVector, work: RoundWork) -> FloatVector:
        for name, guard in self.by_defence.items():
            with _blaming(name):
                payload = guard.release(payload, unchanged, work)
                _require_like(payload, unchanged)
        return payload

    def notes(self, rounds: int) -> list[str]:
        return [note for guard in self.guards for note in guard.notes(rounds)]

    def account(self) -> list[str]:
        return [figure for guard in self.guards for figure in guard.account()]
