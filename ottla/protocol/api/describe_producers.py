"""DescribeProducers (key 61), version 0: the state of a partition's producers (KIP-664)."""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Int16, Int32, Int64, NullableString, String


class DescribeProducersRequest(Request, key=61, versions="0", flexible="0+"):
    """The partitions to describe."""

    class TopicRequest(Struct):
        """A topic's partitions."""

        name: String
        partition_indexes: list[Int32]

    topics: list[TopicRequest]


class DescribeProducersResponse(Response, key=61, versions="0", flexible="0+"):
    """The partitions."""

    class ProducerState(Struct):
        """A producer; the fields of an open transaction are -1 if there is none."""

        producer_id: Int64
        producer_epoch: Int32
        last_sequence: Int32 = -1
        last_timestamp: Int64 = -1
        coordinator_epoch: Int32
        current_txn_start_offset: Int64 = -1

    class PartitionResponse(Struct):
        """A partition with its producers."""

        partition_index: Int32
        error_code: Int16 = 0
        error_message: NullableString = None
        active_producers: list[DescribeProducersResponse.ProducerState]

    class TopicResponse(Struct):
        """A topic's partitions."""

        name: String
        partitions: list[DescribeProducersResponse.PartitionResponse]

    throttle_time_ms: Int32 = 0
    topics: list[TopicResponse]


def refused(
    request: DescribeProducersRequest, version: int, code: ErrorCode, message: str
) -> DescribeProducersResponse:
    """Refuse every partition of the request."""
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponse.TopicResponse(
                name=topic.name,
                partitions=[
                    DescribeProducersResponse.PartitionResponse(
                        partition_index=index, error_code=code, error_message=message, active_producers=[]
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )
