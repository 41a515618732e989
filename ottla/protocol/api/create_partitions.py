"""CreatePartitions (key 37), versions 0-3: add partitions to topics.

Versions: 2 is flexible · 3 may answer THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Bool, Int16, Int32, NullableString, String


class CreatePartitionsRequest(Request, key=37, versions="0-3", flexible="2+"):
    """The topics to grow; `validate_only` changes nothing."""

    class CreatePartitionsAssignment(Struct):
        """The brokers of one new partition, the preferred leader first."""

        broker_ids: list[Int32]

    class CreatePartitionsTopic(Struct):
        """One topic. `count` is the new total; with null `assignments` the broker places the partitions."""

        name: String
        count: Int32
        assignments: list[CreatePartitionsRequest.CreatePartitionsAssignment] | None

    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Bool


class CreatePartitionsResponse(Response, key=37, versions="0-3", flexible="2+"):
    """The result for each topic."""

    class CreatePartitionsTopicResult(Struct):
        """One topic."""

        name: String
        error_code: Int16 = 0
        error_message: NullableString = None

    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult]


def refused(request: CreatePartitionsRequest, version: int, code: ErrorCode, message: str) -> CreatePartitionsResponse:
    """Refuse every topic of the request."""
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsResponse.CreatePartitionsTopicResult(
                name=topic.name, error_code=code, error_message=message
            )
            for topic in request.topics
        ]
    )
