"""Local work on a perturbed model, and the server's noise for the model of a task.

What protocol/schemes/perturbed/equipment.py asks for, with torch.

Both sides trace the task's own network, with the same plan at all parties. A vector lists parameters and then buffers;
noise covers the parameters. Buffers are running statistics of batch normalisations: their factors are one, so they are
true, and the server pools the clients' moments into new ones.

Between question and answer a client keeps the activations of its batch. Those of a whole data set would not fit in
memory, so of more than one chunk it keeps nothing but the questions and runs forward again: training is deterministic,
dropout included, so this is the same forward pass.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import nn

from veilsum.protocol.errors import AbortReason, ParameterError, Rejection
from veilsum.protocol.numbers.model import LocalResult, Model
from veilsum.protocol.perturbation.algebra.exchange import ClientExchange, ReplyArrays, conclude
from veilsum.protocol.perturbation.algebra.key import new_key
from veilsum.protocol.perturbation.algebra.layout import Terms, term_sizes
from veilsum.protocol.perturbation.algebra.losses import mean_loss
from veilsum.protocol.perturbation.algebra.public import PublicPerturbation
from veilsum.protocol.perturbation.algebra.terms import (
    Forward,
    client_terms,
    cross_entropy_terms,
    exchange_request,
    run_forward,
)
from veilsum.protocol.perturbation.contract import Asked, ExchangeReply, ExchangeRequest, PublicPart
from veilsum.protocol.perturbation.errors import UnprotectedLayer
from veilsum.protocol.perturbation.settings import Exchange, Loss, Mode, PerturbationSettings
from veilsum.protocol.perturbation.tracing.plan import PerturbationPlan
from veilsum.protocol.perturbation.tracing.trace import Barrier, trace
from veilsum.protocol.randomness import RandomBytes
from veilsum.protocol.schemes.perturbed.options import read_settings
from veilsum.roles.learning.datasets.supervised import as_values
from veilsum.roles.learning.datasets.vectors import VectorsTask
from veilsum.roles.learning.errors import TaskError
from veilsum.roles.learning.seeds import derive_seed
from veilsum.roles.learning.task import Task
from veilsum.roles.learning.training.determinism import deterministic
from veilsum.roles.learning.training.loop import Batch, Feed
from veilsum.roles.learning.training.torch_learner import LearnerParts, TorchLearner
from veilsum.roles.learning.training.vectorize import layout, load_vector

if TYPE_CHECKING:
    from veilsum.roles.config.federation_config import FederationConfig


@dataclass(frozen=True, eq=False)
class TracedTask:
    """What all parties of a federation know about its noise: the traced model and the agreed settings."""

    plan: PerturbationPlan
    settings: PerturbationSettings

    @property
    def asks(self) -> bool:
        return self.settings.has_offset and self.settings.loss == "ce"

    @cached_property
    def terms(self) -> Mapping[str, int]:
        """Lengths follow from model and settings; the key, of which the public part is an example, does not matter."""
        return term_sizes(self.plan, new_key(self.plan, self.settings, bytes).public)

    @cached_property
    def statistics(self) -> Mapping[str, slice]:
        """Where the running statistics lie in a vector, by name."""
        norms = {norm.module for norm in self.plan.norms}
        return {
            entry.name: slice(entry.start, entry.stop)
            for entry in layout(self.plan.model)
            if entry.kind == "buffer" and entry.name.rpartition(".")[0] in norms
        }

    def warnings(self) -> Iterator[str]:
        """What the noise leaves open, and which parameters it does not cover."""
        yield self.settings.leak()
        yield from self.plan.warnings
        offset = {f"{self.plan.head.module}.weight"} if self.settings.has_offset else set()
        clear = [one.name for one in self.plan.report() if not one.protected and one.name not in offset]
        if clear:
            yield f"sent in clear: {', '.join(clear)}"


def trace_task(config: FederationConfig, task: Task | VectorsTask) -> TracedTask:
    """Trace the model and check the settings against it; `UnsupportedModel` names the node that stands in the way."""
    if isinstance(task, VectorsTask):
        raise TaskError(f"scheme {config.scheme}: task {config.task} has no model to perturb")
    loss: Any = getattr(task, "objective", None) or config.loss
    if loss not in ("mse", "ce"):
        raise ParameterError([f"task {config.task} does not say which of mse, ce its loss is: set loss"])
    settings = read_settings(config.parameters(1).options, loss)
    plan = trace_model(task, config.seed, cast(Barrier, config.barrier))
    settings.require_fits(plan)
    _require_same_loss(task, plan, settings)
    return TracedTask(plan, settings)


def _require_same_loss(task: Task, plan: PerturbationPlan, settings: PerturbationSettings) -> None:
    """Recovery expands one of two losses; a task that trains another would silently train on the wrong gradient."""
    few = np.arange(min(4, len(task.train)))
    _, targets = Feed(task.train, torch.device("cpu")).batch(few)
    outputs = torch.linspace(-1.0, 1.0, few.size * plan.head.outputs).reshape(few.size, -1)
    values = targets if settings.loss == "ce" else as_values(targets, outputs)
    own, expanded = float(task.loss(outputs, targets)), float(mean_loss(outputs, values, settings.loss))
    if not math.isclose(own, expanded, rel_tol=1e-4, abs_tol=1e-6):
        raise ParameterError(
            [
                f"the task's loss is not the {settings.loss} that can be recovered ({own:g}, not {expanded:g}): "
                "see specs/perturbation.md for both"
            ]
        )


def trace_model(task: Task, seed: int, barrier: Barrier = "refuse") -> PerturbationPlan:
    """The plan of a task's network, which passes its self-test here."""
    with deterministic(derive_seed(seed, "model"), torch.device("cpu")):
        module = task.build_model()
    example, _ = Feed(task.train, torch.device("cpu")).batch(np.zeros(1, dtype=np.int64))
    with warnings.catch_warnings():
        # The plan has them, and whoever starts the run tells them.
        warnings.simplefilter("ignore", UnprotectedLayer)
        return trace(module, example, barrier=barrier)


