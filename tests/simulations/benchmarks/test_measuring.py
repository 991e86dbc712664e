"""The measuring of costs: fair turns, honest limits, memory that was really used."""

from __future__ import annotations

import pytest

from veilsum.simulations.benchmarks.core import as_json
from veilsum.simulations.benchmarks.measuring import Figure, best_cpu_seconds, peak_extra_bytes


def test_jobs_take_turns_after_one_warm_up_each() -> None:
    calls: list[str] = []
    best = best_cpu_seconds(
        {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, turns=2, calls=2
    )
    assert "".join(calls) == "ab" + "aabb" * 2
    assert set(best) == {"a", "b"}
    assert all(seconds >= 0 for seconds in best.values())


def test_peak_memory_counts_what_was_freed_again_and_nothing_from_before() -> None:
    before = bytearray(1 << 20)
    extra = peak_extra_bytes(lambda: len(bytearray(3 << 20)))
    assert 3 << 20 <= extra < 4 << 20
    assert len(before) == 1 << 20


@pytest.mark.parametrize(
    ("figure", "limit", "met"),
    [
        (Figure("x", 0.6, "", at_least=0.6), ">= 0.6", True),
        (Figure("x", 0.59, "", at_least=0.6), ">= 0.6", False),
        (Figure("x", 0.1, "", at_most=0.1), "<= 0.1", True),
        (Figure("x", 0.11, "", at_most=0.1), "<= 0.1", False),
        (Figure("x", 1.0, ""), "", None),
    ],
)
def test_a_figure_knows_whether_its_limit_holds(figure: Figure, limit: str, met: bool | None) -> None:
    assert (figure.limit, figure.met) == (limit, met)
    assert ("NOT MET" in figure.row()) == (met is False)


def test_json_nests_dotted_names_and_lists_the_limits() -> None:
    figures = [Figure("ratio", 0.5, "", at_least=0.6), Figure("ms.a", 1.0, ""), Figure("ms.b", 2.0, "")]
    assert as_json(figures) == {
        "ratio": 0.5,
        "ms": {"a": 1.0, "b": 2.0},
        "limits": {"ratio": {"limit": ">= 0.6", "met": False}},
    }
