"""The records of `__share_group_state`: where share groups are in their partitions, and what was delivered (KIP-932).

A key names a share partition: a group, a topic and a partition of it. A ShareSnapshot (type 0) has all of the state, a
ShareUpdate (type 1) what has changed since the one before; an update belongs to the snapshot of its epoch. A key begins
with its type, a value with its version. The state of group ``g`` in partition 0 of a topic whose id is sixteen bytes,
all 0x11, from offset 5 on, of which offset 6 was acknowledged when it was delivered first::

    00 00  00 01 67  11 x 16  00 00 00 00                                  type 0: "g", the id, 0
    00 00  00 00 00 01  00 00 00 00  00 00 00 02  00 .. 05  00 .. 01  00 .. 01   version 0: epochs 1, 0, 2, offset 5,
           02  00 .. 06  00 .. 06  02  00 01  00  01 00 04 00 00 00 01     times 1, 1; one batch: 6 to 6, state 2, once;
                                                                           no tags in it; one tag: complete are 1

A snapshot without a value (a tombstone) forgets the share partition. Bytes after a message are ignored, as in Kafka.
Source: Kafka's `ShareCoordinatorRecordSerde` and the schemas of release 4.4.
"""

from __future__ import annotations

from ottla.protocol.message import Message, Struct, tagged
from ottla.protocol.stored.versioned import decode_versioned_record, encode_numbered
from ottla.protocol.types import Buffer, Int8, Int16, Int32, Int64, String, Uuid


class ShareStateKey(Message):
    """The key of a record of `__share_group_state`."""


class ShareStateValue(Message):
    """The value of a record of `__share_group_state`."""


class ShareSnapshotKey(ShareStateKey, key=0, versions="0"):
    """A share partition."""

    group_id: String
    topic_id: Uuid
    partition: Int32


class ShareSnapshotValue(ShareStateValue, key=0, versions="0", flexible="0+"):
    """The state of a share partition; times are in ms.

    `delivery_complete_count`: offsets from the start offset on that need no delivery any more (KIP-1226, Kafka 4.2),
    -1 where that is not known.
    """

    class StateBatch(Struct):
        """Offsets, both inclusive. `delivery_state`: 0 available, 2 acknowledged, 3 archiving, 4 archived."""

        first_offset: Int64
        last_offset: Int64
        delivery_state: Int8
        delivery_count: Int16

    snapshot_epoch: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = tagged(0, "0+", default=-1)
    create_timestamp: Int64
    write_timestamp: Int64
    state_batches: list[StateBatch]


class ShareUpdateKey(ShareStateKey, key=1, versions="0"):
    """A share partition."""

    group_id: String
    topic_id: Uuid
    partition: Int32


class ShareUpdateValue(ShareStateValue, key=1, versions="0", flexible="0+"):
    """What has changed in a share partition. `start_offset` is -1 where it stays."""

    class StateBatch(Struct):
        """Offsets, both inclusive. `delivery_state`: 0 available, 2 acknowledged, 3 archiving, 4 archived."""

        first_offset: Int64
        last_offset: Int64
        delivery_state: Int8
        delivery_count: Int16

    snapshot_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = tagged(0, "0+", default=-1)
    state_batches: list[StateBatch]


SHARE_STATE_RECORDS: dict[int, tuple[type[ShareStateKey], type[ShareStateValue]]] = {
    key.message_key: (key, value)
    for key, value in ((ShareSnapshotKey, ShareSnapshotValue), (ShareUpdateKey, ShareUpdateValue))
}
"""The key and value classes by their record type."""


def encode_share_state_key(key: Struct) -> bytes:
    """The key of a record of `__share_group_state`.

    Raises TypeError for a struct that is no such key, and UnencodableMessage.
    """
    if not isinstance(key, ShareStateKey):
        raise TypeError(f"{type(key).__name__} is not a key of __share_group_state")
    return encode_numbered(key.message_key, key, 0)


def encode_share_state_value(value: Struct) -> bytes:
    """The value of a record of `__share_group_state`, in version 0.

    Raises TypeError for a struct that is no such value, and UnencodableMessage.
    """
    if not isinstance(value, ShareStateValue):
        raise TypeError(f"{type(value).__name__} is not a value of __share_group_state")
    return encode_numbered(0, value, 0)


def decode_share_state_record(key: Buffer, value: Buffer | None) -> tuple[Struct, Struct | None]:
    """The key and the value of a record of `__share_group_state`; no value for a tombstone.

    A record whose key is of a newer type comes as an `UnknownRecord` and no value. Raises MalformedMessage for broken
    bytes, and for a version of a value that is not known.
    """
    return decode_versioned_record("__share_group_state", SHARE_STATE_RECORDS, key, value)
