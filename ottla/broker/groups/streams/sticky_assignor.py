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

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from ottla.broker.groups.streams.configured_topology import ConfiguredSubtopology
from ottla.broker.groups.streams.hash_order import in_computed_order, in_hash_order
from ottla.broker.groups.streams.least_first import LeastFirst
from ottla.broker.groups.streams.process_load import MemberLoad, ProcessLoad
from ottla.broker.groups.streams.task_numbers import TaskNumbers
from ottla.broker.groups.streams.tasks import NO_PARTITIONS, NO_TASKS, Tasks, TaskSets

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


_Holder: TypeAlias = tuple[int, int, int]
"""A member that has a part of a task's state: 0 for a standby task and 1 for state on a disk, its negative offset, and
the position of the member. The smallest is preferred.
"""


class _Assignment:
    """The work on one assignment."""

    def __init__(
        self,
        members: Mapping[str, AssignorMember],
        subtopologies: Mapping[str, ConfiguredSubtopology],
        standby_replicas: int,
    ) -> None:
        self._numbers = TaskNumbers(subtopologies)
        self._standby_replicas = standby_replicas
        copies = self._numbers.stateful_count * standby_replicas
        self._active_share = _Share(self._numbers.count, len(members))
        self._share = _Share(self._numbers.count + copies, len(members))
        self._member_ids = in_hash_order(members)
        self._members: list[MemberLoad] = []
        self._processes: list[ProcessLoad] = []
        self._begin_processes([members[member_id].process_id for member_id in self._member_ids])
        self._active_before: dict[int, MemberLoad] = {}
        self._holders: dict[int, list[MemberLoad]] = {}
        self._begin_tasks([members[member_id] for member_id in self._member_ids])

    def _begin_processes(self, process_ids: list[str]) -> None:
        processes = {process_id: ProcessLoad() for process_id in process_ids}
        self._members = [MemberLoad(processes[process_id]) for process_id in process_ids]
        members_of: dict[str, dict[str, MemberLoad]] = {process_id: {} for process_id in process_ids}
        for member_id, process_id, member in zip(self._member_ids, process_ids, self._members, strict=True):
            members_of[process_id][member_id] = member
        for process_id, process in processes.items():
            members = members_of[process_id]
            process.begin(members[member_id] for member_id in in_hash_order(members))
        self._processes = [processes[one] for one in in_computed_order(process_ids, size=len(process_ids))]

    def _begin_tasks(self, members: list[AssignorMember]) -> None:
        holders: dict[int, list[_Holder]] = {}
        for place, member in enumerate(members):
            self._active_before.update(dict.fromkeys(self._numbers.of(member.active), self._members[place]))
            for task, holder in self._held(member, place):
                if task in holders:
                    holders[task].append(holder)
                else:
                    holders[task] = [holder]
        loads = self._members
        for task, found in holders.items():
            if len(found) > 1:
                found.sort()
            self._holders[task] = [loads[place] for _, _, place in found]

    def _held(self, member: AssignorMember, place: int) -> Iterator[tuple[int, _Holder]]:
        for subtopology_id in {**member.standby, **member.task_offsets}:
            numbers = self._numbers.range_of(subtopology_id)
            size = len(numbers)
            standby = member.standby.get(subtopology_id, NO_PARTITIONS)
            offsets = member.task_offsets.get(subtopology_id)
            if not offsets:
                holder = (0, 0, place)
                for partition in standby:
                    if 0 <= partition < size:
                        yield numbers[partition], holder
                continue
            for partition in standby:
                if 0 <= partition < size:
                    yield numbers[partition], (0, -offsets.get(partition, 0), place)
            for partition, offset in offsets.items():
                if 0 <= partition < size and partition not in standby:
                    yield numbers[partition], (1, -offset, place)

    def assign_active(self) -> None:
        """Assign each task once."""
        before, holders = self._active_before, self._holders
        left = [task for task in self._numbers.by_partition() if not self._activate(before.get(task), task)]
        left = [task for task in left if not self._activate(_least_loaded(holders.get(task)), task)]
        left.sort()
        by_load = LeastFirst((process.load, process) for process in self._processes)
        for task in left:
            process = by_load.pop()
            self._count_active(process.add_to_least_loaded(task, is_active=True))
            by_load.push(process.load, process)

    def _activate(self, member: MemberLoad | None, task: int) -> bool:
        """Give the task to the member, unless it has its share."""
        if member is None or member.count >= self._active_share.tasks_per_member:
            return False
        self._count_active(member.process.add(member, task, is_active=True))
        return True

    def _count_active(self, tasks_of_member: int) -> None:
        if tasks_of_member == self._active_share.tasks_per_member:
            self._active_share.count(tasks_of_member)
        if tasks_of_member == self._share.tasks_per_member:
            self._share.count(tasks_of_member)

    def assign_standby(self) -> None:
        """Assign the copies of each task with state."""
        left: list[tuple[int, int]] = []
        for task in reversed(self._numbers.by_partition(with_state=True)):
            copies = self._standby_replicas
            while copies and self._keep_standby(task):
                copies -= 1
            if copies:
                left.append((task, copies))
        left.sort(reverse=True)
        by_load = LeastFirst((process.load, process) for process in self._processes)
        for task, copies in left:
            for _ in range(copies):
                if not self._add_standby(task, by_load):
                    break  # every process has the task

    def _keep_standby(self, task: int) -> bool:
        """Give a copy to the member that had the task as active, or else to one that has a part of its state."""
        if self._make_standby(self._active_before.get(task), task):
            return True
        return self._make_standby(_least_loaded(self._holders.get(task), without=task), task)

    def _make_standby(self, member: MemberLoad | None, task: int) -> bool:
        if member is None or task in member.process.tasks or member.count >= self._share.tasks_per_member:
            return False
        self._share.count(member.process.add(member, task, is_active=False))
        return True

    def _add_standby(self, task: int, by_load: LeastFirst[ProcessLoad]) -> bool:
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
        if having:
            for process in reversed(having):
                by_load.push(process.load, process)
        return found is not None

    def result(self) -> dict[str, TaskSets]:
        """The tasks of each member."""
        return {
            member_id: TaskSets(self._numbers.tasks(member.active), self._numbers.tasks(member.standby))
            for member_id, member in zip(self._member_ids, self._members, strict=True)
        }


def _least_loaded(members: Sequence[MemberLoad] | None, without: int | None = None) -> MemberLoad | None:
    """The first of the members, or a later one whose process and that itself has less.

    `without`: only members of processes that do not have this task.
    """
    if not members:
        return None
    chosen = None
    process_load, count = 0.0, 0
    for member in members:
        if without is not None and without in member.process.tasks:
            continue
        if chosen is None or (member.process.load < process_load and member.count < count):
            chosen = member
            process_load, count = member.process.load, member.count
    return chosen
