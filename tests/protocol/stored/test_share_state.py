"""The records of `__share_group_state`: keys that say their type, values that say their version."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.protocol.errors import MalformedMessage, UnencodableMessage
from ottla.protocol.message import Struct
from ottla.protocol.stored.share_state import (
    SHARE_STATE_RECORDS,
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    decode_share_state_record,
    encode_share_state_key,
    encode_share_state_value,
)
from ottla.protocol.stored.unknown import UnknownRecord

TOPIC_ID = UUID(bytes=b"\x11" * 16)
KEY = ShareSnapshotKey(group_id="g", topic_id=TOPIC_ID, partition=0)
VALUE = ShareSnapshotValue(
    snapshot_epoch=1,
    state_epoch=0,
    leader_epoch=2,
    start_offset=5,
    delivery_complete_count=1,
    create_timestamp=1,
    write_timestamp=1,
    state_batches=[ShareSnapshotValue.StateBatch(first_offset=6, last_offset=6, delivery_state=2, delivery_count=1)],
)
KEY_BYTES = bytes.fromhex("0000 0001 67" + "11" * 16 + "00000000")
VALUE_BYTES = bytes.fromhex(
    "0000 00000001 00000000 00000002 0000000000000005 0000000000000001 0000000000000001"
    "02 0000000000000006 0000000000000006 02 0001 00 01 00 04 00000001"
)
UPDATE_KEY = ShareUpdateKey(group_id="g", topic_id=TOPIC_ID, partition=3)
UPDATE = ShareUpdateValue(
    snapshot_epoch=1,
    leader_epoch=2,
    start_offset=-1,
    state_batches=[ShareUpdateValue.StateBatch(first_offset=7, last_offset=9, delivery_state=4, delivery_count=5)],
)
UPDATE_KEY_BYTES = bytes.fromhex("0001 0001 67" + "11" * 16 + "00000003")
UPDATE_BYTES = bytes.fromhex(
    "0000 00000001 00000002 ffffffffffffffff 02 0000000000000007 0000000000000009 04 0005 00 00"
)
BOTH = pytest.mark.parametrize(
    ("key", "key_bytes", "value", "value_bytes"),
    [(KEY, KEY_BYTES, VALUE, VALUE_BYTES), (UPDATE_KEY, UPDATE_KEY_BYTES, UPDATE, UPDATE_BYTES)],
    ids=["snapshot", "update"],
)


@BOTH
def test_a_worked_example(key: Struct, key_bytes: bytes, value: Struct, value_bytes: bytes) -> None:
    assert encode_share_state_key(key) == key_bytes
    assert encode_share_state_value(value) == value_bytes
    assert decode_share_state_record(key_bytes, value_bytes) == (key, value)


@BOTH
def test_the_count_of_complete_records_that_older_brokers_do_not_write_is_unknown(
    key: Struct, key_bytes: bytes, value: ShareSnapshotValue | ShareUpdateValue, value_bytes: bytes
) -> None:
    unknown = value.replace(delivery_complete_count=-1)
    encoded = encode_share_state_value(unknown)
    assert encoded.endswith(b"\0"), "no tag is written"
    assert decode_share_state_record(key_bytes, encoded) == (key, unknown)


@BOTH
def test_a_tombstone_has_a_key_and_no_value(key: Struct, key_bytes: bytes, value: Struct, value_bytes: bytes) -> None:
    assert decode_share_state_record(key_bytes, None) == (key, None)


@pytest.mark.parametrize("value", [None, b"", b"\0\0anything"])
def test_a_type_that_is_not_known_is_kept_as_its_bytes(value: bytes | None) -> None:
    key = b"\0\2\0\1t"
    assert decode_share_state_record(key, value) == (UnknownRecord(record_type=2, key=key, value=value), None)


@BOTH
def test_bytes_after_a_message_are_ignored(key: Struct, key_bytes: bytes, value: Struct, value_bytes: bytes) -> None:
    assert decode_share_state_record(key_bytes + b"x", value_bytes + b"x") == (key, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (b"\0", None),
        (b"\0\0", None),
        (b"\0\1", None),
        (KEY_BYTES[:-1], None),
        (KEY_BYTES, b""),
        (KEY_BYTES, b"\0"),
        (KEY_BYTES, VALUE_BYTES[:-1]),
        (KEY_BYTES, b"\0\1" + VALUE_BYTES[2:]),
        (KEY_BYTES, b"\xff\xff" + VALUE_BYTES[2:]),
        (UPDATE_KEY_BYTES, UPDATE_BYTES[:-1]),
    ],
)
def test_broken_records_are_malformed(key: bytes, value: bytes | None) -> None:
    with pytest.raises(MalformedMessage):
        decode_share_state_record(key, value)


def test_only_keys_and_values_of_the_log_are_written() -> None:
    with pytest.raises(TypeError, match="not a key"):
        encode_share_state_key(VALUE)
    with pytest.raises(TypeError, match="not a value"):
        encode_share_state_value(KEY)
    with pytest.raises(UnencodableMessage):
        encode_share_state_key(KEY.replace(group_id="g" * 32_768))


def test_a_key_names_the_type_of_its_value() -> None:
    assert {0: (ShareSnapshotKey, ShareSnapshotValue), 1: (ShareUpdateKey, ShareUpdateValue)} == SHARE_STATE_RECORDS
