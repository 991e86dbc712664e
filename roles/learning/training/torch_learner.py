"""Local training with torch, as a pure function of (model, round).

Everything random in a call is drawn from (seed, party, round), and after a checkpoint from its number, too: batch order
from a numpy generator, dropout and the like from torch's generators inside `deterministic`. No optimiser state outlives
the call. A re-run,
a resumed run and a run over another transport therefore give the same bytes on the same kind of device.

Implements specs/learning.md, section 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from veilsum.protocol.errors import LocalProtocolError, ParameterError, ProtocolError
from veilsum.protocol.identifiers import shown_number
from veilsum.roles.learning.contract import FloatVector, LocalUpdate, TrainingFailed, require_float_vector
from veilsum.roles.learning.defences.guard import Fitter, Guard, Party, PlainFitter, RoundWork
from veilsum.roles.learning.seeds import again, derive_seed, generator
from veilsum.roles.learning.splits import Split, divide
from veilsum.roles.learning.task import ChecksLabels, Samples, Task
from veilsum.roles.learning.training.determinism import deterministic
from veilsum.roles.learning.training.devices import available_device
from veilsum.roles.learning.training.loop import Feed, trainable
from veilsum.roles.learning.training.settings import TrainingOptions
from veilsum.roles.learning.training.vectorize import concatenate, layout, load_vector, to_vector


@dataclass(frozen=True, eq=False)
class LearnerParts:
    """What a learner is made of: party `party_index` of `parties`, counted from 0, and its part of the task's data."""

    task: Task
    party_index: int
    parties: int
    split: Split
    options: TrainingOptions
    seed: int
    checkpoint: int = 0
    """How many checkpoints the chain of models has had: after each one parties train with other batches."""


