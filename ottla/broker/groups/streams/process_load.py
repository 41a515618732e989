"""The tasks that processes and their members get during an assignment, and their load.

The load of a process is the number of its tasks for each of its members. Tasks are numbers here (`TaskNumbers`).

Source: Kafka 4.4's `ProcessState`.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.broker.groups.streams.least_first import LeastFirst


class MemberLoad:
    """A member of a process, and the tasks that it got."""

    __slots__ = ("active", "count", "process", "standby")

    def __init__(self, process: ProcessLoad) -> None:
        self.process = process
        self.active: list[int] = []
        self.standby: list[int] = []
        self.count = 0
        """The number of its tasks."""


class ProcessLoad:
    """A process with its members, and the tasks that they got. It has a task only once, as active or as standby."""

    __slots__ = ("_by_count", "_member_count", "_members", "load", "tasks")

    def __init__(self) -> None:
        self.tasks: set[int] = set()
        self.load = 0.0
        self._members: list[MemberLoad] = []
        self._member_count = 0
        self._by_count: LeastFirst[MemberLoad] | None = None

    def begin(self, members: Iterable[MemberLoad]) -> None:
        """Name the members, before any task. Among members with equal numbers of tasks the choice is in this order."""
        self._members = list(members)
        self._member_count = len(self._members)

    def add(self, member: MemberLoad, task: int, *, is_active: bool) -> int:
        """Give a member a task. Return the number of its tasks."""
        self._by_count = None
        return self._add(member, task, is_active)

    def add_to_least_loaded(self, task: int, *, is_active: bool) -> int:
        """Give a task to the member with the fewest. Return the number of its tasks."""
        if self._member_count == 1:
            return self._add(self._members[0], task, is_active)
        if self._by_count is None:
            self._by_count = LeastFirst((member.count, member) for member in self._members)
        member = self._by_count.pop()
        count = self._add(member, task, is_active)
        self._by_count.push(count, member)
        return count

    def _add(self, member: MemberLoad, task: int, is_active: bool) -> int:
        tasks = self.tasks
        tasks.add(task)
        (member.active if is_active else member.standby).append(task)
        count = member.count = member.count + 1
        self.load = len(tasks) / self._member_count
        return count
