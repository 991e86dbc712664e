"""PPC curves: every setting of every defence as a job, and the tables of what came out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from veilsum.protocol.errors import ParameterError
from veilsum.roles.cli.output import Table
from veilsum.roles.cli.progress import Progress
from veilsum.roles.learning.defences.parse import parse_defence, split_settings
from veilsum.roles.learning.defences.registry import built_in_defences
from veilsum.simulations.audit.fits import require_fit
from veilsum.simulations.audit.pool import AuditJob, collect
from veilsum.simulations.audit.request import Request
from veilsum.simulations.audit.rows.row import Row, number
from veilsum.simulations.audit.scales import Scale
from veilsum.simulations.audit.sweeps.cap import LEVELS, METRICS, Point, cap, common_grid
from veilsum.simulations.audit.sweeps.ppc_points import NAIVE, PointJob, ReferenceJob, UndefendedJob, trial_of


@dataclass
class PpcOutcome:
    points: list[Point] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    undefended: Point | None = None
    interrupted: bool = False

    def add(self, item: Point | Row | tuple[Point, list[Row]]) -> None:
        """Take what a job gave."""
        if isinstance(item, Point):
            self.undefended = item
        elif isinstance(item, Row):
            self.rows.append(item)
        else:
            self.points.append(item[0])
            self.rows += item[1]

    def by_defence(self) -> dict[str, list[Point]]:
        found: dict[str, list[Point]] = {}
        for point in self.points:
            found.setdefault(point.defence, []).append(point)
        return found

    def figures(self) -> dict[str, Any]:
        return {
            "points": [
                {
                    **vars(point),
                    "position": point.position,
                    "distances": dict(point.distances),
                    "layers": dict(point.layers),
                }
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
            for level in LEVELS:
                for metric in METRICS:
                    yield name, level, metric, vars(cap(points, level, metric, grid))


def grid_of(defence: str, points: int) -> list[tuple[float, str]]:
    """(parameter, full text) for so many settings of a defence family, spread over its published range."""
    trial = trial_of(defence)
    if not trial.walked:
        raise ParameterError([f"ppc knows grids for {_walkable()}, not for {defence!r}"])
    key, values = trial.walked, trial.values
    chosen = [values[int(i)] for i in np.linspace(0, len(values) - 1, min(points, len(values)))]
    joint = "," if split_settings(defence)[1] else ":"
    texts = [(value, f"{defence}{joint}{key}={value:g}") for value in chosen]
    for _, text in texts:
        parse_defence(text)
    return texts


def measure(
    defences: Sequence[str],
    scale: Scale,
    seed: int,
    task: str,
    data: str | None,
    *,
    progress: bool = False,
    workers: int = 1,
) -> PpcOutcome:
    """All points of all defences; Ctrl-C keeps those that are done."""
    request = Request(
        "plain", "server", "idlg", scale, seed=seed, task=task, data=data, parties=scale.ppc_images
    )
    jobs: list[AuditJob] = [UndefendedJob(request)]
    if not defences:
        raise ParameterError([f"name a defence: {_walkable()}"])
    attacks = dict.fromkeys([NAIVE, *(trial_of(name).adaptive for name in defences if trial_of(name).walked)])
    jobs += [ReferenceJob(replace(request, attack=attack)) for attack in attacks]
    for name in defences:
        for value, text in grid_of(name, scale.grid_points):
            defended = replace(request, defence=text)
            require_fit(defended)
            jobs.append(PointJob(defended, name, value))
    found, interrupted = collect(jobs, workers, Progress("ppc", 100) if progress else None)
    outcome = PpcOutcome(interrupted=interrupted)
    for item in (item for items in found for item in items):
        outcome.add(item)
    return outcome


def _walkable() -> str:
    return ", ".join(one.name for one in built_in_defences() if one.trial.walked)


def point_table(outcome: PpcOutcome) -> Table:
    rows = [
        (
            point.defence,
            f"{point.parameter:g}",
            number(point.ratio),
            " ".join(number(ratio) for ratio in point.layers.values()),
            number(point.cosine),
            number(point.accuracy),
            *(
                number(point.distances[level][metric])
                for level in ("naive", "adaptive")
                for metric in METRICS
            ),
        )
        for point in outcome.points
    ]
    columns = ("defence", "setting", "|B|/|E|", "by layer", "cos(G,E)", "accuracy")
    kinds = tuple(f"{level} {metric}" for level in ("naive", "adaptive") for metric in METRICS)
    return Table(
        "Points: accuracy, and distance of the attack from the truth (0 is all, 1 is nothing)",
        (*columns, *kinds),
        rows,
    )


def cap_table(outcome: PpcOutcome) -> Table:
    """A line for each defence and attack; per distance, CAP as printed, capped, and capped on the common grid."""
    lines: dict[tuple[str, str], list[str]] = {}
    for name, level, _, values in outcome.caps():
        shown = (number(values[form]) for form in ("as_printed", "capped", "common_grid"))
        lines.setdefault((name, level), []).extend(shown)
    forms = ("as printed", "capped", "common grid")
    columns = ("defence", "attack", *(f"{metric}, {form}" for metric in METRICS for form in forms))
    return Table(
        "CAP: mean of accuracy x distance; higher is better protected, and only `common grid` compares defences",
        columns,
        [(*key, *cells) for key, cells in lines.items()],
    )


def undefended_accuracy(point: Point) -> str:
    return f"Accuracy without a defence: {point.accuracy:.2f}."
