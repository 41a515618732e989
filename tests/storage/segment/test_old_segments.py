"""Segments with messages of formats v0 and v1: opened, recovered, read, looked up, cut, verified and explained."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples
from kit.logs import DIRECTORY, append_values, disk, open_test_log, sync
from kit.old_segments import MIXED_COUNT, STAMP_MS, OldSegment, mixed_segment, old_messages
from kit.simulated_files import SimulatedFiles

from ottla.protocol.records.compression import Compression
from ottla.protocol.records.formats import decode_any, iter_any
from ottla.protocol.records.record import Record
from ottla.storage.formats import layout
from ottla.storage.index.index_reading import OFFSET_ENTRY
from ottla.storage.log.log import Log
from ottla.storage.segment.damage import sound_batch_behind
from ottla.storage.tools.explain import Ending, explain_offset, explain_timestamp
from ottla.storage.tools.verify import Severity, Verification
from ottla.storage.tools.verify_index import OffsetIndexCheck

SMALL_INDEX = {"index.interval.bytes": "100"}
CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]


def put(files: SimulatedFiles, base_offset: int, data: bytes) -> Path:
    """A `.log` without indexes, on the disk."""
    path = layout.log_file(DIRECTORY, base_offset)
    file = files.open(path, create=True)
    file.pwritev([data], 0)
    file.fdatasync()
    file.close()
    files.sync_directory(DIRECTORY)
    return path


def opened(segment: OldSegment, *, was_clean: bool = True, **more: int) -> tuple[Log, SimulatedFiles]:
    files = disk()
    put(files, segment.records[0].offset, segment.data)
    return open_test_log(files, SMALL_INDEX, was_clean=was_clean, **more), files


def read_from(log: Log, offset: int, max_bytes: int = 1 << 20) -> list[Record]:
    data = log.read(offset, max_bytes, end_offset=log.log_end_offset).read_blocking()
    return [record for position, _ in iter_any(data) for record in decode_any(memoryview(data)[position:])]


def all_records(log: Log, max_bytes: int) -> list[Record]:
    found: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        found += [record for record in read_from(log, offset, max_bytes) if record.offset >= offset]
        offset = found[-1].offset + 1
    return found


@pytest.mark.parametrize("was_clean", [True, False])
@pytest.mark.parametrize("max_bytes", [1, 300, 1 << 20])
def test_a_log_of_all_formats_is_read_from_start_to_end(was_clean: bool, max_bytes: int) -> None:
    segment = mixed_segment()
    log, files = opened(segment, was_clean=was_clean)
    assert (log.log_start_offset, log.log_end_offset) == (0, MIXED_COUNT)
    assert all_records(log, max_bytes) == segment.records
    assert files.read_bytes(layout.log_file(DIRECTORY, 0)) == segment.data


def test_old_messages_reach_a_reader_byte_for_byte() -> None:
    segment = mixed_segment()
    log, _ = opened(segment)
    assert log.read(0, 1 << 20, end_offset=log.log_end_offset).read_blocking() == segment.data


@pytest.mark.parametrize("was_clean", [True, False])
def test_every_offset_is_found_where_it_is(was_clean: bool) -> None:
    segment = mixed_segment()
    log, _ = opened(segment, was_clean=was_clean)
    for record in segment.records:
        assert record in read_from(log, record.offset, 1), record.offset


def test_records_are_found_by_time() -> None:
    segment = mixed_segment()
    log, _ = opened(segment)
    for record in segment.records:
        if record.timestamp >= 0:
            found = log.offset_for_timestamp(record.timestamp, end_offset=log.log_end_offset)
            assert found is not None
            assert found[:2] == (record.offset, record.timestamp)
    newest = segment.records[-1]
    assert log.offset_for_timestamp(newest.timestamp + 1, end_offset=log.log_end_offset) is None
    found = log.offset_of_max_timestamp(end_offset=log.log_end_offset)
    assert found is not None
    assert found[:2] == (newest.offset, newest.timestamp)


def test_messages_without_timestamps_are_found_by_no_time() -> None:
    log, _ = opened(old_messages(0, 10, 0, Compression.GZIP))
    assert log.offset_for_timestamp(0, end_offset=10) is None
    assert log.offset_of_max_timestamp(end_offset=10) is None


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("start", range(6))
def test_the_newest_timestamp_is_looked_for_from_the_log_start_on(codec: Compression, start: int) -> None:
    stamps = old_messages(0, 6, 1, codec)
    log, _ = opened(OldSegment(stamps.data + old_messages(6, 1, 0).data, stamps.records))
    log.delete_records(start)
    found = log.offset_of_max_timestamp(end_offset=log.log_end_offset)
    assert found is not None
    assert found[0] == 5


@pytest.mark.parametrize("was_clean", [True, False])
def test_today_s_batches_are_appended_behind_old_messages(was_clean: bool) -> None:
    segment = mixed_segment(100)
    log, files = opened(segment, was_clean=was_clean)
    assert append_values(log, b"new").base_offset == 100 + MIXED_COUNT
    sync(log)
    log.close()
    again = open_test_log(files, SMALL_INDEX)
    assert [record.value for record in all_records(again, 1 << 20)][-1] == b"new"
    assert len(all_records(again, 500)) == MIXED_COUNT + 1


def test_indexes_of_a_sealed_old_segment_are_rebuilt_when_they_are_missing() -> None:
    files = disk()
    first, second = mixed_segment(0), mixed_segment(MIXED_COUNT)
    put(files, 0, first.data)
    put(files, MIXED_COUNT, second.data)
    log = open_test_log(files, SMALL_INDEX)
    assert all_records(log, 400) == first.records + second.records
    assert log.offset_for_timestamp(STAMP_MS + 40, end_offset=log.log_end_offset) is not None
    assert files.size(layout.offset_index_file(DIRECTORY, 0)) > 0


# After a crash ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", [1, 11, 17, 25, 40])
def test_a_torn_tail_of_old_messages_is_cut(cut: int) -> None:
    whole, last = mixed_segment(), old_messages(MIXED_COUNT, 1, 1)
    log, _ = opened(OldSegment(whole.data + last.data[:cut], whole.records), was_clean=False)
    assert log.log_end_offset == MIXED_COUNT
    assert log.recovery.truncated_bytes == cut
    assert all_records(log, 1 << 20) == whole.records


def test_a_zeroed_tail_behind_old_messages_is_cut() -> None:
    segment = old_messages(0, 10, 0)
    log, _ = opened(OldSegment(segment.data + bytes(5000), segment.records), was_clean=False)
    assert (log.log_end_offset, log.recovery.truncated_bytes) == (10, 5000)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_damaged_old_message_ends_the_log_and_what_follows_is_quarantined(magic: int) -> None:
    before, broken, behind = old_messages(0, 4, magic), old_messages(4, 1, magic), old_messages(5, 3, magic)
    damaged = broken.data[:-1] + bytes((broken.data[-1] ^ 1,))
    log, files = opened(OldSegment(before.data + damaged + behind.data, before.records), was_clean=False)
    assert log.log_end_offset == 4
    kept = [name for name in files.list_directory(DIRECTORY) if ".corrupt-" in name]
    assert files.read_bytes(DIRECTORY / kept[0]) == damaged + behind.data


def test_offsets_that_are_missing_between_old_messages_end_the_log_after_a_crash() -> None:
    data = old_messages(0, 4, 1, Compression.GZIP).data + old_messages(9, 4, 1, Compression.GZIP).data
    log, _ = opened(OldSegment(data, old_messages(0, 4, 1).records), was_clean=False)
    assert log.log_end_offset == 4


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 10_000))
def test_a_sound_message_is_found_behind_any_damage(seed: int) -> None:
    chooser = random.Random(seed)
    magic, codec = chooser.choice((0, 1)), chooser.choice(CODECS)
    first = chooser.choice((0, 5, (1 << 32) - 2, 1 << 33))
    front, behind = old_messages(first, 1, magic), old_messages(first + 1, 3, magic, codec)
    noise = chooser.randbytes(chooser.randrange(1, 60)) + bytes(chooser.randrange(40))
    files = disk()
    path = put(files, 0, front.data + noise + behind.data)
    file = files.open(path)
    size = files.size(path)
    assert sound_batch_behind(file, len(front.data), size, least_offset=first + 1) == len(front.data) + len(noise)
    assert sound_batch_behind(file, len(front.data), size, least_offset=first + 99) is None


# Tools --------------------------------------------------------------------------------------------------------------


def two_segments() -> SimulatedFiles:
    files = disk()
    put(files, 0, mixed_segment().data)
    put(files, MIXED_COUNT, mixed_segment(MIXED_COUNT).data)
    open_test_log(files, SMALL_INDEX).close()
    return files


def findings(files: SimulatedFiles) -> list[str]:
    found = Verification(files, DIRECTORY.parent, None).run()
    return [one.problem for one in found if one.severity is not Severity.NOTE]


def test_sound_old_segments_are_verified_and_called_sound() -> None:
    assert findings(two_segments()) == []


def test_a_changed_byte_of_an_old_message_is_found() -> None:
    size = len(mixed_segment().data)
    for position in range(16, size, 97):
        files = two_segments()
        path = layout.log_file(DIRECTORY, 0)
        file = files.open(path, writable=True)
        file.pwritev([bytes((file.pread(1, position)[0] ^ 0xFF,))], position)
        file.close()
        assert findings(files), position


def test_an_index_entry_may_name_the_first_offset_inside_as_kafka_before_0_11_did() -> None:
    files = disk()
    data = old_messages(0, 6, 1, Compression.GZIP).data
    second = old_messages(6, 6, 1, Compression.GZIP).data
    put(files, 0, data + second)
    log = open_test_log(files)
    path = layout.offset_index_file(DIRECTORY, 0)
    header = next(h for position, h in iter_any(second))
    for offset, wrong in ((6, 0), (11, 0), (5, 1), (12, 1)):
        file = files.open(path, writable=True, create=True)
        file.truncate(0)
        file.pwritev([OFFSET_ENTRY.pack(offset, len(data))], 0)
        file.close()
        check = OffsetIndexCheck(files, path, 0)
        check.batch(len(data), header._replace(base_offset=6, last_offset_delta=5))
        check.end(len(data) + len(second))
        assert len(list(check.problems())) == wrong, offset
    log.abandon()


def explained_files() -> SimulatedFiles:
    files = disk()
    put(files, 0, mixed_segment().data)
    open_test_log(files, SMALL_INDEX).close()
    return files


def test_a_look_up_is_explained_through_all_formats() -> None:
    files = explained_files()
    for record in mixed_segment().records:
        reported = explain_offset(files, DIRECTORY.parent, "orders", 0, record.offset)
        assert reported.ending is Ending.FOUND
        assert reported.record is not None
        assert reported.record.record == record
        assert reported.batch is not None
        assert reported.batch.is_crc_right
        assert reported.batch.header.base_offset <= record.offset <= reported.batch.header.last_offset
        assert len(reported.batch.raw_header) == (18, 26, 61)[reported.batch.header.magic]


def test_a_look_up_by_time_is_explained_through_old_messages() -> None:
    files = explained_files()
    reported = explain_timestamp(files, DIRECTORY.parent, "orders", 0, STAMP_MS + 33)
    assert reported.record is not None
    assert (reported.record.record.offset, reported.batch and reported.batch.header.magic) == (33, 1)
