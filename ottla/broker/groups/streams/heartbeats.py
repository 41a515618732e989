"""StreamsGroupHeartbeat: members of a streams group join, stay, and leave (KIP-1071).

A heartbeat is either refused before anything is written, or completed. An answer has the tasks when the member joins,
when they change, and when the member reports others, because it may not have got the answer with the change; and
statuses for other things that the client must know.

Source: `streamsGroupHeartbeat` and `streamsGroupLeave` of Kafka 4.4's `GroupMetadataManager`. The functions are long
methods of `StreamsGroup`, and take it as a parameter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.groups.streams.checks import check_heartbeat, check_member_epoch
from ottla.broker.groups.streams.configured_topology import check_tasks
from ottla.broker.groups.streams.member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    STATIC_LEAVING_EPOCH,
    StreamsMember,
)
from ottla.broker.groups.streams.queries import partitions_by_endpoint
from ottla.broker.groups.streams.task_offsets import NO_TASK_OFFSETS
from ottla.broker.groups.streams.tasks import NO_TASK_SETS, OwnedTasks, TaskSets, from_ids, in_order
from ottla.broker.groups.streams.topology import Topology, topology_of_request
from ottla.protocol.api.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    StreamsGroupStatus,
)
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ottla.broker.coordination.effects import Effects, Now, Waiter
    from ottla.broker.groups.group import Caller
    from ottla.broker.groups.streams.configured_topology import ConfiguredTopology
    from ottla.broker.groups.streams.group import StreamsGroup
    from ottla.broker.groups.streams.settings import StreamsSettings
    from ottla.broker.groups.streams.step import StreamsStep

FIRST_VERSION_WITH_MISSING_TAGS = 1

Status = StreamsGroupHeartbeatResponse.Status


def answer(
    group: StreamsGroup,
    request: StreamsGroupHeartbeatRequest,
    api_version: int,
    caller: Caller,
    waiter: Waiter,
    now: Now,
) -> Effects:
    """Handle a heartbeat. Raises KafkaError for a refused one, which changes nothing."""
    check_heartbeat(request)
    if request.member_epoch in (LEAVING_EPOCH, STATIC_LEAVING_EPOCH):
        return _leave(group, request, waiter, now)
    settings = group.current_settings()
    _check_room(group, request, settings)
    owned = _owned(request)
    found, replaced = _find(group, request, owned)
    topology = _topology(group, request.topology)
    metadata_hash, configured = group.configure(topology)
    subtopologies = configured.subtopologies or {}
    if configured.is_ready:
        for listed in (request.active_tasks, request.standby_tasks, request.warmup_tasks):
            check_tasks(subtopologies, listed or ())
    offsets = group.task_offsets.get(request.member_id, NO_TASK_OFFSETS).updated_by(request, subtopologies)
    group.check_sizes(found.updated_by(request, caller), topology, configured)

    was_empty, is_new = group.is_empty, group.durable.topology is None
    step = group.begin_step(settings, now)
    before = found if replaced is None else step.replace_static_member(replaced, request.member_id)
    if replaced is not None:
        group.forget_member(replaced.member_id)
    is_changed = step.update_member(
        before, before.updated_by(request, caller), is_static=request.instance_id is not None
    )
    step.begin_topology(topology)
    group.note_configured(configured)
    group.task_offsets[request.member_id] = offsets
    is_lost = group.is_without_target(request.member_id, configured)
    step.begin_epoch(metadata_hash, configured, is_changed=is_changed or is_lost)
    if was_empty:
        group.begin_initial_delay(settings, now)
    statuses = _stale(group, group.durable.members[request.member_id])
    target = _take_target(group, step, request.member_id, configured, statuses)
    after = step.reconcile(request.member_id, target, owned)

    group.note_sign_of_life(before, after, settings, caller, now)
    if request.shutdown_application and not is_new:
        group.request_shutdown(request.member_id)
    response = StreamsGroupHeartbeatResponse(
        member_id=after.member_id,
        member_epoch=after.member_epoch,
        heartbeat_interval_ms=settings.heartbeat_interval_ms,
        task_offset_interval_ms=settings.task_offset_interval_ms,
        acceptable_recovery_lag=settings.acceptable_recovery_lag,
        status=statuses,
        endpoint_information_epoch=0,
    )
    tasks = after.assigned
    if request.member_epoch == JOINING_EPOCH or tasks != before.assigned or _has_others(owned, tasks):
        response.active_tasks, response.standby_tasks = _listed(tasks.active), _listed(tasks.standby)
        response.warmup_tasks = _listed(tasks.warmup)
    _add_endpoints(group, request, response, configured, before, after, is_new=is_new)
    statuses += _of_group(group, configured)
    if api_version >= FIRST_VERSION_WITH_MISSING_TAGS:
        statuses += _missing_tags(after, settings)
    step.effects.reply(waiter, response)
    return step.effects


class _Found(NamedTuple):
    """The member that heartbeats, and the static member that it replaces, if any."""

    member: StreamsMember
    replaced: StreamsMember | None = None


def _check_room(group: StreamsGroup, request: StreamsGroupHeartbeatRequest, settings: StreamsSettings) -> None:
    """Raise GROUP_MAX_SIZE_REACHED for one member too many."""
    members, instance_id = group.durable.members, request.instance_id
    if request.member_epoch != JOINING_EPOCH or request.member_id in members or len(members) < settings.max_size:
        return
    if instance_id is None or group.durable.member_of_instance(instance_id) is None:
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The streams group has reached its maximum capacity of {settings.max_size} members.",
        )


def _owned(request: StreamsGroupHeartbeatRequest) -> TaskSets | None:
    """The tasks that the member reports to have."""
    active, standby, warmup = request.active_tasks, request.standby_tasks, request.warmup_tasks
    if active is None or standby is None or warmup is None:
        return None
    return TaskSets(from_ids(active), from_ids(standby), from_ids(warmup))


def _has_others(owned: TaskSets | None, assigned: OwnedTasks) -> bool:
    """Whether a member reports other tasks than it has: the answer that has changed them may be lost. Kafka's broker
    does not repeat it, and the tasks wait until the member is fenced.
    """
    return owned is not None and owned != assigned.without_epochs()


def _find(group: StreamsGroup, request: StreamsGroupHeartbeatRequest, owned: TaskSets | None) -> _Found:
    """Raises KafkaError UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH, UNRELEASED_INSTANCE_ID, FENCED_INSTANCE_ID."""
    joins = request.member_epoch == JOINING_EPOCH
    instance_id, member_id = request.instance_id, request.member_id
    if instance_id is None or not joins:
        if instance_id is not None:
            member = group.static_member_of(instance_id, member_id)
        elif joins:
            member = group.durable.members.get(member_id) or StreamsMember(member_id)
        else:
            member = group.member_of(member_id)
        check_member_epoch(member, request.member_epoch, owned)
        return _Found(member)
    existing = group.durable.member_of_instance(instance_id)
    if existing is None:
        return _Found(group.durable.members.get(member_id) or StreamsMember(member_id))
    if existing.member_epoch != STATIC_LEAVING_EPOCH:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {existing.member_id} member.",
        )
    return _Found(existing._replace(member_id=member_id), existing)


def _topology(group: StreamsGroup, sent: StreamsGroupHeartbeatRequest.Topology | None) -> Topology:
    """The group's topology after the heartbeat: the one that its first member sends. A member with an older one may
    join. Raises KafkaError INVALID_REQUEST for another one.
    """
    known = group.durable.topology
    if sent is None:
        if known is None:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"group {group.group_id} has lost its topology")
        return known
    topology = topology_of_request(sent)
    if known is None:
        return topology
    if known.epoch <= topology.epoch and topology != known:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Topology updates are not supported yet.")
    return known


def _take_target(
    group: StreamsGroup, step: StreamsStep, member_id: str, configured: ConfiguredTopology, statuses: list[Status]
) -> TaskSets:
    """The tasks that the member should have. The target is computed before, if that is due."""
    state = group.durable
    if group.is_initial_delay_active:
        statuses.append(_delayed("initial rebalance delay"))
        return NO_TASK_SETS
    if state.group_epoch > state.assignment_epoch:
        if step.may_assign():
            step.assign(configured, group.task_offsets)
        else:
            statuses.append(_delayed("assignment interval"))
    return state.target_of(member_id)


def _add_endpoints(
    group: StreamsGroup,
    request: StreamsGroupHeartbeatRequest,
    response: StreamsGroupHeartbeatResponse,
    configured: ConfiguredTopology,
    before: StreamsMember,
    after: StreamsMember,
    *,
    is_new: bool,
) -> None:
    """Send the partitions of all endpoints to a member that does not know them yet. The first heartbeat of a group does
    not count as a change, as in Kafka.
    """
    has_changed = before.user_endpoint != after.user_endpoint or (
        after.user_endpoint is not None and before.assigned != after.assigned
    )
    if has_changed and not is_new:
        group.endpoint_epoch += 1
    response.endpoint_information_epoch = group.endpoint_epoch
    if group.endpoint_epoch != request.endpoint_information_epoch or (has_changed and is_new):
        response.partitions_by_user_endpoint = partitions_by_endpoint(
            group.durable, configured, group.topics, last=after.member_id
        )


def _leave(group: StreamsGroup, request: StreamsGroupHeartbeatRequest, waiter: Waiter, now: Now) -> Effects:
    if request.instance_id is None:
        member = group.member_of(request.member_id)
    else:
        member = group.static_member_of(request.instance_id, request.member_id)
    if request.shutdown_application:
        group.request_shutdown(request.member_id)
    if request.instance_id is not None and request.member_epoch == STATIC_LEAVING_EPOCH:
        effects = group.leave_for_a_while(member, now)
    else:
        effects = group.remove([member.member_id], now)
    effects.reply(
        waiter,
        StreamsGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=0,
            task_offset_interval_ms=0,
            status=[],
            endpoint_information_epoch=0,
        ),
    )
    return effects


# --- statuses ---------------------------------------------------------------------------------------------------------


def _status(code: StreamsGroupStatus, detail: str) -> Status:
    return Status(status_code=code, status_detail=detail)


def _stale(group: StreamsGroup, member: StreamsMember) -> list[Status]:
    topology = group.durable.topology
    if topology is None or member.topology_epoch >= topology.epoch:
        return []
    detail = (
        f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch {topology.epoch}."
    )
    return [_status(StreamsGroupStatus.STALE_TOPOLOGY, detail)]


def _delayed(by: str) -> Status:
    return _status(StreamsGroupStatus.ASSIGNMENT_DELAYED, f"Assignment delayed due to the configured {by}.")


def _of_group(group: StreamsGroup, configured: ConfiguredTopology) -> list[Status]:
    statuses = []
    if configured.problem is not None:
        statuses.append(_status(configured.problem.status, configured.problem.detail))
    if group.shutdown_member_id is not None:
        detail = (
            f"Streams group member {group.shutdown_member_id} encountered a fatal error and requested a shutdown for "
            "the entire application."
        )
        statuses.append(_status(StreamsGroupStatus.SHUTDOWN_APPLICATION, detail))
    return statuses


def _missing_tags(member: StreamsMember, settings: StreamsSettings) -> list[Status]:
    has = dict(member.client_tags)
    missing = [tag for tag in settings.rack_aware_assignment_tags if tag not in has]
    if not missing:
        return []
    detail = (
        f"Missing required client tags for rack-aware standby assignment: [{', '.join(missing)}]. Configure them via "
        "'client.tag.<tagKey>' in your Streams config."
    )
    return [_status(StreamsGroupStatus.MISSING_CLIENT_TAGS, detail)]


def _listed(tasks: Mapping[str, Iterable[int]]) -> list[StreamsGroupHeartbeatResponse.TaskIds]:
    return [
        StreamsGroupHeartbeatResponse.TaskIds(subtopology_id=one, partitions=partitions)
        for one, partitions in in_order(tasks)
    ]
