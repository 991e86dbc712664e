"""Points of a PPC: train with a defence for its accuracy, attack one gradient under it for its distance.

Accuracy and distance come from the same defence, model and seed; the attack is at the first model, where the papers
attack, on single images. Noise is what the defence adds to the uploaded change, so that at learning rate 1 both
uses agree; the table says sigma as it was set. Naive attacks ignore the defence (DLG); adaptive ones know it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from veilsum.protocol.errors import ParameterError
from veilsum.roles.config import FederationConfig
from veilsum.roles.learning.defences.parse import parse_defence
from veilsum.roles.output import Table
from veilsum.roles.progress import Progress
from veilsum.simulations.attacks.common import Reconstruction, Victim, one_thread
from veilsum.simulations.attacks.targets import Target, as_noise
from veilsum.simulations.audit.cap import METRICS, Point, cap, common_grid
from veilsum.simulations.audit.gradient import clean_targets, heading_of, targets_of
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.rows import Row, RowKind, image_row, number
from veilsum.simulations.audit.scales import Scale
from veilsum.simulations.audit.stage import Played, pixels
from veilsum.simulations.audit.steps import Steps
from veilsum.simulations.metrics import relative_errors
from veilsum.simulations.simulate import simulate

GRIDS: dict[str, tuple[str, tuple[float, ...]]] = {
    "dp": ("sigma", (1e-4, 1e-3, 1e-2, 3e-2, 0.1, 0.3, 0.5)),
    "ppdl": ("sigma", (1e-4, 1e-3, 1e-2, 3e-2, 0.1, 0.3, 0.5)),
    "spn": ("alpha2", (1e-4, 1e-3, 1e-2, 0.1, 0.2, 0.3, 0.5, 1.0)),
}
ADAPTIVE = {"dp": "idlg", "ppdl": "ppdl-adaptive", "spn": "spn-adaptive"}
NAIVE = "dlg"


@dataclass
class PpcOutcome:
    points: list[Point] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    undefended: Point | None = None
    interrupted: bool = False

    def by_defence(self) -> dict[str, list[Point]]:
        found: dict[str, list[Point]] = {}
        for point in self.points:
            found.setdefault(point.defence, []).append(point)
        return found

    def figures(self) -> dict[str, Any]:
        return {
            "points": [
                {**vars(point), "position": point.position, "distances": dict(point.distances)}
                for point in self.points
            ],
            "cap": [
                {"defence": name, "level": level, "metric": metric, **values}
                for name, level, metric, values in self.caps()
            ],
            "undefended_accuracy": self.undefended.accuracy if self.undefended else None,
        }

    def caps(self) -> Iterator[tuple[str, str, str, dict[str, float]]]:
        if not self.points:
            return
        grid = common_grid(self.points)
        for name, points in self.by_defence().items():
            for level in ("naive", "adaptive"):
                for metric in METRICS:
                    yield name, level, metric, vars(cap(points, level, metric, grid))


def grid_of(defence: str, points: int) -> list[tuple[float, str]]:
    """(parameter, full text) for so many settings of a defence family, spread over its published range."""
    name = defence.partition(":")[0]
    if name not in GRIDS:
        raise ParameterError([f"ppc knows grids for {', '.join(GRIDS)}, not for {defence!r}"])
    key, values = GRIDS[name]
    chosen = [values[round(i)] for i in np.linspace(0, len(values) - 1, min(points, len(values)))]
    joint = "," if ":" in defence else ":"
    texts = [(value, f"{defence}{joint}{key}={value:g}") for value in chosen]
    for _, text in texts:
        parse_defence(text)
    return texts


def measure(
    defences: Sequence[str], scale: Scale, seed: int, task: str, data: str | None, *, progress: bool = False
) -> PpcOutcome:
    """All points of all defences; Ctrl-C keeps those that are done."""
    plans = [(name, value, text) for name in defences for value, text in grid_of(name, scale.grid_points)]
    outcome = PpcOutcome()
    steps = Steps(len(plans) + 1, Progress("ppc", 100) if progress else None)
    request = Request(
        "plain", "server", "idlg", scale, seed=seed, task=task, data=data, parties=scale.ppc_images
    )
    try:
        with one_thread():
            _measure(request, plans, outcome, steps)
    except KeyboardInterrupt:
        outcome.interrupted = True
    steps.close()
    return outcome


def _measure(
    request: Request, plans: Sequence[tuple[str, float, str]], outcome: PpcOutcome, steps: Steps
) -> None:
    steps.expect(1 + 8 * request.parties)
    steps("training without a defence")
    accuracy = trained_accuracy(request, request.scale)
    outcome.undefended = Point("none", 0.0, float("inf"), accuracy, {})
    outcome.rows.extend(_reference_rows(request, plans, steps))
    steps.next_request()
    for name, value, text in plans:
        steps.expect(1 + 2 * request.parties)
        point, rows = measure_point(replace(request, defence=text), name, value, steps)
        outcome.points.append(point)
        outcome.rows.extend(rows)
        steps.next_request()


def _reference_rows(request: Request, plans: Sequence[tuple[str, float, str]], steps: Steps) -> Iterator[Row]:
    """The attacks of the curves on clean gradients and on noise of the same size."""
    attacks = dict.fromkeys([NAIVE, *(ADAPTIVE[name.partition(":")[0]] for name, _, _ in plans)])
    played = next(request.stages())
    clean = [(target, played) for target in clean_targets(request, played)]
    noise = [(as_noise(target, request.seed), played) for target, _ in clean]
    kinds: tuple[tuple[RowKind, list[tuple[Target, Played]]], ...] = (("undefended", clean), ("null", noise))
    for attack in attacks:
        for kind, targets in kinds:
            yield replace(_attacked(replace(request, attack=attack), targets, steps)[0], row=kind)


def measure_point(request: Request, name: str, value: float, steps: Steps) -> tuple[Point, list[Row]]:
    started = time.process_time()
    steps(f"training with {request.defence}")
    accuracy = trained_accuracy(request, request.scale)
    played = next(request.stages())
    targets = [(target, played) for target in targets_of(request, played)]
    distances: dict[str, dict[str, float]] = {}
    rows = []
    for level, attack in (("naive", NAIVE), ("adaptive", ADAPTIVE[name.partition(":")[0]])):
        chosen = replace(request, attack=attack)
        row, raw = _attacked(chosen, targets, steps)
        rows.append(row)
        distances[level] = {
            "rmse": row.extra["rmse_capped"],
            "rmse_raw": raw,
            "label": row.extra["label_distance"],
            "tracing": row.extra["tracing_by_index"],
        }
    ratio = signal_to_perturbation([target for target, _ in targets], clean_targets(request, played))
    return Point(name, value, ratio, accuracy, distances, time.process_time() - started), rows


def _attacked(request: Request, targets: Sequence[tuple[Target, Played]], steps: Steps) -> tuple[Row, float]:
    """The row, and the mean relative error as the papers print it: without clamping."""
    invert = request.entry.load()
    found: list[Reconstruction] = []
    for target, _ in targets:
        steps(f"{request.defence or 'no defence'}, {request.attack}")
        found.append(invert(target, request.scale.ppc_budget, request.seed))
    row = image_row(
        heading_of(request, "attack", targets[0][0].note),
        found,
        [dict(played.truth) for _, played in targets],
    )
    errors = [
        relative_errors(
            one.images,
            np.concatenate([pixels(played.truth[name]) for name in one.target.owners]),
            clamped=False,
        )
        for one, (_, played) in zip(found, targets, strict=True)
    ]
    return row, float(np.concatenate(errors).mean())


def trained_accuracy(request: Request, scale: Scale) -> float:
    """The test accuracy of a federation that trains with the defence on all data."""
    options = {
        "rounds": scale.training_rounds,
        "payload": "delta",
        "optimizer": "adam",
        "learning_rate": 0.015,
        "local_epochs": 2,
        "batch_size": 32,
        "parties": 4,
    }
    config = FederationConfig.from_options(options, request.config())
    metrics = simulate(config, verify=False).metrics
    return next(iter(metrics.values()))


def signal_to_perturbation(defended: Sequence[Target], clean: Sequence[Target]) -> float:
    """Norm of the clean bias gradients below the head over the norm of what the defence did to them."""
    signal = perturbation = 0.0
    for target, reference in zip(defended, clean, strict=True):
        ours, theirs = Victim(target), Victim(reference)
        for entry, a, b in zip(ours.entries, ours.gradient, theirs.gradient, strict=True):
            if entry.name.startswith("features") and entry.name.endswith("bias"):
                signal += float(b.double().square().sum())
                perturbation += float((a - b).double().square().sum())
    return float(np.sqrt(signal / perturbation)) if perturbation else float("inf")


def point_table(outcome: PpcOutcome) -> Table:
    rows = [
        (
            point.defence,
            f"{point.parameter:g}",
            number(point.ratio),
            number(point.accuracy),
            *(
                number(point.distances[level][metric])
                for level in ("naive", "adaptive")
                for metric in METRICS
            ),
        )
        for point in outcome.points
    ]
    columns = ("defence", "setting", "|B|/|E|", "accuracy")
    kinds = tuple(f"{level} {metric}" for level in ("naive", "adaptive") for metric in METRICS)
    return Table(
        "Points: accuracy, and distance of the attack from the truth (0 is all, 1 is nothing)",
        (*columns, *kinds),
        rows,
    )


def cap_table(outcome: PpcOutcome) -> Table:
    rows = [
        (
            name,
            level,
            metric,
            number(values["as_printed"]),
            number(values["capped"]),
            number(values["common_grid"]),
        )
        for name, level, metric, values in outcome.caps()
    ]
    columns = ("defence", "attack", "distance", "CAP as printed", "capped", "capped, common grid")
    return Table("CAP: mean of accuracy x distance; higher is better protected", columns, rows)
