"""The messages that consumers exchange through the broker: the bytes in JoinGroup and SyncGroup of type "consumer".

Both messages begin with their version as an int16. A consumer that subscribes to topic ``t``, owns nothing and has
neither generation nor rack sends, at version 3::

    00 03  00 00 00 01  00 01 74  ff ff ff ff  00 00 00 00  ff ff ff ff  ff ff
    v3     one topic    "t"       no user data  owns none    generation -1  no rack

A newer version than the newest known one is read as that one, since versions only add fields at the end. Bytes after a
message are ignored. Both are as in Kafka's ``ConsumerProtocol``. The bytes come from a client, and the broker decodes
them only when it needs the content (DescribeGroups of tools, the subscribed topics for OffsetDelete, KIP-848's
migration): callers treat MalformedMessage as "not known".
"""

from __future__ import annotations

import struct
from typing import TypeVar

from ottla.protocol.errors import MalformedMessage
from ottla.protocol.message import Message, Struct, decode, encode, since
from ottla.protocol.types import Buffer, Int32, NullableBytes, NullableString, String

CONSUMER_PROTOCOL_TYPE = "consumer"
"""The protocol type of consumer groups; other types (Connect's "connect") have other messages."""

_VERSION = struct.Struct(">h")


class ConsumerProtocolSubscription(Message, versions="0-3"):
    """The topics that a member subscribes to, and information for the assignor.

    Version 1 has the partitions that it owns (KIP-429), 2 their generation (KIP-792), 3 its rack (KIP-881).
    """

    class TopicPartition(Struct):
        """A topic's partitions."""

        topic: String
        partitions: list[Int32]

    topics: list[String]
    user_data: NullableBytes = None
    owned_partitions: list[TopicPartition] = since("1+", factory=list, ignorable=True)
    generation_id: Int32 = since("2+", default=-1, ignorable=True)
    rack_id: NullableString = since("3+", default=None, ignorable=True)


class ConsumerProtocolAssignment(Message, versions="0-3"):
    """The partitions that a member is to own. All versions have the same fields."""

    class TopicPartition(Struct):
        """A topic's partitions."""

        topic: String
        partitions: list[Int32]

    assigned_partitions: list[TopicPartition]
    user_data: NullableBytes = None


P = TypeVar("P", ConsumerProtocolSubscription, ConsumerProtocolAssignment)


def encode_subscription(subscription: ConsumerProtocolSubscription, version: int | None = None) -> bytes:
    """The metadata of a protocol in JoinGroup; without a `version`, the newest. Raises UnencodableMessage."""
    return _encode(subscription, version)


def decode_subscription(data: Buffer) -> ConsumerProtocolSubscription:
    """Read the metadata of a protocol in JoinGroup. Raises MalformedMessage."""
    return _decode(ConsumerProtocolSubscription, data)


def encode_assignment(assignment: ConsumerProtocolAssignment, version: int | None = None) -> bytes:
    """An assignment in SyncGroup; without a `version`, the newest. Raises UnencodableMessage."""
    return _encode(assignment, version)


def decode_assignment(data: Buffer) -> ConsumerProtocolAssignment:
    """Read an assignment of SyncGroup. No bytes at all mean no partitions. Raises MalformedMessage.

    Members for which a leader sends no assignment get no bytes; Kafka's consumer reads them in the same way.
    """
    return (
        _decode(ConsumerProtocolAssignment, data) if len(data) else ConsumerProtocolAssignment(assigned_partitions=[])
    )


def version_of(data: Buffer) -> int:
    """The version in which a subscription or assignment was written. Raises MalformedMessage."""
    if len(data) < _VERSION.size:
        raise MalformedMessage(f"consumer protocol: {len(data)} bytes have no version")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise MalformedMessage(f"consumer protocol: version {version}")
    return version


def _encode(message: Message, version: int | None) -> bytes:
    if version is None:
        version = message.message_versions.last
    return _VERSION.pack(version) + encode(message, version)


def _decode(cls: type[P], data: Buffer) -> P:
    return decode(cls, data, min(version_of(data), cls.message_versions.last), _VERSION.size)
