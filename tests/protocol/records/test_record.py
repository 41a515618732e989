"""Varints of every width come back, and those that are too long are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.records.errors import CorruptBatch
from ottla.protocol.records.record import (
    decode_records,
    decode_varint,
    encode_plain_record,
    encode_record,
    encode_varint,
    value_of_plain_record,
)


@given(st.integers(-(2**63), 2**63 - 1))
def test_varlongs_come_back(value):
    encoded = encode_varint(value)
    assert len(encoded) <= 10
    assert decode_varint(b"\xff" + encoded, 1, max_bits=64) == (value, 1 + len(encoded))


@pytest.mark.parametrize("edge", [0, 63, 64, 8191, 8192, 2**20, 2**31 - 1, 2**31])
def test_varints_come_back_around_every_edge_of_width(edge):
    for value in (edge - 1, -edge, -edge - 1 if edge < 2**31 else -edge):
        if -(2**31) <= value < 2**31:
            assert decode_varint(encode_varint(value), 0) == (value, len(encode_varint(value)))


def test_every_varint_of_up_to_two_bytes_is_the_same_before_and_after_the_table_is_made():
    fresh = [encode_varint(value) for value in range(8_192)]  # the table is made on the way
    assert [decode_varint(encoded, 0) for encoded in fresh] == [
        (value, 1 if value < 64 else 2) for value in range(8_192)
    ]
    assert [encode_varint(value) for value in range(8_192)] == fresh


@pytest.mark.parametrize(
    "data", [b"", b"\x80", b"\xff\xff\xff\xff\xff\x01", b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x80\x80\x00"]
)
def test_a_varint_of_more_than_32_bits_or_cut_short_is_corrupt(data):
    with pytest.raises(CorruptBatch):
        decode_varint(data, 0)


def test_a_varlong_of_more_than_64_bits_is_corrupt():
    assert decode_varint(b"\xff" * 9 + b"\x01", 0, max_bits=64) == (-(2**63), 10)
    for data in (b"\xff" * 9 + b"\x02", b"\xff" * 10 + b"\x00"):
        with pytest.raises(CorruptBatch):
            decode_varint(data, 0, max_bits=64)


def decode_one(data: bytes):
    return decode_records(data, 1, base_offset=0, base_timestamp=0, last_offset_delta=0)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("length beyond the data", "7e000000010100"),
        ("length short of the record", "0a000000010100"),
        ("negative length", "01000000010100"),
        ("key of -2 bytes", "0c000000030100"),
        ("value of -2 bytes", "0c000000010300"),
        ("key of -2 bytes in a wide varint", "0e00000083000100"),
        ("key of -65 bytes", "0e00000081010100"),
        ("value of -65 bytes", "0e00000001810100"),
        ("key beyond the record", "0c0000007e0100"),
        ("-1 headers", "0c000000010101"),
        ("more headers than bytes", "0c00000001017e"),
        ("header with a null key", "10000000010102" + "0101"),
        ("header value of -2 bytes", "10000000010102" + "0003"),
        ("offset delta behind the last", "0c000002010100"),
        ("negative offset delta", "0c000001010100"),
        ("bytes behind the record", "0c00000001010000"),
    ],
)
def test_a_record_that_is_not_sound_is_corrupt(name, data):
    assert decode_one(bytes.fromhex("0c000000010100"))[0][3] is None
    with pytest.raises(CorruptBatch):
        decode_one(bytes.fromhex(data))


def test_null_in_a_varint_that_is_wider_than_it_need_be_is_null():
    (record,) = decode_one(bytes.fromhex("10000000810081000000"[:-2]))
    assert record == (0, 0, None, None, ())


def test_records_of_a_partition_begin_with_its_name_and_number():
    data = bytes.fromhex("0c000000010100")
    (record,) = decode_records(
        data, 1, base_offset=3, base_timestamp=5, last_offset_delta=0, partition=("t", 1), log_append_time_ms=9
    )
    assert record == ("t", 1, 3, 9, None, None, ())


@given(st.integers(0, 40_000), st.integers(0, 40_000), st.integers(-(2**40), 2**40))
def test_lengths_and_deltas_of_every_width_come_back(key_bytes, value_bytes, timestamp):
    data = encode_record(timestamp, 7, bytes(key_bytes), bytes(value_bytes))
    (record,) = decode_records(data, 1, base_offset=10, base_timestamp=5, last_offset_delta=7)
    assert record == (17, timestamp + 5, bytes(key_bytes), bytes(value_bytes), ())


EDGES = [0, 1, 56, 57, 58, 59, 63, 64, 8_183, 8_184, 8_185, 8_186, 8_191, 8_192, 1_048_576]
"""Sizes of values around those at which a length takes another byte."""


@pytest.mark.parametrize("size_bytes", EDGES)
def test_a_plain_record_is_the_record_without_key_and_headers(size_bytes):
    value = bytes(size_bytes)
    data = encode_plain_record(value)
    assert data == encode_record(0, 0, None, value)
    assert value_of_plain_record(data) == value


@given(
    st.integers(-1, 1),
    st.integers(0, 1),
    st.none() | st.binary(max_size=3),
    st.none() | st.binary(max_size=200),
    st.booleans(),
    st.data(),
)
def test_only_a_plain_record_has_a_plain_value(time_delta, offset_delta, key, value, has_header, data):
    record = encode_record(time_delta, offset_delta, key, value, [("h", None)] if has_header else ())
    is_plain = (time_delta, offset_delta, key, has_header) == (0, 0, None, False) and value is not None
    assert value_of_plain_record(record) == (value if is_plain else None)
    damaged = bytearray(record)
    damaged[data.draw(st.integers(0, len(record) - 1))] ^= data.draw(st.integers(1, 255))
    found = value_of_plain_record(bytes(damaged))
    assert found is None or encode_plain_record(found) == damaged


@given(st.binary(max_size=20))
def test_other_bytes_are_no_plain_record(data):
    found = value_of_plain_record(data)
    assert found is None or encode_plain_record(found) == data
