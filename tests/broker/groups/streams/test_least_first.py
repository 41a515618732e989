"""The queue of the assignor: the least first, and among equals the choice of Java's queue."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.groups.streams.least_first import LeastFirst


@given(st.lists(st.integers(0, 5)))
def test_items_come_back_in_order(numbers: list[int]) -> None:
    queue = LeastFirst((number, number) for number in numbers)
    assert [queue.pop() for _ in range(len(queue))] == sorted(numbers)


@given(st.lists(st.one_of(st.none(), st.integers(0, 5))))
def test_an_item_comes_back_whenever_it_is_asked_for(steps: list[int | None]) -> None:
    queue: LeastFirst[int] = LeastFirst()
    kept: list[int] = []
    for number in steps:
        if number is not None:
            queue.push(number, number)
            kept.append(number)
        elif kept:
            kept.remove(least := min(kept))
            assert queue.pop() == least
    assert len(queue) == len(kept)


def test_among_equals_the_last_takes_the_place_of_the_first() -> None:
    """What java.util.PriorityQueue gives back for four equal items that were added as a, b, c, d."""
    queue = LeastFirst((0, name) for name in "abcd")
    assert [queue.pop() for _ in range(4)] == ["a", "d", "c", "b"]


def test_an_empty_queue_has_nothing_to_give() -> None:
    queue: LeastFirst[str] = LeastFirst()
    assert not queue
    with pytest.raises(IndexError):
        queue.pop()
