"""The records of `__consumer_offsets`: the committed offsets of groups, and the groups themselves.

A key begins with its type, a value with its version; the message follows. The offset 42 of group ``g`` in partition 0
of topic ``t``, committed at time 1 without metadata or a known leader epoch::

    00 01  00 01 67  00 01 74  00 00 00 00                                      type 1: "g", "t", 0
    00 03  00 00 00 00 00 00 00 2a  ff ff ff ff  00 00  00 00 00 00 00 00 00 01  version 3: 42, -1, "", 1

A record without a value (a tombstone) deletes what its key names. Bytes after a message are ignored, as in Kafka.
Types 10 to 15 belong to share groups, 17 and 19 to 23 to streams groups. Types 9 (of an early share group), 18 (of an
early streams group) and those above 23 are read as `UnknownRecord`, so that a broker that opens a directory of Kafka
can keep them. Source: Kafka's ``CoordinatorRecordSerde``, ``GroupCoordinatorRecordHelpers``, and the schemas of
release 4.1, for share and streams groups 4.4.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from ottla.protocol.errors import MalformedMessage
from ottla.protocol.message import Struct, decode, encode
from ottla.protocol.stored.group.classic import GroupMetadataKey, GroupMetadataValue
from ottla.protocol.stored.group.consumer import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from ottla.protocol.stored.group.offsets import OffsetCommitKey, OffsetCommitValue
from ottla.protocol.stored.group.record import GroupKey, GroupValue
from ottla.protocol.stored.group.share import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)
from ottla.protocol.stored.group.streams import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)
from ottla.protocol.stored.unknown import UnknownRecord
from ottla.protocol.types import Buffer

GROUP_RECORDS: dict[int, tuple[type[GroupKey], type[GroupValue]]] = {
    key.message_key: (key, value)
    for key, value in (
        (OffsetCommitKey, OffsetCommitValue),
        (GroupMetadataKey, GroupMetadataValue),
        (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
        (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
        (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
        (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
        (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
        (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
        (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
        (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
        (ShareGroupMetadataKey, ShareGroupMetadataValue),
        (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
        (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
        (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
        (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
        (StreamsGroupMetadataKey, StreamsGroupMetadataValue),
        (StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue),
        (StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue),
        (StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue),
        (StreamsGroupCurrentMemberAssignmentKey, StreamsGroupCurrentMemberAssignmentValue),
        (StreamsGroupTopologyKey, StreamsGroupTopologyValue),
    )
}
"""The key and value classes by their record type."""

SHARE_GROUP_KEYS = (
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupStatePartitionMetadataKey,
)
"""The keys of records about share groups."""

STREAMS_GROUP_KEYS = (
    StreamsGroupMetadataKey,
    StreamsGroupMemberMetadataKey,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupTopologyKey,
)
"""The keys of records about streams groups."""

LEGACY_OFFSET_COMMIT_TYPE = 0
"""The type of committed offsets in the first versions of Kafka; its fields are those of type 1."""

_PREFIX = struct.Struct(">h")
_PARTITION = struct.Struct(">i")

__all__ = [
    "GROUP_RECORDS",
    "SHARE_GROUP_KEYS",
    "STREAMS_GROUP_KEYS",
    "ConsumerGroupCurrentMemberAssignmentKey",
    "ConsumerGroupCurrentMemberAssignmentValue",
    "ConsumerGroupMemberMetadataKey",
    "ConsumerGroupMemberMetadataValue",
    "ConsumerGroupMetadataKey",
    "ConsumerGroupMetadataValue",
    "ConsumerGroupPartitionMetadataKey",
    "ConsumerGroupPartitionMetadataValue",
    "ConsumerGroupRegularExpressionKey",
    "ConsumerGroupRegularExpressionValue",
    "ConsumerGroupTargetAssignmentMemberKey",
    "ConsumerGroupTargetAssignmentMemberValue",
    "ConsumerGroupTargetAssignmentMetadataKey",
    "ConsumerGroupTargetAssignmentMetadataValue",
    "GroupKey",
    "GroupMetadataKey",
    "GroupMetadataValue",
    "GroupValue",
    "OffsetCommitKey",
    "OffsetCommitValue",
    "ShareGroupCurrentMemberAssignmentKey",
    "ShareGroupCurrentMemberAssignmentValue",
    "ShareGroupMemberMetadataKey",
    "ShareGroupMemberMetadataValue",
    "ShareGroupMetadataKey",
    "ShareGroupMetadataValue",
    "ShareGroupStatePartitionMetadataKey",
    "ShareGroupStatePartitionMetadataValue",
    "ShareGroupTargetAssignmentMemberKey",
    "ShareGroupTargetAssignmentMemberValue",
    "ShareGroupTargetAssignmentMetadataKey",
    "ShareGroupTargetAssignmentMetadataValue",
    "StreamsGroupCurrentMemberAssignmentKey",
    "StreamsGroupCurrentMemberAssignmentValue",
    "StreamsGroupMemberMetadataKey",
    "StreamsGroupMemberMetadataValue",
    "StreamsGroupMetadataKey",
    "StreamsGroupMetadataValue",
    "StreamsGroupTargetAssignmentMemberKey",
    "StreamsGroupTargetAssignmentMemberValue",
    "StreamsGroupTargetAssignmentMetadataKey",
    "StreamsGroupTargetAssignmentMetadataValue",
    "StreamsGroupTopologyKey",
    "StreamsGroupTopologyValue",
    "UnknownRecord",
    "decode_group_record",
    "encode_group_key",
    "encode_group_value",
    "encode_offset_keys",
]


def encode_group_key(key: Struct) -> bytes:
    """The key of a record of `__consumer_offsets`.

    Raises TypeError for a struct that is not such a key, and UnencodableMessage.
    """
    if not isinstance(key, GroupKey):
        raise TypeError(f"{type(key).__name__} is not a key of __consumer_offsets")
    return _PREFIX.pack(key.message_key) + encode(key, 0)


def encode_offset_keys(group: str, topic: str, partitions: Iterable[int]) -> list[bytes]:
    """The keys of a group's offsets in some partitions of a topic, each as from `encode_group_key`.

    They differ only in their last field, the partition. Raises UnencodableMessage.
    """
    front = encode_group_key(OffsetCommitKey(group=group, topic=topic, partition=0))[: -_PARTITION.size]
    return [front + _PARTITION.pack(partition) for partition in partitions]


def encode_group_value(value: Struct, version: int | None = None) -> bytes:
    """The value of a record of `__consumer_offsets`.

    Without a `version`, the one that Kafka 4.1 writes, which for an offset with an expiry is version 1.
    Raises TypeError for a struct that is not such a value, UnencodableMessage, and ValueError for an unknown version.
    """
    if not isinstance(value, GroupValue):
        raise TypeError(f"{type(value).__name__} is not a value of __consumer_offsets")
    if version is None:
        expires = isinstance(value, OffsetCommitValue) and value.expire_timestamp != -1
        version = 1 if expires else value.written_version
    return _PREFIX.pack(version) + encode(value, version)


def decode_group_record(key: Buffer, value: Buffer | None) -> tuple[Struct, Struct | None]:
    """The key and the value of a record of `__consumer_offsets`; no value for a tombstone.

    A record of an unknown type is returned as an `UnknownRecord` and no value.
    Raises MalformedMessage for broken bytes, and for an unknown version of a value.
    """
    record_type = _prefix(key, "key")
    is_legacy = record_type == LEGACY_OFFSET_COMMIT_TYPE
    classes = GROUP_RECORDS.get(OffsetCommitKey.message_key if is_legacy else record_type)
    if classes is None:
        whole = None if value is None else bytes(value)
        return UnknownRecord(record_type=record_type, key=bytes(key), value=whole), None
    key_class, value_class = classes
    decoded_key = decode(key_class, key, 0, _PREFIX.size)
    if value is None:
        return decoded_key, None
    version = _prefix(value, "value")
    if version not in value_class.message_versions:
        raise MalformedMessage(f"{value_class.__name__} of unknown version {version}")
    return decoded_key, decode(value_class, value, version, _PREFIX.size)


def _prefix(data: Buffer, what: str) -> int:
    """The type at the beginning of a key, or the version at the beginning of a value."""
    if len(data) < _PREFIX.size:
        raise MalformedMessage(f"a {what} of {len(data)} bytes in __consumer_offsets says neither type nor version")
    number: int = _PREFIX.unpack_from(data)[0]
    return number
