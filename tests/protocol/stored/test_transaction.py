"""The records of `__transaction_state`: keys that say their type, values that say their version."""

from __future__ import annotations

import pytest

from ottla.protocol.errors import MalformedMessage, UnencodableMessage
from ottla.protocol.stored.transaction import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionStatus,
    decode_transaction_record,
    encode_transaction_key,
    encode_transaction_value,
)
from ottla.protocol.stored.unknown import UnknownRecord

KEY = TransactionLogKey(transactional_id="t")
VALUE = TransactionLogValue(
    producer_id=1000,
    producer_epoch=0,
    transaction_timeout_ms=60_000,
    transaction_status=TransactionStatus.ONGOING,
    transaction_partitions=[TransactionLogValue.PartitionsSchema(topic="x", partition_ids=[0])],
    transaction_last_update_timestamp_ms=1,
    transaction_start_timestamp_ms=1,
)
PREPARED = VALUE.replace(next_producer_id=1001, previous_producer_id=999, client_transaction_version=2)
KEY_BYTES = bytes.fromhex("0000 0001 74")
VALUE_BYTES = bytes.fromhex(
    "0000 00000000000003e8 0000 0000ea60 01 00000001 0001 78 00000001 00000000 0000000000000001 0000000000000001"
)
STATUS_POSITION = 2 + 8 + 2 + 4


def test_the_worked_example_of_an_open_transaction() -> None:
    assert encode_transaction_key(KEY) == KEY_BYTES
    assert encode_transaction_value(VALUE, 0) == VALUE_BYTES
    assert decode_transaction_record(KEY_BYTES, VALUE_BYTES) == (KEY, VALUE)


def test_the_later_version_keeps_the_producer_ids_before_and_after() -> None:
    encoded = encode_transaction_value(PREPARED, 1)
    assert encoded[:2] == b"\0\1"
    assert decode_transaction_record(KEY_BYTES, encoded) == (KEY, PREPARED)


def test_the_first_version_refuses_what_it_cannot_say() -> None:
    with pytest.raises(UnencodableMessage, match=r"(next|previous)_producer_id"):
        encode_transaction_value(PREPARED, 0)


@pytest.mark.parametrize("version", [0, 1])
def test_an_empty_transactional_id_has_no_partitions(version: int) -> None:
    empty = VALUE.replace(transaction_status=TransactionStatus.EMPTY, transaction_partitions=None)
    assert decode_transaction_record(KEY_BYTES, encode_transaction_value(empty, version)) == (KEY, empty)


def test_a_tombstone_has_a_key_and_no_value() -> None:
    assert decode_transaction_record(KEY_BYTES, None) == (KEY, None)


@pytest.mark.parametrize("value", [None, b"", b"\0\0anything"])
def test_a_type_that_is_not_known_is_kept_as_its_bytes(value: bytes | None) -> None:
    key = b"\0\1\0\1t"
    assert decode_transaction_record(key, value) == (UnknownRecord(record_type=1, key=key, value=value), None)


def test_bytes_after_a_message_are_ignored() -> None:
    assert decode_transaction_record(KEY_BYTES + b"x", VALUE_BYTES + b"x") == (KEY, VALUE)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (b"\0", None),
        (b"\0\0", None),
        (KEY_BYTES[:-1], None),
        (KEY_BYTES, b""),
        (KEY_BYTES, b"\0"),
        (KEY_BYTES, VALUE_BYTES[:-1]),
        (KEY_BYTES, b"\0\2" + VALUE_BYTES[2:]),
        (KEY_BYTES, b"\xff\xff" + VALUE_BYTES[2:]),
    ],
)
def test_broken_records_are_malformed(key: bytes, value: bytes | None) -> None:
    with pytest.raises(MalformedMessage):
        decode_transaction_record(key, value)


@pytest.mark.parametrize(("status", "is_known"), [(-1, False), (0, True), (7, True), (8, False)])
def test_only_kafkas_statuses_are_read(status: int, is_known: bool) -> None:
    value = bytearray(VALUE_BYTES)
    value[STATUS_POSITION] = status & 0xFF
    if is_known:
        decoded = decode_transaction_record(KEY_BYTES, value)[1]
        assert decoded == VALUE.replace(transaction_status=status)
    else:
        with pytest.raises(MalformedMessage, match=f"status {status}"):
            decode_transaction_record(KEY_BYTES, value)


def test_only_keys_and_values_of_the_log_are_written() -> None:
    with pytest.raises(TypeError, match="not a key"):
        encode_transaction_key(VALUE)
    with pytest.raises(TypeError, match="not a value"):
        encode_transaction_value(KEY, 0)
    with pytest.raises(ValueError, match="2"):
        encode_transaction_value(VALUE, 2)
    with pytest.raises(UnencodableMessage):
        encode_transaction_key(TransactionLogKey(transactional_id="t" * 32_768))
