"""The `sticky` task assignor: even by process, with as few moves as that allows. Kafka has no other for streams groups.

A process is an instance of the application; each of its members is a thread. Active tasks stay with the member that has
them while it has less than its share. Then a member with a standby task, or with state on its disk, takes the active
one. What is left goes to the process with the least load, which is the number of its tasks for each of its members.
Standby tasks follow in the same manner, only for subtopologies with state, and never to a process that has the task
already. If there are fewer processes than copies, some copies are not assigned.

    members a, b of process p, c of process q; tasks 0 to 5: a and b get 4 tasks together, c gets 2

Pure. The same input gives the same output, which is Kafka's: members and processes are taken in the order of Java's
hash maps (`hash_order`). Client tags and racks are not used, as in Kafka. A member is described by the tasks that it
has at present, not by its target.

Source: Kafka 4.4's `StickyTaskAssignor`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.broker.groups.streams.configured_topology import ConfiguredSubtopology
from ottla.broker.groups.streams.hash_order import in_computed_order, in_hash_order
from ottla.broker.groups.streams.least_first import LeastFirst
from ottla.broker.groups.streams.process_load import ProcessLoad, TaskId
from ottla.broker.groups.streams.tasks import NO_TASKS, Tasks, TaskSets

STICKY = "sticky"
"""The name of the assignor in `group.streams.assignors` and `streams.assignor.name`."""


class AssignorMember(NamedTuple):
    """A member as the assignor sees it.

    `active` and `standby` are the tasks that it has, without those that it must give up. `task_offsets` are the sums of
    the offsets of the state on its disk, as it reported them last, by partition and subtopology.
    """

    process_id: str
    active: Tasks = NO_TASKS
    standby: Tasks = NO_TASKS
    task_offsets: Mapping[str, Mapping[int, int]] = {}


def assign_sticky(
    members: Mapping[str, AssignorMember], subtopologies: Mapping[str, ConfiguredSubtopology], standby_replicas: int
) -> dict[str, TaskSets]:
    """The target of each member. Without members nothing is assigned."""
    if not members:
        return {}
    assignment = _Assignment(members, subtopologies, standby_replicas)
    assignment.assign_active()
    if standby_replicas > 0:
        assignment.assign_standby()
    return assignment.result()


class _Share:
    """How many tasks a member may get: the tasks that are left, divided by the members without a full share."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.tasks_per_member = -(-tasks // members)

    def count(self, tasks_of_member: int) -> None:
        """A member has so many tasks now. Once that is a share, the others' share is computed again."""
        if tasks_of_member == self.tasks_per_member:
            self._members -= 1
            self._tasks -= tasks_of_member
            self.tasks_per_member = -(-self._tasks // self._members) if self._members else 0


class _Holder(NamedTuple):
    """A member that has something of a task. The order: standby tasks before mere state, then the larger offset."""

    rank: tuple[int, int]
    member_id: str


class _Assignment:
    """The work on one assignment."""

    def __init__(
        self,
        members: Mapping[str, AssignorMember],
        subtopologies: Mapping[str, ConfiguredSubtopology],
        standby_replicas: int,
    ) -> None:
        self._members = members
        self._standby_replicas = standby_replicas
        self._tasks = _tasks_of(subtopologies)
        self._stateful = _tasks_of({key: one for key, one in subtopologies.items() if one.is_stateful})
        self._active_share = _Share(len(self._tasks), len(members))
        self._share = _Share(len(self._tasks) + len(self._stateful) * standby_replicas, len(members))
        self._process_of: dict[str, ProcessLoad] = {}
        self._processes: list[ProcessLoad] = []
        self._active_before: dict[TaskId, str] = {}
        self._holders: dict[TaskId, list[str]] = {}
        self._begin()

    def _begin(self) -> None:
        in_order = in_hash_order(self._members)
        process_ids = [self._members[member_id].process_id for member_id in in_order]
        processes = {process_id: ProcessLoad() for process_id in process_ids}
        holders: dict[TaskId, list[_Holder]] = {}
        for member_id in in_order:
            member = self._members[member_id]
            self._process_of[member_id] = processes[member.process_id]
            processes[member.process_id].add_member(member_id)
            self._active_before.update((task, member_id) for task in _each(member.active))
            for task in _each(member.standby):
                offset = member.task_offsets.get(task.subtopology_id, {}).get(task.partition, 0)
                holders.setdefault(task, []).append(_Holder((0, -offset), member_id))
            for subtopology_id, offsets in member.task_offsets.items():
                standby = member.standby.get(subtopology_id, ())
                for partition, offset in offsets.items():
                    if partition not in standby:
                        task = TaskId(subtopology_id, partition)
                        holders.setdefault(task, []).append(_Holder((1, -offset), member_id))
        self._processes = [processes[one] for one in in_computed_order(process_ids, size=len(in_order))]
        for process in self._processes:
            process.order_members(in_hash_order(process.task_counts))
        self._holders = {
            task: [holder.member_id for holder in sorted(found, key=lambda holder: holder.rank)]
            for task, found in holders.items()
        }

    def assign_active(self) -> None:
        """Assign each task once."""
        left = self._keep_active(sorted(self._tasks, key=_by_partition))
        left = self._wake_standby(left)
        by_load = LeastFirst((process.load, process) for process in self._processes)
        for task in sorted(left):
            process = by_load.pop()
            self._count_active(process.add_to_least_loaded(task, is_active=True))
            by_load.push(process.load, process)

    def _keep_active(self, tasks: Iterable[TaskId]) -> list[TaskId]:
        left = []
        for task in tasks:
            member_id = self._active_before.get(task)
            if member_id is None or not self._activate(member_id, task):
                left.append(task)
        return left

    def _wake_standby(self, tasks: Iterable[TaskId]) -> list[TaskId]:
        left = []
        for task in tasks:
            member_id = self._least_loaded(self._holders.get(task, ()))
            if member_id is None or not self._activate(member_id, task):
                left.append(task)
        return left

    def _activate(self, member_id: str, task: TaskId) -> bool:
        """Give the task to the member, unless it has its share."""
        process = self._process_of[member_id]
        if process.task_counts[member_id] >= self._active_share.tasks_per_member:
            return False
        self._count_active(process.add(member_id, task, is_active=True))
        return True

    def _count_active(self, tasks_of_member: int) -> None:
        self._active_share.count(tasks_of_member)
        self._share.count(tasks_of_member)

    def assign_standby(self) -> None:
        """Assign the copies of each task with state."""
        left: list[tuple[TaskId, int]] = []
        for task in sorted(self._stateful, key=_by_partition, reverse=True):
            copies = self._standby_replicas
            while copies and self._keep_standby(task):
                copies -= 1
            if copies:
                left.append((task, copies))
        by_load = LeastFirst((process.load, process) for process in self._processes)
        for task, copies in sorted(left, reverse=True):
            for _ in range(copies):
                if not self._add_standby(task, by_load):
                    break  # every process has the task

    def _keep_standby(self, task: TaskId) -> bool:
        """Give a copy to the member that had the task as active, or else to one that has something of it."""
        before = self._active_before.get(task)
        return self._make_standby(before, task) or self._make_standby(
            self._least_loaded(self._holders.get(task, ()), without=task), task
        )

    def _make_standby(self, member_id: str | None, task: TaskId) -> bool:
        if member_id is None:
            return False
        process = self._process_of[member_id]
        if task in process.tasks or process.task_counts[member_id] >= self._share.tasks_per_member:
            return False
        self._share.count(process.add(member_id, task, is_active=False))
        return True

    def _add_standby(self, task: TaskId, by_load: LeastFirst[ProcessLoad]) -> bool:
        """Give a copy to the process with the least load that has none."""
        having = []
        found = None
        while by_load and found is None:
            process = by_load.pop()
            if task in process.tasks:
                having.append(process)
            else:
                found = process
        if found is not None:
            self._share.count(found.add_to_least_loaded(task, is_active=False))
            by_load.push(found.load, found)
        for process in reversed(having):
            by_load.push(process.load, process)
        return found is not None

    def _least_loaded(self, member_ids: Iterable[str], without: TaskId | None = None) -> str | None:
        """The first of the members, or a later one whose process and that itself has less.

        `without`: only members of processes that do not have this task.
        """
        chosen = None
        least = (0.0, 0)
        for member_id in member_ids:
            process = self._process_of[member_id]
            if without is not None and without in process.tasks:
                continue
            load = (process.load, process.task_counts[member_id])
            if chosen is None or (load[0] < least[0] and load[1] < least[1]):
                chosen, least = member_id, load
        return chosen

    def result(self) -> dict[str, TaskSets]:
        """The tasks of each member."""
        return {
            member_id: TaskSets(
                _together(self._process_of[member_id].active.get(member_id, ())),
                _together(self._process_of[member_id].standby.get(member_id, ())),
            )
            for member_id in self._members
        }


def _tasks_of(subtopologies: Mapping[str, ConfiguredSubtopology]) -> list[TaskId]:
    return [
        TaskId(subtopology_id, partition)
        for subtopology_id, subtopology in subtopologies.items()
        for partition in range(subtopology.task_count)
    ]


def _each(tasks: Tasks) -> Iterable[TaskId]:
    return (
        TaskId(subtopology_id, partition) for subtopology_id, partitions in tasks.items() for partition in partitions
    )


def _together(tasks: Iterable[TaskId]) -> Tasks:
    partitions: dict[str, list[int]] = {}
    for task in sorted(tasks):
        partitions.setdefault(task.subtopology_id, []).append(task.partition)
    return {subtopology_id: frozenset(some) for subtopology_id, some in partitions.items()}


def _by_partition(task: TaskId) -> tuple[int, str]:
    return task.partition, task.subtopology_id
