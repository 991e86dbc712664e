"""What travels in a round of perturbed training, besides what `masked` sends.

server -> clients   round.opened                the perturbed model
server -> clients   perturbed.noise             the public part of the perturbation
client -> server    perturbed.softmax-question  (cross entropy with an offset) perturbed outputs
server -> client    perturbed.softmax-answer    what to train with in place of the true softmax
client -> server    perturbed.terms             (scheme `perturbed`) all terms, in clear to the server
                    upload.masked               (scheme `bilateral`) all terms, each under a mask of its own
server -> clients   round.closed                done

Implements specs/perturbation.md, section 6.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from veilsum.protocol.perturbation.contract import ExchangeReply, ExchangeRequest
from veilsum.protocol.perturbation.public import PublicPerturbation
from veilsum.protocol.wire.messages import Length, Message, Stamp, Tensor, message

TermCheck: TypeAlias = Callable[[Tensor], None]
"""Raises `Rejection` about terms that a scheme will not have; a part that is handed to both machines of `perturbed`."""


@message("perturbed.noise")
@dataclass(frozen=True, slots=True)
class PerturbationAnnounced(Message):
    stamp: Stamp
    public: PublicPerturbation


@message("perturbed.softmax-question")
@dataclass(frozen=True, slots=True)
class SoftmaxRequest(Message):
    stamp: Stamp
    question: ExchangeRequest


@message("perturbed.softmax-answer")
@dataclass(frozen=True, slots=True)
class SoftmaxReply(Message):
    stamp: Stamp
    answer: ExchangeReply


@message("perturbed.terms")
@dataclass(frozen=True, slots=True)
class PerturbedTerms(Message):
    """`public_digest` says which public part the terms were computed with."""

    stamp: Stamp
    key_id: Annotated[bytes, Length(16)]
    public_digest: Annotated[bytes, Length(32)]
    terms: Tensor
    samples: int


def accept_all(terms: Tensor) -> None:
    """The check of `perturbed` itself, which agrees on no limit."""
