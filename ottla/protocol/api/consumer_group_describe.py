"""ConsumerGroupDescribe (key 69), versions 0-1: groups of the consumer protocol in full (KIP-848).

A group that is not of that protocol is GROUP_ID_NOT_FOUND.

Versions: 1 has each member's protocol (KIP-1099).
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, since
from ottla.protocol.types import Bool, Int8, Int16, Int32, NullableString, String, Uuid


class ConsumerGroupDescribeRequest(Request, key=69, versions="0-1", flexible="0+"):
    """The groups to describe."""

    group_ids: list[String]
    include_authorized_operations: Bool


class ConsumerGroupDescribeResponse(Response, key=69, versions="0-1", flexible="0+"):
    """The groups, in the order of the request."""

    class TopicPartitions(Struct):
        """A topic's partitions."""

        topic_id: Uuid
        topic_name: String
        partitions: list[Int32]

    class Assignment(Struct):
        """Partitions by topic."""

        topic_partitions: list[ConsumerGroupDescribeResponse.TopicPartitions]

    class Member(Struct):
        """A member: its subscription, the partitions that it owns, and those of its target assignment.

        `member_type`: -1 unknown, 0 classic, 1 consumer.
        """

        member_id: String
        instance_id: NullableString = None
        rack_id: NullableString = None
        member_epoch: Int32
        client_id: String
        client_host: String
        subscribed_topic_names: list[String]
        subscribed_topic_regex: NullableString = None
        assignment: ConsumerGroupDescribeResponse.Assignment
        target_assignment: ConsumerGroupDescribeResponse.Assignment
        member_type: Int8 = since("1+", default=-1, ignorable=True)

    class DescribedGroup(Struct):
        """A group, or the reason why it cannot be described. `authorized_operations` is a bit set, -2^31 if it was
        not requested.
        """

        error_code: Int16 = 0
        error_message: NullableString = None
        group_id: String
        group_state: String
        group_epoch: Int32
        assignment_epoch: Int32
        assignor_name: String
        members: list[ConsumerGroupDescribeResponse.Member]
        authorized_operations: Int32 = -0x8000_0000

    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup]


def refused(
    request: ConsumerGroupDescribeRequest, version: int, code: ErrorCode, message: str
) -> ConsumerGroupDescribeResponse:
    """Refuse every group of the request."""
    return ConsumerGroupDescribeResponse(
        groups=[
            ConsumerGroupDescribeResponse.DescribedGroup(
                error_code=code,
                error_message=message,
                group_id=group_id,
                group_state="",
                group_epoch=0,
                assignment_epoch=0,
                assignor_name="",
                members=[],
            )
            for group_id in request.group_ids
        ]
    )
