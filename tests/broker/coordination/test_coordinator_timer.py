"""One timer for all keys of a shard: which is due, and what a bug in one step does to the others."""

from __future__ import annotations

import pytest
from kit.clock import ManualClock

from ottla.broker.coordination.timer import CoordinatorTimer
from ottla.broker.runtime.listening_time import MOST_MS, ListeningTime
from ottla.broker.runtime.timers import Timers


class Table:
    """Keys that are due once; `buggy` raises then."""

    def __init__(self) -> None:
        self.clock, self.timers = ManualClock(monotonic_ms=0), Timers()
        self.shortages: list[str] = []
        self.time = ListeningTime(self.clock.monotonic_ms)
        self.timer = CoordinatorTimer(self.timers, self.time, self._on_due, lambda: self.shortages.append("no memory"))
        self.ran: list[str] = []

    def run(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timers.run_due(self.clock.monotonic_ms())

    def _on_due(self, key: str) -> None:
        self.ran.append(key)
        if key == "buggy":
            raise ZeroDivisionError
        if key == "large":
            raise MemoryError
        self.timer.plan(key, None)


def test_keys_are_due_in_the_order_of_their_deadlines_and_by_one_timer() -> None:
    table = Table()
    for key, deadline_ms in (("late", 30), ("early", 10), ("later", 50)):
        table.timer.plan(key, deadline_ms)
    assert len(table.timers) == 1
    table.run(40)
    assert table.ran == ["early", "late"]
    table.run(40)
    assert table.ran == ["early", "late", "later"]
    assert len(table.timers) == 0


def test_a_bug_in_one_key_does_not_end_the_time_of_the_others() -> None:
    table = Table()
    for key, deadline_ms in (("buggy", 10), ("due too", 10), ("later", 50)):
        table.timer.plan(key, deadline_ms)
    with pytest.raises(ZeroDivisionError):
        table.run(20)
    table.run(0)
    assert table.ran == ["buggy", "due too"]
    table.run(40)
    assert table.ran == ["buggy", "due too", "later"]


def test_nothing_is_due_after_the_end() -> None:
    table = Table()
    table.timer.plan("g", 10)
    table.timer.close()
    table.run(20)
    assert table.ran == []


def test_a_key_is_due_once_the_broker_has_listened_for_so_long() -> None:
    table = Table()
    table.time.listen()
    table.timer.plan("g", 2 * MOST_MS)
    table.run(60_000)
    table.run(int(MOST_MS) - 1)
    assert table.ran == []
    table.run(1)
    assert table.ran == ["g"]


def test_while_no_client_is_heard_nothing_is_due_and_no_timer_runs_again_and_again() -> None:
    table = Table()
    table.time.hold()
    table.timer.plan("g", 10)
    table.run(60_000)
    assert table.timers.next_deadline_ms() == table.clock.monotonic_ms() + 10
    table.time.listen()
    table.run(10)
    assert table.ran == ["g"]


def test_an_earlier_deadline_comes_first_after_time_that_did_not_count() -> None:
    table = Table()
    table.time.hold()
    table.run(60_000)
    table.time.listen()
    table.timer.plan("late", 500)
    table.timer.plan("early", 100)
    table.run(100)
    assert table.ran == ["early"]


def test_a_shortage_of_memory_is_reported_since_keys_may_be_lost() -> None:
    table = Table()
    table.timer.plan("large", 10)
    table.run(20)
    assert (table.ran, len(table.shortages)) == (["large"], 1)
