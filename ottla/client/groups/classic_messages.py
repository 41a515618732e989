"""The messages of a classic member: its requests, and those parts that the leader reads and writes. Pure."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ottla.client.groups.assignors import GroupMember
from ottla.client.groups.assignors.interface import Assignment
from ottla.client.groups.commits import NOBODY, MemberIdentity
from ottla.client.groups.membership import GroupContext
from ottla.client.structs import TopicPartition
from ottla.protocol.api.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.api.leave_group import LeaveGroupRequest
from ottla.protocol.api.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.protocol.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from ottla.protocol.errors import MalformedMessage

logger = logging.getLogger(__name__)

FIRST_JOIN_VERSION_WITH_INSTANCES = 5
_FIRST_LEAVE_VERSION_WITH_MEMBERS = 3
_MAX_REASON_CHARACTERS = 255
"""Kafka's limit for the reason of joining or leaving (KIP-800)."""


def join_request(
    context: GroupContext,
    member_id: str,
    generation: int,
    topics: Iterable[str],
    owned: Sequence[TopicPartition],
    previous: tuple[Sequence[TopicPartition], int],
    reason: str | None,
) -> JoinGroupRequest:
    """Return the request: it has every assignor's user data for the leader; the reason is for logs."""
    by_topic = _by_topic(owned)
    names = sorted(topics)
    protocols = [
        JoinGroupRequest.JoinGroupRequestProtocol(
            name=assignor.name,
            metadata=encode_subscription(
                ConsumerProtocolSubscription(
                    topics=names,
                    user_data=assignor.user_data(*previous) or None,
                    owned_partitions=[
                        ConsumerProtocolSubscription.TopicPartition(topic=topic, partitions=indexes)
                        for topic, indexes in by_topic.items()
                    ],
                    generation_id=generation,
                )
            ),
        )
        for assignor in context.options.partition_assignment_strategy
    ]
    return JoinGroupRequest(
        group_id=context.coordinator.key,
        session_timeout_ms=context.options.session_timeout_ms,
        rebalance_timeout_ms=context.rebalance_timeout_ms,
        member_id=member_id,
        group_instance_id=context.options.group_instance_id,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocols=protocols,
        reason=reason[:_MAX_REASON_CHARACTERS] if reason else None,
    )


def members_of(answer: JoinGroupResponse) -> list[GroupMember]:
    """Return the members for the leader; one whose subscription cannot be read subscribes to nothing."""
    members: list[GroupMember] = []
    for member in answer.members:
        try:
            subscription = decode_subscription(member.metadata)
        except MalformedMessage as malformed:
            logger.warning("member %s has a malformed subscription: %s", member.member_id, malformed)
            members.append(GroupMember(member.member_id, frozenset(), member.group_instance_id))
            continue
        owned = tuple(
            TopicPartition(topic.topic, index) for topic in subscription.owned_partitions for index in topic.partitions
        )
        members.append(
            GroupMember(
                member.member_id,
                frozenset(subscription.topics),
                member.group_instance_id,
                owned,
                subscription.generation_id,
                bytes(subscription.user_data or b""),
            )
        )
    return members


def assignment_bytes(assignment: Assignment) -> dict[str, bytes]:
    """Return the bytes in SyncGroup for each member."""
    return {
        member_id: encode_assignment(
            ConsumerProtocolAssignment(
                assigned_partitions=[
                    ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=indexes)
                    for topic, indexes in _by_topic(partitions).items()
                ]
            )
        )
        for member_id, partitions in assignment.items()
    }


def sync_request(
    context: GroupContext, identity: MemberIdentity | None, protocol: str | None, assignments: Mapping[str, bytes]
) -> SyncGroupRequest:
    """Return the request; only the leader has `assignments`."""
    member_id, generation, group_instance_id, _ = identity or NOBODY
    return SyncGroupRequest(
        group_id=context.coordinator.key,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=group_instance_id,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=protocol,
        assignments=[
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=assigned)
            for member, assigned in assignments.items()
        ],
    )


def assignment_of(answer: SyncGroupResponse) -> list[TopicPartition]:
    """Return the partitions assigned to this member; raises MalformedMessage for bytes that are no assignment."""
    assignment = decode_assignment(answer.assignment)
    return [
        TopicPartition(topic.topic, index) for topic in assignment.assigned_partitions for index in topic.partitions
    ]


def leave_request(version: int, context: GroupContext, member_id: str, reason: str) -> LeaveGroupRequest:
    """Return the request, in the format of its version."""
    group_id = context.coordinator.key
    if version < _FIRST_LEAVE_VERSION_WITH_MEMBERS:
        return LeaveGroupRequest(group_id=group_id, member_id=member_id)
    member = LeaveGroupRequest.MemberIdentity(
        member_id=member_id,
        group_instance_id=context.options.group_instance_id,
        reason=reason[:_MAX_REASON_CHARACTERS],
    )
    return LeaveGroupRequest(group_id=group_id, members=[member])


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        by_topic[topic].append(index)
    return by_topic
