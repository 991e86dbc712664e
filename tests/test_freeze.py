"""The check of frozen behaviour sees a change, and keeps apart what it cannot judge."""

from __future__ import annotations

from typing import Any

from tests.support import freeze

CHEAP = "scheme=plain task=vectors:50"
TRAINED = "scheme=plain task=digits loss=ce"


def results(arithmetic: str, **cases: Any) -> freeze.Json:
    return {"fingerprint": arithmetic, "cases": cases}


def test_a_simulation_that_gives_another_model_than_recorded_is_different() -> None:
    found = freeze.run_simulation(CHEAP)
    doctored = {**found, "model_sha256": "0" * 64}
    same = freeze.compare(results("a", **{CHEAP: found}), results("a", **{CHEAP: found}))
    changed = freeze.compare(results("a", **{CHEAP: doctored}), results("a", **{CHEAP: found}))
    assert (same["compared"], same["different"]) == (1, [])
    assert changed["different"] == [{"case": CHEAP, "recorded": doctored, "found": found}]


def test_a_case_that_only_one_side_knows_is_different() -> None:
    one, none = results("a", **{CHEAP: {}}), results("a")
    assert [each["case"] for each in freeze.compare(one, none)["different"]] == [CHEAP]
    assert [each["case"] for each in freeze.compare(none, one)["different"]] == [CHEAP]


def test_where_arithmetic_differs_only_what_trains_is_incomparable() -> None:
    before = results("a", **{CHEAP: {"model_sha256": "1"}, TRAINED: {"model_sha256": "1"}})
    now = results("b", **{CHEAP: {"model_sha256": "2"}, TRAINED: {"model_sha256": "2"}})
    outcome = freeze.compare(before, now)
    assert [each["case"] for each in outcome["different"]] == [CHEAP]
    assert outcome["incomparable"] == [TRAINED]
    assert outcome["incomparable_because"]


def test_every_simulation_is_named_once() -> None:
    names = freeze.simulation_names()
    assert len(names) == len(set(names))
