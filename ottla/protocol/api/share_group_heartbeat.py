"""ShareGroupHeartbeat (key 76), version 1: what members of a share group send to its coordinator (KIP-932).

A member joins with epoch 0, leaves with -1, and otherwise says that it is alive. It has what changed since its last
heartbeat, null meaning that nothing did; the broker answers in the same way. Version 0 was an early access of
Kafka 4.0.
"""

from __future__ import annotations

from ottla.protocol.decoder_source import MAX_ELEMENTS_IN_ONE_PIECE
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Request, Response, Struct
from ottla.protocol.types import Int16, Int32, NullableString, String, Uuid


class ShareGroupHeartbeatRequest(Request, key=76, versions="1", flexible="0+", max_elements=MAX_ELEMENTS_IN_ONE_PIECE):
    """What the member is and subscribes to."""

    group_id: String
    member_id: String
    member_epoch: Int32
    rack_id: NullableString = None
    subscribed_topic_names: list[String] | None = None


class ShareGroupHeartbeatResponse(Response, key=76, versions="1", flexible="0+"):
    """The member's epoch, and its assignment where that has changed."""

    class TopicPartitions(Struct):
        """A topic's partitions."""

        topic_id: Uuid
        partitions: list[Int32]

    class Assignment(Struct):
        """All partitions that the member reads from."""

        topic_partitions: list[ShareGroupHeartbeatResponse.TopicPartitions]

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: NullableString = None
    member_id: NullableString = None
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = None


def refused(
    request: ShareGroupHeartbeatRequest, version: int, code: ErrorCode, message: str
) -> ShareGroupHeartbeatResponse:
    """Refuse the request."""
    return ShareGroupHeartbeatResponse(error_code=code, error_message=message, member_epoch=0, heartbeat_interval_ms=0)
