"""The time of a shard's groups: each tells when it is due next, and one timer of the node stands for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.groups.deadlines import Deadlines

if TYPE_CHECKING:
    from ottla.broker.groups.group import Group
    from ottla.broker.runtime.timers import Timer, Timers
    from ottla.storage.files.clock import Clock


class GroupTimer:
    """`due(group_id)` is called when a group is due; it plans the group anew.

    What it raises is a bug, and goes on to the loop. The other groups that are due have their turn after that.
    """

    def __init__(self, timers: Timers, clock: Clock, due: Callable[[str], None]) -> None:
        self._timers = timers
        self._clock = clock
        self._due = due
        self._deadlines: Deadlines[str] = Deadlines()
        self._timer: Timer | None = None
        self._is_closed = False

    def plan(self, group: Group) -> None:
        """After a step: the group's deadline is what it says now."""
        deadline_ms = group.next_deadline_ms
        if deadline_ms is None:
            self._deadlines.cancel(group.group_id)
        else:
            self._deadlines.set(group.group_id, deadline_ms)
            if self._timer is None or deadline_ms < self._timer.deadline_ms:
                self._start()

    def forget(self, group_id: str) -> None:
        """The group is gone."""
        self._deadlines.cancel(group_id)

    def close(self) -> None:
        """Nothing is due any more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        rest = iter(self._deadlines.take_due(now_ms))
        try:
            for group_id in rest:
                self._due(group_id)
        finally:
            for group_id in rest:
                self._deadlines.bring_forward(group_id, now_ms)
            self._start()

    def _start(self) -> None:
        next_ms = self._deadlines.next_ms
        if self._timer is not None:
            if next_ms is not None and self._timer.deadline_ms <= next_ms:
                return
            self._timer.cancel()
            self._timer = None
        if next_ms is not None and not self._is_closed:
            self._timer = self._timers.at(next_ms, self._run)
