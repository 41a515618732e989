"""AlterPartitionReassignments (key 45), versions 0-1: move partitions to other brokers. There is only one broker.

Reassigning a partition to this broker alone succeeds and changes nothing; to any other set of brokers it is
INVALID_REPLICA_ASSIGNMENT. Cancelling is NO_REASSIGNMENT_IN_PROGRESS. Codes and messages are those of Kafka 4.1 with
one broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.broker.declarations import Chunks, Need
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from ottla.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.catalog.topic import Topic
    from ottla.broker.context import Context

_MANUAL = "The manual partition assignment includes"

NEEDS = (Need(AclOperation.ALTER, ResourceType.CLUSTER),)
CHUNKS = (Chunks(("topics", "partitions"), ("responses", "partitions")),)


def handle(request: AlterPartitionReassignmentsRequest, context: Context) -> AlterPartitionReassignmentsResponse:
    """Answer immediately."""
    topics, node_id = context.services.catalog.topics, context.services.catalog.node_id
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=[
            AlterPartitionReassignmentsResponse.ReassignableTopicResponse(
                name=asked.name,
                partitions=[_answer(asked.name, topics.get(asked.name), one, node_id) for one in asked.partitions],
            )
            for asked in request.topics
        ],
    )


def _answer(
    name: str, topic: Topic | None, asked: AlterPartitionReassignmentsRequest.ReassignablePartition, node_id: int
) -> AlterPartitionReassignmentsResponse.ReassignablePartitionResponse:
    code, message = _reassign(name, topic, asked.partition_index, asked.replicas, node_id)
    return AlterPartitionReassignmentsResponse.ReassignablePartitionResponse(
        partition_index=asked.partition_index, error_code=code, error_message=message
    )


def _reassign(
    name: str, topic: Topic | None, index: int, replicas: Sequence[int] | None, node_id: int
) -> tuple[ErrorCode, str | None]:
    """The code and message of one partition."""
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}."
    if not 0 <= index < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}."
    if replicas is None:
        return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None
    problem = _problem(replicas, node_id)
    if problem:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{_MANUAL} {problem}."
    return ErrorCode.NONE, None


def _problem(replicas: Sequence[int], node_id: int) -> str:
    if not replicas:
        return "an empty replica list"
    twice = [broker for broker, times in Counter(replicas).items() if times > 1]
    if twice:
        return f"the broker {min(twice)} more than once"
    unknown = [broker for broker in replicas if broker != node_id]
    return f"broker {unknown[0]}, but no such broker is registered" if unknown else ""
