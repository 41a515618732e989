"""The records that a streams group writes, in the order of lists that Kafka writes, and its tombstones.

Source: Kafka's `StreamsCoordinatorRecordHelpers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ottla.broker.groups.streams.tasks import EpochsOfTasks, Tasks, TaskSets, in_order
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
    from ottla.broker.coordination.effects import CoordinatorRecord
    from ottla.broker.groups.streams.member import StreamsMember

_Current = StreamsGroupCurrentMemberAssignmentValue
_Target = StreamsGroupTargetAssignmentMemberValue


def member_record(group_id: str, member: StreamsMember) -> CoordinatorRecord:
    """A member's metadata."""
    key = StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    endpoint = member.user_endpoint
    return key, StreamsGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None
        if endpoint is None
        else StreamsGroupMemberMetadataValue.Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[StreamsGroupMemberMetadataValue.KeyValue(key=tag, value=text) for tag, text in member.client_tags],
    )


def topology_record(group_id: str, topology: StreamsGroupTopologyValue) -> CoordinatorRecord:
    """The group's topology."""
    return StreamsGroupTopologyKey(group_id=group_id), topology


def epoch_record(
    group_id: str,
    epoch: int,
    metadata_hash: int,
    validated_topology_epoch: int,
    assignment_settings: Mapping[str, str],
    described_topology_epochs: tuple[int, int],
) -> CoordinatorRecord:
    """The group's epoch, the hash of its topics, the topology for which they are right, the settings of its assignment,
    and the topologies of which a plugin of Kafka has the description or has refused it: Ottla keeps these two.
    """
    stored_epoch, failed_epoch = described_topology_epochs
    return StreamsGroupMetadataKey(group_id=group_id), StreamsGroupMetadataValue(
        epoch=epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_topology_epoch,
        last_assignment_configs=[
            StreamsGroupMetadataValue.LastAssignmentConfig(key=key, value=assignment_settings[key])
            for key in sorted(assignment_settings)
        ],
        stored_description_topology_epoch=stored_epoch,
        failed_description_topology_epoch=failed_epoch,
    )


def assignment_epoch_record(group_id: str, epoch: int, wall_ms: int) -> CoordinatorRecord:
    """The epoch of the target, and the time when it was computed; 0 if the next one may be computed at once."""
    key = StreamsGroupTargetAssignmentMetadataKey(group_id=group_id)
    return key, StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=wall_ms)


def target_record(group_id: str, member_id: str, target: TaskSets) -> CoordinatorRecord:
    """The tasks that a member should have."""

    def listed(tasks: Tasks) -> list[_Target.TaskIds]:
        return [_Target.TaskIds(subtopology_id=one, partitions=partitions) for one, partitions in in_order(tasks)]

    key = StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return key, _Target(
        active_tasks=listed(target.active), standby_tasks=listed(target.standby), warmup_tasks=listed(target.warmup)
    )


def current_assignment_record(group_id: str, member: StreamsMember) -> CoordinatorRecord:
    """The tasks that a member has, and those that it must give up."""
    assigned, revoked = member.assigned, member.pending_revocation
    key = StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return key, _Current(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state,
        active_tasks=_with_epochs(assigned.active),
        standby_tasks=_replicas(assigned.standby),
        warmup_tasks=_replicas(assigned.warmup),
        active_tasks_pending_revocation=_with_epochs(revoked.active),
        standby_tasks_pending_revocation=_replicas(revoked.standby),
        warmup_tasks_pending_revocation=_replicas(revoked.warmup),
    )


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """The tombstones of a member, in the order that Kafka's replay requires."""
    return [
        (StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        (StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        (StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(group_id: str, member_ids: Iterable[str]) -> list[CoordinatorRecord]:
    """The tombstones of the whole group, in the order that Kafka's replay requires."""
    ordered = sorted(member_ids)
    return [
        *((StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=one), None) for one in ordered),
        *((StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=one), None) for one in ordered),
        (StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *((StreamsGroupMemberMetadataKey(group_id=group_id, member_id=one), None) for one in ordered),
        (StreamsGroupMetadataKey(group_id=group_id), None),
        (StreamsGroupTopologyKey(group_id=group_id), None),
    ]


def _with_epochs(tasks: EpochsOfTasks) -> list[_Current.TaskIds]:
    return [
        _Current.TaskIds(
            subtopology_id=one,
            partitions=partitions,
            assignment_epochs=[tasks[one][partition] for partition in partitions],
        )
        for one, partitions in in_order(tasks)
    ]


def _replicas(tasks: Tasks) -> list[_Current.TaskIds]:
    return [_Current.TaskIds(subtopology_id=one, partitions=partitions) for one, partitions in in_order(tasks)]