class PerturbedLearner(TorchLearner):
    """A learner that is also the noise of a client: it computes terms instead of training."""

    def __init__(self, parts: LearnerParts, noise: TracedTask) -> None:
        self._noise = noise
        super().__init__(*parts)

    @property
    def terms(self) -> Mapping[str, int]:
        return self._noise.terms

    @property
    def asks(self) -> bool:
        return self._noise.asks

    def require_public(self, public: PublicPart) -> None:
        settings = self._noise.settings
        agreed = (settings.mode, settings.loss, settings.exchange)
        if (public.mode, public.loss, public.exchange) != agreed:
            raise Rejection(AbortReason.WRONG_CONFIG, "the noise is of another kind than was agreed on")
        noise = public_noise(public)
        noise.require_fits(self._noise.plan)
        if settings.has_offset and noise.groups != settings.groups:
            raise Rejection(
                AbortReason.WRONG_CONFIG,
                f"{noise.groups} groups of outputs, {settings.groups} were agreed on",
            )

    def ask(self, model: Model, public: PublicPart, round: int, random: RandomBytes) -> Asked:  # noqa: A002 - the protocol's own word
        noise = public_noise(public)
        kept: list[_Piece] = []
        keep_forward = self._feed.fits_one_chunk(self._gradient_positions(round))
        with self._training_module(model, round) as module:
            for inputs, targets in self._batches(round):
                forward = run_forward(self._noise.plan, module, noise, inputs)
                exchange = exchange_request(forward, random)
                kept.append(_Piece(forward if keep_forward else None, len(targets), exchange))
        requests = [piece.exchange.request for piece in kept]
        values = np.concatenate([request.values.reshape(-1) for request in requests])
        alpha = np.concatenate([request.alpha for request in requests])
        return Asked(ExchangeRequest(public.key_id, values, alpha), kept)

    def compute(
        self,
        model: Model,
        public: PublicPart,
        round: int,  # noqa: A002 - the protocol's own word
        asked: Asked | None,
        answer: ExchangeReply | None,
    ) -> LocalResult:
        payload = np.zeros(sum(self.terms.values()), dtype=np.float32)
        samples = len(self._gradient_positions(round))
        with self._training_module(model, round) as module:
            if asked is not None and answer is not None:
                pieces = self._concluded(module, public_noise(public), round, asked.kept, answer)
            else:
                pieces = self._direct(module, public_noise(public), round)
            for found, count in pieces:
                payload += np.concatenate(list(found.vectors.values())) * np.float32(count / samples)
        return LocalResult(payload, self.samples, float(payload[self._noise.plan.size]))

    @contextmanager
    def _training_module(self, model: Model, round: int) -> Iterator[nn.Module]:  # noqa: A002 - the protocol's own word
        with self._torch("train", round) as module:
            load_vector(module, model)
            yield module.train()

    def _direct(
        self,
        module: nn.Module,
        noise: PublicPerturbation,
        round: int,  # noqa: A002 - the protocol's own word
    ) -> Iterator[tuple[Terms, int]]:
        for inputs, targets in self._batches(round):
            found = client_terms(self._noise.plan, module, noise, inputs, self._targets(targets))
            yield found, len(inputs)

    def _concluded(
        self,
        module: nn.Module,
        noise: PublicPerturbation,
        round: int,  # noqa: A002 - the protocol's own word
        pieces: list[_Piece],
        answer: ExchangeReply,
    ) -> Iterator[tuple[Terms, int]]:
        """The terms of every chunk from its part of the answer."""
        replies = _parts_of(answer, noise, [piece.samples for piece in pieces])
        for piece, reply, (inputs, targets) in zip(pieces, replies, self._batches(round), strict=True):
            forward = piece.forward
            if forward is None:
                forward = run_forward(self._noise.plan, module, noise, inputs)
            softmax = conclude(noise, piece.exchange, reply)
            yield cross_entropy_terms(forward, softmax, self._targets(targets)), piece.samples

    def _batches(self, round: int) -> Iterator[Batch]:  # noqa: A002 - the protocol's own word
        return self._feed.chunks(self._gradient_positions(round))

    def _targets(self, targets: torch.Tensor) -> torch.Tensor:
        if self._noise.settings.loss == "ce":
            return targets
        return as_values(targets, torch.empty(0, self._noise.plan.head.outputs))


