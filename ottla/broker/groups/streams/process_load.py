"""The tasks that one process gets during an assignment, and its load: its tasks for each of its members.

Source: Kafka 4.4's `ProcessState`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.broker.groups.streams.least_first import LeastFirst


class TaskId(NamedTuple):
    """A task. Tasks are ordered by subtopology, then by partition."""

    subtopology_id: str
    partition: int


class ProcessLoad:
    """A process: its members with their numbers of tasks, and the tasks that they got."""

    def __init__(self) -> None:
        self.task_counts: dict[str, int] = {}
        """The number of tasks of each member."""
        self.tasks: set[TaskId] = set()
        """All its tasks. A process has a task only once, as active or as standby."""
        self.active: dict[str, list[TaskId]] = {}
        self.standby: dict[str, list[TaskId]] = {}
        self.load = 0.0
        """Its tasks, divided by its members."""
        self._by_count: LeastFirst[str] | None = None

    def add_member(self, member_id: str) -> None:
        """Add a member, before any task."""
        self.task_counts[member_id] = 0

    def order_members(self, member_ids: Iterable[str]) -> None:
        """Choose among members with equal numbers of tasks in this order."""
        self.task_counts = {member_id: self.task_counts[member_id] for member_id in member_ids}

    def add(self, member_id: str, task: TaskId, *, is_active: bool) -> int:
        """Give the member a task. Return the number of its tasks."""
        self._by_count = None
        return self._add(member_id, task, is_active)

    def add_to_least_loaded(self, task: TaskId, *, is_active: bool) -> int:
        """Give a task to the member with the fewest. Return the number of its tasks."""
        if self._by_count is None:
            self._by_count = LeastFirst((count, member_id) for member_id, count in self.task_counts.items())
        member_id = self._by_count.pop()
        count = self._add(member_id, task, is_active)
        self._by_count.push(count, member_id)
        return count

    def _add(self, member_id: str, task: TaskId, is_active: bool) -> int:
        self.tasks.add(task)
        (self.active if is_active else self.standby).setdefault(member_id, []).append(task)
        self.task_counts[member_id] += 1
        self.load = len(self.tasks) / len(self.task_counts)
        return self.task_counts[member_id]
