"""Remove the offset with the client's own labels, by one regression line per output.

Perturbed outputs are true outputs plus alpha times the secret offset, and true outputs resemble the targets. So
regress the perturbed error on alpha. With g the true error of a sample, the estimate misses the secret by

    sum of alpha * g  /  sum of alpha^2,

which is the last layer's true gradient in the direction of alpha, rescaled: it vanishes as training converges,
and it contains neither gamma nor the number of groups. No choice of them helps.

Implements specs/attacks.md, section 6.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]


def estimate_offset(outputs: Reals, alpha: Reals, targets: Reals) -> Reals:
    """The secret offset of every output, as well as the client's own samples tell it."""
    estimate: Reals = alpha @ (outputs - targets) / (alpha @ alpha)
    return estimate


def remove_offset(outputs: Reals, alpha: Reals, offset: Reals) -> Reals:
    return outputs - np.outer(alpha, offset)
