"""Reads: whole batches, bounded, from anywhere; hot bytes as a view, cold ones in a thread; and look-ups by time."""

from __future__ import annotations

import struct

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from kit.examples import examples
from kit.logs import DIRECTORY, NOW_MS, append, append_values, batch, disk, open_test_log, sync

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import Compression, iter_batches
from ottla.storage.log.log import Log

SMALL = {"segment.bytes": "2048", "index.interval.bytes": "300", "ottla.acks.all": "page-cache"}


def filled(batches: int = 40, **overrides: str) -> Log:
    log = open_test_log(disk(), SMALL | overrides)
    for number in range(batches):
        append_values(log, *[b"%d.%d" % (number, record) * 5 for record in range(3)])
    return log


def headers(log: Log, offset: int, max_bytes: int, end_offset: int | None = None) -> list[tuple[int, int]]:
    end = log.log_end_offset if end_offset is None else end_offset
    data = log.read(offset, max_bytes, end_offset=end).read_blocking()
    return [(header.base_offset, header.last_offset) for _, header in iter_batches(data)]


def test_the_whole_batch_that_contains_the_offset_is_returned() -> None:
    log = filled()
    for offset in range(log.log_end_offset):
        first = headers(log, offset, 1 << 20)[0]
        assert first[0] <= offset <= first[1]


def test_the_first_batch_comes_even_if_larger_than_asked_for() -> None:
    log = filled()
    assert headers(log, 4, 1) == [(3, 5)]
    assert log.read(4, 1, end_offset=120, at_least_one=False).length == 0


def test_a_slice_ends_with_a_whole_batch_and_takes_as_many_as_fit() -> None:
    log = filled(4)
    size = log.size_bytes // 4
    assert headers(log, 0, 3 * size) == [(0, 2), (3, 5), (6, 8)]
    assert headers(log, 0, 3 * size - 1) == [(0, 2), (3, 5)]


def test_nothing_at_or_beyond_the_end_is_returned() -> None:
    log = filled()
    assert headers(log, 0, 1 << 20, end_offset=6) == [(0, 2), (3, 5)]
    assert headers(log, 6, 1 << 20, end_offset=6) == []
    assert headers(log, log.log_end_offset, 1 << 20) == []


@pytest.mark.parametrize("offset", [-1, 121, 2])
def test_offsets_outside_the_log_are_refused(offset: int) -> None:
    log = filled()
    log.delete_records(3)
    with pytest.raises(KafkaError) as caught:
        log.read(offset, 100, end_offset=120)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_reader_goes_on_over_segment_ends_and_over_a_roll_behind_it() -> None:
    log = open_test_log(disk(), SMALL)
    seen = []
    position = 0
    for number in range(60):
        append_values(log, b"%d" % number * 20)
        if number % 7 == 6:
            log.roll(NOW_MS)
        while position < log.log_end_offset:
            for _, header in iter_batches(log.read(position, 900, end_offset=log.log_end_offset).read_blocking()):
                seen.append(header.base_offset)
                position = header.next_offset
    assert seen == list(range(60))


def test_a_sequential_read_looks_at_no_header() -> None:
    log = filled(3)
    files = log.files
    log.read(0, 1 << 20, end_offset=9).read_blocking()
    append_values(log, b"new")
    before = len(files.history)
    assert log.read(9, 1 << 20, end_offset=10).length
    assert [call for call, _ in files.history[before:]] == ["pread_nowait"]


@pytest.mark.parametrize("max_bytes", [1, 100, 350, 700, 1500])
def test_the_fast_path_of_a_sequential_read_gives_the_same_batches_and_not_much_less(max_bytes: int) -> None:
    log = filled()
    short = offset = 0
    while offset < log.log_end_offset:
        whole = log.read(offset, max_bytes, end_offset=log.log_end_offset).read_blocking()
        view = log.reader.read_on(offset, max_bytes, log.log_end_offset, False)
        if view is not None:
            assert whole.startswith(view)
            assert len(view) * 4 >= min(max_bytes * 3, len(whole))
            whole = bytes(view)
            short += 1
        *_, (_, last) = iter_batches(whole)
        offset = last.next_offset
    assert offset == log.log_end_offset
    assert short


