"""What travels in a round of perturbed training, besides what `masked` sends.

server -> clients   round.opened                the disguised model
server -> clients   perturbed.noise             the public part of the noise
client -> server    perturbed.softmax-question  (cross entropy with an offset) perturbed outputs
server -> client    perturbed.softmax-answer    what to train with in place of the true softmax
client -> server    perturbed.terms             (scheme `perturbed`) all terms, in clear to the server
                    upload.masked               (scheme `bilateral`) all terms, each under a mask of its own
server -> clients   round.closed                done
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from veilsum.protocol.perturbation.contract import Answer, PublicPart, Question
from veilsum.protocol.wire.messages import Length, Message, Stamp, Tensor, message


@message("perturbed.noise")
@dataclass(frozen=True, slots=True)
class NoiseAnnounced(Message):
    stamp: Stamp
    public: PublicPart


@message("perturbed.softmax-question")
@dataclass(frozen=True, slots=True)
class SoftmaxQuestion(Message):
    stamp: Stamp
    question: Question


@message("perturbed.softmax-answer")
@dataclass(frozen=True, slots=True)
class SoftmaxAnswer(Message):
    stamp: Stamp
    answer: Answer


@message("perturbed.terms")
@dataclass(frozen=True, slots=True)
class PerturbedTerms(Message):
    """`public_digest` says which public part the terms were computed with."""

    stamp: Stamp
    key_id: Annotated[bytes, Length(16)]
    public_digest: Annotated[bytes, Length(32)]
    terms: Tensor
    samples: int
