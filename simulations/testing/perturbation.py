"""A stand-in for the perturbation of perturbing schemes that needs no network.

A client's first term is its marked vector, its second one the vector times the public direction, plus what it was
answered. So the recovered mean is the mean of the marked vectors, and a mistaken reply or key shows in the sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.identifiers import PartyId
from veilsum.protocol.numbers.model import LocalResult, Model
from veilsum.protocol.perturbation.contract import (
    Asked,
    ExchangeReply,
    ExchangeRequest,
    RecoveredMean,
    require_numbers,
)
from veilsum.protocol.perturbation.draws import Reals
from veilsum.protocol.perturbation.public import (
    DIRECTIONS_TYPE,
    KEY_ID_BYTES,
    PARTITION_TYPE,
    PublicPerturbation,
)
from veilsum.protocol.randomness import RandomBytes, require_random

SAMPLES = 2
SECRET = 3.0


class TableLearner(Protocol):
    """The local work of all parties of a table: a pure function, so that a repeated attempt repeats it."""

    def train(self, party: PartyId, round: int, model: Model) -> LocalResult:
        """The update of a party in a round: the same arguments give the same values."""


@dataclass(frozen=True)
class _Shape:
    dimension: int
    asks: bool

    @property
    def terms(self) -> Mapping[str, int]:
        return {"gradient": self.dimension, "beta": self.dimension}


@dataclass(frozen=True)
class TableServerPerturbation(_Shape):
    def perturb(self, model: Model, round: int, random: RandomBytes) -> TablePerturbation:
        public = PublicPerturbation(
            key_id=require_random(random, KEY_ID_BYTES),
            plan_digest=bytes(32),
            mode="scale+offset",
            loss="ce" if self.asks else "mse",
            exchange="log",
            partition=np.zeros(1, dtype=PARTITION_TYPE),
            directions=np.full(1, 0.5, dtype=DIRECTIONS_TYPE),
            feature_weight=1.0,
        )
        return TablePerturbation(self.dimension, (model * np.float32(2)).astype("<f4"), public)

    def protected_model(self, model: Model, random: RandomBytes) -> Model:
        return (model * np.float32(2)).astype("<f4")

    def adapt(self, condition: float) -> None:
        """A table perturbs by one size."""


@dataclass(frozen=True)
class TablePerturbation:
    dimension: int
    model: Model
    public: PublicPerturbation

    def require_request(self, request: ExchangeRequest) -> None:
        require_numbers(request.alpha, "<f8", SAMPLES, "alpha")
        require_numbers(request.values, "<f8", SAMPLES, "outputs")

    def answer(self, request: ExchangeRequest, random: RandomBytes) -> ExchangeReply:
        return ExchangeReply(request.key_id, request.values * SECRET, request.alpha, request.alpha)

    def recover(self, terms: Reals) -> RecoveredMean:
        return RecoveredMean(terms[: self.dimension], 1.0, 1.0)


@dataclass(frozen=True)
class TableClientPerturbation(_Shape):
    party: PartyId
    learner: TableLearner

    def require_public(self, public: PublicPerturbation) -> None:
        if len(public.directions) != 1 or public.loss != ("ce" if self.asks else "mse"):
            raise Rejection(
                AbortReason.WRONG_CONFIG, "the perturbation is of another kind than was agreed on"
            )

    def ask(self, model: Model, public: PublicPerturbation, round: int, random: RandomBytes) -> Asked:
        numbers = np.arange(SAMPLES, dtype="<f8")
        return Asked(ExchangeRequest(public.key_id, numbers, numbers), kept=self.party)

    def compute(
        self,
        model: Model,
        public: PublicPerturbation,
        round: int,
        asked: Asked | None,
        reply: ExchangeReply | None,
    ) -> LocalResult:
        trained = self.learner.train(self.party, round, model)
        if reply is not None:
            require_numbers(reply.first, "<f8", SAMPLES, "the reply")
        second = trained.payload * np.float32(public.directions[0])
        if reply is not None:
            second = np.clip(second + np.float32(reply.first[0]), -1.0, 1.0)
        return LocalResult(np.concatenate([trained.payload, second]).astype(np.float32), trained.samples, 1.0)
