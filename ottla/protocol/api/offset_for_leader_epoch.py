"""OffsetForLeaderEpoch (key 23), versions 2-4: the end offset of a leader epoch, to detect truncated logs (KIP-320).

Versions: 3 adds the replica id · 4 is flexible. Versions 0-1 ended with Apache Kafka 4.0.
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, since
from ottla.protocol.types import Int16, Int32, Int64, String


class OffsetForLeaderEpochRequest(Request, key=23, versions="2-4", flexible="4+"):
    """The epochs to look up. Consumers have `replica_id` -1; -2 is a debugging consumer."""

    class OffsetForLeaderPartition(Struct):
        """One look-up of the end of `leader_epoch`. `current_leader_epoch` is -1 if unknown."""

        partition: Int32
        current_leader_epoch: Int32 = -1
        leader_epoch: Int32

    class OffsetForLeaderTopic(Struct):
        """The look-ups in one topic."""

        topic: String
        partitions: list[OffsetForLeaderEpochRequest.OffsetForLeaderPartition]

    replica_id: Int32 = since("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic]


class OffsetForLeaderEpochResponse(Response, key=23, versions="2-4", flexible="4+"):
    """The end offsets of the epochs."""

    class EpochEndOffset(Struct):
        """One result.

        `leader_epoch` is the largest epoch not above the requested one, `end_offset` its end; both are -1 if there is
        none.
        """

        error_code: Int16 = 0
        partition: Int32
        leader_epoch: Int32 = -1
        end_offset: Int64 = -1

    class OffsetForLeaderTopicResult(Struct):
        """The results for one topic."""

        topic: String
        partitions: list[OffsetForLeaderEpochResponse.EpochEndOffset]

    throttle_time_ms: Int32 = 0
    topics: list[OffsetForLeaderTopicResult]


def refused(
    request: OffsetForLeaderEpochRequest, version: int, code: ErrorCode, message: str
) -> OffsetForLeaderEpochResponse:
    """Refuse every partition of the request."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    OffsetForLeaderEpochResponse.EpochEndOffset(error_code=code, partition=asked.partition)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
