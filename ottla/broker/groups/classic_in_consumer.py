"""Members of the classic protocol in a consumer group: they keep a group alive while its clients are moved over.

JoinGroup reports what the member wants and owns, as a heartbeat would, and is answered immediately: generation and
member epoch are the same number. SyncGroup fetches the assignment. Heartbeat returns REBALANCE_IN_PROGRESS whenever the
member has to join again: for a new epoch, to give up partitions, or because other members have released partitions that
it is to own. No request parks.

Source: the `classicGroup…ToConsumerGroup` methods of Kafka 4.3's `GroupMetadataManager` (KIP-848).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.broker.groups.classic_answers import NO_MEMBER_ID, LeaveResult, leavers, left
from ottla.broker.groups.consumer_member import NOT_GIVEN, ConsumerMember, MemberState
from ottla.broker.groups.member_timers import Limit
from ottla.broker.groups.partitions import count
from ottla.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.api.join_group import JoinGroupRequest, JoinGroupResponse, join_refused
from ottla.protocol.api.sync_group import SyncGroupRequest, SyncGroupResponse, sync_refused
from ottla.protocol.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_subscription,
    encode_assignment,
    version_of,
)
from ottla.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from ottla.protocol.stored.group import ConsumerGroupMemberMetadataValue

if TYPE_CHECKING:
    from ottla.broker.coordination.effects import Effects, Now, Waiter
    from ottla.broker.groups.consumer import ConsumerGroup
    from ottla.broker.groups.group import Caller
    from ottla.broker.groups.partitions import Partitions
    from ottla.broker.groups.topics import TopicView
    from ottla.protocol.api.leave_group import LeaveGroupRequest

FIRST_VERSION_WITH_KNOWN_MEMBER_IDS = 4
"""From this version of JoinGroup on a dynamic member joins again with the id that it has received (KIP-394)."""
NEWEST_ASSIGNMENT_VERSION = 3
NO_MIGRATION = "disabled"
"""The `group.consumer.migration.policy` with which classic members cannot join consumer groups."""
MAX_CHARACTER_BYTES = 4
PARTITION_BYTES = 4
ROOM_BYTES = 64
"""Room for lengths and numbers besides what is counted."""

ClassicMetadata = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata


def join(
    group: ConsumerGroup, request: JoinGroupRequest, api_version: int, caller: Caller, waiter: Waiter, now: Now
) -> Effects:
    """JoinGroup: answered immediately."""
    try:
        return _join(group, request, api_version, caller, waiter, now)
    except KafkaError as error:
        return group.answer(waiter, join_refused(api_version, NO_MEMBER_ID, error.code))


def sync(group: ConsumerGroup, request: SyncGroupRequest, waiter: Waiter, now: Now) -> Effects:
    """SyncGroup: answered immediately. Assignments that a leader of an old generation sends are ignored."""
    try:
        member = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
        _check_protocol(member, request)
        if group.durable.group_epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            group.await_join(member, now)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
    except KafkaError as error:
        return group.answer(waiter, sync_refused(error.code))
    group.timers.cancel(member.member_id, Limit.SYNC)
    group.begin_session(member, now)
    response = SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=assignment_bytes(member.assigned, group.topics, first_protocol(member).metadata),
    )
    return group.answer(waiter, response)


def heartbeat(group: ConsumerGroup, request: HeartbeatRequest, caller: Caller, waiter: Waiter, now: Now) -> Effects:
    """Heartbeat: NONE, or REBALANCE_IN_PROGRESS where the member should join again."""
    try:
        member = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
    except KafkaError as error:
        return group.answer(waiter, HeartbeatResponse(error_code=error.code))
    group.begin_session(member, now)
    group.timers.came_by(member.member_id, caller.connection)
    state = group.durable
    should_join = (
        member.member_epoch < state.group_epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and not state.waits_for_others(member))
    )
    if should_join:
        group.await_join(member, now)
    code = ErrorCode.REBALANCE_IN_PROGRESS if should_join else ErrorCode.NONE
    return group.answer(waiter, HeartbeatResponse(error_code=code))


def leave(group: ConsumerGroup, request: LeaveGroupRequest, api_version: int, waiter: Waiter, now: Now) -> Effects:
    """LeaveGroup: from classic members, or from an administrator for members of either protocol."""
    results: list[LeaveResult] = []
    leaving: list[str] = []
    for leaver in leavers(request, api_version):
        try:
            if leaver.group_instance_id is None:
                member = group.member_of(leaver.member_id)
            else:
                member = group.static_member_of(leaver.group_instance_id, leaver.member_id or None)
        except KafkaError as error:
            results.append(LeaveResult(leaver, error.code))
        else:
            results.append(LeaveResult(leaver, ErrorCode.NONE))
            leaving.append(member.member_id)
    effects = group.remove(dict.fromkeys(leaving), now)
    effects.reply(waiter, left(api_version, results))
    return effects


def classic_record_bytes(group: ConsumerGroup, members: list[ConsumerMember]) -> int:
    """An upper bound for the size of the one record of a classic group of these members."""
    size_bytes = len(group.group_id) * MAX_CHARACTER_BYTES + ROOM_BYTES
    for member in members:
        assert member.classic is not None
        texts = (member.member_id, member.instance_id or "", member.client_id, member.client_host)
        target = group.durable.target_of(member.member_id)
        names = (group.topics.name_of(topic_id) or "" for topic_id in target)
        size_bytes += sum(map(len, texts)) * MAX_CHARACTER_BYTES + ROOM_BYTES
        size_bytes += max(len(protocol.metadata) for protocol in member.classic.supported_protocols)
        size_bytes += sum(len(name) + ROOM_BYTES for name in names) + count(target) * PARTITION_BYTES
    return size_bytes


def first_protocol(member: ConsumerMember) -> ConsumerGroupMemberMetadataValue.ClassicProtocol:
    """The protocol that a classic member prefers; its answers name it."""
    assert member.classic is not None
    return member.classic.supported_protocols[0]


def assignment_bytes(assigned: Partitions, topics: TopicView, subscription: bytes) -> bytes:
    """An assignment in the format of the classic protocol, in the version in which the member wrote `subscription`."""
    named = sorted((topics.name_of(topic_id) or "", sorted(indexes)) for topic_id, indexes in assigned.items())
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=indexes) for name, indexes in named if name
        ]
    )
    try:
        version = min(version_of(subscription), NEWEST_ASSIGNMENT_VERSION)
    except MalformedMessage:
        version = 0  # the group's protocol need not be the one that was checked when the member joined
    return encode_assignment(assignment, version)


def partitions_by_id(
    listed: list[ConsumerProtocolSubscription.TopicPartition] | list[ConsumerProtocolAssignment.TopicPartition],
    topics: TopicView,
) -> Partitions:
    """Partitions by topic id, from the names that the classic protocol lists; topics that do not exist are left out."""
    found: dict[UUID, frozenset[int]] = {}
    for entry in listed:
        topic_id = topics.id_of(entry.topic)
        if topic_id is not None and entry.partitions:
            found[topic_id] = found.get(topic_id, frozenset()).union(entry.partitions)
    return found


def _join(
    group: ConsumerGroup, request: JoinGroupRequest, api_version: int, caller: Caller, waiter: Waiter, now: Now
) -> Effects:
    if group.settings.consumer_migration_policy == NO_MIGRATION:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    is_new = not request.member_id
    instance_id = request.group_instance_id
    member_id = group.new_id() if is_new else request.member_id
    group.check_room(member_id)
    _check_common_protocol(group, request)
    if is_new and instance_id is None and api_version >= FIRST_VERSION_WITH_KNOWN_MEMBER_IDS:
        return group.answer(waiter, join_refused(api_version, member_id, ErrorCode.MEMBER_ID_REQUIRED))
    if instance_id is not None and not is_new:
        group.static_member_of(instance_id, member_id)
    subscription = _subscription(request)
    existing = group.durable.member_of_instance(instance_id)

    timeout_ms = request.rebalance_timeout_ms
    if timeout_ms == NOT_GIVEN:
        timeout_ms = request.session_timeout_ms
    member = existing or group.durable.members.get(member_id) or ConsumerMember(member_id)
    updated = replace(
        member,
        member_id=member_id,
        instance_id=member.instance_id if instance_id is None else instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=timeout_ms,
        subscribed_topic_names=frozenset(subscription.topics),
        subscribed_topic_regex="",  # the member that it replaces may have one; the classic protocol knows none
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=_classic_metadata(request),
    )
    group.check_size(updated)

    step = group.begin_step(now)
    if existing is not None and existing.member_id != member_id:
        member = step.replace_static_member(existing, member_id)
        updated = replace(updated, member_epoch=member.member_epoch, previous_member_epoch=member.previous_member_epoch)
        group.timers.forget(existing.member_id)
    known_target_epoch = group.durable.assignment_epoch
    is_changed = step.update_member(member, updated)
    step.catch_up(is_changed=is_changed)
    owned = partitions_by_id(subscription.owned_partitions, group.topics)
    joined = step.reconcile(member_id, owned, is_changed=is_changed)

    if existing is not None and not existing.uses_classic_protocol:
        is_new_target = group.durable.assignment_epoch != known_target_epoch  # the others have to give up partitions
        group.plan_downgrade(leaving=frozenset(), rebalances=is_new_target)
    group.timers.cancel(member_id, Limit.JOIN, Limit.REVOCATION)
    group.timers.start(member_id, Limit.SYNC, now.monotonic_ms + timeout_ms)
    group.begin_session(joined, now)
    group.timers.came_by(member_id, caller.connection)
    step.effects.reply(
        waiter,
        JoinGroupResponse(
            generation_id=joined.member_epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=first_protocol(joined).name,
            leader="",
            member_id=member_id,
            members=[],
        ),
    )
    return step.effects


def _check_common_protocol(group: ConsumerGroup, request: JoinGroupRequest) -> None:
    """Raise INCONSISTENT_GROUP_PROTOCOL unless all classic members know one of the member's protocols."""
    names = {protocol.name for protocol in request.protocols}
    classic = [member.classic for member in group.durable.members.values() if member.classic is not None]
    for known in classic:
        names &= {protocol.name for protocol in known.supported_protocols}
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not names:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _subscription(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    """The subscription of the preferred protocol. Raise INCONSISTENT_GROUP_PROTOCOL for malformed bytes."""
    try:
        return decode_subscription(request.protocols[0].metadata)
    except MalformedMessage as error:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error


def _classic_metadata(request: JoinGroupRequest) -> ClassicMetadata:
    return ClassicMetadata(
        session_timeout_ms=request.session_timeout_ms,
        supported_protocols=[
            ConsumerGroupMemberMetadataValue.ClassicProtocol(name=protocol.name, metadata=protocol.metadata)
            for protocol in request.protocols
        ],
    )


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
) -> ConsumerMember:
    """The member that sent a request. Raises UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION."""
    if instance_id is None:
        member = group.member_of(member_id)
    else:
        member = group.static_member_of(instance_id, member_id)
    if not member.uses_classic_protocol:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"member {member.member_id} speaks the consumer protocol")
    if member.member_epoch != generation_id:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    return member


def _check_protocol(member: ConsumerMember, request: SyncGroupRequest) -> None:
    """Raise INCONSISTENT_GROUP_PROTOCOL for a protocol other than the one in the answer to JoinGroup."""
    is_other_type = request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE)
    if is_other_type or request.protocol_name not in (None, first_protocol(member).name):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
