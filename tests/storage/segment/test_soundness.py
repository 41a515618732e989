"""What lies on the disk since before the start is looked at before its first reader gets it, once and off the owner's
thread; what is not sound is a CORRUPT_MESSAGE, and what lies before and behind it is read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given
from kit.logs import DIRECTORY, NOW_MS, append, append_values, batch, disk, open_test_log, stored, sync
from kit.old_segments import old_messages
from kit.simulated_files import SimulatedFiles

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.compression import Compression
from ottla.storage.formats import layout
from ottla.storage.log.log import Log
from ottla.storage.segment.soundness import ENDLESS, MAX_RANGES, SoundRanges

PAGE_BYTES = 4096
SETTINGS = {"segment.bytes": "40000", "index.interval.bytes": "4096", "ottla.acks.all": "page-cache"}
BATCHES, VALUE_BYTES = 60, 900
"""Two sealed segments of 21 batches with two records each, 1.9 KB, and an active one."""
SEGMENT = DIRECTORY / "00000000000000000042.log"


@pytest.fixture
def files() -> SimulatedFiles:
    """The disk of a log that was closed in good order."""
    log = open_test_log(disk(), SETTINGS)
    for number in range(BATCHES):
        append_values(log, *[b"%03d" % number * (VALUE_BYTES // 3)] * 2)
    assert [segment.base_offset for segment in log.segments] == [0, 42, 84]
    log.close()
    return log.files


def reopened(files: SimulatedFiles, **state: int) -> Log:
    return open_test_log(files, SETTINGS, recovery_point=2 * BATCHES, high_watermark=2 * BATCHES, **state)


def write(files: SimulatedFiles, data: bytes, position: int) -> None:
    files.open(SEGMENT, writable=True).pwritev([data], position)


def batches_of_segment(files: SimulatedFiles) -> list[tuple[int, int, int]]:
    """(position, base offset, next offset) of each batch of the segment that is to be damaged."""
    data = files.open(SEGMENT).pread(1 << 20, 0)
    return [(position, header.base_offset, header.next_offset) for position, header in iter_batches(data)]


def read_from(log: Log, offset: int, max_bytes: int = 1 << 20) -> tuple[int, KafkaError | None]:
    """The offset that a consumer gets to which begins at `offset`, and why it gets no further, None at the end."""
    while offset < log.log_end_offset:
        try:
            data = log.read(offset, max_bytes, end_offset=log.log_end_offset).read_blocking()
        except KafkaError as error:
            return offset, error
        found = list(iter_batches(data))
        assert found, f"nothing comes at offset {offset}, and no error either"
        assert found[0][1].base_offset <= offset < found[0][1].next_offset
        assert all(one[1].next_offset == other[1].base_offset for one, other in pairwise(found))
        offset = found[-1][1].next_offset
    return offset, None


def flip(files: SimulatedFiles, position: int, bit: int = 0) -> None:
    byte = files.open(SEGMENT).pread(1, position)[0]
    write(files, bytes([byte ^ (1 << bit)]), position)


def zero_page(files: SimulatedFiles, number: int) -> None:
    write(files, bytes(PAGE_BYTES), PAGE_BYTES * number)


DAMAGES: dict[str, tuple[Callable[[SimulatedFiles, int], None], int]] = {
    "zeros over a header": (lambda files, at: write(files, bytes(61), at), 0),
    "zeros inside of a batch": (lambda files, at: write(files, bytes(500), at + 500), 0),
    "a bit of the payload": (lambda files, at: flip(files, at + 900), 0),
    "a bit of the checksum": (lambda files, at: flip(files, at + 17, 3), 0),
    "a bit of the magic byte": (lambda files, at: flip(files, at + 16, 2), 0),
    "a longer batch": (lambda files, at: flip(files, at + 9, 4), 0),
    "a shorter batch": (lambda files, at: flip(files, at + 11, 5), 0),
    "an offset that goes back": (lambda files, at: write(files, struct.pack(">q", 3), at), 0),
    "an offset of the next segment": (lambda files, at: flip(files, at + 6, 0), 0),
}


@pytest.mark.parametrize("is_cold", [False, True])
@pytest.mark.parametrize("max_bytes", [1, 2_500, 7_000, 1 << 20])
@pytest.mark.parametrize("hit", [0, 9, 20])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_reader_gets_what_lies_before_damage_and_then_corrupt_message(
    files: SimulatedFiles, damage: str, hit: int, max_bytes: int, is_cold: bool
) -> None:
    position, base_offset, _ = batches_of_segment(files)[hit]
    DAMAGES[damage][0](files, position)
    log = reopened(files)
    files.cold = ["*.log"] if is_cold else []
    for _ in range(2):  # the second time where it is known how far it is sound
        reached, error = read_from(log, 0, max_bytes)
        assert reached == base_offset
        assert error is not None
        assert error.code is ErrorCode.CORRUPT_MESSAGE
        assert str(SEGMENT) in str(error)
        assert f"position {position}" in str(error)


@pytest.mark.parametrize("index", [None, b"\xff" * 16, struct.pack(">ii", 10, 1 << 30)])
@pytest.mark.parametrize("was_clean", [True, False])
def test_so_does_one_where_the_index_is_lost_too(files: SimulatedFiles, was_clean: bool, index: bytes | None) -> None:
    position, base_offset, _ = batches_of_segment(files)[9]
    write(files, bytes(61), position)
    path = layout.offset_index_file(DIRECTORY, 42)
    if index is None:
        files.unlink(path)
    else:
        files.write_atomically(path, index)
    log = reopened(files, was_clean=was_clean)
    for _ in range(2):
        reached, error = read_from(log, 0)
        assert reached == base_offset
        assert error is not None


@pytest.mark.parametrize("page", range(10))
def test_a_page_of_zeros_anywhere_in_a_sealed_segment_is_met_as_corrupt_message(
    files: SimulatedFiles, page: int
) -> None:
    spoilt = [
        (base_offset, next_offset)
        for (position, base_offset, next_offset), (end, _, _) in pairwise([*batches_of_segment(files), (1 << 30, 0, 0)])
        if position < PAGE_BYTES * (page + 1) and end > PAGE_BYTES * page
    ]
    zero_page(files, page)
    log = reopened(files)
    reached, error = read_from(log, 0)
    assert (reached, error is not None) == (spoilt[0][0], True)
    # Behind it: from the next entry of the index on, at the latest.
    behind = spoilt[-1][1] + 2 * (4096 // (2 * VALUE_BYTES) + 2)
    assert read_from(log, min(behind, 84)) == (2 * BATCHES, None)


@pytest.mark.parametrize("max_bytes", [1, 7_000, 1 << 20])
@pytest.mark.parametrize("cut_bytes", [1, 100, 1_900, 5_000, 30_000])
@pytest.mark.parametrize("is_served", [False, True])
def test_a_sealed_segment_that_is_short_gives_what_is_whole_and_then_corrupt_message(
    files: SimulatedFiles, cut_bytes: int, max_bytes: int, is_served: bool
) -> None:
    found = batches_of_segment(files)
    log = reopened(files)
    if is_served:
        assert read_from(log, 0) == (2 * BATCHES, None)
    file = files.open(SEGMENT, writable=True)
    end = file.size() - cut_bytes
    file.truncate(end)
    if not is_served:
        log = reopened(files)
    expected = [base for (_, base, _), (next_at, _, _) in pairwise([*found, (end + cut_bytes, 0, 0)]) if next_at > end]
    reached, error = read_from(log, 0, max_bytes)
    assert reached == expected[0]
    assert error is not None
    assert error.code is ErrorCode.CORRUPT_MESSAGE


def test_a_log_that_is_sound_is_read_as_before_and_looked_at_once_off_the_owners_thread(files: SimulatedFiles) -> None:
    log = reopened(files)
    first = log.read(0, 4_000, end_offset=120)
    assert first.view is None
    first.read_blocking()
    assert log.segments[0].sound.ranges == ((0, ENDLESS),)  # what follows was in memory
    before = len(files.history)
    second = log.read(4, 4_000, end_offset=120)
    assert second.view is not None
    assert log.reader.read_on(8, 4_000, 120, False) is not None
    assert {call for call, _ in files.history[before:]} == {"pread_nowait"}
    assert len(stored(log)) == 120


def test_the_active_segment_is_looked_at_up_to_where_this_life_appends(files: SimulatedFiles) -> None:
    log = reopened(files)
    append_values(log, b"of this life")
    assert log.read(84, 1 << 20, end_offset=121).view is None
    assert log.read(120, 1 << 20, end_offset=121).view is not None
    assert len(stored(log)) == 121
    assert log.read(84, 1 << 20, end_offset=121).view is not None


def test_what_recovery_has_checked_is_not_looked_at_again(files: SimulatedFiles) -> None:
    log = open_test_log(files, SETTINGS, was_clean=False, recovery_point=84, high_watermark=84)
    assert log.read(84, 1 << 20, end_offset=120).view is not None
    assert log.read(42, 1 << 20, end_offset=120).view is None


def test_what_this_process_wrote_needs_no_look() -> None:
    log = open_test_log(disk(), SETTINGS)
    for number in range(50):
        append_values(log, b"%d" % number * 900)
    assert all(log.read(offset, 5_000, end_offset=50).view is not None for offset in range(50))


def test_cold_bytes_are_checked_also_when_this_broker_wrote_them() -> None:
    log = open_test_log(disk(), SETTINGS)
    for number in range(5):
        append_values(log, b"%d" % number * 900)
    log.files.cold = ["*.log"]
    file = log.files.open(log.segments[0].path, writable=True)
    file.pwritev([b"?"], 2 * log.size_bytes // 5 + 300)
    reached, error = read_from(log, 0)
    assert (reached, error is not None) == (2, True)


def test_a_look_ahead_waits_for_no_disk_and_is_bounded(files: SimulatedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.storage.segment.sound_reading.LEAST_AHEAD_BYTES", 5_000)
    log = reopened(files)
    size = len(log.read(0, 1, end_offset=120).read_blocking())
    ((_, end), own) = log.segments[0].sound.ranges
    assert size < end <= size + max(4 * size, 5_000)
    assert own == (log.segments[0].size_bytes, ENDLESS)
    files.cold = ["*.log"]
    position = log.segments[1].size_bytes
    size = len(log.read(42, 1, end_offset=120).read_blocking())
    assert log.segments[1].sound.ranges == ((0, size), (position, ENDLESS))


def test_two_readers_of_one_segment_do_not_make_each_other_look_again(files: SimulatedFiles) -> None:
    log = reopened(files)
    files.cold = ["*.log"]
    places = [0, 30]
    for offset in places:
        log.read(offset, 1, end_offset=120).read_blocking()
    files.cold = []
    assert all(log.read(offset, 1, end_offset=120).view is not None for offset in places)


def test_a_caller_that_checks_by_itself_gets_the_bytes_as_they_lie_there(files: SimulatedFiles) -> None:
    position, _, _ = batches_of_segment(files)[3]
    flip(files, position + 900)
    log = reopened(files)
    for cold in ([], ["*.log"]):
        files.cold = cold
        data = log.read(42, 1 << 20, end_offset=120, is_checked=False).read_blocking()
        assert len(data) == log.segments[1].size_bytes


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_messages_of_old_formats_are_looked_at_too(magic: int, codec: Compression) -> None:
    pieces = [old_messages(first, 3, magic, codec).data for first in range(0, 30, 3)]
    whole, damaged = b"".join(pieces), bytearray(b"".join(pieces))
    at = len(b"".join(pieces[:5]))
    damaged[at + 40] ^= 1
    for data, expected in ((whole, whole), (damaged, whole[:at])):
        files = disk()
        files.write_atomically(DIRECTORY / layout.offset_file_name(0, layout.LOG_SUFFIX), bytes(data))
        log = open_test_log(files, SETTINGS, recovery_point=30, high_watermark=30)
        assert log.read(0, 1 << 20, end_offset=30).read_blocking() == expected


def test_missing_offsets_are_no_damage() -> None:
    log = open_test_log(disk(), SETTINGS | {"cleanup.policy": "compact"})
    for number in range(4):
        append(log, batch(b"%d" % number))
    sync(log)
    data = log.read(0, 1 << 20, end_offset=4).read_blocking()
    starts = [position for position, _ in iter_batches(data)]
    log.close()
    files = disk()
    cleaned = data[: starts[1]] + data[starts[3] :]
    files.write_atomically(DIRECTORY / layout.offset_file_name(0, layout.LOG_SUFFIX), cleaned)
    again = open_test_log(files, SETTINGS, recovery_point=4, high_watermark=4, gaps_before=4, now_ms=NOW_MS)
    assert again.read(0, 1 << 20, end_offset=4).read_blocking() == cleaned


# -- the ranges


@given(st.integers(0, 60), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=30))
def test_ranges_know_the_bytes_that_were_added(own_from: int, added: list[tuple[int, int]]) -> None:
    sound = SoundRanges(own_from)
    expected = set(range(own_from, 100))
    for position, length in added:
        sound.add(position, position + length)
        expected |= set(range(position, position + length))
    for position in range(100):
        end = position
        while end in expected:
            end += 1
        assert sound.end_from(position) == (ENDLESS if end == 100 else end)
    assert all(one[1] < other[0] for one, other in pairwise(sound.ranges))


def test_no_more_than_so_many_ranges_are_remembered() -> None:
    sound = SoundRanges(1_000_000)
    for number in range(3 * MAX_RANGES):
        sound.add(100 * number, 100 * number + 1 + number % 90)
    assert len(sound.ranges) == MAX_RANGES
    assert sound.ranges[-1] == (1_000_000, ENDLESS)
    assert all((end - position) > 0 for position, end in sound.ranges)
