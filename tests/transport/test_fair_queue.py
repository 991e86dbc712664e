"""Senders do not starve each other: whoever floods a queue loses what it sent itself, and waits its turn."""

from __future__ import annotations

import asyncio
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from veilsum.transport.fair_queue import FairQueue

Item = tuple[str, int, int]
"""A sender, a number, and a size."""


class Items(FairQueue[Item]):
    places_of_one = 4
    bytes_of_one = 100

    def sender_of(self, item: Item) -> str:
        return item[0]

    def size_of(self, item: Item) -> int:
        return item[2]


items = st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 60)), max_size=60)


def emptied(queue: Items) -> list[Item]:
    out = []
    while not queue.empty():
        out.append(queue.get_nowait())
    return out


@given(items)
def test_nothing_is_lost_without_a_word_and_the_order_of_a_sender_stays(
    offered: list[tuple[str, int]],
) -> None:
    queue, lost = Items(10), []
    for number, (sender, size) in enumerate(offered):
        lost += queue.offer((sender, number, size))
        assert queue.qsize() <= 10
    kept = emptied(queue)
    assert sorted(kept + lost) == sorted(
        (sender, number, size) for number, (sender, size) in enumerate(offered)
    )
    for sender in "abcde":
        numbers = [number for name, number, _ in kept if name == sender]
        assert numbers == sorted(numbers)
        assert len(numbers) <= 4
        assert len(numbers) < 2 or sum(size for name, _, size in kept if name == sender) <= 100


@given(st.integers(1, 40), st.integers(1, 2))
def test_who_floods_takes_no_place_of_another_and_no_turn(flood: int, few: int) -> None:
    queue = Items(10)
    for number in range(flood):
        assert all(item[0] == "flood" for item in queue.offer(("flood", number, 10)))
    for number in range(few):
        for sender in "abc":
            assert all(item[0] == "flood" for item in queue.offer((sender, number, 10)))
    kept = emptied(queue)
    assert Counter(sender for sender, _, _ in kept if sender != "flood") == dict.fromkeys("abc", few)
    assert {sender for sender, _, _ in kept[:4]} == {"flood", *"abc"}


def test_when_all_places_are_taken_whoever_has_most_waiting_gives_way() -> None:
    queue = Items(10)
    for number, sender in enumerate(["a", "a", "a", "a", "b", "b", "b", "c", "c", "d"]):
        assert queue.offer((sender, number, 1)) == []
    assert queue.offer(("e", 10, 1)) == [("a", 0, 1)]


def test_who_waits_for_an_item_is_woken_by_an_offer() -> None:
    async def scenario() -> None:
        queue = Items(2)
        waiting = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        queue.offer(("a", 1, 1))
        assert await waiting == ("a", 1, 1)

    asyncio.run(scenario())
