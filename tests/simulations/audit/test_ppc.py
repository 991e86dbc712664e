"""PPC and CAP: grids, averages in both forms, and what the curves show."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilsum.protocol.errors import ParameterError
from veilsum.roles.learning.defences.registry import find_defence
from veilsum.simulations.audit.report.curves import sections
from veilsum.simulations.audit.sweeps.cap import Point, cap, common_grid, distance
from veilsum.simulations.audit.sweeps.ppc import PpcOutcome, cap_table, grid_of, point_table


def point(ratio: float, accuracy: float, rmse: float, raw: float | None = None, name: str = "dp") -> Point:
    distances = {"rmse": rmse, "rmse_raw": raw if raw is not None else rmse, "label": 0.0, "tracing": 0.5}
    return Point(name, 0.1, ratio, accuracy, {"naive": distances, "adaptive": distances})


def test_cap_as_printed_is_the_mean_of_accuracy_times_unbounded_distance() -> None:
    points = [point(1, 0.5, 1.0, 80.0), point(10, 0.8, 0.5, 0.5)]
    found = cap(points, "naive", "rmse", common_grid(points))
    assert found.as_printed == pytest.approx((0.5 * 80 + 0.8 * 0.5) / 2)
    assert found.capped == pytest.approx((0.5 * 1 + 0.8 * 0.5) / 2)


def test_a_denser_grid_of_the_same_curve_changes_the_capped_mean_but_not_the_common_grid() -> None:
    """The published form rewards whoever adds settings where the defence looks good."""
    ends = [point(0.1, 1.0, 1.0), point(1e4, 1.0, 0.0)]
    low = math.log10(1.1)
    high = math.log10(1e4 + 1)
    share = (math.log10(2.0) - low) / (high - low)
    between = [point(1.0, 1.0, 1.0 - share)] * 5
    grid = common_grid(ends)
    few, many = (cap(points, "naive", "rmse", grid) for points in (ends, [*ends, *between]))
    assert many.capped > few.capped + 0.1
    assert many.common_grid == pytest.approx(few.common_grid)


@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1), st.floats(0, 1e7)), min_size=1, max_size=8))
def test_capped_forms_stay_between_zero_and_the_best_accuracy(
    settings: list[tuple[float, float, float]],
) -> None:
    points = [point(ratio, accuracy, min(rmse, 1), rmse) for ratio, accuracy, rmse in settings]
    found = cap(points, "adaptive", "rmse", common_grid(points))
    best = max(one.accuracy for one in points) + 1e-9
    assert -1e-9 <= found.capped <= best
    assert -1e-9 <= found.common_grid <= best


def test_best_takes_whichever_attack_came_nearest() -> None:
    found = Point("dp", 0.1, 1.0, 0.5, {"naive": {"rmse": 0.2}, "adaptive": {"rmse": 0.6}})
    assert distance(found, "best", "rmse") == 0.2
    assert distance(found, "adaptive", "rmse") == 0.6


def test_no_perturbation_is_at_the_far_right_but_on_the_page() -> None:
    assert point(math.inf, 1, 0).position == pytest.approx(6, abs=1e-5)


@pytest.mark.parametrize("name", ["dp", "ppdl:share=0.05", "spn", "spn:bits=32"])
def test_a_grid_spans_the_published_range(name: str) -> None:
    values = [value for value, _ in grid_of(name, 3)]
    published = find_defence(name.partition(":")[0]).trial.values
    assert (values[0], values[-1]) == (published[0], published[-1])
    assert len(grid_of(name, 99)) == len(published)


@pytest.mark.parametrize("name", ["sketch", "spn:bits=0", "dp:sigma=1"])
def test_a_defence_without_a_grid_or_with_bad_settings_is_refused(name: str) -> None:
    with pytest.raises(ParameterError):
        grid_of(name, 3)


def test_curves_and_tables_show_every_defence() -> None:
    outcome = PpcOutcome([point(1, 0.5, 1.0), point(100, 0.8, 0.1), point(5, 0.7, 0.4, name="spn")])
    made = sections(outcome)
    drawn = [chart for one in made for chart in one.charts]
    assert len(drawn) == 4
    assert "dp, adaptive" in drawn[1]
    assert "spn" in point_table(outcome).render()
    assert len(cap_table(outcome).rows) == 2 * 3
    assert sections(PpcOutcome()) == []


def test_figures_hold_points_and_caps() -> None:
    outcome = PpcOutcome([point(1, 0.5, 1.0)])
    figures = outcome.figures()
    assert figures["points"][0]["accuracy"] == 0.5
    assert {one["metric"] for one in figures["cap"]} == {"rmse", "label", "tracing"}
    assert np.isfinite([one["common_grid"] for one in figures["cap"]]).all()
