"""OffsetFetch (key 9), versions 0-10: the offsets that groups have committed.

A partition without a committed offset is answered with -1 and no error, also in a group that does not exist.

Versions: 0, for which Kafka read from ZooKeeper until 4.0 removed it, has the fields of 1 · 2 has null for all topics,
and an error code for the group · 5 has the leader epoch · 6 is flexible · 7 can request stable offsets only:
UNSTABLE_OFFSET_COMMIT while a transaction is open (KIP-447) · 8 has several groups (KIP-709) · 9 names the member, for
KIP-848 · 10 has topic ids in place of names; an id without a topic is UNKNOWN_TOPIC_ID.
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, ranged, since
from ottla.protocol.types import ZERO_UUID, Bool, Int16, Int32, Int64, NullableString, String, Uuid


class OffsetFetchRequest(Request, key=9, versions="0-10", flexible="6+"):
    """One group up to version 7, several from version 8 on."""

    class OffsetFetchRequestTopic(Struct):
        """A topic's partitions."""

        name: String
        partition_indexes: list[Int32]

    class OffsetFetchRequestTopics(Struct):
        """A topic's partitions. It has a name, or from version 10 on an id."""

        name: String = ranged("8-9", default="", ignorable=True)
        topic_id: Uuid = since("10+", default=ZERO_UUID, ignorable=True)
        partition_indexes: list[Int32]

    class OffsetFetchRequestGroup(Struct):
        """A group; null `topics` means all. The member's epoch is -1 for clients that are not members."""

        group_id: String
        member_id: NullableString = since("9+", default=None, ignorable=True)
        member_epoch: Int32 = since("9+", default=-1, ignorable=True)
        topics: list[OffsetFetchRequest.OffsetFetchRequestTopics] | None

    group_id: String = ranged("0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = ranged("0-7", factory=list, nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = since("8+", factory=list)
    require_stable: Bool = since("7+", default=False)


class OffsetFetchResponse(Response, key=9, versions="0-10", flexible="6+"):
    """The offsets: of one group up to version 7, of several from version 8 on."""

    class OffsetFetchResponsePartition(Struct):
        """A committed offset; -1 where there is none."""

        partition_index: Int32
        committed_offset: Int64
        committed_leader_epoch: Int32 = ranged("5-7", default=-1, ignorable=True)
        metadata: NullableString
        error_code: Int16 = 0

    class OffsetFetchResponseTopic(Struct):
        """A topic's partitions."""

        name: String
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartition]

    class OffsetFetchResponsePartitions(Struct):
        """A committed offset; -1 where there is none."""

        partition_index: Int32
        committed_offset: Int64
        committed_leader_epoch: Int32 = -1
        metadata: NullableString
        error_code: Int16 = 0

    class OffsetFetchResponseTopics(Struct):
        """A topic's partitions. It has a name, or from version 10 on an id."""

        name: String = ranged("8-9", default="", ignorable=True)
        topic_id: Uuid = since("10+", default=ZERO_UUID, ignorable=True)
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartitions]

    class OffsetFetchResponseGroup(Struct):
        """One group, or the reason why it is not available."""

        group_id: String
        topics: list[OffsetFetchResponse.OffsetFetchResponseTopics]
        error_code: Int16 = 0

    throttle_time_ms: Int32 = since("3+", default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = ranged("0-7", factory=list)
    error_code: Int16 = ranged("2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = since("8+", factory=list)


def refused(request: OffsetFetchRequest, version: int, code: ErrorCode, message: str) -> OffsetFetchResponse:
    """Refuse every group from version 8 on, the request from version 2 on; before it, every partition."""
    if version >= 8:
        group = OffsetFetchResponse.OffsetFetchResponseGroup
        return OffsetFetchResponse(
            groups=[group(group_id=asked.group_id, topics=[], error_code=code) for asked in request.groups]
        )
    if version >= 2:
        return OffsetFetchResponse(error_code=code)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponse.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponse.OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=-1, metadata="", error_code=code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    )
