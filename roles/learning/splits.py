"""Who holds which sample.

A split divides the positions 0 .. n-1 of one training set among the parties, from the seed alone: every
position goes to exactly one party, and every party gets at least one or the split is refused, with the
party's number.

* `iid`: a shuffle dealt out in equal parts.
* `dirichlet:A`: per class, the parties' shares are one draw from Dirichlet(A, ..., A); small A is far from
  IID.
* `one-class:P`: party k keeps a fraction P of class k mod (number of classes); what is left is dealt out
  evenly.
* `by-order`: consecutive equal parts in file order; for date-ordered data, parties that differ by date.
* `own`: nothing is divided: the party's data folder holds that party's data. The split of a real
  federation.

Implements specs/tasks.md, section 3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from veilsum.protocol.errors import LocalProtocolError, ParameterError
from veilsum.roles.config.spelling import did_you_mean
from veilsum.roles.learning.seeds import generator

Positions: TypeAlias = npt.NDArray[np.int64]
Labels: TypeAlias = npt.NDArray[np.int64]
Kind: TypeAlias = Literal["iid", "dirichlet", "one-class", "by-order", "own"]

SPLIT_FORMS = "iid, dirichlet:A with A > 0, one-class:P with 0 <= P <= 1, by-order, own"


@dataclass(frozen=True)
class Split:
    """A parsed split; `amount` is the A of dirichlet and the P of one-class."""

    kind: Kind
    amount: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind}:{self.amount:g}" if self.kind in ("dirichlet", "one-class") else self.kind


def parse_split(text: str) -> Split:
    """Read a split as users write it."""
    kind, colon, amount = text.partition(":")
    match kind:
        case "iid" | "by-order" | "own" if not colon:
            return Split(kind)
        case "dirichlet" | "one-class":
            value = _number(amount)
            if (kind == "dirichlet" and value > 0) or (kind == "one-class" and 0 <= value <= 1):
                return Split(kind, value)
    near = did_you_mean(kind, get_args(Kind))
    raise ParameterError([f"split {text!r} is not one of: {SPLIT_FORMS}{near}"])


def divide(split: Split, samples: int, labels: Labels | None, parties: int, seed: int) -> list[Positions]:
    """The sorted positions of every party; `labels` is None for regression, which has no classes."""
    if parties < 1:
        raise LocalProtocolError(f"a split needs at least one party, not {parties}")
    if split.kind == "own":
        return [np.arange(samples, dtype=np.int64) for _ in range(parties)]
    if samples < parties:
        raise LocalProtocolError(f"{samples} samples cannot give each of {parties} parties one")
    owners = _owners(split, samples, labels, parties, seed)
    parts = [np.flatnonzero(owners == party) for party in range(parties)]
    for party, part in enumerate(parts):
        if not part.size:
            raise LocalProtocolError(
                f"split {split} with seed {seed} leaves party {party + 1} of {parties} without a sample: "
                "use another seed, fewer parties, or a split closer to iid"
            )
    return parts


def _owners(split: Split, samples: int, labels: Labels | None, parties: int, seed: int) -> Positions:
    """The party of every position."""
    rng = generator(seed, "split", str(split), samples, parties)
    match split.kind:
        case "by-order":
            return np.arange(samples, dtype=np.int64) * parties // samples
        case "dirichlet":
            return _dirichlet(_require_classes(split, samples, labels), parties, split.amount, rng)
        case "one-class":
            return _one_class(_require_classes(split, samples, labels), parties, split.amount, rng)
        case _:
            return _dealt(samples, parties, rng)


def _dealt(samples: int, parties: int, rng: np.random.Generator) -> Positions:
    """Equal parts: sizes differ by at most one, and no party is systematically the smaller."""
    return (rng.permutation(samples) + int(rng.integers(parties))) % parties


def _dirichlet(labels: Labels, parties: int, concentration: float, rng: np.random.Generator) -> Positions:
    owners = np.empty(labels.size, dtype=np.int64)
    for label in np.unique(labels):
        positions = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(parties, concentration))
        if not math.isclose(float(shares.sum()), 1.0, rel_tol=1e-6):
            raise LocalProtocolError(f"dirichlet:{concentration:g} is beyond what float64 can draw from")
        cuts = np.minimum(np.rint(np.cumsum(shares)[:-1] * positions.size).astype(np.int64), positions.size)
        for party, part in enumerate(np.split(positions, cuts)):
            owners[part] = party
    return owners


def _one_class(labels: Labels, parties: int, fraction: float, rng: np.random.Generator) -> Positions:
    """Parties beyond the number of classes share a class: its kept fraction is divided between them."""
    classes = np.unique(labels)
    owners = np.full(labels.size, -1, dtype=np.int64)
    for index, label in enumerate(classes):
        keepers = np.arange(index, parties, classes.size)
        if keepers.size:
            positions = rng.permutation(np.flatnonzero(labels == label))
            kept = positions[: round(fraction * positions.size)]
            owners[kept] = keepers[np.arange(kept.size) % keepers.size]
    rest = np.flatnonzero(owners < 0)
    owners[rest] = _dealt(rest.size, parties, rng)
    return owners


def _require_classes(split: Split, samples: int, labels: Labels | None) -> Labels:
    if labels is None:
        raise LocalProtocolError(f"split {split} needs class labels; this task has none: use iid or by-order")
    if labels.shape != (samples,):
        raise LocalProtocolError(f"{samples} samples come with labels of shape {labels.shape}")
    return labels


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan
