"""The server's side for the model of a task: `ServerPerturbation` of schemes/perturbed/equipment.py, with torch.

Implements specs/perturbation.md, section 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.numbers.model import Model
from veilsum.protocol.perturbation.algebra.exchange import RequestArrays, answer
from veilsum.protocol.perturbation.algebra.key import PerturbationKey, new_key
from veilsum.protocol.perturbation.algebra.moments import pooled_statistics
from veilsum.protocol.perturbation.algebra.recovery import recover
from veilsum.protocol.perturbation.contract import (
    ExchangeReply,
    ExchangeRequest,
    RecoveredMean,
    require_numbers,
)
from veilsum.protocol.perturbation.draws import Reals
from veilsum.protocol.perturbation.settings import PerturbationSettings
from veilsum.protocol.randomness import RandomBytes
from veilsum.roles.learning.perturbation.protected import parameters_of, protected_model, with_parameters
from veilsum.roles.learning.perturbation.traced_task import TracedTask
from veilsum.roles.learning.training.settings import TrainingOptions
from veilsum.roles.views.view import PerturbationSecrets

LARGEST_ADAPTED_GAMMA = 10.0
"""Words with 32 fractional bits cover no more; a federation that began higher has finer ones."""


class TaskServerPerturbation:
    """Draws a fresh key for every attempt; gamma follows the condition number from round to round."""

    def __init__(self, traced: TracedTask, training: TrainingOptions) -> None:
        self._traced = traced
        self._training = training
        self.settings: PerturbationSettings = traced.settings
        self.on_secrets: Callable[[PerturbationSecrets], None] = lambda _: None
        """Whoever records the server's own view is told here what is drawn."""

    @property
    def terms(self) -> Mapping[str, int]:
        return self._traced.terms

    @property
    def asks(self) -> bool:
        return self._traced.asks

    def warnings(self) -> Iterator[str]:
        return self._traced.warnings()

    def perturb(self, model: Model, round: int, random: RandomBytes) -> TaskPerturbation:
        key = new_key(self._traced.plan, self.settings, random)
        self.on_secrets(
            PerturbationSecrets(
                key.public.key_id, key.scale, key.gammas, key.blinders, key.shifts, key.loss_shift
            )
        )
        return TaskPerturbation(key, model, self._traced, round, self._training.learning_rate_at(round))

    def protected_model(self, model: Model, random: RandomBytes) -> Model:
        return protected_model(self._traced.plan, model, random)

    def adapt(self, condition: float) -> None:
        adapted = self.settings.adapted(condition)
        ceiling = max(LARGEST_ADAPTED_GAMMA, self._traced.settings.gamma)
        self.settings = replace(adapted, gamma=min(adapted.gamma, ceiling))


class TaskPerturbation:
    """The key of one attempt, with the true model that it covers."""

    def __init__(
        self,
        key: PerturbationKey,
        model: Model,
        traced: TracedTask,
        round_number: int,
        learning_rate: float,
    ) -> None:
        self._key = key
        self._true = model
        self._traced = traced
        self._round = round_number
        self._learning_rate = learning_rate
        self.model = with_parameters(model, key.perturb(parameters_of(traced.plan, model)))
        self.public = key.public

    def require_request(self, request: ExchangeRequest) -> None:
        samples, classes = len(request.alpha), self._traced.plan.head.outputs
        width = classes if self._key.settings.exchange == "log" else classes * classes
        if samples == 0:
            raise Rejection(AbortReason.BAD_VECTOR, "a request about no samples")
        require_numbers(request.alpha, "<f8", samples, "alpha")
        require_numbers(request.values, "<f8", samples * width, "the outputs of a request")

    def answer(self, request: ExchangeRequest, random: RandomBytes) -> ExchangeReply:
        samples, classes = len(request.alpha), self._traced.plan.head.outputs
        shape = (samples, classes) if self._key.settings.exchange == "log" else (samples, classes, classes)
        arrays = RequestArrays(request.key_id, request.values.reshape(shape), request.alpha)
        reply = answer(self._key, arrays, random)
        parts = (np.ascontiguousarray(part.reshape(-1)) for part in (reply.first, reply.second, reply.third))
        return ExchangeReply(reply.key_id, *parts)

    def recover(self, terms: Reals) -> RecoveredMean:
        ends = np.cumsum(list(self._traced.terms.values()))[:-1]
        aggregate = dict(zip(self._traced.terms, np.split(terms, ends), strict=True))
        mean = np.zeros(len(self._true))
        found = recover(self._key, aggregate, mean[: self._traced.plan.size])
        if found.moments is not None:
            self._pool(mean, found.moments)
        return RecoveredMean(mean, found.loss, found.condition, found.warning)

    def _pool(self, mean: Reals, moments: Reals) -> None:
        """Write buffers as a gradient does: (old - new) / learning rate."""
        plan, places = self._traced.plan, self._traced.statistics
        buffers: dict[str, ArrayLike] = {name: self._true[place] for name, place in places.items()}
        for norm in plan.norms:
            buffers[f"{norm.module}.num_batches_tracked"] = np.float32(self._round)
        updated = pooled_statistics(plan, moments, buffers)
        for name, place in places.items():
            mean[place] = (self._true[place] - updated[name]) / self._learning_rate
