"""DescribeProducers (key 61), version 0: the state that a partition keeps of its idempotent and transactional
producers.

The last sequence, its time and the epoch are used to detect duplicates. The coordinator's epoch is -1: a partition does
not keep it, as in Kafka for producers without a transaction.

A partition may have 200,000 producers, so each turn of the loop describes some of them, in their state at the beginning
of that partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.broker.catalog.topic import find_partition
from ottla.broker.declarations import Chunks, Need
from ottla.broker.runtime.steps import Pace
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.formats.layout import topic_name_problem

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.runtime.pending import Pending
    from ottla.broker.runtime.steps import Steps
    from ottla.storage.producers.producer_entry import ProducerEntry

PRODUCERS_PER_STEP: Final = 2_000
"""Two to three milliseconds."""

Answer = DescribeProducersResponse
PartitionResponse = DescribeProducersResponse.PartitionResponse
ProducerState = DescribeProducersResponse.ProducerState

NEEDS = (Need(AclOperation.READ, ResourceType.TOPIC, named=("topics", "name"), answered="topics"),)
CHUNKS = (Chunks(("topics", "partition_indexes"), ("topics", "partitions")),)


def handle(
    request: DescribeProducersRequest, context: Context
) -> DescribeProducersResponse | Pending[DescribeProducersResponse]:
    """Answer immediately if there are few producers. A partition that is named more than once is returned once: a name
    is shorter than an answer.
    """
    return context.in_steps(_describe(request, context))


def _describe(request: DescribeProducersRequest, context: Context) -> Steps[DescribeProducersResponse]:
    topics: list[Answer.TopicResponse] = []
    pace = Pace(PRODUCERS_PER_STEP)
    for topic in request.topics:
        partitions: list[PartitionResponse] = []
        topics.append(Answer.TopicResponse(name=topic.name, partitions=partitions))
        for index in dict.fromkeys(topic.partition_indexes):
            try:
                producers = _producers(topic.name, index, context)
            except KafkaError as error:
                partitions.append(
                    PartitionResponse(
                        partition_index=index, error_code=error.code, error_message=error.message, active_producers=[]
                    )
                )
                continue
            states = yield from pace.made(_state, producers)
            partitions.append(PartitionResponse(partition_index=index, active_producers=states))
    return Answer(topics=topics)


def _producers(topic: str, index: int, context: Context) -> list[ProducerEntry]:
    """The partition's producers in their present state. Raises KafkaError where there is no such partition."""
    problem = topic_name_problem(topic)
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    found = context.services.catalog.topics.get(topic)
    partition = find_partition(found, index, missing=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition.flush(context.now_ms)
    return list(partition.log.producers)


def _state(entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.timestamp_ms,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.current_txn_first_offset,
    )
