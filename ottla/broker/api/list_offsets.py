"""ListOffsets, versions 0-11: the offset of a partition's beginning, of its end, or of a time.

LATEST waits for the sync that covers the log end at the request, and so do look-ups by time, so that they find what a
client has just produced with acks=1.

Special timestamps: -1 latest, -2 earliest, -3 (from version 7) the record with the largest timestamp, -4 (8) earliest
local, which is the log start, -5 (9) latest tiered and -6 (11) earliest that waits for tiering (KIP-1023), both of
which are -1 because nothing is tiered. Other negative values, and these in older versions, are UNSUPPORTED_VERSION, as
in Kafka. A partition that is named twice is INVALID_REQUEST.

Version 0 (Kafka 0.10.0 and before) is answered with a list of offsets at which segments begin (`segment_offsets.py`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.broker.catalog.topic import find_partition
from ottla.broker.declarations import Chunks, Need
from ottla.broker.partitions.read_damage import note_damage
from ottla.broker.runtime.pending import Pending
from ottla.broker.runtime.steps import Pace
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.log.segment_offsets import offsets_before

if TYPE_CHECKING:
    from ottla.broker.context import Context
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.runtime.steps import Steps
    from ottla.broker.services import Services

LOG = logging.getLogger("ottla.list_offsets")

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
_KNOWN = (LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD)
"""Timestamps for which a log need not read its files."""
SEARCH_WEIGHT: Final = 5
"""The weight in a step of a partition whose files are searched: it takes 15 to 45 us."""
_SINCE_VERSION = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_READ_COMMITTED = 1
FIRST_VERSION_WITH_EPOCH = 4
NO_EPOCH = -1

Answer = ListOffsetsResponse.ListOffsetsPartitionResponse

NEEDS = (Need(AclOperation.DESCRIBE, ResourceType.TOPIC, named=("topics", "name"), answered="topics"),)
CHUNKS = (Chunks(("topics", "partitions"), ("topics", "partitions")),)


def handle(request: ListOffsetsRequest, context: Context) -> ListOffsetsResponse | Pending[ListOffsetsResponse]:
    """Answer every partition, in steps where there are many; the response waits for those that wait for a sync."""
    return context.in_steps(_answer_all(request, context))


def _answer_all(
    request: ListOffsetsRequest, context: Context
) -> Steps[ListOffsetsResponse | Pending[ListOffsetsResponse]]:
    named = Counter((topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions)
    committed_only = request.isolation_level == _READ_COMMITTED
    response = ListOffsetsResponse(topics=[])
    pending: Pending[ListOffsetsResponse] = Pending()
    waiting = 1

    def one_done() -> None:
        nonlocal waiting
        waiting -= 1
        if waiting == 0:
            if context.api_version < FIRST_VERSION_WITH_EPOCH:
                for topic in response.topics:
                    for answer in topic.partitions:
                        answer.leader_epoch = NO_EPOCH
            pending.complete(response)

    pace = Pace()
    for topic in request.topics:
        answers: list[Answer] = []
        response.topics.append(ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        for asked in topic.partitions:
            if pace.is_up(1 if asked.timestamp in _KNOWN else SEARCH_WEIGHT):
                yield
            answer = Answer(partition_index=asked.partition_index)
            answers.append(answer)
            try:
                if named[topic.name, asked.partition_index] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                partition = _find(asked, topic.name, context)
            except KafkaError as error:
                answer.error_code = error.code
                continue
            waiting += 1
            if context.api_version == 0:
                _look_up_segments(partition, asked, answer, one_done, context)
                continue
            _look_up(partition, asked.timestamp, answer, one_done, context.services, committed_only=committed_only)
    one_done()
    return response if pending.done else pending


def _find(asked: ListOffsetsRequest.ListOffsetsPartition, topic: str, context: Context) -> Partition:
    services = context.services
    timestamp = asked.timestamp
    if timestamp < 0 and context.api_version < _SINCE_VERSION.get(timestamp, 1 << 15):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    partition = find_partition(
        services.catalog.topics.get(topic), asked.partition_index, missing=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    epoch = asked.current_leader_epoch
    if epoch not in (NO_EPOCH, partition.leader_epoch):
        raise KafkaError(
            ErrorCode.FENCED_LEADER_EPOCH if epoch < partition.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        )
    return partition


def _look_up(
    partition: Partition,
    timestamp: int,
    answer: Answer,
    done: Callable[[], None],
    services: Services,
    *,
    committed_only: bool,
) -> None:
    """Fill in `answer` and call `done`: now, or when the present log end is visible."""
    partition.settle()
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset = partition.log_start_offset
        answer.leader_epoch = partition.log.epoch_for_offset(answer.offset)
        if answer.leader_epoch == NO_EPOCH and answer.offset == partition.log.log_end_offset:
            answer.leader_epoch = partition.leader_epoch  # there is no record yet: the first one will be of this epoch
        done()
        return
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        done()
        return

    def visible(error: BaseException | None) -> None:
        if isinstance(error, KafkaError):  # the topic was deleted meanwhile: what is visible is not all that it has
            answer.error_code = error.code
            done()
            return
        # Records that are visible stay visible after a failure of the disk: answer from them.
        try:
            _answer_visible(partition, timestamp, answer, committed_only=committed_only)
        except KafkaError as refusal:
            answer.error_code = refusal.code
            if refusal.code is ErrorCode.CORRUPT_MESSAGE:
                note_damage(
                    services.metrics, services.clock.monotonic_ms(), partition, f"timestamp {timestamp}", refusal
                )
        except OSError as failure:
            answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            LOG.error("%s-%d: look-up of timestamp %d failed: %s", partition.topic, partition.index, timestamp, failure)
        done()

    partition.when_visible(partition.log.log_end_offset, visible)


def _look_up_segments(
    partition: Partition,
    asked: ListOffsetsRequest.ListOffsetsPartition,
    answer: Answer,
    done: Callable[[], None],
    context: Context,
) -> None:
    """`_look_up` for version 0."""
    partition.settle()

    def visible(error: BaseException | None) -> None:
        if isinstance(error, KafkaError):
            answer.error_code = error.code
            done()
            return
        try:
            answer.old_style_offsets = offsets_before(
                partition.log,
                asked.timestamp,
                asked.max_num_offsets,
                end_offset=partition.high_watermark,
                now_ms=context.now_ms,
            )
        except OSError as failure:
            answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            LOG.error("%s-%d: look-up of segments failed: %s", partition.topic, partition.index, failure)
        done()

    partition.when_visible(partition.log.log_end_offset, visible)


def _answer_visible(partition: Partition, timestamp: int, answer: Answer, *, committed_only: bool) -> None:
    end_offset = partition.last_stable_offset if committed_only else partition.high_watermark
    if timestamp == LATEST:
        answer.offset = end_offset
        answer.leader_epoch = partition.leader_epoch
        return
    if timestamp == MAX_TIMESTAMP:
        found = partition.log.offset_of_max_timestamp(end_offset=end_offset)
    else:
        found = partition.log.offset_for_timestamp(timestamp, end_offset=end_offset)
    if found is not None:
        answer.offset, answer.timestamp, answer.leader_epoch = found
