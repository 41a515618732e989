"""One timer for all groups of a shard: who is due, and what a bug in one group does to the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pytest
from kit.clock import ManualClock

from ottla.broker.groups.group_timer import GroupTimer
from ottla.broker.runtime.timers import Timers

if TYPE_CHECKING:
    from ottla.broker.groups.group import Group


@dataclass
class DueGroup:
    group_id: str
    next_deadline_ms: float | None


class Table:
    """Groups that are due once; `buggy` raises then."""

    def __init__(self) -> None:
        self.clock, self.timers = ManualClock(monotonic_ms=0), Timers()
        self.timer = GroupTimer(self.timers, self.clock, self._on_due)
        self.ran: list[str] = []

    def plan(self, group_id: str, deadline_ms: float | None) -> None:
        self.timer.plan(cast("Group", DueGroup(group_id, deadline_ms)))

    def run(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timers.run_due(self.clock.monotonic_ms())

    def _on_due(self, group_id: str) -> None:
        self.ran.append(group_id)
        if group_id == "buggy":
            raise ZeroDivisionError
        self.plan(group_id, None)


def test_groups_are_due_in_the_order_of_their_deadlines_and_by_one_timer() -> None:
    table = Table()
    for group_id, deadline_ms in (("late", 30), ("early", 10), ("later", 50)):
        table.plan(group_id, deadline_ms)
    assert len(table.timers) == 1
    table.run(40)
    assert table.ran == ["early", "late"]
    table.run(40)
    assert table.ran == ["early", "late", "later"]
    assert len(table.timers) == 0


def test_a_bug_in_one_group_does_not_end_the_time_of_the_others() -> None:
    table = Table()
    for group_id, deadline_ms in (("buggy", 10), ("due too", 10), ("later", 50)):
        table.plan(group_id, deadline_ms)
    with pytest.raises(ZeroDivisionError):
        table.run(20)
    table.run(0)
    assert table.ran == ["buggy", "due too"]
    table.run(40)
    assert table.ran == ["buggy", "due too", "later"]


def test_nothing_is_due_after_the_end() -> None:
    table = Table()
    table.plan("g", 10)
    table.timer.close()
    table.run(20)
    assert table.ran == []
