"""DeleteRecords, versions 0-2: move the start of partitions forward.

Offset -1 stands for the high watermark; an offset beyond it is OFFSET_OUT_OF_RANGE; one below the log start changes
nothing, and the log start is the answer. `cleanup.policy` must contain `delete` (POLICY_VIOLATION), as in Kafka.

What is answered counts (decisions.md 6): the new log start is in `log-start-offset-checkpoint`, synced, before the
answer leaves.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ottla.broker.pending import Pending
from ottla.protocol.api.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.layout import TopicPartition

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.partition import Partition
    from ottla.broker.topic import Topic

HIGH_WATERMARK = -1

Result = DeleteRecordsResponse.DeleteRecordsPartitionResult


def handle(request: DeleteRecordsRequest, context: Context) -> DeleteRecordsResponse | Pending[DeleteRecordsResponse]:
    """Move every partition's start, then have the checkpoints written, each once."""
    moved: list[tuple[Partition, Result]] = []
    response = DeleteRecordsResponse(topics=[])
    for topic_request in request.topics:
        results: list[Result] = []
        response.topics.append(
            DeleteRecordsResponse.DeleteRecordsTopicResult(name=topic_request.name, partitions=results)
        )
        topic = context.node.catalog.topics.get(topic_request.name)
        for asked in topic_request.partitions:
            result = Result(partition_index=asked.partition_index, low_watermark=-1)
            results.append(result)
            try:
                partition = _find(context, topic, asked.partition_index)
                result.low_watermark = _delete(partition, asked.offset)
            except KafkaError as error:
                result.error_code = error.code
            except OSError:
                result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            else:
                moved.append((partition, result))
    if not moved:
        return response
    pending: Pending[DeleteRecordsResponse] = Pending()
    manager = context.node.log_manager
    places = {TopicPartition(partition.topic, partition.index) for partition, _ in moved}

    def written(failed: Collection[TopicPartition] | None, error: BaseException | None) -> None:
        if failed is None:
            assert error is not None
            pending.fail(error)
            return
        for partition, result in moved:
            if TopicPartition(partition.topic, partition.index) in failed:
                result.low_watermark = -1
                result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        pending.complete(response)

    context.node.workers.run(lambda: manager.checkpoints.write_log_start_offsets_of(places), written)
    return response if pending.done and pending.error is None else pending


def _find(context: Context, topic: Topic | None, index: int) -> Partition:
    partition = context.node.find_partition(topic, index, missing=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert topic is not None
    if topic.is_internal:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    if "delete" not in topic.config.cleanup_policy:
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    return partition


def _delete(partition: Partition, offset: int) -> int:
    """The new log start offset."""
    partition.settle()
    before_offset = partition.high_watermark if offset == HIGH_WATERMARK else offset
    if before_offset < 0 or before_offset > partition.high_watermark:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    low_watermark = partition.log.delete_records(before_offset)
    partition.wake_watchers()
    return low_watermark
