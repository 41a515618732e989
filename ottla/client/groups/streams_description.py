"""Conversion of a broker's description of a streams group to the client's. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.client.admin_group_results import STREAMS, GroupDescription, MemberDescription
from ottla.client.admin_streams_results import (
    StreamsInternalTopic,
    StreamsMember,
    StreamsSubtopology,
    StreamsTask,
    StreamsTasks,
    StreamsTopology,
)
from ottla.client.structs import BrokerAddress
from ottla.protocol.api.streams_group_describe import StreamsGroupDescribeResponse


def describe_streams(
    description: StreamsGroupDescribeResponse.DescribedGroup, coordinator: BrokerAddress
) -> GroupDescription:
    """Return a streams group. Its assignor is empty if the broker does not name it (before Kafka 4.4)."""
    topology = None if description.topology is None else _topology(description.topology)
    subtopologies = topology.subtopologies if topology is not None else []
    topics = sorted({topic for one in subtopologies for topic in one.topics_read})
    return GroupDescription(
        group_id=description.group_id,
        group_type=STREAMS,
        protocol_type=STREAMS,
        state=description.group_state,
        assignor=description.assignor_name or "",
        coordinator=coordinator,
        members=[_member(member, topics) for member in description.members],
        epoch=description.group_epoch,
        assignment_epoch=description.assignment_epoch,
        topology=topology,
    )


def _member(member: StreamsGroupDescribeResponse.Member, topics: list[str]) -> MemberDescription:
    endpoint = member.user_endpoint
    return MemberDescription(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        topics=topics,
        epoch=member.member_epoch,
        speaks_classic=member.is_classic,
        streams=StreamsMember(
            process_id=member.process_id,
            topology_epoch=member.topology_epoch,
            tasks=_tasks(member.assignment),
            target_tasks=_tasks(member.target_assignment),
            rack_id=member.rack_id,
            user_endpoint=None if endpoint is None else (endpoint.host, endpoint.port),
            client_tags={tag.key: tag.value for tag in member.client_tags},
        ),
    )


def _tasks(assignment: StreamsGroupDescribeResponse.Assignment) -> StreamsTasks:
    return StreamsTasks(
        active=_sorted(assignment.active_tasks),
        standby=_sorted(assignment.standby_tasks),
        warmup=_sorted(assignment.warmup_tasks),
    )


def _sorted(tasks: Iterable[StreamsGroupDescribeResponse.TaskIds]) -> list[StreamsTask]:
    return sorted(StreamsTask(some.subtopology_id, index) for some in tasks for index in some.partitions)


def _topology(topology: StreamsGroupDescribeResponse.Topology) -> StreamsTopology:
    return StreamsTopology(
        epoch=topology.epoch,
        subtopologies=[
            StreamsSubtopology(
                subtopology_id=one.subtopology_id,
                source_topics=sorted(one.source_topics),
                repartition_source_topics=_internal_topics(one.repartition_source_topics),
                repartition_sink_topics=sorted(one.repartition_sink_topics),
                state_changelog_topics=_internal_topics(one.state_changelog_topics),
            )
            for one in topology.subtopologies or ()
        ],
    )


def _internal_topics(topics: Iterable[StreamsGroupDescribeResponse.TopicInfo]) -> list[StreamsInternalTopic]:
    found = [
        StreamsInternalTopic(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            configs={config.key: config.value for config in topic.topic_configs},
        )
        for topic in topics
    ]
    return sorted(found, key=lambda topic: topic.name)
