"""One timer for all keys of a shard: which is due, and what a bug in one step does to the others."""

from __future__ import annotations

import pytest
from kit.clock import ManualClock

from ottla.broker.coordination.timer import CoordinatorTimer
from ottla.broker.runtime.timers import Timers


class Table:
    """Keys that are due once; `buggy` raises then."""

    def __init__(self) -> None:
        self.clock, self.timers = ManualClock(monotonic_ms=0), Timers()
        self.timer = CoordinatorTimer(self.timers, self.clock, self._on_due)
        self.ran: list[str] = []

    def run(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timers.run_due(self.clock.monotonic_ms())

    def _on_due(self, key: str) -> None:
        self.ran.append(key)
        if key == "buggy":
            raise ZeroDivisionError
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
