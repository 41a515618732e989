"""OffsetForLeaderEpoch, versions 2-4: the end offset of an epoch, for clients that detect truncation (KIP-320).

The answer is the largest epoch not above the requested one, and the offset at which the next one begins. For the
current epoch that is the high watermark, because nothing beyond it is acknowledged. (Kafka returns the log end to
followers and the high watermark to no client; consumers cannot notice, since they never read beyond it.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.catalog.topic import find_partition
from ottla.broker.declarations import Chunks, Need
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.context import Context

EpochEndOffset = OffsetForLeaderEpochResponse.EpochEndOffset
NO_EPOCH = -1

NEEDS = (
    Need(
        AclOperation.DESCRIBE,
        ResourceType.TOPIC,
        unless=(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
        named=("topics", "topic"),
        answered="topics",
    ),
)
CHUNKS = (Chunks(("topics", "partitions"), ("topics", "partitions")),)


def handle(request: OffsetForLeaderEpochRequest, context: Context) -> OffsetForLeaderEpochResponse:
    """Answer every partition."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_answer(topic.topic, asked, context) for asked in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _answer(
    topic: str, asked: OffsetForLeaderEpochRequest.OffsetForLeaderPartition, context: Context
) -> EpochEndOffset:
    services = context.services
    try:
        partition = find_partition(
            services.catalog.topics.get(topic), asked.partition, missing=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    except KafkaError as error:
        return EpochEndOffset(error_code=error.code, partition=asked.partition)
    current = asked.current_leader_epoch
    if current not in (NO_EPOCH, partition.leader_epoch):
        is_old = current < partition.leader_epoch
        code = ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
        return EpochEndOffset(error_code=code, partition=asked.partition)
    partition.settle()
    epoch, end_offset = partition.end_offset_for_epoch(asked.leader_epoch)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end_offset)
