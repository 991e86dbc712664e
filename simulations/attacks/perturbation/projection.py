"""Remove the offset exactly, in all dimensions but one per group.

Within a group the offset of a sample is a multiple of the group's public direction. Projecting the perturbed
outputs of the group on the complement of that direction gives the projection of the true outputs, without
error and whatever gamma is. Of n outputs, n - m dimensions are in clear. Only one group per output stops this.

Implements specs/attacks.md, section 6.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.perturbation.public import PublicPerturbation

Reals = NDArray[np.float64]


def projector(public: PublicPerturbation) -> Reals:
    """The symmetric matrix that keeps what no offset can reach."""
    rows = public.grouped_directions()
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    kept: Reals = np.eye(rows.shape[1]) - units.T @ units
    return kept


def project_outputs(outputs: Reals, public: PublicPerturbation) -> Reals:
    """The part of the true outputs that perturbed outputs show exactly."""
    return outputs @ projector(public)


def guess_labels(outputs: Reals, public: PublicPerturbation) -> NDArray[np.int64]:
    """The predicted class as far as the projection shows it; exact unless the lost dimensions decide."""
    guesses: NDArray[np.int64] = np.argmax(project_outputs(outputs, public), axis=1).astype(np.int64)
    return guesses
