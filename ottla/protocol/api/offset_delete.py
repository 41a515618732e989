"""OffsetDelete (key 47), version 0: delete a group's committed offsets of some partitions (KIP-496).

Partitions of a topic that a member subscribes to are GROUP_SUBSCRIBED_TO_TOPIC. The only API of its age that never
became flexible.
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Int16, Int32, String


class OffsetDeleteRequest(Request, key=47, versions="0"):
    """The offsets to delete."""

    class OffsetDeleteRequestPartition(Struct):
        """One partition."""

        partition_index: Int32

    class OffsetDeleteRequestTopic(Struct):
        """A topic's partitions."""

        name: String
        partitions: list[OffsetDeleteRequest.OffsetDeleteRequestPartition]

    group_id: String
    topics: list[OffsetDeleteRequestTopic]


class OffsetDeleteResponse(Response, key=47, versions="0"):
    """The result for each offset; the code at the top is the group's."""

    class OffsetDeleteResponsePartition(Struct):
        """One partition."""

        partition_index: Int32
        error_code: Int16 = 0

    class OffsetDeleteResponseTopic(Struct):
        """A topic's partitions."""

        name: String
        partitions: list[OffsetDeleteResponse.OffsetDeleteResponsePartition]

    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: list[OffsetDeleteResponseTopic]


def refused(request: OffsetDeleteRequest, version: int, code: ErrorCode, message: str) -> OffsetDeleteResponse:
    """Refuse the request."""
    return OffsetDeleteResponse(error_code=code, topics=[])
