"""What is known of the members of streams groups by the answers that they got, and what therefore must hold.

A member owns an active task from the answer that gives it until it sends that it has it no more, leaves, or gets the
answer that it is fenced; or until it has been silent for its session, or slow for its rebalance timeout. While it owns
a task no answer may give that to another member, and no commit of a member that is out may be accepted.

A member is *certain* while the broker has to know it as its last answer says. Then it is not fenced at its epoch, and
is fenced at any older one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kit.simulator.model import Model, Violation
from kit.simulator.streams_requests import JOINS, SESSION_MS, Application, Task

if TYPE_CHECKING:
    from kit.clock import ManualClock

    from ottla.protocol.api.streams_group_describe import StreamsGroupDescribeResponse


@dataclass(eq=False)
class Membership:
    """A program that is, or was, a member: from the request with which it joins until it is fenced or leaves."""

    member_id: str
    process_id: str
    instance_id: str | None
    rebalance_ms: int
    epoch: int = JOINS
    """As its last answer says; it has not joined as long as it is 0."""
    has: set[Task] = field(default_factory=set)
    """Active tasks, also those that it has to give up, until it does."""
    assigned: set[Task] = field(default_factory=set)
    """The active tasks in its last answer that had any."""
    replicas: set[Task] = field(default_factory=set)
    """Its standby tasks."""
    assigned_replicas: set[Task] = field(default_factory=set)
    alive_ms: float = 0
    """When it sent the last heartbeat that was accepted: its session does not end before it has passed from then on."""
    unsettled_ms: float | None = None
    """Since when it may have tasks to give up."""
    is_sure: bool = False
    """Whether the last answer says what it is to the broker: none was lost, or was an error."""
    is_over: bool = False
    """Whether it has left, or knows that it is fenced."""
    may_be_gone: bool = False
    """Whether a power cut may have taken it from the group, or its time was over at a restart."""
    is_found: bool = False
    """Whether it was there at the last restart."""

    def may_have_ended(self, now_ms: float) -> bool:
        """Whether the broker may have removed it."""
        is_slow = self.unsettled_ms is not None and now_ms >= self.unsettled_ms + self.rebalance_ms
        return self.is_over or self.may_be_gone or is_slow or now_ms >= self.alive_ms + SESSION_MS

    def is_certain(self, now_ms: float) -> bool:
        """See the module."""
        return self.is_sure and self.epoch != JOINS and not self.may_have_ended(now_ms)

    def leave(self) -> None:
        """It has nothing any more."""
        self.is_over = True
        self.is_sure = False


class StreamsGroupModel:
    """One group."""

    def __init__(self, application: Application, model: Model, clock: ManualClock) -> None:
        self.application = application
        self.model = model
        self._clock = clock
        self.owners: dict[Task, Membership] = {}
        self.asleep: list[Membership] = []
        """Programs that are silent, and may wake up."""
        self.former: list[Membership] = []
        """Members that have left, as the broker has confirmed; their ids are used no more."""
        self._found_epoch = 0
        """That of the group, as the last restart has found it."""
        self.members: list[Membership] = []
        """All that are not over."""

    def __str__(self) -> str:
        return f"streams group {self.application.group}"

    @property
    def now_ms(self) -> float:
        """The time of the broker's clock."""
        return self._clock.monotonic_ms()

    # -- tasks --------------------------------------------------------------------------------------------------------

    def owner(self, task: Task) -> Membership | None:
        """Who owns an active task for certain."""
        owner = self.owners.get(task)
        return None if owner is None or owner.may_have_ended(self.now_ms) else owner

    def give(self, member: Membership, tasks: set[Task]) -> None:
        """An answer has these active tasks for a member."""
        for task in sorted(tasks - member.has):
            owner = self.owner(task)
            if owner is not None and owner is not member and not member.may_have_ended(self.now_ms):
                raise Violation(
                    f"{self}: task {task[0]}_{task[1]} is given to {member.member_id}, and {owner.member_id} has it"
                )
            if owner is None:
                self.owners[task] = member
            member.has.add(task)

    def give_up(self, member: Membership, tasks: set[Task]) -> None:
        """A member sends that it has these no more."""
        member.has -= tasks
        for task in tasks:
            if self.owners.get(task) is member:
                del self.owners[task]

    def end(self, member: Membership) -> None:
        """A member is out."""
        self.give_up(member, set(member.has))
        member.leave()
        self.members = [one for one in self.members if one is not member]
        self.asleep = [one for one in self.asleep if one is not member]

    # -- epochs -------------------------------------------------------------------------------------------------------

    def newest_epoch(self) -> int:
        """The newest one that a member has for certain."""
        return max((one.epoch for one in self.members if one.is_certain(self.now_ms)), default=0)

    def epoch_answered(self, member: Membership, epoch: int, newest: int) -> None:
        """An accepted heartbeat of a member has this epoch; `newest` was the newest one when it was sent. The group may
        be another one if all sessions may have ended since. To be called before `member.epoch` is changed.
        """
        if epoch < member.epoch:
            raise Violation(f"{self}: the epoch of {member.member_id} goes back from {member.epoch} to {epoch}")
        if member.epoch == JOINS and epoch < min(newest, self.newest_epoch()):
            raise Violation(f"{self}: {member.member_id} joins at epoch {epoch}, another member has {newest}")

    # -- restarts -----------------------------------------------------------------------------------------------------

    def note_restart(self, started_ms: float) -> None:
        """A broker has started: all sessions have begun again then, for members that were there."""
        if not any(one.is_found and not one.may_have_ended(self.now_ms) for one in self.members):
            self._found_epoch = 0  # the group may be another one: it may have been empty, and deleted
        for one in self.members:
            one.may_be_gone = one.may_have_ended(self.now_ms)
            one.alive_ms = started_ms
            one.unsettled_ms = None if one.unsettled_ms is None else started_ms

    def note_power_cut(self) -> None:
        """What was answered since the last restart may not be so any more: nothing was synced."""
        self.former.clear()
        for one in list(self.members):
            self.end(one)

    def audit(self, found: StreamsGroupDescribeResponse.DescribedGroup | None) -> None:
        """What the group is after a restart; None if it is not there."""
        certain = [one for one in self.members if one.is_certain(self.now_ms)]
        if found is None:
            if certain or self._found_epoch:
                raise Violation(f"{self} is not there after a start")
            self._found_epoch = 0
            return
        by_id = {one.member_id: one for one in found.members}
        for one in certain:
            there = by_id.get(one.member_id)
            if there is None:
                raise Violation(f"{self} has forgotten {one.member_id}, which was at epoch {one.epoch}")
            if there.member_epoch != one.epoch:
                raise Violation(f"{self}: {one.member_id} was at epoch {one.epoch}, now at {there.member_epoch}")
            tasks = tasks_described(there.assignment.active_tasks)
            if tasks != one.assigned:
                raise Violation(
                    f"{self}: {one.member_id} was given {sorted(one.assigned)}, and now has {sorted(tasks)}"
                )
        least = max([self._found_epoch, *(one.epoch for one in certain)])
        if found.group_epoch < least:
            raise Violation(f"{self}: the epoch {found.group_epoch} is before {least}")
        self.check_disjoint(found)
        self._found_epoch = found.group_epoch
        for one in self.members:
            one.is_found = one.member_id in by_id

    def check_disjoint(self, found: StreamsGroupDescribeResponse.DescribedGroup) -> set[Task]:
        """All active tasks of a description. Raises Violation for one that two members have."""
        seen: set[Task] = set()
        for one in found.members:
            tasks = tasks_described(one.assignment.active_tasks)
            if seen & tasks:
                raise Violation(f"{self}: {sorted(seen & tasks)} are assigned twice")
            seen |= tasks
        return seen


def tasks_described(listed: Sequence[StreamsGroupDescribeResponse.TaskIds]) -> set[Task]:
    """The tasks of a description."""
    return {(one.subtopology_id, partition) for one in listed for partition in one.partitions}
