"""StreamsGroupHeartbeat (key 88): what members of a streams group send to its coordinator (KIP-1071).

A member joins with epoch 0, leaves with -1 (or with -2 if it is static and comes back), and otherwise says that it
is alive. It sends its topology when it joins. Other fields have what changed since its last heartbeat, null meaning
that nothing did; the broker answers in the same way. Version 1 (Kafka 4.4) has a recovery lag of 64 bits, and may ask
for the description of the topology (KIP-1331).
"""

from __future__ import annotations

from enum import IntEnum

from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, ranged, since
from ottla.protocol.types import Bool, Int8, Int16, Int32, Int64, NullableString, String, Uint16


class StreamsGroupHeartbeatRequest(
    Request, key=88, versions="0-1", flexible="0+", max_elements=MAX_ELEMENTS_IN_ONE_PIECE
):
    """What the member is, runs and has."""

    class KeyValue(Struct):
        """A configuration of a topic, or a tag of a client."""

        key: String
        value: String

    class TopicInfo(Struct):
        """An internal topic. 0 partitions: not fixed, always so for changelogs; replication factor 0: the default."""

        name: String
        partitions: Int32
        replication_factor: Int16
        topic_configs: list[StreamsGroupHeartbeatRequest.KeyValue]

    class CopartitionGroup(Struct):
        """Topics that must have the same number of partitions, as indexes into the lists of the subtopology."""

        source_topics: list[Int16]
        source_topic_regex: list[Int16]
        repartition_source_topics: list[Int16]

    class Subtopology(Struct):
        """A part of the topology, of which each partition is a task."""

        subtopology_id: String
        source_topics: list[String]
        source_topic_regex: list[String]
        state_changelog_topics: list[StreamsGroupHeartbeatRequest.TopicInfo]
        repartition_sink_topics: list[String]
        repartition_source_topics: list[StreamsGroupHeartbeatRequest.TopicInfo]
        copartition_groups: list[StreamsGroupHeartbeatRequest.CopartitionGroup]

    class Topology(Struct):
        """All subtopologies of the application."""

        epoch: Int32
        subtopologies: list[StreamsGroupHeartbeatRequest.Subtopology]

    class TaskIds(Struct):
        """Tasks of one subtopology."""

        subtopology_id: String
        partitions: list[Int32]

    class Endpoint(Struct):
        """Where the client answers interactive queries."""

        host: String
        port: Uint16

    class TaskOffset(Struct):
        """The sum of the offsets in the changelogs of a task."""

        subtopology_id: String
        partition: Int32
        offset: Int64

    group_id: String
    member_id: String
    member_epoch: Int32
    endpoint_information_epoch: Int32
    instance_id: NullableString = None
    rack_id: NullableString = None
    rebalance_timeout_ms: Int32 = -1
    topology: Topology | None = None
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    process_id: NullableString = None
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] | None = None
    task_offsets: list[TaskOffset] | None = None
    task_end_offsets: list[TaskOffset] | None = None
    shutdown_application: Bool = False


class StreamsGroupStatus(IntEnum):
    """The codes of `StreamsGroupHeartbeatResponse.Status`."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6
    """Only in version 1: clients of version 0 do not know it."""


class StreamsGroupHeartbeatResponse(Response, key=88, versions="0-1", flexible="0+"):
    """The member's epoch, the statuses of the group, and the member's tasks where they have changed."""

    class Status(Struct):
        """Something that the client should know, as a `StreamsGroupStatus`."""

        status_code: Int8
        status_detail: String

    class TaskIds(Struct):
        """Tasks of one subtopology."""

        subtopology_id: String
        partitions: list[Int32]

    class Endpoint(Struct):
        """Where a client answers interactive queries."""

        host: String
        port: Uint16

    class TopicPartition(Struct):
        """A topic's partitions."""

        topic: String
        partitions: list[Int32]

    class EndpointToPartitions(Struct):
        """The source partitions of one member's tasks. Several members may have the same endpoint."""

        user_endpoint: StreamsGroupHeartbeatResponse.Endpoint
        active_partitions: list[StreamsGroupHeartbeatResponse.TopicPartition]
        standby_partitions: list[StreamsGroupHeartbeatResponse.TopicPartition]

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    member_id: String
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    acceptable_recovery_lag_legacy: Int32 = ranged("0", default=0)
    task_offset_interval_ms: Int32
    acceptable_recovery_lag: Int64 = since("1+", default=-1, ignorable=True)
    status: list[Status] | None
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    topology_description_required: Bool = since("1+", default=False)
    endpoint_information_epoch: Int32
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = None


def refused(
    request: StreamsGroupHeartbeatRequest, version: int, code: ErrorCode, message: str
) -> StreamsGroupHeartbeatResponse:
    """Refuse the request."""
    return StreamsGroupHeartbeatResponse(
        error_code=code,
        error_message=message,
        member_id="",
        member_epoch=0,
        heartbeat_interval_ms=0,
        task_offset_interval_ms=0,
        status=[],
        endpoint_information_epoch=0,
    )