@dataclass(frozen=True, eq=False)
class _Piece:
    """One chunk of a batch between question and answer; without `forward` the pass is repeated."""

    forward: Forward | None
    samples: int
    exchange: ClientExchange


def _parts_of(answer: ExchangeReply, noise: PublicPerturbation, counts: list[int]) -> Iterator[ReplyArrays]:
    """The part of an answer that belongs to each chunk of so many samples."""
    classes, total = len(noise.partition), sum(counts)
    per_sample = noise.exchange == "log"
    wanted = (total * classes, total * classes, total if per_sample else classes)
    found = (len(answer.first), len(answer.second), len(answer.third))
    if found != wanted:
        raise Rejection(AbortReason.BAD_VECTOR, f"the answer has {found} numbers, not {wanted}")
    start = 0
    for count in counts:
        rows = slice(start, start + count)
        yield ReplyArrays(
            answer.key_id,
            np.array(answer.first.reshape(total, classes)[rows]),
            np.array(answer.second.reshape(total, classes)[rows]),
            np.array(answer.third[rows] if per_sample else answer.third),
        )
        start += count


def public_noise(public: PublicPart) -> PublicPerturbation:
    """What travelled, as the algebra wants it."""
    if public.partition.dtype.str != "<u4" or public.directions.dtype.str != "<f8":
        raise Rejection(AbortReason.BAD_VECTOR, "partition and directions have other types than agreed on")
    return PublicPerturbation(
        key_id=public.key_id,
        plan_digest=public.plan_digest,
        mode=cast(Mode, public.mode),
        loss=cast(Loss, public.loss),
        exchange=cast(Exchange, public.exchange),
        partition=public.partition.astype(np.int64),
        directions=np.asarray(public.directions, dtype=np.float64),
        feature_weight=public.feature_weight,
    )
