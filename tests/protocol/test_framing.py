"""Frames: a size, then as many bytes."""

from __future__ import annotations

import pytest

from ottla.protocol.errors import MalformedMessage
from ottla.protocol.framing import frame, frame_size_bytes


def test_a_frame_is_preceded_by_the_size_of_all_its_buffers() -> None:
    records = memoryview(b"records")
    framed = frame([b"header", records, b""])
    assert b"".join(framed) == b"\0\0\0\x0d" + b"headerrecords"
    assert framed[2] is records


def test_an_empty_message_is_a_frame_too() -> None:
    assert frame([]) == [b"\0\0\0\0"]


@pytest.mark.parametrize("length", range(4))
def test_a_size_that_is_not_there_yet_is_not_read(length: int) -> None:
    assert frame_size_bytes(b"xx" + b"\0\0\0\x0d"[:length], 2, 100) is None


@pytest.mark.parametrize("size_bytes", [0, 99, 100])
def test_a_size_within_the_bound_is_read(size_bytes: int) -> None:
    assert frame_size_bytes(bytearray(size_bytes.to_bytes(4, "big")), 0, 100) == size_bytes


@pytest.mark.parametrize("size_bytes", [101, 2**31 - 1, 2**31, 2**32 - 1])
def test_a_size_beyond_the_bound_is_malformed(size_bytes: int) -> None:
    with pytest.raises(MalformedMessage, match="not within 0 and 100"):
        frame_size_bytes(size_bytes.to_bytes(4, "big"), 0, 100)
