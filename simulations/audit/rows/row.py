"""One row of an audit: who attacked what with which attack, and how far it got."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from veilsum.protocol.numbers.model import Model
from veilsum.roles.cli.output import Table
from veilsum.roles.learning.task import Samples
from veilsum.simulations.attacks.gradient.matching import Images, Reconstruction
from veilsum.simulations.attacks.metrics import (
    STRICT_SSIM,
    clamp,
    label_distance,
    matching,
    psnr,
    relative_errors,
    ssim,
    success_rate,
    tracing_distance,
)
from veilsum.simulations.audit.stage import pixels

RowKind = Literal["attack", "undefended", "null", "oracle"]
PICTURES = 8


@dataclass(frozen=True, eq=False)
class Picture:
    """A true image, where it is known, and what the attack made of it."""

    truth: Images | None
    found: Images
    caption: str


@dataclass(frozen=True, eq=False)
class Row:
    scheme: str
    defence: str
    adversary: str
    attack: str
    knowledge: str
    row: RowKind
    target: str
    n: int
    cpu_s: float
    rmse: float | None = None
    ssim: float | None = None
    success_rate: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    images: int | None = None
    """Images behind one party's update, where the success of the attack depends on that and the audit knows it."""
    recorded: bool = False
    """Whether the view is one of a run that the audit did not play, so that it knows no truth about it."""
    note: str = ""
    threat: str = field(default="", repr=False)
    pictures: Sequence[Picture] = field(default=(), repr=False)

    def figures(self) -> dict[str, Any]:
        named = "scheme defence adversary attack knowledge row target n rmse ssim success_rate ci_low ci_high cpu_s"
        shown = {name: getattr(self, name) for name in named.split()}
        batch = {"images_per_party": self.images} if self.images is not None else {}
        recorded = {"recorded": True} if self.recorded else {}
        return {**shown, **batch, **recorded, **self.extra, **({"note": self.note} if self.note else {})}


@dataclass(frozen=True)
class Heading:
    """The columns that say what a row is about."""

    scheme: str
    defence: str
    adversary: str
    attack: str
    knowledge: str
    row: RowKind
    target: str


def readable_model(words: Model) -> Model:
    """Numbers read from anything as a model that can be evaluated: finite, and not beyond all measure."""
    found: Model = np.nan_to_num(np.clip(words, -1e6, 1e6)).astype(np.float32)
    return found


def image_row(
    heading: Heading,
    found: Sequence[Reconstruction],
    truth: Sequence[Mapping[str, Samples]],
    shown: Callable[[Images], NDArray[np.int64]] | None = None,
) -> Row:
    """Measure reconstructions against what the owners of each target really held; `shown` classifies images."""
    ordered, true_images, true_labels, owners, label_misses = [], [], [], [], []
    for index, (one, held) in enumerate(zip(found, truth, strict=True)):
        images = np.concatenate([pixels(held[name]) for name in one.target.owners])
        held_labels = np.concatenate([held[name].targets for name in one.target.owners])
        sizes = [len(held[name]) for name in one.target.owners]
        ordered.append(one.images[matching(one.images, images)])
        true_images.append(images)
        true_labels.append(held_labels)
        owners.append(np.repeat(np.arange(len(sizes)) + 1000 * index, sizes))
        label_misses.append(label_distance(one.labels, held_labels))
    rebuilt, real = np.concatenate(ordered), np.concatenate(true_images)
    errors, likeness = relative_errors(rebuilt, real), ssim(rebuilt, real)
    rate = success_rate(int((likeness >= STRICT_SSIM).sum()), len(real))
    tracing = tracing_distance(rebuilt, real, np.concatenate(owners))
    stops = [one.stopped for one in found]
    labels = np.concatenate(true_labels)
    by_sight = {}
    if shown is not None:
        by_sight = {
            "class_distance": float(np.mean(shown(rebuilt) != labels)),
            "class_distance_of_truth": float(np.mean(shown(real) != labels)),
        }
    return Row(
        **vars(heading),
        n=len(real),
        cpu_s=sum(one.cpu_s for one in found),
        rmse=float(np.median(errors)),
        ssim=float(np.median(likeness)),
        success_rate=rate.value,
        ci_low=rate.low,
        ci_high=rate.high,
        extra={
            "rmse_mean": float(errors.mean()),
            "rmse_capped": float(np.minimum(errors, 1).mean()),
            "ssim_mean": float(likeness.mean()),
            "psnr": float(np.median(psnr(rebuilt, real))),
            "label_distance": float(np.mean(label_misses)),
            **by_sight,
            "tracing_by_index": tracing.by_index,
            "tracing_by_participant": tracing.by_participant,
            "match_loss": float(np.median([one.match_loss for one in found])),
            "evaluations": sum(one.evaluations for one in found),
            **{f"stopped_{word}": stops.count(word) for word in sorted(set(stops))},
        },
        images=found[0].target.batch // len(found[0].target.owners),
        note="NaN in every start" if "diverged" in stops else "",
        pictures=[
            Picture(real[i], clamp(rebuilt[i]).astype(np.float32), f"SSIM {likeness[i]:.2f}")
            for i in range(min(PICTURES, len(real)))
        ],
    )


COLUMNS = (
    "scheme", "defence", "adversary", "attack", "level", "row", "target", "n", "rMSE", "SSIM", "ASR", "95 % CI", "CPU s"
)  # fmt: skip


def table(rows: Sequence[Row], title: str) -> Table:
    return Table(title, (*COLUMNS, "also"), [cells_of(row) for row in rows])


def cells_of(row: Row) -> tuple[str, ...]:
    interval = (
        f"{row.ci_low:.2f}-{row.ci_high:.2f}" if row.ci_low is not None and row.ci_high is not None else ""
    )
    return (*common_cells(row), interval, f"{row.cpu_s:.1f}", also(row))


def common_cells(row: Row) -> tuple[str, ...]:
    """What every table of rows shows first: who attacked what with which success."""
    return (
        row.scheme,
        row.defence,
        row.adversary,
        row.attack,
        row.knowledge,
        row.row,
        row.target,
        str(row.n),
        number(row.rmse),
        number(row.ssim),
        number(row.success_rate),
    )


def also(row: Row) -> str:
    """The figures that only some attacks have, in short."""
    wanted = {
        "label_distance": "labels missed",
        "class_distance": "classes not seen",
        "class_distance_of_truth": "in true images",
        "tracing_by_index": "not traced",
        "tracing_by_participant": "wrong owner",
        "balanced_accuracy": "balanced accuracy",
        "model_distance": "model distance",
        "membership_accuracy": "members told",
        "auc": "AUC",
        "tpr_at_1_percent_fpr": "TPR at 1 % FPR",
        "agreement": "agrees with the true model",
        "correlation": "correlation",
        "softmax_error": "error of softmax",
        "factor_error": "error of factors",
    }
    parts = [f"{words} {number(row.extra[key])}" for key, words in wanted.items() if key in row.extra]
    return ", ".join([*parts, *([row.note] if row.note else [])])


def number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return ""
    return f"{value:.2f}" if abs(value) >= 0.005 or value == 0 else f"{value:.1e}"
