"""TxnOffsetCommit (key 28), versions 0-6: offsets of a group that take effect when a transaction commits.

Versions: 2 has the leader epoch (KIP-320) · 3 is flexible, and names the member and its generation (KIP-447) · 4 may
answer TRANSACTION_ABORTABLE (KIP-890) · 5 implicitly adds the group's partition of `__consumer_offsets` to the
transaction; clients send it only where `transaction.version` is 2 · 6 has topic ids in place of names, and may answer
UNKNOWN_TOPIC_ID, GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH (KIP-1319).
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, ranged, since
from ottla.protocol.types import ZERO_UUID, Int16, Int32, Int64, NullableString, String, Uuid


class TxnOffsetCommitRequest(Request, key=28, versions="0-6", flexible="3+"):
    """The transaction, the group and the offsets. Without a member the generation is -1 and the member id empty."""

    class TxnOffsetCommitRequestPartition(Struct):
        """An offset: the next record to read."""

        partition_index: Int32
        committed_offset: Int64
        committed_leader_epoch: Int32 = since("2+", default=-1, ignorable=True)
        committed_metadata: NullableString

    class TxnOffsetCommitRequestTopic(Struct):
        """A topic's partitions. It has a name, or from version 6 on an id."""

        name: String = ranged("0-5", default="", ignorable=True)
        topic_id: Uuid = since("6+", default=ZERO_UUID, ignorable=True)
        partitions: list[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition]

    transactional_id: String
    group_id: String
    producer_id: Int64
    producer_epoch: Int16
    generation_id_or_member_epoch: Int32 = since("3+", default=-1)
    member_id: String = since("3+", default="")
    group_instance_id: NullableString = since("3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic]


class TxnOffsetCommitResponse(Response, key=28, versions="0-6", flexible="3+"):
    """An error code for each offset."""

    class TxnOffsetCommitResponsePartition(Struct):
        """One partition."""

        partition_index: Int32
        error_code: Int16 = 0

    class TxnOffsetCommitResponseTopic(Struct):
        """A topic's partitions."""

        name: String = ranged("0-5", default="", ignorable=True)
        topic_id: Uuid = since("6+", default=ZERO_UUID, ignorable=True)
        partitions: list[TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition]

    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic]


def refused(request: TxnOffsetCommitRequest, version: int, code: ErrorCode, message: str) -> TxnOffsetCommitResponse:
    """Refuse every partition of the request."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(
                        partition_index=asked.partition_index, error_code=code
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
