"""DescribeTopicPartitions (key 75), version 0: topics and partitions page by page (KIP-966).

An empty `topics` means all. A page has up to `response_partition_limit` partitions, and the start of the next page.
Topics are in the order of their names.
"""

from __future__ import annotations

from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import ZERO_UUID, Bool, Int16, Int32, NullableString, String, Uuid


class DescribeTopicPartitionsRequest(
    Request, key=75, versions="0", flexible="0+", max_elements=MAX_ELEMENTS_IN_ONE_PIECE
):
    """The topics to describe, and the first partition."""

    class TopicRequest(Struct):
        """A topic by its name."""

        name: String

    class Cursor(Struct):
        """The first partition to describe."""

        topic_name: String
        partition_index: Int32

    topics: list[TopicRequest]
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponse(Response, key=75, versions="0", flexible="0+"):
    """One page; `next_cursor` is null on the last one."""

    class DescribeTopicPartitionsResponsePartition(Struct):
        """A partition; the eligible leader replicas are null if the broker keeps none."""

        error_code: Int16 = 0
        partition_index: Int32
        leader_id: Int32
        leader_epoch: Int32 = -1
        replica_nodes: list[Int32]
        isr_nodes: list[Int32]
        eligible_leader_replicas: list[Int32] | None = None
        last_known_elr: list[Int32] | None = None
        offline_replicas: list[Int32]

    class DescribeTopicPartitionsResponseTopic(Struct):
        """A topic, or the reason why it cannot be described."""

        error_code: Int16 = 0
        name: NullableString
        topic_id: Uuid
        is_internal: Bool = False
        partitions: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition]
        topic_authorized_operations: Int32 = -0x8000_0000

    class Cursor(Struct):
        """The first partition that is not in this page."""

        topic_name: String
        partition_index: Int32

    throttle_time_ms: Int32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None = None


def refused(
    request: DescribeTopicPartitionsRequest, version: int, code: ErrorCode, message: str
) -> DescribeTopicPartitionsResponse:
    """Refuse every topic of the request."""
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic(
                error_code=code, name=topic.name, topic_id=ZERO_UUID, partitions=[]
            )
            for topic in request.topics
        ]
    )
