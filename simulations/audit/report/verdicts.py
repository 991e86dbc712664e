"""What the figures of a cell mean, in one word and one sentence.

An update of one image is the worst case for whoever sent it: nothing is averaged, and the best attack there is reads it
back. It says little about training with batches, so that a cell has two verdicts where both were attacked: of the worst
case, fewer images than a batch has, and of the realistic batch. Rows that no batch changes (membership, models, lies)
count for both.

Implements specs/measures.md, section 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from veilsum.simulations.audit.rows.row import Row

NO_ATTACK = "none fits"
LEAKS, PARTLY, HOLDS, OPEN = "leaks", "partly", "holds", "open"
REALISTIC_IMAGES = 16
"""Images behind one update in a realistic batch: the batch size that a federation has by default."""
_DECIDING = ("model_distance", "auc", "agreement", "correlation", "match_loss")
_REBUILT, _TRACE, _NEAR_CHANCE, _EXPLAINED, _LIKE = 0.9, 0.2, 0.3, 1e-6, 0.5
WORST, REALISTIC, ANY, RECORDED = "worst case", "realistic batch", "any batch", "recorded view"
"""What a verdict is about; `any batch` where no row of the cell depends on how many images an update stands for, and
`recorded view` where the audit does not know it."""
_NAMED, _ENOUGH = 3, 50
_SUMS = ("aggregate", "others")


@dataclass(frozen=True)
class Verdict:
    """The worst that any attack of a cell achieved, in one case."""

    scheme: str
    defence: str
    adversary: str
    case: str
    word: str
    reason: str

    @property
    def name(self) -> str:
        """As `--accept` names it."""
        return f"{self.scheme}/{self.defence}/{self.adversary}"


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """For each (scheme, defence, adversary) that was attacked the verdict of each case that was measured."""
    cells: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if row.row == "attack":
            cells.setdefault((row.scheme, row.defence, row.adversary), []).append(row)
    return [
        _worst((*cell, case), some, rows)
        for cell, attacks in cells.items()
        for case, some in _cases(attacks).items()
    ]


def worst_only(found: Sequence[Verdict]) -> list[str]:
    """The cells that were not attacked with a realistic batch, though it matters there, as `--accept` names them."""
    cases: dict[str, set[str]] = {}
    for one in found:
        cases.setdefault(one.name, set()).add(one.case)
    return [name for name, some in cases.items() if some == {WORST}]


def of_batches(rows: Sequence[Row]) -> list[Row]:
    """All but attacks on fewer images than a batch has: what is found otherwise is found in training, too."""
    return [
        row
        for row in rows
        if row.row != "attack" or row.recorded or row.images is None or row.images >= REALISTIC_IMAGES
    ]


def _cases(attacks: Sequence[Row]) -> dict[str, Sequence[Row]]:
    """The rows that each case of a cell is judged by."""
    if any(row.recorded for row in attacks):
        return {RECORDED: attacks}
    sizes = [row.images for row in attacks if row.images is not None]
    if not sizes:
        return {ANY: attacks}
    few = [row for row in attacks if row.images is None or row.images < REALISTIC_IMAGES]
    many = [row for row in attacks if row.images is None or row.images >= REALISTIC_IMAGES]
    found: dict[str, Sequence[Row]] = {WORST: few} if min(sizes) < REALISTIC_IMAGES else {}
    return {**found, REALISTIC: many} if max(sizes) >= REALISTIC_IMAGES else found


def _worst(cell: tuple[str, str, str, str], attacks: Sequence[Row], rows: Sequence[Row]) -> Verdict:
    order = (LEAKS, PARTLY, OPEN, HOLDS)
    judged = [(*judge(row, rows), row.ssim or 0.0) for row in attacks]
    word, reason, _ = min(judged, key=lambda one: (order.index(one[0]), -round(one[2], 2)))
    return Verdict(*cell, word, reason)


def unjudged(rows: Sequence[Row]) -> list[Row]:
    """Attacks that ended without a number to judge them by, or without a truth."""
    return [row for row in rows if row.row == "attack" and (_is_nan(row) or _lacks_truth(row, rows))]


def _lacks_truth(row: Row, rows: Sequence[Row]) -> bool:
    return row.recorded and judge(row, rows)[0] == OPEN


def _is_nan(row: Row) -> bool:
    measured = (row.ssim, row.success_rate, *(row.extra.get(name) for name in _DECIDING))
    return any(isinstance(value, float) and math.isnan(value) for value in measured)


def judge(row: Row, rows: Sequence[Row]) -> tuple[str, str]:
    """A word for one attack, from its own row and the null and oracle rows beside it."""
    if row.attack == NO_ATTACK:
        return HOLDS, row.note
    by = f"{row.attack} ({row.knowledge})"
    if _is_nan(row):
        return OPEN, f"{by}: ended without a number, so that nothing is shown either way"
    if row.ssim is not None:
        return _judge_images(row, rows, by)
    if "model_distance" in row.extra:
        distance = row.extra["model_distance"]
        if distance < 1e-6:
            return LEAKS, f"{by}: the global model, exactly"
        return HOLDS, f"{by}: a model {distance:.2g} away from the true one, on average"
    if "model_sha256" in row.extra:
        return OPEN, f"{by}: forms a model, {row.note}; compare it with what the run reported"
    if "auc" in row.extra:
        auc = row.extra["auc"]
        # Three standard errors of the AUC of scores that know nothing, half of n being members.
        chance = 0.5 + 3 * math.sqrt((row.n + 1) / (3 * row.n * row.n))
        return (LEAKS if auc > chance else HOLDS), f"{by}: AUC {auc:.2f} in telling members"
    if "agreement" in row.extra:
        agreement = row.extra["agreement"]
        word = LEAKS if agreement > _REBUILT else PARTLY if agreement > _NEAR_CHANCE else HOLDS
        return word, f"{by}: agrees with the true model on {agreement:.2f}"
    if "refused" in row.extra:
        given = row.extra["updates_given"]
        return (LEAKS if given else HOLDS), f"{by}: {row.note}"
    if "update_error" in row.extra:
        return _judge_difference(row, by)
    if row.success_rate is None:
        loss = row.extra.get("match_loss", 1.0)
        word = LEAKS if loss < _EXPLAINED else OPEN
        return word, f"{by} on {row.target}: the found images explain the gradient up to {loss:.1e}"
    rate = row.success_rate
    return (LEAKS if rate > 0.5 else HOLDS), f"{by}: succeeds in {rate:.2f}"


def _judge_difference(row: Row, by: str) -> tuple[str, str]:
    """An update that was found by subtracting: itself, something like it, or nothing of it."""
    if row.success_rate:
        return LEAKS, f"{by}: one party's update, {row.note}"
    word = PARTLY if row.extra["correlation"] > _LIKE else HOLDS
    return word, f"{by} on {row.target}: {row.note}"


def _judge_images(row: Row, rows: Sequence[Row], by: str) -> tuple[str, str]:
    assert row.ssim is not None
    said = f"{by} on {row.target}: SSIM {row.ssim:.2f}"
    if row.ssim >= _REBUILT:
        return LEAKS, f"{said}, images rebuilt"
    null, oracle = (_beside(row, rows, kind) for kind in ("null", "oracle"))
    if null is not None and row.ssim > null + _TRACE:
        return PARTLY, f"{said}, more than the {null:.2f} of an attack on noise"
    if oracle is not None and oracle < _REBUILT:
        return (
            OPEN,
            f"{said}, but with the secret given the attack reaches only {oracle:.2f}: it did not converge",
        )
    return HOLDS, f"{said}, what an attack on noise gets"


def _beside(row: Row, rows: Sequence[Row], kind: str) -> float | None:
    """The reference row of the same attack, with the same batch and of the same table if there are several."""
    found = [
        other for other in rows if other.row == kind and other.attack == row.attack and other.ssim is not None
    ]
    found.sort(
        key=lambda other: (
            other.images != row.images,
            (other.scheme, other.defence) != (row.scheme, row.defence),
        )
    )
    return found[0].ssim if found else None


def warnings(rows: Sequence[Row]) -> Iterator[str]:
    """What a reader must not miss."""
    images = [row for row in rows if row.row == "attack" and row.ssim is not None]
    opened = [row for row in images if row.target.startswith(_SUMS) and (row.ssim or 0) >= _REBUILT]
    if opened:
        names = list(dict.fromkeys(f"{row.scheme}/{row.adversary}" for row in opened))
        who = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
        least = min(row.ssim or 0 for row in opened)
        yield (
            f"{who}: a sum of few images (the {opened[0].target}) gave them back at an SSIM of {least:.2f}. "
            "Aggregation of few is not privacy: use more parties and more images, or noise with an account"
        )
    few = too_few(rows)
    if few is not None:
        yield f"n is at most {few} images: read the confidence intervals, and use --scale full before any claim"


def too_few(rows: Sequence[Row]) -> int | None:
    """The most images behind a figure of single images, if they are too few for a claim; a batch has many by itself."""
    counts = [
        row.n
        for row in rows
        if row.row == "attack" and row.ssim is not None and (row.images or 0) < REALISTIC_IMAGES
    ]
    return max(counts) if counts and max(counts) < _ENOUGH else None
