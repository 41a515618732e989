"""ConsumerGroupHeartbeat: members of the consumer protocol join, stay, and leave (KIP-848).

A heartbeat is either refused before anything is written, or completed. What the member owns at present and what it was
last sent may differ: an answer has the assignment when the member joins, when it sends all of its fields, and when the
assignment changes.

Source: `consumerGroupHeartbeat` and `consumerGroupLeave` of Kafka 4.3's `GroupMetadataManager`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ottla.broker.groups.consumer_checks import check_member_epoch
from ottla.broker.groups.consumer_member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    NOT_GIVEN,
    STATIC_LEAVING_EPOCH,
    ConsumerMember,
)
from ottla.broker.groups.consumer_records import current_assignment_record
from ottla.broker.groups.member_timers import Limit
from ottla.broker.groups.partitions import Partitions, from_structs, in_order
from ottla.broker.runtime.regular_expressions import compile_expression
from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.coordination.effects import Effects, Now, Waiter
    from ottla.broker.groups.consumer import ConsumerGroup
    from ottla.broker.groups.group import Caller


def answer(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, caller: Caller, waiter: Waiter, now: Now
) -> Effects:
    """Handle a valid heartbeat. Raises KafkaError for a refused one."""
    if request.member_epoch in (LEAVING_EPOCH, STATIC_LEAVING_EPOCH):
        return _leave(group, request, waiter, now)
    return _heartbeat(group, request, caller, waiter, now)


def _heartbeat(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, caller: Caller, waiter: Waiter, now: Now
) -> Effects:
    group.check_room(request.member_id)
    member_id = request.member_id or group.new_id()
    owned = None if request.topic_partitions is None else from_structs(request.topic_partitions)
    found, replaced = _find(group, request, member_id, owned)
    _check_expression(found, request.subscribed_topic_regex)
    wanted = replace(found.updated_by(request, caller.client_id, caller.client_host), member_id=member_id)
    if wanted != found:
        group.check_size(wanted)

    step = group.begin_step(now, caller.may_see)
    before = found if replaced is None else step.replace_static_member(replaced, member_id)
    if replaced is not None:
        group.timers.forget(replaced.member_id)
    updated = before.updated_by(request, caller.client_id, caller.client_host)
    is_new_group = group.durable.group_epoch == 0
    is_changed = step.update_member(before, updated)
    step.catch_up(is_changed=is_changed or is_new_group)
    after = step.reconcile(member_id, owned, is_changed=is_changed)

    group.begin_session(after, now)
    group.time_revocation(after, now, since=before)
    group.timers.cancel(member_id, Limit.JOIN, Limit.SYNC)
    group.timers.came_by(member_id, caller.connection)
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    is_full = request.rebalance_timeout_ms != NOT_GIVEN and subscribes and owned is not None
    has_assignment = request.member_epoch == JOINING_EPOCH or is_full or after.assigned != before.assigned
    step.effects.reply(
        waiter,
        ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=after.member_epoch,
            heartbeat_interval_ms=group.settings.consumer_heartbeat_interval_ms_of(group.group_id),
            assignment=_listed(after.assigned) if has_assignment else None,
        ),
    )
    return step.effects


def _find(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, member_id: str, owned: Partitions | None
) -> tuple[ConsumerMember, ConsumerMember | None]:
    """The member that heartbeats, and the static member that it replaces, if any. Raises KafkaError."""
    joins = request.member_epoch == JOINING_EPOCH
    instance_id = request.instance_id
    if instance_id is None:
        member = group.durable.members.get(member_id) if joins else group.member_of(member_id)
        member = member or ConsumerMember(member_id)
        check_member_epoch(member, request.member_epoch, owned)
        return member, None
    if not joins:
        member = group.static_member_of(instance_id, member_id)
        check_member_epoch(member, request.member_epoch, owned)
        return member, None
    existing = group.durable.member_of_instance(instance_id)
    if existing is None:
        return group.durable.members.get(member_id) or ConsumerMember(member_id), None
    if not existing.uses_classic_protocol and existing.member_epoch != STATIC_LEAVING_EPOCH:
        if existing.member_id == member_id:
            return existing, None  # an answer was lost, or it was fenced; Kafka accepts this of dynamic members only
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
            f"instance id is owned by {existing.member_id} member.",
        )
    return existing, existing


def _check_expression(member: ConsumerMember, expression: str | None) -> None:
    """Raise INVALID_REGULAR_EXPRESSION for an expression that is new to the group and invalid."""
    if expression and expression != member.subscribed_topic_regex:
        compile_expression(expression)


def _leave(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, waiter: Waiter, now: Now) -> Effects:
    if request.instance_id is None:
        member = group.member_of(request.member_id)
    else:
        member = group.static_member_of(request.instance_id, request.member_id)
    if request.member_epoch == STATIC_LEAVING_EPOCH:
        effects = _leave_for_a_while(group, member, now)
    else:
        effects = group.remove([member.member_id], now)
    effects.reply(
        waiter,
        ConsumerGroupHeartbeatResponse(
            member_id=member.member_id, member_epoch=request.member_epoch, heartbeat_interval_ms=0
        ),
    )
    return effects


def _leave_for_a_while(group: ConsumerGroup, member: ConsumerMember, now: Now) -> Effects:
    step = group.begin_step(now)
    step.write(current_assignment_record(group.group_id, member.left_for_a_while()))
    group.timers.cancel(member.member_id, Limit.REVOCATION)
    return step.effects


def _listed(assigned: Partitions) -> ConsumerGroupHeartbeatResponse.Assignment:
    return ConsumerGroupHeartbeatResponse.Assignment(
        topic_partitions=[
            ConsumerGroupHeartbeatResponse.TopicPartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in in_order(assigned)
        ]
    )
