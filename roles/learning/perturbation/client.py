"""Local work on a perturbed model: `ClientPerturbation` of schemes/perturbed/equipment.py, with torch.

Between request and reply a client keeps the activations of its batch. Those of a whole data set would not fit in
memory, so of more than one chunk it keeps nothing but the requests and runs forward again: training is deterministic,
dropout included, so this is the same forward pass.

Implements specs/perturbation.md, section 6.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.numbers.model import LocalResult, Model
from veilsum.protocol.perturbation.algebra.exchange import ClientExchange, conclude
from veilsum.protocol.perturbation.algebra.layout import Terms
from veilsum.protocol.perturbation.algebra.terms import (
    Forward,
    client_terms,
    cross_entropy_terms,
    exchange_request,
    run_forward,
)
from veilsum.protocol.perturbation.contract import Asked, ExchangeReply, ExchangeRequest
from veilsum.protocol.perturbation.public import PublicPerturbation
from veilsum.protocol.randomness import RandomBytes
from veilsum.roles.learning.datasets.supervised import as_values
from veilsum.roles.learning.perturbation.replies import parts_of
from veilsum.roles.learning.perturbation.traced_task import TracedTask
from veilsum.roles.learning.training.loop import Batch
from veilsum.roles.learning.training.torch_learner import LearnerParts, TorchLearner
from veilsum.roles.learning.training.vectorize import load_vector


class PerturbedLearner(TorchLearner):
    """A learner that is also the perturbation of a client: it computes terms instead of training."""

    def __init__(self, parts: LearnerParts, traced: TracedTask) -> None:
        self._traced = traced
        super().__init__(parts)

    @property
    def terms(self) -> Mapping[str, int]:
        return self._traced.terms

    @property
    def asks(self) -> bool:
        return self._traced.asks

    def require_public(self, public: PublicPerturbation) -> None:
        settings = self._traced.settings
        agreed = (settings.mode, settings.loss, settings.exchange)
        if (public.mode, public.loss, public.exchange) != agreed:
            raise Rejection(
                AbortReason.WRONG_CONFIG, "the perturbation is of another kind than was agreed on"
            )
        public.require_fits(self._traced.plan)
        if settings.has_offset and public.groups != settings.groups:
            raise Rejection(
                AbortReason.WRONG_CONFIG,
                f"{public.groups} groups of outputs, {settings.groups} were agreed on",
            )

    def ask(self, model: Model, public: PublicPerturbation, round: int, random: RandomBytes) -> Asked:
        kept: list[_Piece] = []
        keep_forward = self._feed.fits_one_chunk(self._gradient_positions(round))
        with self._training_module(model, round) as module:
            for inputs, targets in self._batches(round):
                forward = run_forward(self._traced.plan, module, public, inputs)
                exchange = exchange_request(forward, random)
                kept.append(_Piece(forward if keep_forward else None, len(targets), exchange))
        requests = [piece.exchange.request for piece in kept]
        values = np.concatenate([request.values.reshape(-1) for request in requests])
        alpha = np.concatenate([request.alpha for request in requests])
        return Asked(ExchangeRequest(public.key_id, values, alpha), kept)

    def compute(
        self,
        model: Model,
        public: PublicPerturbation,
        round: int,
        asked: Asked | None,
        reply: ExchangeReply | None,
    ) -> LocalResult:
        payload = np.zeros(sum(self.terms.values()), dtype=np.float32)
        samples = len(self._gradient_positions(round))
        with self._training_module(model, round) as module:
            if asked is not None and reply is not None:
                pieces = self._concluded(module, public, round, asked.kept, reply)
            else:
                pieces = self._direct(module, public, round)
            for found, count in pieces:
                payload += np.concatenate(list(found.vectors.values())) * np.float32(count / samples)
        return LocalResult(payload, self.samples, float(payload[self._traced.plan.size]))

    @contextmanager
    def _training_module(self, model: Model, round: int) -> Iterator[nn.Module]:
        with self._torch("train", round) as module:
            load_vector(module, model)
            yield module.train()

    def _direct(
        self,
        module: nn.Module,
        public: PublicPerturbation,
        round: int,
    ) -> Iterator[tuple[Terms, int]]:
        for inputs, targets in self._batches(round):
            found = client_terms(self._traced.plan, module, public, inputs, self._targets(targets))
            yield found, len(inputs)

    def _concluded(
        self,
        module: nn.Module,
        public: PublicPerturbation,
        round: int,
        pieces: list[_Piece],
        reply: ExchangeReply,
    ) -> Iterator[tuple[Terms, int]]:
        """The terms of every chunk from its part of the reply."""
        parts = parts_of(reply, public, [piece.samples for piece in pieces])
        for piece, part, (inputs, targets) in zip(pieces, parts, self._batches(round), strict=True):
            forward = piece.forward
            if forward is None:
                forward = run_forward(self._traced.plan, module, public, inputs)
            softmax = conclude(public, piece.exchange, part)
            yield cross_entropy_terms(forward, softmax, self._targets(targets)), piece.samples

    def _batches(self, round: int) -> Iterator[Batch]:
        return self._feed.chunks(self._gradient_positions(round))

    def _targets(self, targets: torch.Tensor) -> torch.Tensor:
        if self._traced.settings.loss == "ce":
            return targets
        return as_values(targets, torch.empty(0, self._traced.plan.head.outputs))


@dataclass(frozen=True, eq=False)
class _Piece:
    """One chunk of a batch between request and reply; without `forward` the pass is repeated."""

    forward: Forward | None
    samples: int
    exchange: ClientExchange
