"""The frame reader without a socket: bytes in any pieces come out as they went in, in bounded memory."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.broker.net.buffers import FIRST_BYTES, LARGE_FRAME_BYTES, ReceiveBuffers
from ottla.broker.net.frame_reader import FrameReader
from ottla.broker.net.held_bytes import HeldBytes
from ottla.broker.net.read_pauses import MEMORY, PARKED, ReadPauses
from ottla.broker.runtime.turn import Turn

MAX_FRAME_BYTES = 1 << 20


class Reading(ReadPauses):
    """A reader, its owner, and what starts of its bytes: whole frames, as long as `is_blocked` is not set."""

    def __init__(self, max_owned_bytes: int = -1, buffers: ReceiveBuffers | None = None) -> None:
        super().__init__()
        self.turn = Turn(lambda: 0)
        self.buffers = ReceiveBuffers(self.turn, max_owned_bytes) if buffers is None else buffers
        self.clock_ms = 1_000.0
        self.wakes = 0
        self.reader = FrameReader(self, MAX_FRAME_BYTES, self)
        self.is_blocked = False
        self.frames: list[bytes] = []

    def now_ms(self) -> float:
        return self.clock_ms

    def memory_came(self) -> None:
        self.wakes += 1
        if self.reader.grow_or_wait():
            self.resume_reading(MEMORY)

    def whole_frames(self, view: memoryview, start: int, end: int) -> int:
        """Take the frames that are whole; where the first one begins that is not."""
        while not self.is_blocked and end - start >= 4:
            (size_bytes,) = struct.unpack_from(">i", view, start)
            if start + 4 + size_bytes > end:
                break
            self.frames.append(bytes(view[start + 4 : start + 4 + size_bytes]))
            start += 4 + size_bytes
        return start

    def read(self, data: bytes) -> int:
        """One read of the socket: as much of `data` as there is room for."""
        reader = self.reader
        room = reader.next_buffer(is_blocked=self.is_blocked)
        count = min(len(room), len(data))
        room[:count] = data[:count]
        if reader.held is not None or reader.lent is not None:
            held = reader.received(count)
            if held is not None and reader.own(held, 0):
                self.go_on()
        else:
            piece = reader.piece
            assert piece is not None
            start = self.whole_frames(piece, 0, count)
            if start < count:
                reader.keep(piece[start:count], is_blocked=self.is_blocked)
        return count

    def go_on(self) -> None:
        held = self.reader.held
        if held is not None:
            start = self.whole_frames(held.view, held.start, held.end)
            self.reader.started(held, start, is_blocked=self.is_blocked)
            if self.reader.has_room:
                self.resume_reading(PARKED)

    def end_turn(self) -> None:
        while self.turn.has_work:
            self.turn.end()


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@settings(deadline=None)
@given(st.data())
def test_frames_come_out_as_they_went_in_whatever_the_pieces(data: st.DataObject) -> None:
    sizes = st.one_of(st.integers(0, 40), st.integers(LARGE_FRAME_BYTES - 10, 3 * LARGE_FRAME_BYTES))
    bodies = [bytes([index % 251]) * size for index, size in enumerate(data.draw(st.lists(sizes, max_size=8)))]
    stream = b"".join(map(framed, bodies))
    reading = Reading()
    pieces = data.draw(st.lists(st.sampled_from([1, 2, 3, 4, 5, 100, 9_999, 70_000, 300_000]), max_size=25))
    while stream:
        reading.is_blocked = data.draw(st.booleans())
        if not reading.is_blocked:
            reading.go_on()
        if reading.pause_reasons:
            reading.is_blocked = False
            reading.go_on()
            assert not reading.pause_reasons
        piece = pieces.pop() if pieces else 1 << 20
        stream = stream[reading.read(stream[:piece]) :]
        if data.draw(st.booleans()):
            reading.end_turn()
    reading.is_blocked = False
    reading.go_on()
    reading.end_turn()
    assert reading.frames == bodies
    assert reading.reader.held is None
    assert reading.buffers.owned_bytes == 0


def test_a_read_into_the_arena_owns_nothing() -> None:
    reading = Reading()
    reading.read(framed(b"whole"))
    assert reading.frames == [b"whole"]
    assert reading.buffers.owned_bytes == 0


def test_the_announced_length_reserves_nothing() -> None:
    reading = Reading()
    reading.read(struct.pack(">i", MAX_FRAME_BYTES - 4) + b"a")
    assert reading.buffers.owned_bytes <= FIRST_BYTES


def test_an_incomplete_frame_is_known_by_its_time_until_it_is_whole() -> None:
    reading = Reading()
    data = framed(b"late")
    reading.read(data[:5])
    assert reading.reader.partial_since_ms == 1_000
    reading.clock_ms = 2_000
    reading.read(data[5:7])
    assert reading.reader.partial_since_ms == 1_000
    reading.read(data[7:])
    assert reading.reader.partial_since_ms is None


def test_bytes_behind_a_parked_request_owe_nothing_and_pause_once_they_fill_their_buffer() -> None:
    reading = Reading()
    reading.is_blocked = True
    data = framed(b"z" * 1_000) * 100
    while not reading.pause_reasons:
        data = data[reading.read(data) :]
    assert reading.pause_reasons == PARKED
    assert reading.reader.partial_since_ms is None
    assert reading.buffers.owned_bytes <= FIRST_BYTES
    reading.is_blocked = False
    reading.go_on()
    assert not reading.pause_reasons
    assert len(reading.frames) == FIRST_BYTES // 1_004


def test_the_second_large_frame_goes_into_a_lent_buffer_that_is_free_again_when_it_is_answered() -> None:
    reading = Reading()
    data = framed(b"l" * 8 * LARGE_FRAME_BYTES)  # longer than a read into the arena
    rest = data
    while rest:
        rest = rest[reading.read(rest) :]
    reading.end_turn()
    reader = reading.reader
    assert reader.expected_bytes == len(data)
    room = reader.next_buffer(is_blocked=False)
    assert len(room) == len(data)
    assert reader.lent is not None
    room[:] = data
    held = reader.received(len(data))
    assert held is not None
    assert reader.is_whole
    reader.reuse(held)
    assert reader.held is None
    assert reading.buffers.owned_bytes == 0
    assert reader.next_buffer(is_blocked=False).obj is room.obj


def test_without_memory_for_requests_reading_pauses_until_others_give_some_back() -> None:
    first = Reading(max_owned_bytes=3 * FIRST_BYTES)
    second = Reading(buffers=first.buffers)
    second.turn = first.turn
    data = framed(b"m" * 12 * FIRST_BYTES)
    left = data[first.read(data) :]
    left = left[first.read(left[:10]) :]  # more than may be owned: it is the one connection that always goes on
    others_left = data[second.read(data) :]
    while not second.pause_reasons:
        others_left = others_left[second.read(others_left) :]
    assert second.pause_reasons == MEMORY
    while left:
        left = left[first.read(left) :]
    assert first.frames == [data[4:]]
    assert not first.pause_reasons
    first.end_turn()
    assert second.wakes
    while others_left:
        assert not second.pause_reasons
        others_left = others_left[second.read(others_left) :]
    assert second.frames == [data[4:]]


def test_what_is_discarded_goes_where_nobody_looks() -> None:
    reading = Reading()
    view = reading.reader.discard()
    view[:3] = b"bye"
    assert reading.reader.discards
    assert reading.frames == []


def test_a_system_without_memory_is_reported_and_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading()

    def fail(capacity: int) -> HeldBytes:
        raise MemoryError

    monkeypatch.setattr(reading.buffers, "take", fail)
    with pytest.raises(MemoryError):
        reading.reader.next_buffer(is_blocked=True)
