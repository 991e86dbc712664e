"""What the cross-entropy exchange gives away, to the client and to the server.

*Client.* It holds a = p + xi * b, xi constant on each group. Probabilities add up to one, so every sample is a
linear equation for the m numbers xi; as many samples as groups determine them, and with them the true softmax p.
The logarithm of p is the true output up to a constant per sample, and the perturbed output is known, so gamma
follows from another linear system, as long as two outputs share a group or the groups' offsets differ.

*Server, printed exchange.* Differences of two ratios of one class are free of the client's blinding and linear
in the exponentials of the outputs: with three classes or more they determine the exponentials up to a factor,
hence each sample's softmax. In the log exchange the server is simply told.

Implements specs/attacks.md, section 6.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.perturbation.public import PublicPerturbation

Reals = NDArray[np.float64]

_CLEAR = 1e-6


def recover_blinders(surrogate: Reals, direction: Reals, public: PublicPerturbation) -> Reals:
    """Client: the secret xi of every group."""
    members = public.grouped_directions() != 0
    system = direction @ members.T
    solution: Reals = np.linalg.lstsq(system, surrogate.sum(axis=1) - 1.0, rcond=None)[0]
    return solution


def recover_softmax(surrogate: Reals, direction: Reals, public: PublicPerturbation) -> Reals:
    """Client: the true softmax of every sample of the batch."""
    blinders = recover_blinders(surrogate, direction, public)
    softmax: Reals = surrogate - blinders[public.partition] * direction
    return softmax


def recover_gammas(outputs: Reals, alpha: Reals, softmax: Reals, public: PublicPerturbation) -> Reals:
    """Client: gamma of every group, from perturbed outputs and the softmax recovered above.

    Only probabilities that stand clear of rounding are used. A sample's outputs are known up to a constant, so both
    sides are taken relative to their mean over the outputs that are used.
    """
    clear = softmax > _CLEAR
    weights: Reals = clear / np.maximum(clear.sum(axis=1, keepdims=True), 1)
    raw: Reals = outputs - np.log(np.where(clear, softmax, 1.0))
    directions = public.grouped_directions()
    gap: Reals = np.where(clear, raw - (weights * raw).sum(axis=1, keepdims=True), 0.0)
    means: Reals = weights @ directions.T
    centred = directions.T[None, :, :] - means[:, None, :]
    system: Reals = alpha[:, None, None] * np.where(clear[:, :, None], centred, 0.0)
    solution = np.linalg.lstsq(system.reshape(gap.size, -1), gap.reshape(-1), rcond=None)[0]
    return np.asarray(solution, dtype=np.float64)


def softmax_from_ratios(ratios: Reals, alpha: Reals, offset: Reals) -> Reals:
    """Server: each sample's true softmax, from the blinded ratios of the printed exchange and its own offset."""
    samples, classes = ratios.shape[:2]
    found = np.empty((samples, classes))
    for sample in range(samples):
        exponentials = _null_direction(ratios[sample])
        scores = np.log(exponentials) - alpha[sample] * offset
        powers = np.exp(scores - scores.max())
        found[sample] = powers / powers.sum()
    return found


def _null_direction(ratios: Reals) -> Reals:
    """The positive vector e with (ratios[i, j] - ratios[i, k]) e[i] = e[j] - e[k] for all i, j, k apart."""
    classes = len(ratios)
    rows = []
    for i in range(classes):
        others = [j for j in range(classes) if j != i]
        for j, k in pairwise(others):
            row = np.zeros(classes)
            row[i] += ratios[i, j] - ratios[i, k]
            row[j] -= 1.0
            row[k] += 1.0
            rows.append(row)
    direction: Reals = np.abs(np.linalg.svd(np.array(rows))[2][-1])
    return direction
