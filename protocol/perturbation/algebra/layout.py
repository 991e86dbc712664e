"""One flat vector per uploaded term, and the table of their lengths.

Every term is linear in the samples, so terms of several clients are added with weights, and each term may
travel under a mask of its own. Terms of the body repeat the flat order of the parameters without the head,
whose share is known in closed form and of low rank:

* mean squared error: the head's sigma of every group is the outer product of the public direction with one
  common vector, the mean of alpha times the features; its beta is zero;
* cross entropy: the head's psi of all groups together is one matrix, because groups own disjoint rows; its
  sigma and beta are zero.

Scalars that give the true loss ride at the end of the terms they belong to.

Implements specs/perturbation.md, section 4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.errors import AbortReason, Rejection
from veilsum.protocol.numbers import averaging
from veilsum.protocol.perturbation.public import PublicPerturbation
from veilsum.protocol.perturbation.tracing.plan import PerturbationPlan

Vector = NDArray[np.floating[Any]]

GRADIENT, BETA, HEAD, MOMENTS = "gradient", "beta", "head", "moments"

BLOCK = 1 << 13
"""Entries worked on together: few enough to stay in the processor's cache, and for BLAS not to start threads,
which for a sum of squares cost many times the work."""


def sigma(group: int) -> str:
    return f"sigma.{group}"


def beta(group: int) -> str:
    return f"beta.{group}"


def psi(group: int) -> str:
    return f"psi.{group}"


@dataclass(frozen=True, eq=False)
class Terms:
    """What one client uploads in one round."""

    key_id: bytes
    public_digest: bytes
    vectors: Mapping[str, Vector]


def term_sizes(plan: PerturbationPlan, public: PublicPerturbation) -> dict[str, int]:
    """Name and length of every term, in upload order."""
    body, head = plan.body_size, plan.head
    sizes = {GRADIENT: plan.size + 1}
    groups = range(public.groups)
    if public.has_offset and public.loss == "mse":
        sizes |= {sigma(s): body + 1 for s in groups}
        sizes |= {BETA: body + 1, HEAD: head.features + 1}
    elif public.has_offset:
        sizes |= {sigma(s): body + 1 for s in groups}
        sizes |= {beta(s): body for s in groups} | {psi(s): body for s in groups}
        sizes[HEAD] = head.outputs * (head.features + 1) + head.outputs * (public.exchange == "printed")
    if plan.norms:
        sizes[MOMENTS] = sum(2 * norm.channels + 1 for norm in plan.norms)
    return sizes


def require_shapes(sizes: Mapping[str, int], vectors: Mapping[str, Vector]) -> None:
    if list(vectors) != list(sizes):
        raise Rejection(AbortReason.BAD_VECTOR, f"terms are {', '.join(vectors)}, not {', '.join(sizes)}")
    for name, size in sizes.items():
        vector = vectors[name]
        if vector.shape != (size,) or vector.dtype.kind != "f":
            raise Rejection(
                AbortReason.BAD_VECTOR,
                f"term {name} is {vector.dtype} of shape {vector.shape}, not ({size},)",
            )


def is_finite(vector: Vector) -> bool:
    # The sum of squares is not finite when an entry is not, and costs a fraction of looking at every entry.
    with np.errstate(all="ignore"):
        return math.isfinite(sum_of_squares(vector)) or bool(np.isfinite(vector).all())


def sum_of_squares(vector: Vector) -> float:
    if len(vector) <= BLOCK:
        return float(vector @ vector)
    return sum(sum_of_squares(vector[start : start + BLOCK]) for start in range(0, len(vector), BLOCK))


def weighted_mean(uploads: list[Terms], weights: list[float]) -> dict[str, NDArray[np.float64]]:
    """The aggregate of clients whose terms may be seen one by one; masked schemes add in the ring instead."""
    names = uploads[0].vectors if uploads else (GRADIENT,)
    return {
        name: averaging.weighted_mean([upload.vectors[name] for upload in uploads], weights) for name in names
    }
