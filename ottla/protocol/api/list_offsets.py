"""ListOffsets (key 2), versions 0-11: the first or last offset of a partition, or that of a timestamp.

A timestamp finds the first record that is at least as new. Special values: -1 the end (the last stable offset if
reading committed), -2 the log start, -3 (version 7) the record with the largest timestamp (KIP-734), -4 (version 8)
the start of the local log, -5 (version 9) the last tiered offset, -6 (version 11) the first offset that waits for
tiering (KIP-1023).

Version 0 returns a list of up to `max_num_offsets` offsets at which segments begin, newest first.

Versions: 1 returns one offset and its timestamp (KIP-79) · 2 adds the isolation level · 4 leader epochs · 5 may answer
OFFSET_NOT_AVAILABLE · 6 is flexible · 7, 8, 9, 11 add the special values above · 10 adds the timeout for remote storage
(KIP-1075). Version 0 ended with Apache Kafka 4.0.
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, ranged, since
from ottla.protocol.types import Int8, Int16, Int32, Int64, String


class ListOffsetsRequest(Request, key=2, versions="0-11", flexible="6+"):
    """The look-ups. Consumers have `replica_id` -1, debugging tools -2."""

    class ListOffsetsPartition(Struct):
        """One look-up: `timestamp` in milliseconds or a special value. `max_num_offsets` is version 0's."""

        partition_index: Int32
        current_leader_epoch: Int32 = since("4+", default=-1, ignorable=True)
        timestamp: Int64
        max_num_offsets: Int32 = ranged("0", default=1)

    class ListOffsetsTopic(Struct):
        """The look-ups in one topic."""

        name: String
        partitions: list[ListOffsetsRequest.ListOffsetsPartition]

    replica_id: Int32
    isolation_level: Int8 = since("2+", default=0)
    topics: list[ListOffsetsTopic]
    timeout_ms: Int32 = since("10+", default=0, ignorable=True)


class ListOffsetsResponse(Response, key=2, versions="0-11", flexible="6+"):
    """The offsets that were found."""

    class ListOffsetsPartitionResponse(Struct):
        """One result; `offset` and `timestamp` are -1 if no record matches. `old_style_offsets` is version 0's."""

        partition_index: Int32
        error_code: Int16 = 0
        old_style_offsets: list[Int64] = ranged("0", factory=list, ignorable=True)
        timestamp: Int64 = since("1+", default=-1, ignorable=True)
        offset: Int64 = since("1+", default=-1, ignorable=True)
        leader_epoch: Int32 = since("4+", default=-1)

    class ListOffsetsTopicResponse(Struct):
        """The results for one topic."""

        name: String
        partitions: list[ListOffsetsResponse.ListOffsetsPartitionResponse]

    throttle_time_ms: Int32 = since("2+", default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse]


def refused(request: ListOffsetsRequest, version: int, code: ErrorCode, message: str) -> ListOffsetsResponse:
    """Refuse every partition of the request."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsResponse.ListOffsetsPartitionResponse(
                        partition_index=asked.partition_index, error_code=code
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
