"""Metadata (key 3), versions 0-13: the brokers, and the topics with their partitions and leaders.

Null `topics` means all topics, an empty list none. Version 0 has no null: an empty list means all.

Versions: 1 adds racks, the controller and internal topics · 2 the cluster id · 3 the throttle time · 4 auto-creation
can be declined · 5 offline replicas · 7 leader epochs · 8 authorized operations (KIP-430) · 9 is flexible · 10 topic
ids in responses, and a field for them in requests that works from version 12 on (KIP-516) · 11 drops the cluster's
authorized operations in favour of DescribeCluster (KIP-700) · 13 a top-level error code.
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, ranged, since
from ottla.protocol.types import ZERO_UUID, Bool, Int16, Int32, NullableString, String, Uuid


class MetadataRequest(Request, key=3, versions="0-13", flexible="9+"):
    """The topics to describe."""

    class MetadataRequestTopic(Struct):
        """A topic by `name`, or by `topic_id` with a null name (version 12 and later)."""

        topic_id: Uuid = since("10+", default=ZERO_UUID, ignorable=True)
        name: NullableString = since("0+", nullable="10+")

    topics: list[MetadataRequestTopic] | None = since("0+", nullable="1+")
    allow_auto_topic_creation: Bool = since("4+", default=True)
    include_cluster_authorized_operations: Bool = ranged("8-10", default=False)
    include_topic_authorized_operations: Bool = since("8+", default=False)


class MetadataResponse(Response, key=3, versions="0-13", flexible="9+"):
    """The cluster as this broker sees it.

    `cluster_authorized_operations` is a bit set, -2^31 if it was not requested.
    """

    class MetadataResponseBroker(Struct):
        """A broker and the address that belongs to the listener of the request."""

        node_id: Int32
        host: String
        port: Int32
        rack: NullableString = since("1+", default=None, ignorable=True)

    class MetadataResponsePartition(Struct):
        """A partition; `leader_id` is -1 if it has none."""

        error_code: Int16 = 0
        partition_index: Int32
        leader_id: Int32
        leader_epoch: Int32 = since("7+", default=-1, ignorable=True)
        replica_nodes: list[Int32]
        isr_nodes: list[Int32]
        offline_replicas: list[Int32] = since("5+", factory=list, ignorable=True)

    class MetadataResponseTopic(Struct):
        """A topic, or the reason why it cannot be described; `name` is null for an unknown topic id."""

        error_code: Int16 = 0
        name: NullableString = since("0+", nullable="12+")
        topic_id: Uuid = since("10+", default=ZERO_UUID, ignorable=True)
        is_internal: Bool = since("1+", default=False, ignorable=True)
        partitions: list[MetadataResponse.MetadataResponsePartition]
        topic_authorized_operations: Int32 = since("8+", default=-0x8000_0000)

    throttle_time_ms: Int32 = since("3+", default=0, ignorable=True)
    brokers: list[MetadataResponseBroker]
    cluster_id: NullableString = since("2+", default=None, ignorable=True)
    controller_id: Int32 = since("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: Int32 = ranged("8-10", default=-0x8000_0000)
    error_code: Int16 = since("13+", default=0, ignorable=True)


def refused(request: MetadataRequest, version: int, code: ErrorCode, message: str) -> MetadataResponse:
    """Refuse every topic of the request, and the request where the version can say it."""
    return MetadataResponse(
        brokers=[],
        topics=[
            MetadataResponse.MetadataResponseTopic(
                error_code=code,
                name=topic.name if version >= 12 else topic.name or "",
                topic_id=topic.topic_id,
                partitions=[],
            )
            for topic in request.topics or ()
        ],
        error_code=code,
    )
