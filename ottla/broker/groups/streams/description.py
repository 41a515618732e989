"""A streams group as StreamsGroupDescribe shows it. Source: Kafka's `StreamsGroup.asDescribedGroup`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ottla.broker.groups.streams.sticky_assignor import STICKY
from ottla.broker.groups.streams.task_offsets import NO_TASK_OFFSETS, OffsetsOfTasks, TaskOffsets
from ottla.broker.groups.streams.tasks import in_order
from ottla.broker.groups.streams.topology_description import describe_topology
from ottla.protocol.api.streams_group_describe import StreamsGroupDescribeResponse

if TYPE_CHECKING:
    from ottla.broker.groups.streams.configured_topology import ConfiguredTopology
    from ottla.broker.groups.streams.member import StreamsMember
    from ottla.broker.groups.streams.state import StreamsGroupState
    from ottla.broker.groups.streams.tasks import OwnedTasks, TaskSets

_Response = StreamsGroupDescribeResponse


def describe_group(
    state: StreamsGroupState, configured: ConfiguredTopology | None, offsets: Mapping[str, TaskOffsets]
) -> _Response.DescribedGroup:
    """The group, without authorized operations. Internal topics have their decided numbers of partitions if the
    topology is ready, else those that the application has fixed, 0 for none.
    """
    return _Response.DescribedGroup(
        group_id=state.group_id,
        group_state=state.name,
        group_epoch=state.group_epoch,
        assignment_epoch=state.assignment_epoch,
        topology=None if state.topology is None else describe_topology(state.topology, configured),
        members=[
            _member(member, state.target_of(member.member_id), offsets.get(member.member_id, NO_TASK_OFFSETS))
            for member in state.members.values()
        ],
        assignor_name=STICKY,
    )


def _member(member: StreamsMember, target: TaskSets, offsets: TaskOffsets) -> _Response.Member:
    endpoint = member.user_endpoint
    return _Response.Member(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else _Response.Endpoint(host=endpoint.host, port=endpoint.port),
        client_tags=[_Response.KeyValue(key=key, value=text) for key, text in member.client_tags],
        task_offsets=_offsets(offsets.offsets),
        task_end_offsets=_offsets(offsets.end_offsets),
        assignment=_assignment(member.assigned),
        target_assignment=_assignment(target),
        is_classic=False,
    )


def _assignment(tasks: OwnedTasks | TaskSets) -> _Response.Assignment:
    return _Response.Assignment(
        active_tasks=_ids(tasks.active), standby_tasks=_ids(tasks.standby), warmup_tasks=_ids(tasks.warmup)
    )


def _ids(tasks: Mapping[str, Iterable[int]]) -> list[_Response.TaskIds]:
    return [_Response.TaskIds(subtopology_id=one, partitions=partitions) for one, partitions in in_order(tasks)]


def _offsets(offsets: OffsetsOfTasks) -> list[_Response.TaskOffset]:
    return [
        _Response.TaskOffset(subtopology_id=subtopology_id, partition=partition, offset=offset)
        for subtopology_id, of_subtopology in sorted(offsets.items())
        for partition, offset in sorted(of_subtopology.items())
    ]
