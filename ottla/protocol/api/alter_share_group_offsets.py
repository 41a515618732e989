"""AlterShareGroupOffsets (key 91), version 0: let a share group without members continue elsewhere (KIP-932)."""

from __future__ import annotations

from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Int16, Int32, Int64, NullableString, String, Uuid


class AlterShareGroupOffsetsRequest(
    Request, key=91, versions="0", flexible="0+", max_elements=MAX_ELEMENTS_IN_ONE_PIECE
):
    """The new start offsets."""

    class AlterShareGroupOffsetsRequestPartition(Struct):
        """A partition."""

        partition_index: Int32
        start_offset: Int64

    class AlterShareGroupOffsetsRequestTopic(Struct):
        """A topic's partitions."""

        topic_name: String
        partitions: list[AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestPartition]

    group_id: String
    topics: list[AlterShareGroupOffsetsRequestTopic]


class AlterShareGroupOffsetsResponse(Response, key=91, versions="0", flexible="0+"):
    """What came of it by partition."""

    class AlterShareGroupOffsetsResponsePartition(Struct):
        """A partition."""

        partition_index: Int32
        error_code: Int16 = 0
        error_message: NullableString = None

    class AlterShareGroupOffsetsResponseTopic(Struct):
        """A topic's partitions."""

        topic_name: String
        topic_id: Uuid
        partitions: list[AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponsePartition]

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    responses: list[AlterShareGroupOffsetsResponseTopic]


def refused(
    request: AlterShareGroupOffsetsRequest, version: int, code: ErrorCode, message: str
) -> AlterShareGroupOffsetsResponse:
    """Refuse the request."""
    return AlterShareGroupOffsetsResponse(error_code=code, error_message=message, responses=[])
