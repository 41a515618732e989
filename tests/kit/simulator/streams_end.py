"""The end of a world with streams groups: all troubles are over, and what a group reads is there. Then it becomes
Stable, each task is assigned to one member, which knows it, and no member waits for an answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kit.nodes import pass_time
from kit.simulator.clients import settle
from kit.simulator.model import Violation
from kit.simulator.streams_administrator import ill_fitting, wanted_counts
from kit.simulator.streams_model import tasks_described

from ottla.broker.runtime.queued_syncer import QueuedSyncer

if TYPE_CHECKING:
    from kit.clock import ManualClock
    from kit.simulator.machine import Machine
    from kit.simulator.model import Model
    from kit.simulator.streams_administrator import StreamsAdministrator
    from kit.simulator.streams_members import StreamsMember
    from kit.simulator.streams_model import StreamsGroupModel

    from ottla.protocol.api.streams_group_describe import StreamsGroupDescribeResponse

STEP_MS: Final = 10_000
ROUNDS: Final = 40
"""Longer than the session of a program that is silent, and then time to reconcile."""


class StreamsEnd:
    """See the module."""

    def __init__(
        self,
        model: Model,
        machine: Machine,
        clock: ManualClock,
        members: Sequence[StreamsMember],
        administrator: StreamsAdministrator,
    ) -> None:
        self._model = model
        self._machine = machine
        self._clock = clock
        self._members = members
        self._administrator = administrator
        self._counts: Mapping[str, int] = {}

    def run(self, group: StreamsGroupModel) -> None:
        """Let a group become Stable; not where the disk is in trouble."""
        machine = self._machine
        if machine.has_bad_disk or not machine.troubles.is_over:
            return
        syncer = machine.node.services.syncer
        assert isinstance(syncer, QueuedSyncer)
        syncer.has_threads = True
        machine.files.has_descriptor = lambda: True
        machine.files.crash_when = None
        self._settle()
        pass_time(machine.node, self._clock, STEP_MS)
        members = [member for member in self._members if member.group is group]
        if self._model.deleting or self._model.creating:
            return
        self._administrator.create_sources(group)
        self._settle()
        why = "nobody has asked"
        for number in range(ROUNDS):
            self._look_at_topics(group)
            for member in members:
                member.heartbeat()
                self._settle()
                if member.is_waiting:
                    raise Violation(f"{group}: a heartbeat of {member.member.member_id} is not answered")
            pass_time(machine.node, self._clock, STEP_MS)
            if number % 4 == 3 and (why := self._what_is_missing(group, members)) == "":
                return
        raise Violation(f"{group} does not come to rest: {why}")

    def _settle(self) -> None:
        for line in (*(member.line for member in self._members), self._administrator.line):
            settle(self._machine.node, line)

    def _look_at_topics(self, group: StreamsGroupModel) -> None:
        """Internal topics that do not fit are deleted: the group makes them again."""
        self._administrator.partition_counts(self._note_counts)
        self._settle()
        wrong = ill_fitting(group, self._counts)
        if wrong:
            self._administrator.delete_topics(wrong)
            self._settle()

    def _note_counts(self, counts: Mapping[str, int]) -> None:
        self._counts = counts

    def _what_is_missing(self, group: StreamsGroupModel, members: Sequence[StreamsMember]) -> str:
        """Why the group is not at rest; empty if it is."""
        described: list[StreamsGroupDescribeResponse.DescribedGroup | None] = []
        self._administrator.describe(group, described.append)
        self._settle()
        if not described or (found := described[0]) is None:
            return "it cannot be described"
        if found.group_state != "Stable":
            return f"it is {found.group_state} at {found.group_epoch}, with {self._counts}"
        counts = wanted_counts(group, self._counts)
        wanted = {(one, partition) for one, count in counts.items() for partition in range(count)}
        assigned = group.check_disjoint(found)
        if assigned != wanted:
            return f"{sorted(wanted ^ assigned)} are assigned, or should be"
        ids = {one.member_id for one in found.members}
        mine = {member.member.member_id for member in members if member.member.is_sure}
        if ids != mine:
            return f"{sorted(ids ^ mine)} are members, or should be"
        known = {task for member in members for task in member.member.has}
        if known != wanted:
            return f"no member knows that it has {sorted(wanted ^ known)}"
        self._check_replicas(group, found)
        return ""

    @staticmethod
    def _check_replicas(group: StreamsGroupModel, found: StreamsGroupDescribeResponse.DescribedGroup) -> None:
        """No process has a task twice: both would open one directory."""
        seen: set[tuple[str, str, int]] = set()
        for one in found.members:
            has = one.assignment
            for listed in (has.active_tasks, has.standby_tasks):
                places = {(one.process_id, *task) for task in tasks_described(listed)}
                if places & seen:
                    raise Violation(f"{group}: {sorted(places & seen)} are assigned twice to a process")
                seen |= places