def test_the_fast_path_is_only_for_sequential_reads_and_sees_what_may_be_seen() -> None:
    log = filled(3)
    assert log.reader.read_on(0, 1 << 20, 9, False) is None
    log.read(0, 1, end_offset=9)
    assert log.reader.read_on(3, 1, 9, False, at_least_one=False) is None
    assert log.reader.read_on(3, 1, 9, False) is not None
    assert log.reader.read_on(3, 1, 6, False) is None  # an end whose position is not known
    log.delete_records(6)
    assert log.reader.read_on(3, 1, 9, False) is None


def test_each_of_several_readers_continues_where_it_was_by_the_fast_path() -> None:
    log = filled(40, **{"ottla.acks.all": "page-cache"})
    end = log.log_end_offset
    places = [0, 0, 30]
    for reader, offset in enumerate(places):
        slice_ = log.read(offset, 1, end_offset=end)
        places[reader] = list(iter_batches(slice_.read_blocking()))[-1][1].next_offset
    order = [0, 1, 2, 0, 0, 0, 1, 2, 2, 0, 1, 1, 1, 2, 0]
    for reader in order:
        view = log.reader.read_on(places[reader], 1, end, False)
        assert view is not None, (reader, places)
        found = list(iter_batches(view))
        assert found[0][1].base_offset == places[reader]
        places[reader] = found[-1][1].next_offset
    log.reader.forget_hints()
    assert all(log.reader.read_on(place, 1, end, False) is None for place in places)


