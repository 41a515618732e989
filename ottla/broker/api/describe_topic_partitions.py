"""DescribeTopicPartitions (key 75), version 0: topics and their partitions, page by page (KIP-966).

Topics are in the order of their names, each once. A page holds at most `response_partition_limit` partitions, and never
more than MAX_PARTITIONS_PER_PAGE, but at least one; `next_cursor` names the first partition that is missing. A cursor
begins at its partition; beyond the last one its topic is returned without partitions. Topics before it are left out. A
request without topics asks for all; then the cursor's topic is left out, too, if it has been deleted meanwhile.

A negative cursor is INVALID_REQUEST, and so is a cursor at a topic that the request does not name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from ottla.broker.catalog.descriptions import TOPIC_OPERATIONS, describe_partition
from ottla.broker.declarations import Need
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.formats.layout import INTERNAL_TOPICS, topic_name_problem

if TYPE_CHECKING:
    from ottla.broker.catalog.topic import Topic
    from ottla.broker.context import Context

MAX_PARTITIONS_PER_PAGE = 2_000
"""Kafka's max.request.partition.size.limit."""
ZERO_ID = UUID(int=0)

ResponseTopic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
ResponsePartition = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition

NEEDS = (
    Need(
        AclOperation.DESCRIBE,
        ResourceType.TOPIC,
        lacking="the topic is refused; where all topics are asked for, it is left out",
    ),
)
CHUNKS = ()


def handle(request: DescribeTopicPartitionsRequest, context: Context) -> DescribeTopicPartitionsResponse:
    """Return one page. Raises KafkaError INVALID_REQUEST."""
    cursor = request.cursor
    asked = {topic.name for topic in request.topics}
    if cursor is not None and cursor.partition_index < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the cursor names partition {cursor.partition_index}")
    if cursor is not None and asked and cursor.topic_name not in asked:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the cursor names a topic that the request does not name")
    room = max(1, min(request.response_partition_limit, MAX_PARTITIONS_PER_PAGE))
    topics = context.services.catalog.topics
    names = sorted(asked or topics)
    reported: list[ResponseTopic] = []
    refused: list[ResponseTopic] = []
    next_cursor = None
    for name in names:
        if cursor is not None and name < cursor.topic_name:
            continue
        ask = context.may if asked else context.has
        if not ask(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            if asked:
                refused.append(_unauthorized(name))
            continue
        topic = topics.get(name)
        if topic is None:
            reported.append(_refuse(name, context))
            continue
        first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        last = min(len(topic.partitions), first + room)
        if first < last or first >= len(topic.partitions):
            reported.append(_describe(topic, first, last, context))
            room -= max(0, last - first)
        if last < len(topic.partitions):
            next_cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=max(first, last))
            break
    return DescribeTopicPartitionsResponse(topics=reported + refused, next_cursor=next_cursor)


def _describe(topic: Topic, first: int, last: int, context: Context) -> ResponseTopic:
    node_id = context.services.catalog.node_id
    described = (describe_partition(topic, index, node_id) for index in range(first, last))
    return ResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            ResponsePartition(
                error_code=partition.error_code,
                partition_index=partition.partition_index,
                leader_id=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                replica_nodes=partition.replicas,
                isr_nodes=partition.isr,
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=partition.offline_replicas,
            )
            for partition in described
        ],
        topic_authorized_operations=context.operations(TOPIC_OPERATIONS, ResourceType.TOPIC, topic.name),
    )


def _unauthorized(name: str) -> ResponseTopic:
    """A topic that the client may not see. The answer does not reveal whether it exists."""
    return ResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, topic_id=ZERO_ID, is_internal=False, partitions=[]
    )


def _refuse(name: str, context: Context) -> ResponseTopic:
    error = (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic_name_problem(name) is None else ErrorCode.INVALID_TOPIC_EXCEPTION
    )
    return ResponseTopic(
        error_code=error,
        name=name,
        topic_id=ZERO_ID,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
        topic_authorized_operations=context.operations(TOPIC_OPERATIONS, ResourceType.TOPIC, name),
    )
