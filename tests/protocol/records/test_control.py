"""Control record keys name their kind, and a kind from a newer Kafka is no error."""

from __future__ import annotations

import pytest

from ottla.protocol.records.control import (
    ControlType,
    EndTransactionMarker,
    decode_control_key,
    decode_end_transaction_marker,
    encode_control_key,
    encode_end_transaction_marker,
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
