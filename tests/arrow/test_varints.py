from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples

from ottla.arrow.varints import INT32_VARINT_BYTES, INT64_VARINT_BYTES, PADDING_BYTES, read_varints, words_over
from ottla.protocol.records.errors import CorruptBatch
from ottla.protocol.records.record import encode_varint

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)


def read(encoded: list[bytes], max_bytes: int, padding: bytes = bytes(PADDING_BYTES)) -> tuple[list[int], list[int]]:
    starts = np.cumsum([0, *map(len, encoded)])
    values, ends = read_varints(words_over(b"".join(encoded) + padding), starts[:-1], max_bytes)
    assert ends.tolist() == starts[1:].tolist()
    return values.tolist(), ends.tolist()


@given(st.lists(int32, min_size=1, max_size=30))
@settings(max_examples=examples(60))
def test_int32_varints_read_as_they_were_written(numbers: list[int]) -> None:
    assert read([encode_varint(number) for number in numbers], INT32_VARINT_BYTES)[0] == numbers


@given(st.lists(int64, min_size=1, max_size=30))
@settings(max_examples=examples(60))
def test_int64_varints_read_as_they_were_written(numbers: list[int]) -> None:
    assert read([encode_varint(number) for number in numbers], INT64_VARINT_BYTES)[0] == numbers


@pytest.mark.parametrize("size", range(1, INT64_VARINT_BYTES + 1))
def test_every_length_of_varint_is_read_alone_and_at_the_buffers_end(size: int) -> None:
    number = -(2 ** (7 * size - 1)) if size < INT64_VARINT_BYTES else -(2**63)
    assert len(encode_varint(number)) == size
    assert read([encode_varint(number)], INT64_VARINT_BYTES, b"\xff" * PADDING_BYTES)[0] == [number]


def test_a_varint_one_byte_too_long_for_int32_is_corrupt() -> None:
    read([b"\x80\x80\x80\x80\x01"], INT32_VARINT_BYTES)
    with pytest.raises(CorruptBatch, match="longer than 5 bytes"):
        read([b"\x80\x80\x80\x80\x80\x01"], INT32_VARINT_BYTES)


@pytest.mark.parametrize("encoded", [b"\xff" * 10 + b"\x01", b"\xff" * 9 + b"\x02"], ids=["11 bytes", "65 bits"])
def test_a_varint_above_64_bits_is_corrupt(encoded: bytes) -> None:
    with pytest.raises(CorruptBatch, match="above 64 bits"):
        read([encoded], INT64_VARINT_BYTES)


def test_reading_at_no_position_gives_nothing() -> None:
    values, ends = read_varints(words_over(bytes(PADDING_BYTES)), np.empty(0, np.int64))
    assert (len(values), len(ends)) == (0, 0)
