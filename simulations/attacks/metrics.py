"""How well an attack did. Numbers in, numbers out; nothing here knows about attacks.

Images are float arrays (batch, channels, height, width) with true pixels from 0 to 1. A reconstruction is clamped to
that range before anything is measured: an optimiser that diverged to 10^6 has found nothing, but an unclamped
error would average it into a triumph of the defence. The relative error of a black image is exactly 1, so errors
are also reported capped at 1, "no better than black".

The order of images inside a batch cannot be known from a gradient: a batch is first matched with the truth so
that the total squared error is least (Hungarian method).

`label_distance` is what the SPN paper calls membership distance: the share of labels that were not recovered.

Implements specs/measures.md, section 1.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
Images = NDArray[np.floating[Any]]
Labels = NDArray[np.integer[Any]]

STRICT_SSIM = 0.9
_SSIM_SIGMA = 1.5
_SSIM_WINDOW, _SSIM_SMALL_WINDOW, _SMALL_SIDE = 11, 5, 11
_SSIM_C1, _SSIM_C2 = 0.01**2, 0.03**2
CONFIDENCE = 0.95


def clamp(images: Images) -> Reals:
    """Into the range of pixels; what is not a number is black."""
    return np.clip(np.nan_to_num(images.astype(np.float64), nan=0.0, posinf=1.0, neginf=0.0), 0.0, 1.0)


def relative_errors(found: Images, truth: Images, *, clamped: bool = True) -> Reals:
    """rMSE: the norm of the difference over the norm of the truth, per image; unclamped only to quote a paper."""
    difference = (clamp(found) if clamped else np.nan_to_num(found.astype(np.float64))) - truth
    flat = difference.reshape(len(truth), -1)
    norms = np.linalg.norm(truth.reshape(len(truth), -1).astype(np.float64), axis=1)
    errors: Reals = np.linalg.norm(flat, axis=1) / np.maximum(norms, 1e-12)
    return errors


def psnr(found: Images, truth: Images) -> Reals:
    """Peak signal to noise ratio in decibels, per image; at most 100."""
    squares = np.square(clamp(found) - truth).reshape(len(truth), -1).mean(axis=1)
    decibels: Reals = -10 * np.log10(np.maximum(squares, 1e-10))
    return decibels


def ssim(found: Images, truth: Images) -> Reals:
    """Structural similarity per image: Gaussian window, sigma 1.5, 11 x 11, or 5 x 5 for images below 11 x 11."""
    a, b = clamp(found), truth.astype(np.float64)
    size = _SSIM_SMALL_WINDOW if min(a.shape[2:]) < _SMALL_SIDE else _SSIM_WINDOW
    offsets = np.arange(size) - size // 2
    line = np.exp(-(offsets**2) / (2 * _SSIM_SIGMA**2))
    window = np.outer(line, line) / line.sum() ** 2

    def local_mean(values: Reals) -> Reals:
        patches = np.lib.stride_tricks.sliding_window_view(values, (size, size), axis=(2, 3))
        mean: Reals = np.einsum("bchwij,ij->bchw", patches, window)
        return mean

    mean_a, mean_b = local_mean(a), local_mean(b)
    variance_a, variance_b = local_mean(a * a) - mean_a**2, local_mean(b * b) - mean_b**2
    covariance = local_mean(a * b) - mean_a * mean_b
    similarity = ((2 * mean_a * mean_b + _SSIM_C1) * (2 * covariance + _SSIM_C2)) / (
        (mean_a**2 + mean_b**2 + _SSIM_C1) * (variance_a + variance_b + _SSIM_C2)
    )
    per_image: Reals = similarity.mean(axis=(1, 2, 3))
    return per_image


def matching(found: Images, truth: Images) -> NDArray[np.int64]:
    """For each true image the reconstruction that belongs to it, so that the total squared error is least."""
    a = clamp(found).reshape(len(found), -1)
    b = truth.reshape(len(truth), -1).astype(np.float64)
    cost = np.square(b[:, None] - a[None]).sum(axis=2)
    return assign(cost)


def assign(cost: Reals) -> NDArray[np.int64]:
    """The column of every row in a cheapest assignment (Hungarian method with potentials, O(n^3))."""
    rows, columns = cost.shape
    row_potential, column_potential = np.zeros(rows + 1), np.zeros(columns + 1)
    owner = np.zeros(columns + 1, dtype=np.int64)
    for row in range(1, rows + 1):
        owner[0] = row
        column = 0
        reach = np.full(columns + 1, math.inf)
        came_from = np.zeros(columns + 1, dtype=np.int64)
        done = np.zeros(columns + 1, dtype=bool)
        while owner[column]:
            done[column] = True
            at = owner[column]
            slack = cost[at - 1] - row_potential[at] - column_potential[1:]
            better = ~done[1:] & (slack < reach[1:])
            reach[1:][better] = slack[better]
            came_from[1:][better] = column
            step_to = int(np.argmin(np.where(done, math.inf, reach)))
            step = reach[step_to]
            row_potential[owner[done]] += step
            column_potential[done] -= step
            reach[~done] -= step
            column = step_to
        while column:
            owner[column] = owner[came_from[column]]
            column = int(came_from[column])
    assigned = np.empty(rows, dtype=np.int64)
    for column in range(1, columns + 1):
        if owner[column]:
            assigned[owner[column] - 1] = column - 1
    return assigned


def label_distance(found: Labels, truth: Labels) -> float:
    """The share of true labels, as a multiset, that the attack did not find."""
    shared = Counter(truth.tolist()) & Counter(found.tolist())
    return 1.0 - shared.total() / len(truth)


@dataclass(frozen=True)
class TracingDistance:
    """How often the nearest reconstruction of a known image is not its own, by index and by owner."""

    by_index: float
    by_participant: float


def tracing_distance(found: Images, truth: Images, owners: NDArray[np.int64]) -> TracingDistance:
    """Query every true image against all reconstructions; both are in the same order."""
    a = clamp(found).reshape(len(found), -1)
    b = truth.reshape(len(truth), -1).astype(np.float64)
    nearest = np.square(b[:, None] - a[None]).sum(axis=2).argmin(axis=1)
    index = np.arange(len(truth))
    return TracingDistance(float(np.mean(nearest != index)), float(np.mean(owners[nearest] != owners[index])))


@dataclass(frozen=True)
class Membership:
    """How well scores tell members from others; higher scores mean member."""

    accuracy: float
    auc: float
    tpr_at_1_percent_fpr: float


def membership(member_scores: Reals, other_scores: Reals, threshold: float | None = None) -> Membership:
    """Balanced accuracy at the threshold (chosen by who attacks, never on these scores), AUC, and TPR at 1 % FPR."""
    order = np.sort(other_scores)
    below = np.searchsorted(order, member_scores, side="left")
    ties = np.searchsorted(order, member_scores, side="right") - below
    auc = float((below + ties / 2).mean() / len(order))
    allowed = math.floor(0.01 * len(order))
    cut = order[len(order) - allowed - 1]
    accuracy = (
        math.nan
        if threshold is None
        else float((np.mean(member_scores > threshold) + np.mean(other_scores <= threshold)) / 2)
    )
    return Membership(accuracy, auc, float(np.mean(member_scores > cut)))


def best_threshold(member_scores: Reals, other_scores: Reals) -> float:
    """The cut with the best balanced accuracy on scores that the attacker may look at."""
    candidates = np.unique(np.concatenate([member_scores, other_scores]))
    below_members = np.searchsorted(np.sort(member_scores), candidates, side="right") / len(member_scores)
    below_others = np.searchsorted(np.sort(other_scores), candidates, side="right") / len(other_scores)
    return float(candidates[int(np.argmax(below_others - below_members))])


@dataclass(frozen=True)
class Rate:
    """A success rate with its exact (Clopper-Pearson) confidence interval."""

    value: float
    low: float
    high: float


def success_rate(successes: int, trials: int, confidence: float = CONFIDENCE) -> Rate:
    if trials == 0:
        return Rate(math.nan, 0.0, 1.0)
    tail = (1 - confidence) / 2
    low = 0.0 if successes == 0 else _bisect(lambda p: 1 - _binomial_cdf(successes - 1, trials, p) - tail)
    high = 1.0 if successes == trials else _bisect(lambda p: tail - _binomial_cdf(successes, trials, p))
    return Rate(successes / trials, low, high)


def _binomial_cdf(most: int, trials: int, p: float) -> float:
    if not 0 < p < 1:
        return 1.0 if p <= 0 else float(most >= trials)
    logs = (
        math.lgamma(trials + 1)
        - math.lgamma(k + 1)
        - math.lgamma(trials - k + 1)
        + k * math.log(p)
        + (trials - k) * math.log1p(-p)
        for k in range(most + 1)
    )
    return math.fsum(map(math.exp, logs))


def _bisect(rising: Any) -> float:
    """The zero of a function that rises on [0, 1]."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low + high) / 2


def model_distance(found: NDArray[np.floating[Any]], truth: NDArray[np.floating[Any]]) -> float:
    """The mean absolute difference of two models."""
    return float(np.abs(found.astype(np.float64) - truth.astype(np.float64)).mean())


def feature_distance(features: Reals, centroid: Reals, *, squared: bool = True) -> float:
    """Mean distance of features to the centroid of their class; squared unless a paper is quoted."""
    squares = np.square(features - centroid).sum(axis=1)
    return float((squares if squared else np.sqrt(squares)).mean())


def nearest_distance(features: Reals, private: Reals, *, squared: bool = True) -> float:
    """Mean distance of features to the nearest private sample; squared unless a paper is quoted."""
    squares = np.square(features[:, None] - private[None]).sum(axis=2).min(axis=1)
    return float((squares if squared else np.sqrt(squares)).mean())