class TorchLearner:
    """One party's learner: it implements `Learner` of roles/learning/contract.py."""

    def __init__(self, parts: LearnerParts, guard: Guard | None = None) -> None:
        task, index, parties = parts.task, parts.party_index, parts.parties
        if not 0 <= index < parties:
            raise LocalProtocolError(f"party {index} is not one of {parties} parties, counted from 0")
        divided = divide(parts.split, len(task.train), task.train.labels, parties, parts.seed)
        self._task = task
        self._party, self._parties = index, parties
        self._options = parts.options
        self._seed = parts.seed
        self._anew = again(parts.checkpoint)
        self._device = available_device(parts.options.device, index)
        self._feed = Feed(task.train.take(divided[index]), self._device)
        self._test = Feed(task.test, self._device)
        self._initial = self._check_task()
        self._guard = Guard() if guard is None else guard
        if guard is not None:
            self._attach(guard)

    @property
    def samples(self) -> int:
        """How many training samples this party holds."""
        return len(self._feed.samples)

    @property
    def data(self) -> Samples:
        """The training samples themselves."""
        return self._feed.samples

    def initial_model(self) -> FloatVector:
        return self._initial.copy()

    def train(self, model: FloatVector, round: int) -> LocalUpdate:
        learning_rate = self._options.learning_rate_at(round)
        with self._torch("train", round) as module:
            load_vector(module, model)
            work = RoundWork(round, learning_rate, model, module, self._anew)
            if self._options.payload == "gradient":
                payload, loss = self._gradient(work)
                local = (model - np.float32(learning_rate) * payload).astype(np.float32)
            else:
                loss = self._train(work)
                local = to_vector(module)
                payload = local - model if self._options.payload == "delta" else local.copy()
            unchanged = model if self._options.payload == "model" else np.zeros_like(model)
            payload = self._guard.release(payload, unchanged, work)
        if not np.isfinite(payload).all():
            raise TrainingFailed(
                f"party {self._party + 1} of {self._parties}, round {shown_number(round)}: training gave values that "
                "are not finite; lower the learning rate or check the data"
            )
        return LocalUpdate(payload, self.samples, loss, local)

    def evaluate(self, model: FloatVector) -> dict[str, float]:
        outputs, total = [], 0.0
        with self._torch("evaluate", 0) as module, torch.no_grad():
            load_vector(module, model)
            module.eval()
            for inputs, targets in self._test.chunks(np.arange(len(self._task.test))):
                batch = module(inputs)
                total += float(self._task.loss(batch, targets)) * len(inputs)
                outputs.append(batch.cpu().numpy())
        measured = self._task.metrics(np.concatenate(outputs), self._task.test.targets)
        return {**measured, "loss": total / len(self._task.test)}

    def _train(self, work: RoundWork) -> float:
        """Train the work's network in place; returns the mean loss."""
        module, objective = self._guard.prepare(work.network, self._objective, work)
        order = generator(self._seed, "batches", self._party, work.round, *self._anew)
        loss = self._fitter.train(module, objective, self._feed, order, work)
        self._guard.finish(module, None, work)
        return loss

    def _gradient(self, work: RoundWork) -> tuple[FloatVector, float]:
        """The average gradient in the layout of the model vector; buffers move as roles/learning/contract.py says."""
        positions = self._gradient_positions(work.round)
        network = work.network
        before = {
            name: buffer.clone() for name, buffer in network.named_buffers() if buffer.is_floating_point()
        }
        module, objective = self._guard.prepare(network, self._objective, work)
        gradients, loss = self._fitter.gradient(module, objective, self._feed, positions, work)
        self._guard.finish(module, gradients, work)
        by_parameter = dict(zip(map(id, trainable(module)), gradients, strict=True))
        parts = [by_parameter.get(id(p), torch.zeros_like(p)) for p in network.parameters()]
        after = dict(network.named_buffers())
        parts += [(old - after[name]) / work.learning_rate for name, old in before.items()]
        return concatenate(parts), loss

    def _gradient_positions(self, round: int) -> npt.NDArray[np.int64]:
        """The samples that the gradient of a round is taken over."""
        if self._options.gradient_batch != "mini":
            return np.arange(self.samples)
        order = generator(self._seed, "batches", self._party, round, *self._anew)
        return order.permutation(self.samples)[: self._options.batch_size]

    def _objective(self, module: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return self._task.loss(module(inputs), targets)

    def _attach(self, guard: Guard) -> None:
        """Acquaint a guard with the party; it refuses what it cannot protect."""
        with self._torch("check", 0) as module:
            guard.attach(Party(module, layout(module), self._feed, self._options, self._seed))

    @property
    def _fitter(self) -> Fitter:
        return PlainFitter(self._options) if self._guard.fitter is None else self._guard.fitter

    @contextmanager
    def _torch(self, purpose: str, round: int) -> Iterator[nn.Module]:
        """A new module inside deterministic torch; what torch raises is reported with party and round.

        The module is made anew because a module remembers: integer buffers, and whatever else a user's
        module keeps.
        """
        try:
            with deterministic(derive_seed(self._seed, "model"), self._device):
                module = self._task.build_model().to(self._device)
            with deterministic(
                derive_seed(self._seed, purpose, self._party, round, *self._anew), self._device
            ):
                yield module
        except TrainingFailed as error:
            raise TrainingFailed(
                f"party {self._party + 1} of {self._parties}, round {shown_number(round)}: {error}"
            ) from error
        except ProtocolError:
            raise
        except (RuntimeError, ValueError, IndexError) as error:
            problem = (
                f"party {self._party + 1} of {self._parties}: the model cannot run on these data, whose inputs have "
                f"the shape {self.data.input_shape}: {error}"
            )
            raise (
                ParameterError([problem]) if purpose == "check" else LocalProtocolError(problem)
            ) from error

    def _check_task(self) -> FloatVector:
        """The initial model, after one forward pass that shows that model, data and loss fit together."""
        with self._torch("check", 0) as module, torch.no_grad():
            initial = to_vector(module)
            inputs, targets = self._feed.batch(np.zeros(min(2, self.samples), dtype=np.int64))
            outputs = module.eval()(inputs)
            if outputs.ndim != 2 or len(outputs) != len(inputs):
                raise LocalProtocolError(
                    f"the model makes outputs of shape {tuple(outputs.shape)}, not (batch, outputs)"
                )
            self.outputs: int = outputs.shape[1]
            if isinstance(self._task, ChecksLabels) and (problem := self._task.label_problem(self.outputs)):
                raise ParameterError([f"party {self._party + 1} of {self._parties}: {problem}"])
            loss = self._task.loss(outputs, targets)
            if loss.ndim != 0:
                raise LocalProtocolError(
                    f"the loss of a batch must be one number, not of shape {tuple(loss.shape)}"
                )
        require_float_vector(initial, "initial model")
        return initial
