"""DescribeProducers (key 61), version 0: what a partition remembers of its idempotent and transactional producers.

The last sequence, its time and the epoch are what duplicates are found by. The coordinator's epoch is -1: a partition
does not keep it, as in Kafka for producers without a transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.protocol.api.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.layout import topic_name_problem

if TYPE_CHECKING:
    from ottla.broker.context import Context

PartitionResponse = DescribeProducersResponse.PartitionResponse
ProducerState = DescribeProducersResponse.ProducerState


def handle(request: DescribeProducersRequest, context: Context) -> DescribeProducersResponse:
    """Answer at once; a partition that is named more than once is told once, for a name is shorter than an answer."""
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponse.TopicResponse(
                name=topic.name,
                partitions=[_describe(topic.name, index, context) for index in dict.fromkeys(topic.partition_indexes)],
            )
            for topic in request.topics
        ]
    )


def _describe(topic: str, index: int, context: Context) -> DescribeProducersResponse.PartitionResponse:
    try:
        problem = topic_name_problem(topic)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        found = context.node.catalog.topics.get(topic)
        partition = context.node.find_partition(found, index, missing=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    except KafkaError as error:
        return PartitionResponse(
            partition_index=index, error_code=error.code, error_message=error.message, active_producers=[]
        )
    partition.flush(context.now_ms)
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.batches[-1].timestamp_ms if entry.batches else -1,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.current_txn_first_offset,
            )
            for entry in partition.log.producers
        ],
    )
