"""The step that a server takes alone on the mean of a round: any optimiser of torch, as a pure function.

    optimizer.step(model, mean, round, memory)  ->  next model, next memory

An optimiser with momentum or Adam's moments remembers. If the memory lived in the process, a restarted server would
continue another run than the one it left, and an attempt that is repeated would count twice. So the memory is a
value: bytes that go in with the model of a round and come out with the next one, and that the server's checkpoint
keeps beside the model. torch's optimiser is made afresh for every step from these bytes.

The step is computed in float64 with one tensor for each parameter of the network, because some optimisers look at
the shape of a layer, and rounded once. Running statistics are no parameters: they move as they do without an optimiser.

A payload `gradient` is the gradient itself. Of a payload `delta` the optimiser is given the negative, as if the
parties' joint step were a gradient; the rate of that is of another kind, so `lr` must be among the settings.

Implements specs/learning.md, section 1.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch.optim import Optimizer

from veilsum.protocol.errors import LocalProtocolError, ParameterError
from veilsum.protocol.numbers.step_kinds import STEP_KINDS
from veilsum.roles.config.spelling import which_then
from veilsum.roles.learning.contract import FloatVector, apply_update
from veilsum.roles.learning.training.pairs import read_pairs
from veilsum.roles.learning.training.settings import TrainingOptions
from veilsum.roles.learning.training.vectorize import Entry

REFUSED = {
    "lbfgs": "it evaluates the loss many times for one step, and a round has one gradient",
    "sparseadam": "it is for sparse gradients, and a mean is dense",
}
_OF_THE_MACHINE = {"foreach", "fused", "capturable", "differentiable", "maximize"}


class ServerOptimizer:
    """`options.server_optimizer` on the parameters of a layout."""

    remembers = True

    def __init__(self, options: TrainingOptions, layout: Sequence[Entry]) -> None:
        self._kind, self._settings = read_optimizer(options.server_optimizer)
        self._options = options
        self._own_rate = self._settings.pop("lr", None)
        self._entries = [entry for entry in layout if entry.kind == "parameter"]
        if options.payload == "delta" and self._own_rate is None:
            raise ParameterError(
                [
                    f"server_optimizer {options.server_optimizer} on payload delta needs a rate of its own: "
                    f"add lr, as in {self._kind.__name__.lower()}:lr=0.01"
                ]
            )
        self._make([torch.zeros(entry.shape, dtype=torch.float64) for entry in self._entries], 0)

    def step(
        self,
        model: FloatVector,
        mean: NDArray[np.floating[Any]],
        round: int,
        memory: bytes,
    ) -> tuple[FloatVector, bytes]:
        """The next model, and what to remember for the step after; `memory` is empty before the first."""
        options = self._options
        updated = apply_update(model, mean, options.payload, options.learning_rate_at(round))
        sign = -1.0 if options.payload == "delta" else 1.0
        parameters = [_tensor(model, entry) for entry in self._entries]
        optimizer = self._make(parameters, round)
        for parameter, entry in zip(parameters, self._entries, strict=True):
            parameter.grad = sign * _tensor(mean, entry)
        if memory:
            _remind(optimizer, memory)
        optimizer.step()
        for parameter, entry in zip(parameters, self._entries, strict=True):
            updated[entry.start : entry.stop] = parameter.detach().reshape(-1).to(torch.float32).numpy()
        if not np.isfinite(updated).all():
            raise LocalProtocolError("the step makes the model infinite or NaN; the model was left as it was")
        return updated, _memory_of(optimizer)

    def _make(self, parameters: list[torch.Tensor], round_number: int) -> Optimizer:
        """torch's optimiser with the rate of a round: the schedule scales whichever rate applies."""
        options = self._options
        rate = options.learning_rate_at(round_number)
        if self._own_rate is not None:
            rate *= self._own_rate / options.learning_rate
        try:
            made: Optimizer = self._kind(parameters, lr=rate, **self._settings)
        except ValueError as error:
            raise ParameterError([f"server_optimizer {options.server_optimizer}: {error}"]) from error
        return made


def read_optimizer(text: str) -> tuple[type[Any], dict[str, Any]]:
    """The class and its settings, from a text like `adam:betas=0.9/0.99,weight_decay=0.01`."""
    name, _, settings = text.partition(":")
    known = optimizers()
    if name.lower() in REFUSED:
        raise ParameterError([f"server_optimizer {name}: {REFUSED[name.lower()]}"])
    if name.lower() not in known:
        raise ParameterError([f"unknown server_optimizer {name!r}: {which_then(name, known)}"])
    kind = known[name.lower()]
    return kind, read_pairs(name, settings, _settings_of(kind))


def is_of_torch(text: str) -> bool:
    """Whether torch takes this step where a server takes it alone; what torch has not is a `PartyStep` there, too."""
    name, _, settings = text.partition(":")
    return name not in STEP_KINDS or (name in optimizers() and "tau=" not in settings)


def optimizers() -> dict[str, type[Any]]:
    """torch's optimisers that can step on a mean, by their names in small letters."""
    every = {
        name.lower(): kind
        for name, kind in vars(torch.optim).items()
        if inspect.isclass(kind) and issubclass(kind, Optimizer) and kind is not Optimizer
    }
    return {name: kind for name, kind in sorted(every.items()) if name not in REFUSED}


def _settings_of(kind: type[Any]) -> Mapping[str, Any]:
    """The settings that have a number, a switch or a row of numbers as default."""
    parameters = inspect.signature(kind).parameters.values()
    defaults = {one.name: one.default for one in parameters if one.default is not one.empty}
    return {
        name: default
        for name, default in defaults.items()
        if name not in _OF_THE_MACHINE and isinstance(default, bool | int | float | tuple)
    }


def _tensor(vector: NDArray[np.floating[Any]], entry: Entry) -> torch.Tensor:
    values = np.array(vector[entry.start : entry.stop], dtype=np.float64)
    return torch.from_numpy(values).reshape(entry.shape)


def _memory_of(optimizer: Optimizer) -> bytes:
    """Every tensor that the optimiser keeps, named by its parameter's number; nothing else may be in there."""
    kept = {
        f"{number}.{name}": value.contiguous()
        for number, state in optimizer.state_dict()["state"].items()
        for name, value in state.items()
        if value is not None
    }
    return bytes(save(kept))


def _remind(optimizer: Optimizer, memory: bytes) -> None:
    """Put back what `_memory_of` took, with the types it had: load_state_dict would round or widen some of it."""
    try:
        kept = load(memory)
    except SafetensorError as error:
        raise LocalProtocolError(f"what the server's optimiser remembered is damaged: {error}") from error
    parameters = optimizer.param_groups[0]["params"]
    for name, value in kept.items():
        number, _, key = name.partition(".")
        optimizer.state[parameters[int(number)]][key] = value
