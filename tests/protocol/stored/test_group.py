"""The records of `__consumer_offsets`: keys that say their type, values that say their version."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.errors import MalformedMessage, UnencodableMessage
from ottla.protocol.message import encode
from ottla.protocol.stored.group import (
    GROUP_RECORDS,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    decode_group_record,
    encode_group_key,
    encode_group_value,
    encode_offset_keys,
)
from ottla.protocol.stored.unknown import UnknownRecord

KEY = OffsetCommitKey(group="g", topic="t", partition=0)
VALUE = OffsetCommitValue(offset=42, metadata="", commit_timestamp=1)
KEY_BYTES = bytes.fromhex("0001 0001 67 0001 74 00000000")
VALUE_BYTES_V3 = bytes.fromhex("0003 000000000000002a ffffffff 0000 0000000000000001")


def test_the_worked_example_of_an_offset() -> None:
    assert encode_group_key(KEY) == KEY_BYTES
    assert encode_group_value(VALUE, 3) == VALUE_BYTES_V3
    assert decode_group_record(KEY_BYTES, VALUE_BYTES_V3) == (KEY, VALUE)


def test_values_are_written_in_the_versions_of_kafka_4_1() -> None:
    expiring = VALUE.replace(expire_timestamp=7)
    group = GroupMetadataValue(protocol_type="consumer", generation=1, protocol=None, leader=None, members=[])
    assert encode_group_value(VALUE) == b"\0\4" + encode(VALUE, 4)
    assert encode_group_value(expiring) == b"\0\1" + encode(expiring, 1)
    assert encode_group_value(group) == b"\0\3" + encode(group, 3)
    assert encode_group_value(ConsumerGroupMetadataValue(epoch=1, metadata_hash=5))[:2] == b"\0\0"


def test_an_expiry_survives_only_in_the_version_that_has_it() -> None:
    expiring = VALUE.replace(expire_timestamp=7)
    assert decode_group_record(KEY_BYTES, encode_group_value(expiring)) == (KEY, expiring)
    assert decode_group_record(KEY_BYTES, encode_group_value(expiring, 3)) == (KEY, VALUE)


def test_a_tombstone_has_a_key_and_no_value() -> None:
    assert decode_group_record(KEY_BYTES, None) == (KEY, None)


def test_the_oldest_type_of_offset_reads_as_todays() -> None:
    assert decode_group_record(b"\0\0" + KEY_BYTES[2:], VALUE_BYTES_V3) == (KEY, VALUE)


def test_a_classic_member_of_a_consumer_group_keeps_its_protocols() -> None:
    member = ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id="r",
        client_id="c",
        client_host="/127.0.0.1",
        subscribed_topic_names=["t"],
        subscribed_topic_regex=None,
        server_assignor=None,
        classic_member_metadata=ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(
            session_timeout_ms=0, supported_protocols=[]
        ),
    )
    key = ConsumerGroupMemberMetadataKey(group_id="g", member_id="m")
    assert decode_group_record(encode_group_key(key), encode_group_value(member)) == (key, member)


def test_a_streams_group_is_stored_as_kafka_stores_it() -> None:
    """The bytes that Apache Kafka 4.4.0 wrote for a group at epoch 2; what has its default is not written."""
    key = StreamsGroupMetadataKey(group_id="g")
    value = StreamsGroupMetadataValue(
        epoch=2,
        metadata_hash=7,
        last_assignment_configs=[StreamsGroupMetadataValue.LastAssignmentConfig(key="k", value="v")],
    )
    data = bytes.fromhex("0000 00000002 0000000000000007 01 01 06 02 02 6b 02 76 00")
    assert encode_group_key(key) == bytes.fromhex("0011 0001 67")
    assert encode_group_value(value) == data
    assert decode_group_record(encode_group_key(key), data) == (key, value)


@pytest.mark.parametrize("value", [None, b"", b"\0\0anything"])
def test_a_type_that_is_not_known_is_kept_as_its_bytes(value: bytes | None) -> None:
    key = b"\0\x18\0\1s"
    assert decode_group_record(key, value) == (UnknownRecord(record_type=24, key=key, value=value), None)
    assert 24 not in GROUP_RECORDS


def test_bytes_behind_a_message_are_ignored() -> None:
    assert decode_group_record(KEY_BYTES + b"x", VALUE_BYTES_V3 + b"x") == (KEY, VALUE)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (b"\0", None),
        (b"\0\1", None),
        (KEY_BYTES[:-1], None),
        (KEY_BYTES, b""),
        (KEY_BYTES, b"\0"),
        (KEY_BYTES, VALUE_BYTES_V3[:-1]),
        (KEY_BYTES, b"\0\5" + VALUE_BYTES_V3[2:]),
        (KEY_BYTES, b"\xff\xff" + VALUE_BYTES_V3[2:]),
        (encode_group_key(GroupMetadataKey(group="g")), b"\0\3\0\1c\0\0\0\1\xff\xff\xff\xff" + b"\0" * 8 + b"\x7f" * 4),
    ],
)
def test_broken_records_are_malformed(key: bytes, value: bytes | None) -> None:
    with pytest.raises(MalformedMessage):
        decode_group_record(key, value)


@given(st.text(max_size=3), st.text(max_size=3), st.lists(st.integers(0, 2**31 - 1), max_size=3))
def test_the_keys_of_many_offsets_are_those_of_each(group: str, topic: str, partitions: list[int]) -> None:
    assert encode_offset_keys(group, topic, partitions) == [
        encode_group_key(OffsetCommitKey(group=group, topic=topic, partition=partition)) for partition in partitions
    ]


def test_only_keys_and_values_of_the_log_are_written() -> None:
    with pytest.raises(TypeError, match="not a key"):
        encode_group_key(VALUE)
    with pytest.raises(TypeError, match="not a value"):
        encode_group_value(KEY)
    with pytest.raises(UnencodableMessage):
        encode_group_key(ConsumerGroupMetadataKey(group_id="g" * 40_000))
