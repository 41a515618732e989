"""StreamsGroupDescribe (key 89): streams groups with their topology, members and tasks (KIP-1071).

A group of another type is GROUP_ID_NOT_FOUND. Version 1 (Kafka 4.4) has the name of the assignor (KIP-1357), and the
description of the topology's nodes if the request asks for it (KIP-1331).
"""

from __future__ import annotations

from enum import IntEnum

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, since
from ottla.protocol.types import Bool, Int8, Int16, Int32, Int64, NullableString, String, Uint16


class StreamsGroupDescribeRequest(Request, key=89, versions="0-1", flexible="0+"):
    """The groups to describe."""

    group_ids: list[String]
    include_authorized_operations: Bool
    include_topology_description: Bool = since("1+", default=False)


class TopologyDescriptionStatus(IntEnum):
    """Why a group has a description of its topology or none."""

    NOT_REQUESTED = 0
    NOT_STORED = 1
    ERROR = 2
    AVAILABLE = 3


class StreamsGroupDescribeResponse(Response, key=89, versions="0-1", flexible="0+"):
    """The groups, in the order of the request."""

    class KeyValue(Struct):
        """A configuration of a topic, or a tag of a client."""

        key: String
        value: String

    class TopicInfo(Struct):
        """An internal topic. Replication factor 0: the default."""

        name: String
        partitions: Int32
        replication_factor: Int16
        topic_configs: list[StreamsGroupDescribeResponse.KeyValue]

    class Subtopology(Struct):
        """A subtopology with the topics that its regular expressions match."""

        subtopology_id: String
        source_topics: list[String]
        repartition_sink_topics: list[String]
        state_changelog_topics: list[StreamsGroupDescribeResponse.TopicInfo]
        repartition_source_topics: list[StreamsGroupDescribeResponse.TopicInfo]

    class Topology(Struct):
        """The topology. `subtopologies` is null while source topics are missing or wrongly partitioned."""

        epoch: Int32
        subtopologies: list[StreamsGroupDescribeResponse.Subtopology] | None = None

    class TaskIds(Struct):
        """Tasks of one subtopology."""

        subtopology_id: String
        partitions: list[Int32]

    class Assignment(Struct):
        """The tasks of a member."""

        active_tasks: list[StreamsGroupDescribeResponse.TaskIds]
        standby_tasks: list[StreamsGroupDescribeResponse.TaskIds]
        warmup_tasks: list[StreamsGroupDescribeResponse.TaskIds]

    class Endpoint(Struct):
        """Where the client answers interactive queries."""

        host: String
        port: Uint16

    class TaskOffset(Struct):
        """The sum of the offsets in the changelogs of a task."""

        subtopology_id: String
        partition: Int32
        offset: Int64

    class Member(Struct):
        """A member: what it is, the tasks that it has, and those that it is to have."""

        member_id: String
        member_epoch: Int32
        instance_id: NullableString = None
        rack_id: NullableString = None
        client_id: String
        client_host: String
        topology_epoch: Int32
        process_id: String
        user_endpoint: StreamsGroupDescribeResponse.Endpoint | None = None
        client_tags: list[StreamsGroupDescribeResponse.KeyValue]
        task_offsets: list[StreamsGroupDescribeResponse.TaskOffset]
        task_end_offsets: list[StreamsGroupDescribeResponse.TaskOffset]
        assignment: StreamsGroupDescribeResponse.Assignment
        target_assignment: StreamsGroupDescribeResponse.Assignment
        is_classic: Bool

    class TopologyDescriptionNode(Struct):
        """A node of the topology. `node_type`: 1 source, 2 processor, 3 sink."""

        name: String
        node_type: Int8
        source_topics: list[String]
        sink_topic: NullableString = None
        stores: list[String]
        successors: list[String]

    class TopologyDescriptionSubtopology(Struct):
        """The nodes of a subtopology."""

        subtopology_id: String
        nodes: list[StreamsGroupDescribeResponse.TopologyDescriptionNode]

    class TopologyDescriptionGlobalStore(Struct):
        """A global store: the source that fills it, and the processor that writes it."""

        source: StreamsGroupDescribeResponse.TopologyDescriptionNode
        processor: StreamsGroupDescribeResponse.TopologyDescriptionNode

    class TopologyDescription(Struct):
        """All nodes of the topology."""

        subtopologies: list[StreamsGroupDescribeResponse.TopologyDescriptionSubtopology]
        global_stores: list[StreamsGroupDescribeResponse.TopologyDescriptionGlobalStore]

    class DescribedGroup(Struct):
        """A group, or why it cannot be described. `authorized_operations`: a bit set, -2^31 where it was not asked."""

        error_code: Int16 = 0
        error_message: NullableString = None
        group_id: String
        group_state: String
        group_epoch: Int32
        assignment_epoch: Int32
        topology: StreamsGroupDescribeResponse.Topology | None = None
        members: list[StreamsGroupDescribeResponse.Member]
        authorized_operations: Int32 = -0x8000_0000
        topology_description: StreamsGroupDescribeResponse.TopologyDescription | None = since("1+", default=None)
        topology_description_status: Int8 = since("1+", default=0)
        assignor_name: NullableString = since("1+", default=None, ignorable=True)

    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup]


def undescribed(group_id: str, code: ErrorCode, message: str | None) -> StreamsGroupDescribeResponse.DescribedGroup:
    """The entry of a group that cannot be described."""
    return StreamsGroupDescribeResponse.DescribedGroup(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        members=[],
    )


def refused(
    request: StreamsGroupDescribeRequest, version: int, code: ErrorCode, message: str
) -> StreamsGroupDescribeResponse:
    """Refuse every group of the request."""
    return StreamsGroupDescribeResponse(groups=[undescribed(group_id, code, message) for group_id in request.group_ids])
