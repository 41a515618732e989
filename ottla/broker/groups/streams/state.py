"""The durable state of a streams group: epochs, topology, members, target, owners. Only replaying records changes it.

Records may come in any order that a cleaned log can have, and a tombstone without the record that it deletes. Nothing
is refused here; a step is checked before it writes. Sources: the replay methods of Kafka's `GroupMetadataManager`, and
`StreamsGroup`. Unlike there, a tombstone that comes too early does not stop the load.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.broker.groups.streams.member import StreamsMember
from ottla.broker.groups.streams.tasks import NO_TASK_SETS, OwnedTasks, TaskSets, from_ids
from ottla.broker.groups.streams.topology import Topology
from ottla.protocol.stored.group import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)

if TYPE_CHECKING:
    from ottla.protocol.message import Struct

FIRST_EPOCH = 1
"""The epochs of a group without a first member yet, which begins epoch 2, as in Kafka."""
NO_EPOCH = -1


class TaskOwners:
    """The processes that have tasks of one role, with the number of their members that have each."""

    def __init__(self) -> None:
        self._processes: dict[tuple[str, int], Counter[str]] = {}

    def of(self, subtopology_id: str, partition: int) -> frozenset[str]:
        """The processes that have a task."""
        return frozenset(self._processes.get((subtopology_id, partition), ()))

    def add(self, tasks: Mapping[str, Mapping[int, int] | frozenset[int]], process_id: str) -> None:
        """A member of a process got tasks."""
        for subtopology_id, partitions in tasks.items():
            for partition in partitions:
                self._processes.setdefault((subtopology_id, partition), Counter())[process_id] += 1

    def remove(self, tasks: Mapping[str, Mapping[int, int] | frozenset[int]], process_id: str) -> None:
        """A member of a process has given up tasks that it got before."""
        for subtopology_id, partitions in tasks.items():
            for partition in partitions:
                of_task = self._processes[subtopology_id, partition]
                of_task[process_id] -= 1
                if not of_task[process_id]:
                    del of_task[process_id]
                if not of_task:
                    del self._processes[subtopology_id, partition]


class StreamsGroupState:
    """One group's durable state. It may be read freely; only `replay` writes it."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.validated_topology_epoch = NO_EPOCH
        self.assignment_settings: dict[str, str] = {}
        self.described_topology_epochs = (NO_EPOCH, NO_EPOCH)
        """The topologies of which a plugin of Kafka has the description, and has refused it."""
        self.assignment_epoch = FIRST_EPOCH
        self.assigned_at_ms = 0
        """The wall time of the last assignment; 0 if nothing limits the next one."""
        self.topology: Topology | None = None
        self.members: dict[str, StreamsMember] = {}
        self.target: dict[str, TaskSets] = {}
        """The tasks that each member should have; a member that has joined since has no entry."""
        self.static_member_ids: dict[str, str] = {}
        """Member id by instance id."""
        self._active, self._standby, self._warmup = TaskOwners(), TaskOwners(), TaskOwners()

    @property
    def name(self) -> str:
        """The name of the state, by what the group waits for."""
        if not self.members:
            return "Empty"
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return "NotReady"
        if self.group_epoch > self.assignment_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def target_of(self, member_id: str) -> TaskSets:
        """The tasks that a member should have."""
        return self.target.get(member_id, NO_TASK_SETS)

    def member_of_instance(self, instance_id: str) -> StreamsMember | None:
        """The static member of an instance id."""
        member_id = self.static_member_ids.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    # --- the processes that have a task, or still have to give it up -------------------------------------------------

    def active_process(self, subtopology_id: str, partition: int) -> str | None:
        """The process that has the task as an active one."""
        return next(iter(sorted(self._active.of(subtopology_id, partition))), None)

    def standby_processes(self, subtopology_id: str, partition: int) -> frozenset[str]:
        """The processes that have it as a standby task."""
        return self._standby.of(subtopology_id, partition)

    def warmup_processes(self, subtopology_id: str, partition: int) -> frozenset[str]:
        """The processes that have it as a warm-up task."""
        return self._warmup.of(subtopology_id, partition)

    # --- replay ------------------------------------------------------------------------------------------------------

    def replay(self, key: Struct, value: Struct | None) -> None:
        """Apply a record of the types 17 and 19 to 23, but for the tombstone of the group."""
        match key:
            case StreamsGroupMemberMetadataKey():
                assert value is None or isinstance(value, StreamsGroupMemberMetadataValue)
                known = self.members.get(key.member_id)
                if value is not None:
                    self._put(key.member_id, (known or StreamsMember(key.member_id)).with_metadata(value))
                elif known is not None:
                    self._put(key.member_id, None)
                self._note_instance(key.member_id, known, value)
            case StreamsGroupCurrentMemberAssignmentKey():
                assert value is None or isinstance(value, StreamsGroupCurrentMemberAssignmentValue)
                known = self.members.get(key.member_id)
                if value is not None:
                    self._put(key.member_id, (known or StreamsMember(key.member_id)).with_assignment(value))
                elif known is not None:
                    self._put(key.member_id, known.without_assignment())
            case StreamsGroupTargetAssignmentMemberKey():
                assert value is None or isinstance(value, StreamsGroupTargetAssignmentMemberValue)
                self._replay_target(key.member_id, value)
            case StreamsGroupMetadataKey():
                assert value is None or isinstance(value, StreamsGroupMetadataValue)
                if value is not None:
                    self._replay_epoch(value)
            case StreamsGroupTargetAssignmentMetadataKey():
                assert value is None or isinstance(value, StreamsGroupTargetAssignmentMetadataValue)
                self.assignment_epoch = NO_EPOCH if value is None else value.assignment_epoch
                self.assigned_at_ms = 0 if value is None else value.assignment_timestamp
            case StreamsGroupTopologyKey():
                assert value is None or isinstance(value, StreamsGroupTopologyValue)
                self.topology = None if value is None else Topology(value)

    def _replay_epoch(self, value: StreamsGroupMetadataValue) -> None:
        self.group_epoch, self.metadata_hash = value.epoch, value.metadata_hash
        self.validated_topology_epoch = value.validated_topology_epoch
        self.assignment_settings = {one.key: one.value for one in value.last_assignment_configs or ()}
        self.described_topology_epochs = (
            value.stored_description_topology_epoch,
            value.failed_description_topology_epoch,
        )

    def _replay_target(self, member_id: str, value: StreamsGroupTargetAssignmentMemberValue | None) -> None:
        if value is None:
            self.target.pop(member_id, None)
        else:
            self.target[member_id] = TaskSets(
                from_ids(value.active_tasks), from_ids(value.standby_tasks), from_ids(value.warmup_tasks)
            )

    def _put(self, member_id: str, new: StreamsMember | None) -> None:
        """Make this the member of the id; None if it is gone."""
        old = self.members.get(member_id)
        if old is not None:
            self._count(old, has=False)
        if new is None:
            self.members.pop(member_id, None)
        else:
            self.members[member_id] = new
            self._count(new, has=True)

    def _note_instance(
        self, member_id: str, before: StreamsMember | None, value: StreamsGroupMemberMetadataValue | None
    ) -> None:
        """Note the instance id that a member has, and forget the one that it had."""
        old_id = None if before is None else before.instance_id
        if old_id is not None and self.static_member_ids.get(old_id) == member_id:
            del self.static_member_ids[old_id]
        if value is not None and value.instance_id is not None:
            self.static_member_ids[value.instance_id] = member_id

    def _count(self, member: StreamsMember, *, has: bool) -> None:
        owned: OwnedTasks
        for owned in (member.assigned, member.pending_revocation):
            for owners, tasks in (
                (self._active, owned.active),
                (self._standby, owned.standby),
                (self._warmup, owned.warmup),
            ):
                (owners.add if has else owners.remove)(tasks, member.process_id)
