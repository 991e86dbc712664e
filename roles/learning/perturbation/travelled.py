"""What travelled between the two sides, as the algebra wants it: the public part of a key, and a reply in pieces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import numpy as np

from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.perturbation.algebra.exchange import ReplyArrays
from veilsum.protocol.perturbation.algebra.public import PublicPerturbation
from veilsum.protocol.perturbation.contract import ExchangeReply, PublicPart
from veilsum.protocol.perturbation.settings import Exchange, Loss, Mode

if TYPE_CHECKING:
    pass


def parts_of(answer: ExchangeReply, noise: PublicPerturbation, counts: list[int]) -> Iterator[ReplyArrays]:
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
