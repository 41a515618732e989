"""ShareFetch (key 78), versions 1-2: acquire records for a member of a share group, and acknowledge others (KIP-932).

A request belongs to a share session, named by group and member: epoch 0 opens it, -1 closes it, and otherwise each
request has the epoch after that of the one before. Partitions that the session knows need not be named again.

An acknowledgement names offsets, and a type for each or one for all of them: see `AcknowledgeType`.

Versions: 2 adds the acquire mode (KIP-1206) and Renew (KIP-1222). Version 0 was an early access of Kafka 4.0.
"""

from __future__ import annotations

from enum import IntEnum

from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, since
from ottla.protocol.types import Bool, Int8, Int16, Int32, Int64, NullableString, Records, String, Uuid


class AcknowledgeType(IntEnum):
    """What a member says of a record that it had acquired."""

    GAP = 0
    """There is no record at this offset: compacted, or a control record."""
    ACCEPT = 1
    RELEASE = 2
    """Deliver it again, to any member."""
    REJECT = 3
    """Do not deliver it again."""
    RENEW = 4
    """Let the member have it for longer."""


class AcquireMode(IntEnum):
    """How strictly the maximum number of records is kept (KIP-1206)."""

    BATCH_OPTIMIZED = 0
    """Whole record batches: somewhat more records than asked for are acquired."""
    RECORD_LIMIT = 1
    """No more records than asked for."""


class ShareFetchRequest(Request, key=78, versions="1-2", flexible="0+", max_elements=MAX_ELEMENTS_IN_ONE_PIECE):
    """What to fetch and to acknowledge. `batch_size`: the records that one entry of acquired records should have."""

    class AcknowledgementBatch(Struct):
        """Offsets, both inclusive, and the `AcknowledgeType` of each, or one for all."""

        first_offset: Int64
        last_offset: Int64
        acknowledge_types: list[Int8]

    class FetchPartition(Struct):
        """A partition."""

        partition_index: Int32
        acknowledgement_batches: list[ShareFetchRequest.AcknowledgementBatch]

    class FetchTopic(Struct):
        """A topic's partitions."""

        topic_id: Uuid
        partitions: list[ShareFetchRequest.FetchPartition]

    class ForgottenTopic(Struct):
        """Partitions to leave out of the session from now on."""

        topic_id: Uuid
        partitions: list[Int32]

    group_id: NullableString = None
    member_id: NullableString
    share_session_epoch: Int32
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 0x7FFF_FFFF
    max_records: Int32
    batch_size: Int32
    share_acquire_mode: Int8 = since("2+", default=0, ignorable=True)
    is_renew_ack: Bool = since("2+", default=False)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic]


class ShareFetchResponse(Response, key=78, versions="1-2", flexible="0+"):
    """What was acquired, and what came of the acknowledgements."""

    class LeaderIdAndEpoch(Struct):
        """The partition's leader, -1 where that is not known."""

        leader_id: Int32 = 0
        leader_epoch: Int32 = 0

    class AcquiredRecords(Struct):
        """Offsets, both inclusive, that the member has acquired, and how often each was delivered by now."""

        first_offset: Int64
        last_offset: Int64
        delivery_count: Int16

    class PartitionData(Struct):
        """What was acquired of a partition. `records` may begin before the first acquired offset and go on after the
        last: only `acquired_records` belong to the member.
        """

        partition_index: Int32
        error_code: Int16 = 0
        error_message: NullableString = None
        acknowledge_error_code: Int16 = 0
        acknowledge_error_message: NullableString = None
        current_leader: ShareFetchResponse.LeaderIdAndEpoch
        records: Records = b""
        acquired_records: list[ShareFetchResponse.AcquiredRecords]

    class ShareFetchableTopicResponse(Struct):
        """A topic's partitions."""

        topic_id: Uuid
        partitions: list[ShareFetchResponse.PartitionData]

    class NodeEndpoint(Struct):
        """The address of a leader named above."""

        node_id: Int32
        host: String
        port: Int32
        rack: NullableString = None

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    acquisition_lock_timeout_ms: Int32 = 0
    responses: list[ShareFetchableTopicResponse]
    node_endpoints: list[NodeEndpoint]


def refused(request: ShareFetchRequest, version: int, code: ErrorCode, message: str) -> ShareFetchResponse:
    """Refuse the request."""
    return ShareFetchResponse(error_code=code, error_message=message, responses=[], node_endpoints=[])
