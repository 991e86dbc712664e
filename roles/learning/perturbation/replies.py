"""A reply as it travelled, flat and about all of a client's samples, in the shaped pieces that the algebra wants.

Implements specs/perturbation.md, section 5.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.perturbation.algebra.exchange import ReplyArrays
from veilsum.protocol.perturbation.contract import ExchangeReply
from veilsum.protocol.perturbation.public import PublicPerturbation


def parts_of(reply: ExchangeReply, public: PublicPerturbation, counts: list[int]) -> Iterator[ReplyArrays]:
    """The part of a reply that belongs to each chunk of so many samples."""
    classes, total = len(public.partition), sum(counts)
    per_sample = public.exchange == "log"
    wanted = (total * classes, total * classes, total if per_sample else classes)
    found = (len(reply.first), len(reply.second), len(reply.third))
    if found != wanted:
        raise Rejection(AbortReason.BAD_VECTOR, f"the reply has {found} numbers, not {wanted}")
    start = 0
    for count in counts:
        rows = slice(start, start + count)
        yield ReplyArrays(
            reply.key_id,
            np.array(reply.first.reshape(total, classes)[rows]),
            np.array(reply.second.reshape(total, classes)[rows]),
            np.array(reply.third[rows] if per_sample else reply.third),
        )
        start += count
