"""The records that a consumer group writes, as Kafka 4.1 writes them (`GroupCoordinatorRecordHelpers`)."""

from __future__ import annotations

from ottla.broker.coordination.effects import CoordinatorRecord
from ottla.broker.groups.consumer_member import ConsumerMember
from ottla.broker.groups.consumer_state import ConsumerState
from ottla.broker.groups.partitions import Partitions, in_order
from ottla.broker.groups.subscriptions import ResolvedExpression
from ottla.protocol.stored.group import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """The record of a member's metadata and subscription."""
    return _member_key(group_id, member.member_id), member.metadata_value()


def current_assignment_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """The record of what a member owns."""
    return _current_key(group_id, member.member_id), member.current_assignment_value()


def epoch_record(group_id: str, group_epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """The record of the group's epoch and the hash of its topics."""
    value = ConsumerGroupMetadataValue(epoch=group_epoch, metadata_hash=metadata_hash)
    return ConsumerGroupMetadataKey(group_id=group_id), value


def target_record(group_id: str, member_id: str, partitions: Partitions) -> CoordinatorRecord:
    """The record of what a member is to own."""
    return _target_key(group_id, member_id), ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            ConsumerGroupTargetAssignmentMemberValue.TopicPartition(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in in_order(partitions)
        ]
    )


def assignment_epoch_record(group_id: str, assignment_epoch: int) -> CoordinatorRecord:
    """The record of the epoch for which the target was computed."""
    value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=assignment_epoch)
    return ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value


def expression_record(group_id: str, expression: str, resolved: ResolvedExpression) -> CoordinatorRecord:
    """The record of the topics that an expression matches."""
    return _expression_key(group_id, expression), ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )


def expression_tombstone(group_id: str, expression: str) -> CoordinatorRecord:
    """The tombstone of an expression to which no member subscribes any more."""
    return _expression_key(group_id, expression), None


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """The tombstone of the record about topics that Kafka before 4.1 wrote."""
    return ConsumerGroupPartitionMetadataKey(group_id=group_id), None


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """The tombstones of a member, in the order that Kafka's replay requires."""
    return [
        (_current_key(group_id, member_id), None),
        (_target_key(group_id, member_id), None),
        (_member_key(group_id, member_id), None),
    ]


def group_tombstones(state: ConsumerState) -> list[CoordinatorRecord]:
    """The tombstones of the whole group, in the order that Kafka's replay requires."""
    group_id = state.group_id
    members = list(state.members)
    targets = sorted(state.target.keys() | state.members.keys())
    return [
        *((_current_key(group_id, member_id), None) for member_id in members),
        *((_target_key(group_id, member_id), None) for member_id in targets),
        (ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *((_member_key(group_id, member_id), None) for member_id in members),
        *(expression_tombstone(group_id, expression) for expression in state.subscriptions.resolved),
        partition_metadata_tombstone(group_id),
        (ConsumerGroupMetadataKey(group_id=group_id), None),
    ]


def _member_key(group_id: str, member_id: str) -> ConsumerGroupMemberMetadataKey:
    return ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)


def _current_key(group_id: str, member_id: str) -> ConsumerGroupCurrentMemberAssignmentKey:
    return ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)


def _target_key(group_id: str, member_id: str) -> ConsumerGroupTargetAssignmentMemberKey:
    return ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)


def _expression_key(group_id: str, expression: str) -> ConsumerGroupRegularExpressionKey:
    return ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=expression)
