"""DescribeShareGroupOffsets (key 90), versions 0-1: where share groups are in their partitions (KIP-932).

Versions: 1 adds the lag (KIP-1226).
"""

from __future__ import annotations

from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, since
from ottla.protocol.types import Int16, Int32, Int64, NullableString, String, Uuid


class DescribeShareGroupOffsetsRequest(
    Request, key=90, versions="0-1", flexible="0+", max_elements=MAX_ELEMENTS_IN_ONE_PIECE
):
    """The groups, and the partitions of each; null for all that the group has."""

    class DescribeShareGroupOffsetsRequestTopic(Struct):
        """A topic's partitions."""

        topic_name: String
        partitions: list[Int32]

    class DescribeShareGroupOffsetsRequestGroup(Struct):
        """A group."""

        group_id: String
        topics: list[DescribeShareGroupOffsetsRequest.DescribeShareGroupOffsetsRequestTopic] | None

    groups: list[DescribeShareGroupOffsetsRequestGroup]


class DescribeShareGroupOffsetsResponse(Response, key=90, versions="0-1", flexible="0+"):
    """The groups, in the order of the request."""

    class DescribeShareGroupOffsetsResponsePartition(Struct):
        """A partition: its start offset and lag, both -1 where they are not known."""

        partition_index: Int32
        start_offset: Int64
        leader_epoch: Int32
        lag: Int64 = since("1+", default=-1, ignorable=True)
        error_code: Int16 = 0
        error_message: NullableString = None

    class DescribeShareGroupOffsetsResponseTopic(Struct):
        """A topic's partitions."""

        topic_name: String
        topic_id: Uuid
        partitions: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponsePartition]

    class DescribeShareGroupOffsetsResponseGroup(Struct):
        """A group, or why it cannot be described."""

        group_id: String
        topics: list[DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseTopic]
        error_code: Int16 = 0
        error_message: NullableString = None

    throttle_time_ms: Int32 = 0
    groups: list[DescribeShareGroupOffsetsResponseGroup]


def refused(
    request: DescribeShareGroupOffsetsRequest, version: int, code: ErrorCode, message: str
) -> DescribeShareGroupOffsetsResponse:
    """Refuse every group of the request."""
    group = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
    return DescribeShareGroupOffsetsResponse(
        groups=[
            group(group_id=asked.group_id, topics=[], error_code=code, error_message=message)
            for asked in request.groups
        ]
    )
