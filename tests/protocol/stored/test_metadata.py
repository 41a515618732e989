"""The frame of metadata records. Their bytes are compared with Kafka's in test_kafka_golden.py."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.protocol.errors import MalformedMessage, UnencodableMessage
from ottla.protocol.stored.metadata import (
    METADATA_RECORDS,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
    decode_metadata_record,
    encode_metadata_record,
)

TOPIC_ID = UUID(bytes=b"\x11" * 16)
DIRECTORY_ID = UUID(bytes=b"\x22" * 16)


def test_the_worked_example_of_the_format() -> None:
    record = TopicRecord(name="t", topic_id=TOPIC_ID)
    assert encode_metadata_record(record) == b"\x01\x02\x00" + b"\x02t" + b"\x11" * 16 + b"\x00"


def test_the_latest_version_is_written_unless_another_is_asked_for() -> None:
    record = PartitionRecord(partition_id=0, topic_id=TOPIC_ID, replicas=[1], isr=[1], leader=1)
    assert encode_metadata_record(record)[:3] == b"\x01\x03\x02"
    assert encode_metadata_record(record, 0)[:3] == b"\x01\x03\x00"


def test_a_directory_is_not_dropped_by_a_version_that_cannot_say_it() -> None:
    record = PartitionRecord(topic_id=TOPIC_ID, replicas=[1], isr=[1], directories=[DIRECTORY_ID])
    with pytest.raises(UnencodableMessage, match="directories"):
        encode_metadata_record(record, 0)


def test_a_change_names_only_what_changes() -> None:
    change = PartitionChangeRecord(partition_id=2, topic_id=TOPIC_ID, leader=1)
    encoded = encode_metadata_record(change)
    assert encoded == b"\x01\x05\x02" + b"\0\0\0\2" + b"\x11" * 16 + b"\x01" + b"\x01\x04\0\0\0\1"
    assert decode_metadata_record(encoded) == change


def test_the_shortest_record_reads_back() -> None:
    assert decode_metadata_record(b"\x01\x14\x00\x00") == NoOpRecord()


def test_record_types_are_kafkas() -> None:
    assert sorted(METADATA_RECORDS) == [*range(6), 7, 8, 9, 10, 11, 12, 14, 15, *range(17, 30)]
    assert METADATA_RECORDS[12] is FeatureLevelRecord


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "ends within its frame"),
        (b"\x01\x14", "ends within its frame"),
        (b"\x00\x14\x00\x00", "frame version 0"),
        (b"\x02\x14\x00\x00", "frame version 2"),
        (b"\x01\x7f\x00\x00", "unknown type 127"),
        (b"\x01\x14\x01\x00", "NoOpRecord of unknown version 1"),
        (b"\x01\x14\x00\x00x", "NoOpRecord v0 is followed by 1 bytes"),
        (b"\x01\x14\x00", "NoOpRecord v0 ends early"),
    ],
)
def test_a_broken_frame_is_malformed(data: bytes, reason: str) -> None:
    with pytest.raises(MalformedMessage, match=reason):
        decode_metadata_record(data)
