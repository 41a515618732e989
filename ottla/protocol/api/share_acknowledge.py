"""ShareAcknowledge (key 79), versions 1-2: what a member of a share group has done with records (KIP-932).

As the acknowledgements in a ShareFetch, without fetching. The epoch is that of the same share session; 0 is none here.

Versions: 2 adds Renew, and the lock's duration in the response (KIP-1222). Version 0 was an early access of Kafka 4.0.
"""

from __future__ import annotations

from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, since
from ottla.protocol.types import Bool, Int8, Int16, Int32, Int64, NullableString, String, Uuid


class ShareAcknowledgeRequest(Request, key=79, versions="1-2", flexible="0+", max_elements=MAX_ELEMENTS_IN_ONE_PIECE):
    """The records by partition."""

    class AcknowledgementBatch(Struct):
        """Offsets, both inclusive, and the `AcknowledgeType` of each, or one for all."""

        first_offset: Int64
        last_offset: Int64
        acknowledge_types: list[Int8]

    class AcknowledgePartition(Struct):
        """A partition."""

        partition_index: Int32
        acknowledgement_batches: list[ShareAcknowledgeRequest.AcknowledgementBatch]

    class AcknowledgeTopic(Struct):
        """A topic's partitions."""

        topic_id: Uuid
        partitions: list[ShareAcknowledgeRequest.AcknowledgePartition]

    group_id: NullableString = None
    member_id: NullableString
    share_session_epoch: Int32
    is_renew_ack: Bool = since("2+", default=False)
    topics: list[AcknowledgeTopic]


class ShareAcknowledgeResponse(Response, key=79, versions="1-2", flexible="0+"):
    """What came of it by partition."""

    class LeaderIdAndEpoch(Struct):
        """The partition's leader, -1 where that is not known."""

        leader_id: Int32 = 0
        leader_epoch: Int32 = 0

    class PartitionData(Struct):
        """A partition."""

        partition_index: Int32
        error_code: Int16 = 0
        error_message: NullableString = None
        current_leader: ShareAcknowledgeResponse.LeaderIdAndEpoch

    class ShareAcknowledgeTopicResponse(Struct):
        """A topic's partitions."""

        topic_id: Uuid
        partitions: list[ShareAcknowledgeResponse.PartitionData]

    class NodeEndpoint(Struct):
        """The address of a leader named above."""

        node_id: Int32
        host: String
        port: Int32
        rack: NullableString = None

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    acquisition_lock_timeout_ms: Int32 = since("2+", default=0, ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse]
    node_endpoints: list[NodeEndpoint]


def refused(request: ShareAcknowledgeRequest, version: int, code: ErrorCode, message: str) -> ShareAcknowledgeResponse:
    """Refuse the request."""
    return ShareAcknowledgeResponse(error_code=code, error_message=message, responses=[], node_endpoints=[])
