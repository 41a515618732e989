"""Groups change their protocol, from classic to consumer and back, with or without members.

*Upgrade*: the first member of the consumer protocol joins a classic group. The group's members keep what they own, and
their generation becomes the epoch. They continue in the classic protocol (`classic_in_consumer.py`) until each is moved
over. *Downgrade*: the last member of the consumer protocol leaves, or is replaced by a classic run of itself. The
target becomes the assignment of a stable classic generation; unless the target is complete, a rebalance begins
immediately. `group.consumer.migration.policy` allows either, both or none; groups without members change freely.

The old group's records are removed and the new one's written in one step, so that a crash leaves one or the other. The
shard replaces the old group with the new one. Source: `convertToConsumerGroup`, `convertToClassicGroup` and the
conditions around them in Kafka 4.1's `GroupMetadataManager`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.broker.coordination.effects import Effects, Now
from ottla.broker.groups.assignment_epochs import of_one_epoch
from ottla.broker.groups.classic import ClassicGroup
from ottla.broker.groups.classic_in_consumer import ClassicMetadata, assignment_bytes, partitions_by_id
from ottla.broker.groups.classic_member import ClassicMember, ProtocolMetadata
from ottla.broker.groups.consumer import ConsumerGroup, random_member_id
from ottla.broker.groups.consumer_member import ConsumerMember
from ottla.broker.groups.consumer_records import (
    assignment_epoch_record,
    current_assignment_record,
    epoch_record,
    member_record,
    target_record,
)
from ottla.protocol.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_assignment,
    decode_subscription,
)
from ottla.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from ottla.protocol.stored.group import ConsumerGroupMemberMetadataValue, GroupMetadataKey, GroupMetadataValue

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.broker.groups.settings import GroupSettings
    from ottla.broker.groups.topics import TopicView

LOG = logging.getLogger("ottla.groups")
UPGRADE_POLICIES = ("bidirectional", "upgrade")


def upgrade(
    classic: ClassicGroup,
    settings: GroupSettings,
    topics: TopicView,
    now: Now,
    *,
    new_id: Callable[[], str] = random_member_id,
) -> tuple[ConsumerGroup, Effects]:
    """Convert a classic group that got a ConsumerGroupHeartbeat (member epoch 0) to a consumer group.

    An empty one is simply replaced. Raises KafkaError(GROUP_ID_NOT_FOUND) where the policy, the protocol type, the size
    or the members' metadata forbid it. `classic` does not change. The new group handles the heartbeat afterwards, in
    the same step. If it refuses the heartbeat, the new group and the records must be dropped. Otherwise every request
    that is parked in `classic` must be answered REBALANCE_IN_PROGRESS.
    """
    consumer = ConsumerGroup(classic.group_id, settings, topics, new_id=new_id)
    if classic.is_empty:
        return consumer, Effects(records=classic.tombstones())
    _check_upgrade(classic, settings)
    members = [_consumer_member(classic, member, topics) for member in classic.members.values()]
    for member in members:
        _check_size(consumer, classic, member)

    group_id, epoch = classic.group_id, classic.generation_id
    step = consumer.begin_step(now)
    for member in members:
        step.write(member_record(group_id, member))
    step.write(epoch_record(group_id, epoch, step.metadata_hash()))
    for member in members:
        step.write(target_record(group_id, member.member_id, member.assigned))
    step.write(assignment_epoch_record(group_id, epoch))
    for member in members:
        step.write(current_assignment_record(group_id, member))
        consumer.begin_session(member, now)
        consumer.timers.came_by(member.member_id, classic.members[member.member_id].connection)
    LOG.info(
        "group %r: %d classic members continue in the consumer protocol at epoch %d", group_id, len(members), epoch
    )
    effects = Effects(records=classic.tombstones())
    effects.join(step.effects)
    return consumer, effects


def downgrade(consumer: ConsumerGroup, now: Now) -> tuple[ClassicGroup, Effects]:
    """The group that replaces `consumer`, whose `downgrade` a step has set."""
    planned = consumer.downgrade
    assert planned is not None
    state = consumer.durable
    classic = ClassicGroup(consumer.group_id, consumer.settings, new_id=consumer.new_id)
    classic.roster.protocol_type = CONSUMER_PROTOCOL_TYPE
    for member in state.members.values():
        if member.member_id not in planned.leaving:
            classic.roster.add(_classic_member(consumer, member))
    effects = Effects(records=consumer.tombstones())
    key, value = GroupMetadataKey(group=consumer.group_id), _generation(consumer, classic, now)
    effects.records.append((key, value))
    classic.replay(key, value)
    effects.join(classic.on_load(now))
    LOG.info(
        "group %r: %d classic members continue without the consumer protocol", consumer.group_id, len(classic.members)
    )
    if planned.rebalances:
        effects.join(classic.rebalance("the last member of the consumer protocol has gone", now))
    return classic, effects


def _check_upgrade(classic: ClassicGroup, settings: GroupSettings) -> None:
    reason = None
    if settings.consumer_migration_policy not in UPGRADE_POLICIES:
        reason = "online upgrade is disabled"
    elif classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
        reason = "the group does not use the consumer embedded protocol"
    elif len(classic.members) > settings.consumer_max_size:
        reason = "the group size exceeds the consumer group maximum size"
    if reason is not None:
        raise _cannot_upgrade(classic, reason)


def _check_size(consumer: ConsumerGroup, classic: ClassicGroup, member: ConsumerMember) -> None:
    try:
        consumer.check_size(member)
    except KafkaError as error:
        raise _cannot_upgrade(classic, error.message or "a member's record would be too large") from error


def _consumer_member(classic: ClassicGroup, member: ClassicMember, topics: TopicView) -> ConsumerMember:
    """A member as it continues in the new group. Raises KafkaError where its metadata cannot be kept."""
    subscription, assignment = _said(classic, member)
    if assignment.user_data:
        raise _cannot_upgrade(classic, "an unsupported custom assignor is in use: its user data would be lost")
    assigned = partitions_by_id(assignment.assigned_partitions, topics)
    return ConsumerMember(
        member_id=member.member_id,
        member_epoch=classic.generation_id,
        previous_member_epoch=classic.generation_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        subscribed_topic_names=frozenset(subscription.topics),
        assigned=assigned,
        assignment_epochs=of_one_epoch(assigned, classic.generation_id),
        classic=ClassicMetadata(
            session_timeout_ms=member.session_timeout_ms,
            supported_protocols=[
                ConsumerGroupMemberMetadataValue.ClassicProtocol(name=protocol.name, metadata=protocol.metadata)
                for protocol in member.protocols
            ],
        ),
    )


def _said(
    classic: ClassicGroup, member: ClassicMember
) -> tuple[ConsumerProtocolSubscription, ConsumerProtocolAssignment]:
    protocol_name = classic.protocol_name or classic.roster.select_protocol()
    try:
        return decode_subscription(member.metadata(protocol_name)), decode_assignment(member.assignment)
    except MalformedMessage as error:
        raise _cannot_upgrade(classic, "the embedded consumer protocol is malformed") from error


def _cannot_upgrade(classic: ClassicGroup, reason: str) -> KafkaError:
    message = f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}."
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, message)


def _classic_member(consumer: ConsumerGroup, member: ConsumerMember) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=tuple(
            ProtocolMetadata(protocol.name, protocol.metadata) for protocol in member.classic.supported_protocols
        ),
        connection=consumer.timers.connection_of(member.member_id),
    )


def _generation(consumer: ConsumerGroup, classic: ClassicGroup, now: Now) -> GroupMetadataValue:
    """The target as a classic generation, in which every member has its assignment."""
    state = consumer.durable
    protocol_name = classic.roster.select_protocol()
    return GroupMetadataValue(
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        generation=state.group_epoch,
        protocol=protocol_name,
        leader=classic.roster.leader,
        current_state_timestamp=now.wall_ms,
        members=[
            member.stored(
                protocol_name,
                assignment_bytes(state.target_of(member.member_id), consumer.topics, member.metadata(protocol_name)),
            )
            for member in classic.roster.members.values()
        ],
    )
