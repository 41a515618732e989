"""ConsumerGroupHeartbeat (key 68), versions 0-1: the only request of the consumer protocol (KIP-848).

A member joins with epoch 0, leaves with -1 (-2: a static member that will return), and otherwise shows that it is
alive. The request has the fields that changed since the last heartbeat, and null for the others; so does the response.

Versions: 1 has the regular expression, and member ids that clients choose themselves (KIP-1082).
"""

from __future__ import annotations

from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct, since
from ottla.protocol.types import Int16, Int32, NullableString, String, Uuid


class ConsumerGroupHeartbeatRequest(
    Request, key=68, versions="0-1", flexible="0+", max_elements=MAX_ELEMENTS_IN_ONE_PIECE
):
    """The member, its subscription, and the partitions that it owns."""

    class TopicPartitions(Struct):
        """A topic's partitions."""

        topic_id: Uuid
        partitions: list[Int32]

    group_id: String
    member_id: String
    member_epoch: Int32
    instance_id: NullableString = None
    rack_id: NullableString = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[String] | None = None
    subscribed_topic_regex: NullableString = since("1+", default=None)
    server_assignor: NullableString = None
    topic_partitions: list[TopicPartitions] | None = None


class ConsumerGroupHeartbeatResponse(Response, key=68, versions="0-1", flexible="0+"):
    """The member's epoch, and its assignment if that has changed."""

    class TopicPartitions(Struct):
        """A topic's partitions."""

        topic_id: Uuid
        partitions: list[Int32]

    class Assignment(Struct):
        """All partitions that the member is to own."""

        topic_partitions: list[ConsumerGroupHeartbeatResponse.TopicPartitions]

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    member_id: NullableString = None
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = None


def refused(
    request: ConsumerGroupHeartbeatRequest, version: int, code: ErrorCode, message: str
) -> ConsumerGroupHeartbeatResponse:
    """Refuse the request."""
    return ConsumerGroupHeartbeatResponse(
        error_code=code, error_message=message, member_epoch=0, heartbeat_interval_ms=0
    )
