"""Faults are data, refuse nonsense by name, and follow from one seed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilsum.transport.errors import BadSetting
from veilsum.transport.memory.faults import PROBABILITIES, Crash, Dice, Faults, Partition

probabilities = st.builds(Faults, **{name: st.floats(0, 1) for name in PROBABILITIES})


@given(faults=probabilities)
def test_the_text_of_faults_reads_back_as_the_same_faults(faults: Faults) -> None:
    assert Faults.parse(str(faults)) == faults


def test_the_example_of_the_manual() -> None:
    faults = Faults.parse("drop=0.1, duplicate=0.1,reorder=0.2")
    assert faults == Faults(drop=0.1, duplicate=0.1, reorder=0.2)
    assert Faults.parse("") == Faults()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("lose=0.1", "duplicate, reorder, delay"),
        ("drop", "NAME=PROBABILITY"),
        ("drop=often", "0 to 1"),
        ("drop=1.5", "0 to 1"),
        ("drop=-0.1", "0 to 1"),
        ("drop=nan", "0 to 1"),
        ("drop=0.1,drop=0.2", "drop .*twice"),
        ("crashes=0.1", "drop, duplicate"),
    ],
)
def test_nonsense_is_refused_with_what_is_allowed(text: str, complaint: str) -> None:
    with pytest.raises(BadSetting, match=complaint):
        Faults.parse(text)


def test_schedules_that_cannot_happen_are_refused() -> None:
    with pytest.raises(BadSetting, match="comes back after"):
        Crash("a", at=5.0, back_at=5.0)
    with pytest.raises(BadSetting, match="ends after"):
        Partition((frozenset("a"), frozenset("b")), since=3.0, until=2.0)
    with pytest.raises(BadSetting, match="one group only"):
        Partition((frozenset("ab"), frozenset("bc")), since=0.0, until=2.0)


def test_a_crash_lasts_from_its_beginning_until_just_before_its_end() -> None:
    faults = Faults(crashes=(Crash("a", 2.0, 3.0), Crash("b", 1.0)))
    assert [faults.is_down("a", time) for time in (1.9, 2.0, 2.9, 3.0)] == [False, True, True, False]
    assert faults.is_down("b", 1e9)
    assert not faults.is_down("c", 2.5)


def test_a_partition_separates_its_groups_both_ways_and_nobody_else() -> None:
    faults = Faults(partitions=(Partition((frozenset("ab"), frozenset("cd")), 1.0, 2.0),))
    assert faults.separate(1.0, "a", "c")
    assert faults.separate(1.0, "d", "b")
    assert not faults.separate(1.0, "a", "b")
    assert not faults.separate(1.0, "a", "stranger")
    assert not faults.separate(2.0, "a", "c")


@given(faults=probabilities, seed=st.integers(0, 2**64))
def test_the_same_seed_throws_the_same_dice(faults: Faults, seed: int) -> None:
    one, two = Dice(faults, seed), Dice(faults, seed)
    assert [one.arrivals() for _ in range(20)] == [two.arrivals() for _ in range(20)]
    assert one.damaged(b"payload") == two.damaged(b"payload")


@given(data=st.binary(), seed=st.integers(0, 1000))
def test_damage_always_changes_the_data(data: bytes, seed: int) -> None:
    assert Dice(Faults(), seed).damaged(data) != data


def test_probabilities_of_nought_and_one_mean_never_and_always() -> None:
    assert Dice(Faults(drop=1.0), 1).arrivals() == ()
    (first, second) = Dice(Faults(duplicate=1.0, corrupt=1.0), 1).arrivals()
    assert first.corrupted
    assert second.corrupted
    (arrival,) = Dice(Faults(), 1).arrivals()
    assert arrival == (0.0, False, False)
