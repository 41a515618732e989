"""How late the loop comes, by a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.broker.runtime.loop_watch import INTERVAL_S, LoopWatch
from ottla.broker.runtime.metrics import Histogram


class Loop:
    """`call_later` of a loop whose time stands still."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.planned: list[tuple[float, Callable[[], None]]] = []
        self.cancelled = 0

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Loop:
        self.planned.append((self.now_s + delay_s, callback))
        return self

    def cancel(self) -> None:
        self.cancelled += 1

    def run_late(self, late_s: float) -> None:
        due_s, callback = self.planned.pop()
        self.now_s = due_s + late_s
        callback()


def test_each_look_is_a_sample_of_how_late_it_came_and_plans_the_next() -> None:
    loop, lag = Loop(), Histogram()
    LoopWatch(lag, lambda: None, loop.call_later, now_s=lambda: loop.now_s)
    for late_s in (0.0, 0.25, 0.001):
        loop.run_late(late_s)
    assert lag.count == 3
    assert 249_000 <= lag.max_us <= 251_000
    assert loop.planned[0][0] == loop.now_s + INTERVAL_S


def test_each_look_is_one_at_the_time_in_which_the_broker_listens() -> None:
    loop, looks = Loop(), []
    LoopWatch(Histogram(), lambda: looks.append(loop.now_s), loop.call_later, now_s=lambda: loop.now_s)
    for late_s in (0.0, 5.0):
        loop.run_late(late_s)
    assert looks == [pytest.approx(100.0 + INTERVAL_S), pytest.approx(105.0 + 2 * INTERVAL_S)]


def test_a_stopped_watch_asks_no_more() -> None:
    loop = Loop()
    LoopWatch(Histogram(), lambda: None, loop.call_later, now_s=lambda: loop.now_s).stop()
    assert loop.cancelled == 1


def test_an_error_of_a_look_does_not_end_the_watch() -> None:
    loop = Loop()

    def fail() -> None:
        raise MemoryError

    LoopWatch(Histogram(), fail, loop.call_later, now_s=lambda: loop.now_s)
    for _ in range(3):
        with pytest.raises(MemoryError):
            loop.run_late(0.0)
    assert len(loop.planned) == 1


def test_a_look_that_could_not_be_planned_is_planned_again_but_not_after_the_end() -> None:
    loop, lag, fails = Loop(), Histogram(), [False, True, False, False]

    def call_later(delay_s: float, callback: Callable[[], None]) -> Loop:
        if fails.pop(0):
            raise MemoryError
        return loop.call_later(delay_s, callback)

    watch = LoopWatch(lag, lambda: None, call_later, now_s=lambda: loop.now_s)
    with pytest.raises(MemoryError):
        loop.run_late(0.0)
    assert not loop.planned
    watch.plan_again()
    loop.run_late(0.0)
    assert lag.count == 1
    watch.stop()
    watch.plan_again()
    assert not fails
    assert len(loop.planned) == 1
