"""Read a mask off a term that is known to be zero.

The publications let clients use one zero-sum mask for the gradient and for the other terms. The last layer's beta
is zero, so what is uploaded for it *is* the mask, and the server subtracts it from that client's gradient. Here
the last layer's beta is not uploaded at all and every term has its own mask.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

Vector = NDArray[Any]


def unmask(masked_gradient: Vector, masked_zero: Vector) -> Vector:
    """Server: one client's own gradient, from two uploads under one mask; real numbers, or words of a ring."""
    found: Vector = masked_gradient - masked_zero
    return found
