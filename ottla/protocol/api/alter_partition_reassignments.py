"""AlterPartitionReassignments (key 45), versions 0-1: move partitions to other brokers (KIP-455).

Versions: 1 can forbid that the number of replicas changes (KIP-860).
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, since
from ottla.protocol.types import Bool, Int16, Int32, NullableString, String


class AlterPartitionReassignmentsRequest(Request, key=45, versions="0-1", flexible="0+"):
    """The partitions and their new brokers."""

    class ReassignablePartition(Struct):
        """A partition and its brokers; null cancels a reassignment under way."""

        partition_index: Int32
        replicas: list[Int32] | None = None

    class ReassignableTopic(Struct):
        """A topic's partitions."""

        name: String
        partitions: list[AlterPartitionReassignmentsRequest.ReassignablePartition]

    timeout_ms: Int32 = 60000
    allow_replication_factor_change: Bool = since("1+", default=True)
    topics: list[ReassignableTopic]


class AlterPartitionReassignmentsResponse(Response, key=45, versions="0-1", flexible="0+"):
    """The result for each partition."""

    class ReassignablePartitionResponse(Struct):
        """One partition."""

        partition_index: Int32
        error_code: Int16 = 0
        error_message: NullableString = None

    class ReassignableTopicResponse(Struct):
        """A topic's partitions."""

        name: String
        partitions: list[AlterPartitionReassignmentsResponse.ReassignablePartitionResponse]

    throttle_time_ms: Int32 = 0
    allow_replication_factor_change: Bool = since("1+", default=True, ignorable=True)
    error_code: Int16 = 0
    error_message: NullableString = None
    responses: list[ReassignableTopicResponse]


def refused(
    request: AlterPartitionReassignmentsRequest, version: int, code: ErrorCode, message: str
) -> AlterPartitionReassignmentsResponse:
    """Refuse the request, and every partition of it."""
    return AlterPartitionReassignmentsResponse(
        error_code=code,
        error_message=message,
        responses=[
            AlterPartitionReassignmentsResponse.ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    AlterPartitionReassignmentsResponse.ReassignablePartitionResponse(
                        partition_index=asked.partition_index, error_code=code, error_message=message
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
