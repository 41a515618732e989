"""One step of a streams group, from one durable state to the next. Each record is replayed as soon as it is written.

The order within a step is Kafka's, and so is the order of its records: the member, the topology, the group's epoch, the
target, the member's own progress. A step refuses before it writes; once it has written, it is completed.

The records of one step may need more than one batch, and a crash may keep only the first of them. No answer has shown
the step, and the group can continue with what is there: a member without a target begins a new epoch, and after a start
the target is checked once for tasks that no member has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.coordination.effects import CoordinatorRecord, Effects, Now
from ottla.broker.groups.streams.member import JOINING_EPOCH, StreamsMember
from ottla.broker.groups.streams.reconciliation import next_step
from ottla.broker.groups.streams.records import (
    assignment_epoch_record,
    current_assignment_record,
    epoch_record,
    member_record,
    member_tombstones,
    target_record,
    topology_record,
)
from ottla.broker.groups.streams.target import compute_target

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.broker.groups.streams.configured_topology import ConfiguredTopology
    from ottla.broker.groups.streams.settings import StreamsSettings
    from ottla.broker.groups.streams.state import StreamsGroupState
    from ottla.broker.groups.streams.task_offsets import TaskOffsets
    from ottla.broker.groups.streams.tasks import TaskSets
    from ottla.broker.groups.streams.topology import Topology

UNLIMITED = 0
"""The time of an assignment that does not delay the next one."""


class StreamsStep:
    """The writing part of one step. `effects` has the records; the state has replayed them already."""

    def __init__(self, state: StreamsGroupState, settings: StreamsSettings, now: Now) -> None:
        self.effects = Effects()
        self._state = state
        self._settings = settings
        self._now = now

    def write(self, record: CoordinatorRecord) -> None:
        """Request a record, and replay it."""
        self.effects.records.append(record)
        self._state.replay(*record)

    def replace_static_member(self, old: StreamsMember, member_id: str) -> StreamsMember:
        """Let the next run of a static member take over the target and the tasks of the last one."""
        group_id, target = self._state.group_id, self._state.target_of(old.member_id)
        new = old._replace(member_id=member_id, member_epoch=JOINING_EPOCH, previous_member_epoch=JOINING_EPOCH)
        for record in member_tombstones(group_id, old.member_id):
            self.write(record)
        self.write(member_record(group_id, new))
        self.write(target_record(group_id, member_id, target))
        self.write(current_assignment_record(group_id, new))
        return new

    def update_member(self, old: StreamsMember, new: StreamsMember, *, is_static: bool) -> bool:
        """Store a member's metadata. Return whether the tasks have to be assigned again: after any change of a dynamic
        member, and after those changes of a static one that an assignment depends on.
        """
        if new == old and new.member_id in self._state.members:
            return False
        self.write(member_record(self._state.group_id, new))
        return not is_static or _of_assignment(new) != _of_assignment(old)

    def begin_topology(self, topology: Topology) -> None:
        """Store the topology of a group that has none."""
        if self._state.topology is None:
            self.write(topology_record(self._state.group_id, topology.value))

    def begin_epoch(self, metadata_hash: int, configured: ConfiguredTopology, *, is_changed: bool) -> None:
        """Begin a new epoch where the members (`is_changed`), the topics or the settings changed."""
        state = self._state
        validated_epoch = configured.epoch if configured.is_ready else -1
        wanted = (metadata_hash, validated_epoch, self._settings.of_assignment)
        if is_changed or wanted != (state.metadata_hash, state.validated_topology_epoch, state.assignment_settings):
            self._write_epoch(*wanted)

    def may_assign(self) -> bool:
        """Whether the last assignment is long enough ago; a clock that has gone back delays none."""
        assigned_at_ms = self._state.assigned_at_ms
        since_ms = self._now.wall_ms - assigned_at_ms
        return assigned_at_ms == UNLIMITED or not 0 <= since_ms < self._settings.assignment_interval_ms

    def assign(self, configured: ConfiguredTopology, offsets: Mapping[str, TaskOffsets]) -> None:
        """Compute the target of the group's epoch. `offsets` are those that members have reported."""
        state = self._state
        target = compute_target(state, configured, offsets, self._settings.num_standby_replicas)
        for member_id, wanted in target.items():
            if wanted != state.target.get(member_id):
                self.write(target_record(state.group_id, member_id, wanted))
        self.write(assignment_epoch_record(state.group_id, state.group_epoch, self._now.wall_ms))

    def reconcile(self, member_id: str, target: TaskSets, owned: TaskSets | None) -> StreamsMember:
        """Let a member take its next step. `owned` is what it reports to have, None where it reports nothing."""
        state = self._state
        member = state.members[member_id]
        if member.is_reconciled_to(state.assignment_epoch):
            return member
        moved = next_step(member, state.assignment_epoch, target, state, owned)
        if moved != member:
            self.write(current_assignment_record(state.group_id, moved))
        return state.members[member_id]

    def leave_for_a_while(self, member: StreamsMember) -> None:
        """A static member leaves, and will come back."""
        self.write(current_assignment_record(self._state.group_id, member.left_for_a_while()))

    def remove_members(self, member_ids: Iterable[str]) -> None:
        """Remove members, and begin a new epoch."""
        state = self._state
        for member_id in member_ids:
            for record in member_tombstones(state.group_id, member_id):
                self.write(record)
        self._write_epoch(state.metadata_hash, state.validated_topology_epoch, state.assignment_settings)
        if not state.members:
            self.write(assignment_epoch_record(state.group_id, state.group_epoch, UNLIMITED))

    def _write_epoch(
        self, metadata_hash: int, validated_topology_epoch: int, assignment_settings: dict[str, str]
    ) -> None:
        state = self._state
        self.write(
            epoch_record(
                state.group_id,
                state.group_epoch + 1,
                metadata_hash,
                validated_topology_epoch,
                assignment_settings,
                state.described_topology_epochs,
            )
        )


def _of_assignment(member: StreamsMember) -> tuple[object, ...]:
    """What an assignment depends on, of a static member."""
    return member.topology_epoch, member.rack_id, member.client_tags, member.process_id
