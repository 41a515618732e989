"""DeleteRecords, versions 0-2: move the start of partitions forward.

Offset -1 means the high watermark. An offset beyond it is OFFSET_OUT_OF_RANGE. An offset below the log start changes
nothing, and the log start is returned. `cleanup.policy` must contain `delete` (POLICY_VIOLATION), as in Kafka.

With one replica Kafka's high watermark is the log end, and a producer with acks=1 may delete what it has just sent. In
`ottla.acks.all=sync` the high watermark is one group sync behind the log end. So the deletion waits for the sync that
covers its records (as in ListOffsets), at most `timeout_ms`: then REQUEST_TIMED_OUT.

The answer is durable: before it is sent, the new log start is in `log-start-offset-checkpoint`, synced.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ottla.broker.catalog.topic import find_partition
from ottla.broker.declarations import Chunks, Need
from ottla.broker.runtime.pending import Pending
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.formats.layout import TopicPartition

if TYPE_CHECKING:
    from ottla.broker.catalog.topic import Topic
    from ottla.broker.context import Context
    from ottla.broker.partitions.partition import Partition

HIGH_WATERMARK = -1

Result = DeleteRecordsResponse.DeleteRecordsPartitionResult

NEEDS = (Need(AclOperation.DELETE, ResourceType.TOPIC, named=("topics", "name"), answered="topics"),)
CHUNKS = (Chunks(("topics", "partitions"), ("topics", "partitions")),)


def handle(request: DeleteRecordsRequest, context: Context) -> DeleteRecordsResponse | Pending[DeleteRecordsResponse]:
    """Move every partition's start once its records are visible, then have each checkpoint written once."""
    deletion = _Deletion(context, context.services.clock.monotonic_ms() + max(request.timeout_ms, 0))
    for topic_request in request.topics:
        results: list[Result] = []
        deletion.response.topics.append(
            DeleteRecordsResponse.DeleteRecordsTopicResult(name=topic_request.name, partitions=results)
        )
        topic = context.services.catalog.topics.get(topic_request.name)
        for asked in topic_request.partitions:
            result = Result(partition_index=asked.partition_index, low_watermark=-1)
            results.append(result)
            try:
                partition = _find(context, topic, asked.partition_index)
                deletion.delete(partition, asked.offset, result)
            except KafkaError as error:
                result.error_code = error.code
    deletion.all_asked()
    pending = deletion.pending
    return deletion.response if pending.done and pending.error is None else pending


class _Deletion:
    """One request under way: partitions that wait for a sync, those whose start was moved, and the checkpoints."""

    def __init__(self, context: Context, deadline_ms: float) -> None:
        self.response = DeleteRecordsResponse(topics=[])
        self.pending: Pending[DeleteRecordsResponse] = Pending()
        self._services = context.services
        self._deadline_ms = deadline_ms
        self._waiting = 1  # `all_asked` removes it
        self._moved: list[tuple[Partition, Result]] = []

    def delete(self, partition: Partition, offset: int, result: Result) -> None:
        """Delete the records before `offset` now or when they are visible. Raises KafkaError for one out of range."""
        partition.settle()
        log_end_offset = partition.log.log_end_offset
        before_offset = log_end_offset if offset == HIGH_WATERMARK else offset
        if before_offset < 0 or before_offset > log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        self._waiting += 1

        def visible(error: BaseException | None) -> None:
            try:
                if error is not None:
                    raise error
                result.low_watermark = partition.log.delete_records(before_offset)
            except KafkaError as refusal:
                result.error_code = refusal.code
            except OSError:
                result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            else:
                partition.wake_watchers()
                self._moved.append((partition, result))
            self._one_done()

        partition.when_visible(before_offset, visible, self._deadline_ms)

    def all_asked(self) -> None:
        """All partitions have been asked: continue once none of them waits."""
        self._one_done()

    def _one_done(self) -> None:
        self._waiting -= 1
        if self._waiting:
            return
        if not self._moved:
            self.pending.complete(self.response)
            return
        manager = self._services.log_manager
        places = {TopicPartition(partition.topic, partition.index) for partition, _ in self._moved}
        self._services.workers.run(lambda: manager.checkpoints.write_log_start_offsets_of(places), self._written)

    def _written(self, failed: Collection[TopicPartition] | None, error: BaseException | None) -> None:
        if failed is None:
            assert error is not None
            self.pending.fail(error)
            return
        for partition, result in self._moved:
            if TopicPartition(partition.topic, partition.index) in failed:
                result.low_watermark = -1
                result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        self.pending.complete(self.response)


def _find(context: Context, topic: Topic | None, index: int) -> Partition:
    partition = find_partition(topic, index, missing=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert topic is not None
    if topic.is_internal:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    if "delete" not in topic.config.cleanup_policy:
        raise KafkaError(ErrorCode.POLICY_VIOLATION)
    return partition
