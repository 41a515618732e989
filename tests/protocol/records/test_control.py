"""Control record keys name their kind, and a kind from a newer Kafka is no error."""

from __future__ import annotations

import re

import pytest

from ottla.protocol.records import control
from ottla.protocol.records.batch import Record, encode_batch
from ottla.protocol.records.control import (
    ControlType,
    EndTransactionMarker,
    TransactionEnd,
    decode_control_key,
    decode_end_transaction_marker,
    decode_transaction_end,
    encode_control_key,
    encode_end_transaction_marker,
    end_transaction_marker,
)
from ottla.protocol.records.errors import CorruptBatch


@pytest.mark.parametrize("kind", list(ControlType))
def test_keys_come_back(kind):
    assert decode_control_key(encode_control_key(kind)) is kind
    assert decode_control_key(encode_control_key(kind, version=3) + b"newer fields") is kind


def test_the_bytes_of_a_leader_change_key():
    assert encode_control_key(ControlType.LEADER_CHANGE) == bytes.fromhex("00000002")


def test_an_unknown_kind_is_none():
    assert decode_control_key(bytes.fromhex("00000063")) is None


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x00"])
def test_a_broken_key_is_corrupt(key):
    with pytest.raises(CorruptBatch):
        decode_control_key(key)


def test_transaction_markers_come_back():
    assert encode_end_transaction_marker(EndTransactionMarker(9)) == bytes.fromhex("000000000009")
    assert decode_end_transaction_marker(bytes.fromhex("00000000000977")) == EndTransactionMarker(9)
    for broken in (None, b"\x00\x00\x00\x00\x00", b"\xff\xff\x00\x00\x00\x00"):
        with pytest.raises(CorruptBatch):
            decode_end_transaction_marker(broken)


@pytest.mark.parametrize(
    ("arguments", "is_commit", "written_by_kafka"),
    [
        (
            {
                "producer_id": 1000,
                "producer_epoch": 5,
                "coordinator_epoch": 9,
                "timestamp_ms": 1,
                "base_offset": 7,
            },
            True,
            "000000000000000700000042ffffffff0275a5b280003000000000000000000000000100000000000000"
            "0100000000000003e80005ffffffff000000012000000008000000010c00000000000900",
        ),
        (
            {
                "producer_id": 2**63 - 1,
                "producer_epoch": 2**15 - 1,
                "coordinator_epoch": 2**31 - 1,
                "timestamp_ms": 1_700_000_000_123,
                "base_offset": 2**63 - 2,
                "leader_epoch": 3,
            },
            False,
            "7ffffffffffffffe0000004200000003023068f5070030000000000000018bcfe5687b0000018bcfe568"
            "7b7fffffffffffffff7fffffffffff000000012000000008000000000c00007fffffff00",
        ),
    ],
)
def test_markers_are_those_that_kafkas_classes_write(arguments, is_commit, written_by_kafka):
    batch = end_transaction_marker(**arguments, is_commit=is_commit)
    assert batch.hex() == written_by_kafka
    assert decode_transaction_end(batch) == TransactionEnd(is_commit, arguments["coordinator_epoch"])


def test_the_worked_example_of_a_marker():
    page = control.__doc__
    shown = page.partition("time 1::\n")[2].partition("\nSource")[0]
    example = bytes.fromhex("".join(re.findall(r"^    ((?:[0-9a-f]{2} +)+)", f"{shown}\n", re.MULTILINE)))
    marker = end_transaction_marker(1000, 5, is_commit=True, coordinator_epoch=9, timestamp_ms=1, base_offset=7)
    assert example == marker


def test_what_is_no_marker_ends_nothing():
    records = [Record(0, 1, encode_control_key(ControlType.COMMIT), b"\0" * 6)]
    leader_change = [Record(0, 1, encode_control_key(ControlType.LEADER_CHANGE), b"\0" * 6)]
    unknown = [Record(0, 1, bytes.fromhex("00000063"), b"\0" * 6)]
    assert decode_transaction_end(encode_batch(records, is_transactional=True)) is None
    assert decode_transaction_end(encode_batch(leader_change, is_control=True)) is None
    assert decode_transaction_end(encode_batch(unknown, is_control=True)) is None


def test_a_marker_with_a_broken_value_or_checksum_is_corrupt():
    short = [Record(0, 1, encode_control_key(ControlType.COMMIT), b"\0" * 5)]
    with pytest.raises(CorruptBatch, match="5 bytes"):
        decode_transaction_end(encode_batch(short, is_control=True, is_transactional=True))
    flipped = end_transaction_marker(1, 0, is_commit=True, coordinator_epoch=0, timestamp_ms=1)
    flipped[-2] ^= 1
    with pytest.raises(CorruptBatch, match="checksum"):
        decode_transaction_end(flipped)
