"""DeleteTopics (key 20), versions 0-6: delete topics by name or by id.

Versions: 1 has the throttle time · 3 may answer TOPIC_DELETION_DISABLED · 4 is flexible · 5 adds error messages · 6
deletes by topic id, with null names (KIP-516). Version 0 ended with Apache Kafka 4.0; clients of 0.10 have no other.
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, ranged, since
from ottla.protocol.types import ZERO_UUID, Int16, Int32, NullableString, String, Uuid


class DeleteTopicsRequest(Request, key=20, versions="0-6", flexible="4+"):
    """The topics: `topic_names` up to version 5, `topics` after. `timeout_ms` bounds the wait."""

    class DeleteTopicState(Struct):
        """A topic by `name`, or by `topic_id` with a null name."""

        name: NullableString = None
        topic_id: Uuid

    topics: list[DeleteTopicState] = since("6+", factory=list)
    topic_names: list[String] = ranged("0-5", factory=list, ignorable=True)
    timeout_ms: Int32


class DeleteTopicsResponse(Response, key=20, versions="0-6", flexible="4+"):
    """The result for each topic."""

    class DeletableTopicResult(Struct):
        """One topic; `name` is null for a topic id that is unknown or may not be described."""

        name: NullableString = since("0+", nullable="6+")
        topic_id: Uuid = since("6+", default=ZERO_UUID, ignorable=True)
        error_code: Int16 = 0
        error_message: NullableString = since("5+", default=None, ignorable=True)

    throttle_time_ms: Int32 = since("1+", default=0, ignorable=True)
    responses: list[DeletableTopicResult]


def refused(request: DeleteTopicsRequest, version: int, code: ErrorCode, message: str) -> DeleteTopicsResponse:
    """Refuse every topic of the request."""
    result = DeleteTopicsResponse.DeletableTopicResult
    if version >= 6:
        results = [
            result(name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=message)
            for topic in request.topics
        ]
    else:
        results = [
            result(name=name, topic_id=ZERO_UUID, error_code=code, error_message=message)
            for name in request.topic_names
        ]
    return DeleteTopicsResponse(responses=results)