def test_the_fast_path_leaves_cold_bytes_and_damage_to_the_slow_one() -> None:
    log = filled(3)
    log.read(0, 1, end_offset=9)
    log.files.cold = ["*.log"]
    assert log.reader.read_on(3, 1, 9, False) is None
    log.files.cold = []
    file = log.files.open(DIRECTORY / "00000000000000000000.log", writable=True)
    file.pwritev([b"\xff" * 20], log.size_bytes // 3)
    assert log.reader.read_on(3, 1, 9, False) is None
    with pytest.raises(KafkaError):
        log.read(3, 1, end_offset=9)


def waited_for(log: Log, *values: bytes) -> None:
    log.reader.is_awaited = True
    append_values(log, *values)


def test_a_small_append_that_was_awaited_is_given_to_its_reader_from_memory() -> None:
    log = filled(3)
    log.read(0, 1 << 20, end_offset=9).read_blocking()
    waited_for(log, b"new")
    before = len(log.files.history)
    view = log.reader.read_on(9, 1 << 20, 10, False)
    assert view is not None
    assert log.files.history[before:] == []
    assert view == log.read(9, 1 << 20, end_offset=10).read_blocking()


@pytest.mark.parametrize("is_kept", [True, False])
def test_up_to_a_length_what_was_awaited_stays_in_memory(is_kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.storage.log.log_append.MOST_KEPT_BYTES", len(batch(b"new")) - (not is_kept))
    log = filled(1)
    waited_for(log, b"old")
    waited_for(log, b"new")
    assert log.reader.newest is None or bytes(log.reader.newest[2]).endswith(bytes(batch(b"new"))[-4:])
    assert (log.reader.newest is not None) == is_kept


def test_one_that_waited_goes_on_from_memory_and_from_where_that_ended() -> None:
    log = filled(3, **{"ottla.acks.all": "page-cache"})
    log.read(0, 1 << 20, end_offset=9)
    waited_for(log, b"new")
    before = len(log.files.history)
    records = log.reader.read_newest(9, 1 << 20, 10, False)
    assert records is not None
    assert log.files.history[before:] == []
    assert records == log.read(9, 1 << 20, end_offset=10).read_blocking()
    append_values(log, b"x" * 1024)  # too long to be kept
    view = log.reader.read_newest(10, 1 << 20, 11, False)
    assert view is not None
    assert [header.base_offset for _, header in iter_batches(view)] == [10]


@pytest.mark.parametrize("max_bytes", [1, 80, 200, 1 << 20])
def test_what_one_that_waited_gets_is_what_a_read_gives(max_bytes: int) -> None:
    log = filled(1, **{"ottla.acks.all": "page-cache"})
    log.reader.is_awaited = True
    found = 0
    for number in range(60):
        end = log.log_end_offset
        for value in (b"x" * (number % 5), b"y" * (number % 3 * 600))[: 1 + number % 2]:
            append_values(log, value)
        for offset in (end, end - 1, log.log_end_offset - 1):
            whole = log.read(offset, max_bytes, end_offset=log.log_end_offset).read_blocking()
            log.read(max(offset - 2, 0), 1, end_offset=offset)  # so that it reads on from `offset`, or from elsewhere
            for visible in (log.log_end_offset, end):
                records = log.reader.read_newest(offset, max_bytes, visible, False)
                if records is not None:
                    assert visible == log.log_end_offset
                    assert whole.startswith(bytes(records))
                    found += 1
    assert found > 60


def test_what_is_appended_to_a_new_segment_has_no_hint_of_the_last_one() -> None:
    log = filled(1, **{"ottla.acks.all": "page-cache"})
    waited_for(log, b"old")
    log.read(0, 1 << 20, end_offset=4).read_blocking()
    log.roll(NOW_MS)
    waited_for(log, b"first")  # the first of a segment is written in another way
    waited_for(log, b"new")
    assert log.reader.read_newest(5, 1 << 20, 6, False) is None
    log.read(4, 1, end_offset=6).read_blocking()
    records = log.reader.read_newest(5, 1 << 20, 6, False)
    assert records == log.read(5, 1 << 20, end_offset=6).read_blocking()


def test_what_nobody_waits_for_does_not_stay_in_memory() -> None:
    log = filled(1)
    append_values(log, b"new")
    assert log.reader.newest is None


def test_what_is_in_memory_is_not_taken_for_bytes_at_the_same_position_of_another_segment() -> None:
    log = open_test_log(disk(), SMALL)
    for number in range(3):
        append_values(log, b"%d" % number)
    log.roll(NOW_MS)
    append_values(log, b"3")
    waited_for(log, b"4")
    size = len(batch(b"0"))
    log.read(0, size, end_offset=5).read_blocking()
    view = log.reader.read_on(1, size, 5, False)
    assert view is not None
    assert [header.base_offset for _, header in iter_batches(view)] == [1]


def test_nothing_of_a_removed_segment_stays_in_memory() -> None:
    log = filled(1)
    waited_for(log, b"new")
    log.delete_records(log.log_end_offset)
    assert log.reader.newest is None


def test_large_hot_slices_are_maps_and_small_ones_are_not() -> None:
    log = open_test_log(disk(), {"ottla.acks.all": "page-cache"})
    append_values(log, b"x" * 100_000)
    append_values(log, b"y" * 10)

    def asked(offset: int, *, allow_map: bool = True) -> set[str]:
        before = len(log.files.history)
        assert log.read(offset, 100_200, end_offset=2, allow_map=allow_map).length
        return {call for call, _ in log.files.history[before:]}

    assert "map" in asked(0)
    assert "map" not in asked(0, allow_map=False)
    assert "map" not in asked(1)


def test_cold_bytes_and_cold_look_ups_are_left_to_a_thread() -> None:
    log = filled()
    expected = {offset: log.read(offset, 700, end_offset=120).read_blocking() for offset in range(120)}
    log.reader.forget_hints()
    log.files.cold = ["*.log"]
    for offset in range(120):
        log.reader.forget_hints()
        found = log.read(offset, 700, end_offset=120)
        assert found.view is None
        assert found.read_blocking() == expected[offset]
        assert found.length >= len(expected[offset]) or found.length == 700


def test_damage_on_the_way_is_a_corrupt_message() -> None:
    log = filled(3)
    file = log.files.open(DIRECTORY / "00000000000000000000.log", writable=True)
    file.pwritev([b"\xff" * 20], 0)
    with pytest.raises(KafkaError) as caught:
        log.read(4, 100, end_offset=9)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("is_cold", [False, True])
@pytest.mark.parametrize("hit", range(1, 12))
def test_what_lies_before_damage_is_read_wherever_the_limit_falls(hit: int, is_cold: bool) -> None:
    log = filled(12, **{"segment.bytes": "8192"})
    whole = log.read(0, 1 << 20, end_offset=36).read_blocking()
    damage_at, header = list(iter_batches(whole))[hit]
    file = log.files.open(DIRECTORY / "00000000000000000000.log", writable=True)
    file.pwritev([b"\xff" * 20], damage_at)
    log.files.cold = ["*.log"] if is_cold else []
    for max_bytes in range(damage_at, damage_at + header.size_bytes):
        log.reader.forget_hints()
        assert log.read(0, max_bytes, end_offset=36).read_blocking() == whole[:damage_at]
    with pytest.raises(KafkaError):
        log.read(header.base_offset, 100, end_offset=36).read_blocking()


@pytest.mark.parametrize("field", ["offset", "position"])
@pytest.mark.parametrize("bit", range(1, 12))
def test_an_index_entry_with_a_flipped_bit_hides_no_record(field: str, bit: int) -> None:
    log = filled(60, **{"segment.bytes": "8192"})
    sync(log)
    log.close()
    path = DIRECTORY / "00000000000000000000.index"
    file = log.files.open(path, writable=True)
    number = file.size() // 8 // 2
    at = 8 * number + (0 if field == "offset" else 4)
    (value,) = struct.unpack(">i", file.pread(4, at))
    file.pwritev([struct.pack(">i", value ^ (1 << bit))], at)
    again = open_test_log(log.files, SMALL | {"segment.bytes": "8192"})
    end = again.log_end_offset
    for offset in range(end):
        first, last = headers(again, offset, 700)[0]
        assert first <= offset <= last
        assert headers(again, offset, 2_500)[0] == (first, last)


def test_a_deleted_segment_stays_readable_until_it_is_unlinked() -> None:
    log = filled()
    cold = log.files.cold = ["*"]
    slice_ = log.read(0, 500, end_offset=120)
    cold.clear()
    log.delete_records(log.segments[2].base_offset)
    assert log.retention.apply(NOW_MS)
    assert slice_.read_blocking()
    log.retention.unlink_due(NOW_MS + 10**9)
    with pytest.raises(OSError, match="deleted"):
        slice_.read_blocking()


# -- by time


@settings(max_examples=examples(60))
@given(
    stamps=st.lists(st.lists(st.integers(-1, 40), min_size=1, max_size=4), min_size=1, max_size=25),
    codec=st.sampled_from(list(Compression)),
    start=st.integers(0, 20),
    end_share=st.floats(0, 1),
)
def test_look_ups_by_time_equal_a_linear_scan(
    stamps: list[list[int]], codec: Compression, start: int, end_share: float
) -> None:
    log = open_test_log(disk(), SMALL | {"segment.bytes": "1024", "index.interval.bytes": "100"})
    flat: list[int] = []
    for group in stamps:
        shifted = [NOW_MS + stamp if stamp >= 0 else -1 for stamp in group]
        append(log, batch(*[b"v" * 30] * len(group), stamps=shifted, compression=codec))
        flat += shifted
    start = min(start, len(flat))
    log.delete_records(start)
    end = start + int(end_share * (len(flat) - start))
    for wanted in (0, *(NOW_MS + step for step in range(-1, 42, 3))):
        expected = next((o for o in range(start, end) if flat[o] >= wanted), None)
        found = log.offset_for_timestamp(wanted, end_offset=end)
        assert (found and found[:2]) == (None if expected is None else (expected, flat[expected]))
    newest = max((o for o in range(start, end) if flat[o] >= 0), key=lambda o: (flat[o], -o), default=None)
    found = log.offset_of_max_timestamp(end_offset=end)
    assert (found and found[:2]) == (None if newest is None else (newest, flat[newest]))


def test_a_look_up_by_time_names_the_leader_epoch() -> None:
    log = open_test_log(disk(), SMALL)
    log.start_leader_epoch(3)
    append_values(log, b"a")
    assert log.offset_for_timestamp(NOW_MS, end_offset=1) == (0, NOW_MS, 3)
