"""DeleteShareGroupOffsets (key 92), version 0: let a share group without members forget topics (KIP-932)."""

from __future__ import annotations

from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Int16, Int32, NullableString, String, Uuid


class DeleteShareGroupOffsetsRequest(
    Request, key=92, versions="0", flexible="0+", max_elements=MAX_ELEMENTS_IN_ONE_PIECE
):
    """The topics to forget."""

    class DeleteShareGroupOffsetsRequestTopic(Struct):
        """A topic."""

        topic_name: String

    group_id: String
    topics: list[DeleteShareGroupOffsetsRequestTopic]


class DeleteShareGroupOffsetsResponse(Response, key=92, versions="0", flexible="0+"):
    """What came of it by topic."""

    class DeleteShareGroupOffsetsResponseTopic(Struct):
        """A topic."""

        topic_name: String
        topic_id: Uuid
        error_code: Int16 = 0
        error_message: NullableString = None

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    responses: list[DeleteShareGroupOffsetsResponseTopic]


def refused(
    request: DeleteShareGroupOffsetsRequest, version: int, code: ErrorCode, message: str
) -> DeleteShareGroupOffsetsResponse:
    """Refuse the request."""
    return DeleteShareGroupOffsetsResponse(error_code=code, error_message=message, responses=[])
