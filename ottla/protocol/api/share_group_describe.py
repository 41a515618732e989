"""ShareGroupDescribe (key 77), version 1: share groups with their members (KIP-932).

A group of another type is GROUP_ID_NOT_FOUND. Version 0 was an early access of Kafka 4.0.
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Bool, Int16, Int32, NullableString, String, Uuid


class ShareGroupDescribeRequest(Request, key=77, versions="1", flexible="0+"):
    """The groups to describe."""

    group_ids: list[String]
    include_authorized_operations: Bool


class ShareGroupDescribeResponse(Response, key=77, versions="1", flexible="0+"):
    """The groups, in the order of the request."""

    class TopicPartitions(Struct):
        """A topic's partitions."""

        topic_id: Uuid
        topic_name: String
        partitions: list[Int32]

    class Assignment(Struct):
        """Partitions by topic."""

        topic_partitions: list[ShareGroupDescribeResponse.TopicPartitions]

    class Member(Struct):
        """A member: what it subscribes to, and the partitions that it reads from."""

        member_id: String
        rack_id: NullableString = None
        member_epoch: Int32
        client_id: String
        client_host: String
        subscribed_topic_names: list[String]
        assignment: ShareGroupDescribeResponse.Assignment

    class DescribedGroup(Struct):
        """A group, or why it cannot be described. `authorized_operations`: a bit set, -2^31 where it was not asked."""

        error_code: Int16 = 0
        error_message: NullableString = None
        group_id: String
        group_state: String
        group_epoch: Int32
        assignment_epoch: Int32
        assignor_name: String
        members: list[ShareGroupDescribeResponse.Member]
        authorized_operations: Int32 = -0x8000_0000

    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup]


def undescribed(group_id: str, code: ErrorCode, message: str | None) -> ShareGroupDescribeResponse.DescribedGroup:
    """The entry of a group that cannot be described."""
    return ShareGroupDescribeResponse.DescribedGroup(
        error_code=code,
        error_message=message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def refused(
    request: ShareGroupDescribeRequest, version: int, code: ErrorCode, message: str
) -> ShareGroupDescribeResponse:
    """Refuse every group of the request."""
    return ShareGroupDescribeResponse(groups=[undescribed(group_id, code, message) for group_id in request.group_ids])
