"""What the figures of a cell mean, in one word and one sentence.

Implements specs/measures.md, section 2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from veilsum.simulations.audit.rows.row import Row

NO_ATTACK = "none fits"
LEAKS, PARTLY, HOLDS, OPEN = "leaks", "partly", "holds", "open"
_REBUILT, _TRACE, _NEAR_CHANCE, _EXPLAINED, _LIKE = 0.9, 0.2, 0.3, 1e-6, 0.5
_SUMS = ("aggregate", "others")


@dataclass(frozen=True)
class Verdict:
    """The worst that any attack of a cell achieved."""

    scheme: str
    defence: str
    adversary: str
    word: str
    reason: str


def verdicts(rows: Sequence[Row]) -> list[Verdict]:
    """One verdict for each (scheme, defence, adversary) that was attacked."""
    cells: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        if row.row == "attack":
            cells.setdefault((row.scheme, row.defence, row.adversary), []).append(row)
    return [_worst(cell, attacks, rows) for cell, attacks in cells.items()]


def _worst(cell: tuple[str, str, str], attacks: Sequence[Row], rows: Sequence[Row]) -> Verdict:
    order = (LEAKS, PARTLY, OPEN, HOLDS)
    judged = [(*judge(row, rows), row.ssim or 0.0) for row in attacks]
    word, reason, _ = min(judged, key=lambda one: (order.index(one[0]), -round(one[2], 2)))
    return Verdict(*cell, word, reason)


def judge(row: Row, rows: Sequence[Row]) -> tuple[str, str]:
    """A word for one attack, from its own row and the null and oracle rows beside it."""
    if row.attack == NO_ATTACK:
        return HOLDS, row.note
    by = f"{row.attack} ({row.knowledge})"
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
        return word, f"{by}: the found images explain the gradient up to {loss:.1e}"
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
    """The reference row of the same attack, of the same table if there are several."""
    found = [
        other for other in rows if other.row == kind and other.attack == row.attack and other.ssim is not None
    ]
    found.sort(key=lambda other: (other.scheme, other.defence) != (row.scheme, row.defence))
    return found[0].ssim if found else None


def warnings(rows: Sequence[Row]) -> Iterator[str]:
    """What a reader must not miss."""
    images = [row for row in rows if row.row == "attack" and row.ssim is not None]
    opened = [row for row in images if row.target.startswith(_SUMS) and (row.ssim or 0) >= _REBUILT]
    if opened:
        who = ", ".join(dict.fromkeys(f"{row.scheme}/{row.adversary}" for row in opened))
        least = min(row.ssim or 0 for row in opened)
        yield (
            f"{who}: the {opened[0].target}, gave the images back at SSIM {least:.2f} or more. Aggregation of few is "
            "not privacy: use more parties and more images, or noise with an account; local steps are simulated"
        )
    if images and max(row.n for row in images) < 50:
        most = max(row.n for row in images)
        yield f"n is at most {most} images: read the confidence intervals, and use --scale full before any claim"
