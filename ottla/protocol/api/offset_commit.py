"""OffsetCommit (key 8), versions 0-10: store the offsets up to which a group has read.

Versions: 1 names the member and its generation, and has a time for each partition · 2-4 a retention time for the whole
request (removed by KIP-211) · 6 has the leader epoch (KIP-320) · 7 static members (KIP-345) · 8 is flexible · 9 is for
KIP-848, where the generation is the member's epoch. Apache Kafka 4.0 removed versions 0 (for which Kafka stored offsets
in ZooKeeper) and 1. Ottla supports them, since they need only one more field. Version 10 has topic ids in place of
names; an id without a topic is UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, ranged, since
from ottla.protocol.types import ZERO_UUID, Int16, Int32, Int64, NullableString, String, Uuid


class OffsetCommitRequest(Request, key=8, versions="0-10", flexible="8+"):
    """The offsets to store. If the group is not managed by the broker, the generation is -1 and the member id empty."""

    class OffsetCommitRequestPartition(Struct):
        """An offset: the next record to read. `commit_timestamp` is -1 for the broker's time."""

        partition_index: Int32
        committed_offset: Int64
        committed_leader_epoch: Int32 = since("6+", default=-1, ignorable=True)
        commit_timestamp: Int64 = ranged("1", default=-1, ignorable=True)
        committed_metadata: NullableString

    class OffsetCommitRequestTopic(Struct):
        """A topic's partitions. It has a name, or from version 10 on an id."""

        name: String = ranged("0-9", default="", ignorable=True)
        topic_id: Uuid = since("10+", default=ZERO_UUID, ignorable=True)
        partitions: list[OffsetCommitRequest.OffsetCommitRequestPartition]

    group_id: String
    generation_id_or_member_epoch: Int32 = since("1+", default=-1, ignorable=True)
    member_id: String = since("1+", default="", ignorable=True)
    group_instance_id: NullableString = since("7+", default=None)
    retention_time_ms: Int64 = ranged("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic]


class OffsetCommitResponse(Response, key=8, versions="0-10", flexible="8+"):
    """The result for each offset."""

    class OffsetCommitResponsePartition(Struct):
        """One partition."""

        partition_index: Int32
        error_code: Int16 = 0

    class OffsetCommitResponseTopic(Struct):
        """A topic's partitions."""

        name: String = ranged("0-9", default="", ignorable=True)
        topic_id: Uuid = since("10+", default=ZERO_UUID, ignorable=True)
        partitions: list[OffsetCommitResponse.OffsetCommitResponsePartition]

    throttle_time_ms: Int32 = since("3+", default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic]


def refused(request: OffsetCommitRequest, version: int, code: ErrorCode, message: str) -> OffsetCommitResponse:
    """Refuse every partition of the request."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponse.OffsetCommitResponsePartition(
                        partition_index=asked.partition_index, error_code=code
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
