"""Control record values say their own version."""

from __future__ import annotations

import pytest

from ottla.protocol.errors import MalformedMessage, UnencodableMessage
from ottla.protocol.stored.control import (
    ControlRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    decode_control_record,
    encode_control_record,
)


def test_the_worked_example_of_a_leader_change() -> None:
    voter = LeaderChangeMessage.Voter(voter_id=1)
    record = LeaderChangeMessage(leader_id=1, voters=[voter], granting_voters=[voter])
    encoded = encode_control_record(record)
    assert encoded == bytes.fromhex("0000 00000001 02 00000001 00 02 00000001 00 00")
    assert decode_control_record(LeaderChangeMessage, encoded) == record


@pytest.mark.parametrize(
    ("record", "encoded"),
    [
        (SnapshotHeaderRecord(last_contained_log_timestamp=1), b"\0\0" + b"\0\0\0\0\0\0\0\1" + b"\0"),
        (SnapshotFooterRecord(), b"\0\0\0"),
    ],
)
def test_snapshots_begin_and_end_with_a_record(record: ControlRecord, encoded: bytes) -> None:
    assert encode_control_record(record) == encoded
    assert decode_control_record(type(record), encoded) == record


def test_a_value_is_written_in_the_version_that_it_says() -> None:
    record = LeaderChangeMessage(version=1, leader_id=1, voters=[], granting_voters=[])
    assert encode_control_record(record)[:2] == b"\0\1"
    with pytest.raises(ValueError, match="versions 0-1, not 2"):
        encode_control_record(record.replace(version=2))
    with pytest.raises(UnencodableMessage):
        encode_control_record(record.replace(leader_id=None))


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\x02\0\0\0\0", b"\xff\xff\0", b"\0\0"])
def test_a_broken_value_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_control_record(LeaderChangeMessage, data)
