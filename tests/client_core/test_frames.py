"""The frame reader: the same frames however the bytes are cut, and no memory for what is only announced."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client_core.frames import FrameReader
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.framing import SIZE_BYTES


def framed(frames):
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


def read(reader, data, cuts=()):
    """What a reader makes of `data`, handed over in pieces that end at `cuts` and where its buffer is full."""
    found = []
    for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        position = begin
        while position < end:
            room = reader.buffer()
            count = min(len(room), end - position)
            room[:count] = data[position : position + count]
            position += count
            found += [bytes(frame) for frame in reader.received(count)]
    return found


frames = st.lists(st.binary(min_size=4, max_size=60), max_size=6)


@given(frames, st.data(), st.integers(SIZE_BYTES, 40), st.integers(1, 50))
def test_bytes_cut_anywhere_make_the_same_frames(sent, data, head_bytes, first_body_bytes):
    stream = framed(sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    reader = FrameReader(head_bytes=head_bytes, first_body_bytes=first_body_bytes)
    assert read(reader, stream, cuts) == sent


@pytest.mark.parametrize("head_bytes", [SIZE_BYTES, 5, 9, 64 * 1024])
def test_bytes_that_come_one_by_one_make_the_same_frames(head_bytes):
    sent = [b"four", b"a longer frame", bytes(100), b"last"]
    stream = framed(sent)
    assert read(FrameReader(head_bytes=head_bytes), stream, range(1, len(stream))) == sent


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 3, 101, 2**31 - 1])
def test_a_size_that_no_answer_has_is_refused_behind_the_frames_before_it(size):
    reader = FrameReader(100)
    stream = framed([bytes(100), b"good"]) + struct.pack(">i", size)
    room = reader.buffer()
    room[: len(stream)] = stream
    found = []
    with pytest.raises(MalformedMessage, match=f"frame of {size} bytes"):
        found.extend(reader.received(len(stream)))
    assert [bytes(frame) for frame in found] == [bytes(100), b"good"]


def test_what_is_announced_takes_memory_only_as_bytes_come():
    asked = []

    def allocate(size_bytes):
        asked.append(size_bytes)
        return bytearray(size_bytes)

    reader = FrameReader(allocate=allocate, first_body_bytes=1000)
    assert read(reader, struct.pack(">i", 100_000) + bytes(999)) == []
    assert asked == [1000]
    assert read(reader, bytes(1)) == []
    assert asked == [1000, 2000]
    assert read(reader, bytes(99_000)) == [bytes(100_000)]
    assert asked[-1] == 100_000


def test_with_a_head_of_a_size_a_frame_lies_in_the_buffer_that_was_allocated_for_it():
    """Spark reads megabytes into numpy's memory, with padding behind them."""
    made = []

    def allocate(size_bytes):
        made.append(bytearray(size_bytes + 32))
        return memoryview(made[-1])

    reader = FrameReader(allocate=allocate, head_bytes=SIZE_BYTES, first_body_bytes=2**31)
    stream = framed([b"abcdef", b"ghijklmnop"])
    found = []
    position = 0
    while position < len(stream):
        room = reader.buffer()
        count = min(len(room), len(stream) - position)
        room[:count] = stream[position : position + count]
        position += count
        found.extend(reader.received(count))
    assert [bytes(frame) for frame in found] == [b"abcdef", b"ghijklmnop"]
    assert [memoryview(frame).obj for frame in found] == made
    assert [frame.obj is buffer for frame, buffer in zip(found, made, strict=True)] == [True, True]
    assert [len(buffer) for buffer in made] == [6 + 32, 10 + 32]


def test_a_frame_that_was_handed_out_is_not_written_again():
    reader = FrameReader(head_bytes=16, first_body_bytes=8)
    stream = framed([b"in the head", b"one that is longer than the head", b"next"])
    found = []
    position = 0
    while position < len(stream):
        room = reader.buffer()
        count = min(len(room), 5, len(stream) - position)
        room[:count] = stream[position : position + count]
        position += count
        found.extend(reader.received(count))
    assert [bytes(frame) for frame in found] == [b"in the head", b"one that is longer than the head", b"next"]
