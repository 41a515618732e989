"""Unsigned varints at the edges of each length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.errors import MalformedMessage, UnencodableMessage
from ottla.protocol.primitives import decode_unsigned_varint, encode_unsigned_varint


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, b"\x00"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (16_383, b"\xff\x7f"),
        (16_384, b"\x80\x80\x01"),
        (2**32 - 1, b"\xff\xff\xff\xff\x0f"),
    ],
)
def test_varints_at_the_edges(number: int, encoded: bytes) -> None:
    assert encode_unsigned_varint(number) == encoded
    assert decode_unsigned_varint(b"x" + encoded + b"y", 1) == (number, len(encoded) + 1)


@given(number=st.integers(0, 2**32 - 1))
def test_varints_read_back(number: int) -> None:
    assert decode_unsigned_varint(encode_unsigned_varint(number), 0)[0] == number


@pytest.mark.parametrize("number", [-1, 2**32])
def test_a_number_beyond_32_bits_is_not_written(number: int) -> None:
    with pytest.raises(UnencodableMessage):
        encode_unsigned_varint(number)


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff\x10", b"\x80\x80\x80\x80\x80\x00"])
def test_a_number_beyond_32_bits_is_not_read(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode_unsigned_varint(data, 0)
