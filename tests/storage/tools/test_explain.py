from __future__ import annotations

import struct
from pathlib import Path

import pytest
from kit.seed_examples import SEED_EXAMPLES, TIMESTAMP_MS, SeedExample, make_seed_example

from ottla.protocol.records.batch import Record, compute_crc, encode_batch
from ottla.protocol.records.compression import Compression
from ottla.storage.files.files import OsFiles
from ottla.storage.formats import layout
from ottla.storage.formats.checkpoint import write_offsets
from ottla.storage.formats.layout import TopicPartition
from ottla.storage.tools.explain import (
    MAX_SCANNED_KEPT,
    Ending,
    NoSuchPartition,
    explain_offset,
    explain_timestamp,
)

FILES = OsFiles()


def batch(offset: int, *stamps: int, compression: Compression = Compression.NONE) -> bytes:
    records = [
        Record(offset + number, stamp, b"key", b"v%d" % number, (("h", b"x"),)) for number, stamp in enumerate(stamps)
    ]
    return bytes(encode_batch(records, base_offset=offset, compression=compression))


def write_segment(
    log_directory: Path,
    base_offset: int,
    log: bytes,
    index: list[tuple[int, int]] | None = None,
    time_index: list[tuple[int, int]] | None = None,
) -> None:
    directory = log_directory / "t-0"
    directory.mkdir(exist_ok=True)
    layout.log_file(directory, base_offset).write_bytes(log)
    offsets = b"".join(struct.pack(">ii", *entry) for entry in index or [])
    layout.offset_index_file(directory, base_offset).write_bytes(offsets)
    times = b"".join(struct.pack(">qi", *entry) for entry in time_index or [])
    layout.time_index_file(directory, base_offset).write_bytes(times)


@pytest.mark.parametrize("example", SEED_EXAMPLES, ids=lambda example: example.name)
def test_the_worked_examples_of_the_seeds(tmp_path: Path, example: SeedExample) -> None:
    make_seed_example(tmp_path, example)
    reported = explain_offset(FILES, tmp_path, "seed", 0, example.offset)

    assert reported.ending is Ending.FOUND
    assert reported.segment is not None
    assert reported.segment.base_offsets == example.base_offsets
    assert reported.segment.base_offset == example.segment
    assert reported.offset_index is not None
    assert (reported.offset_index.key, reported.offset_index.value) == example.floor
    assert reported.offset_index.raw == struct.pack(">ii", *example.floor)
    assert reported.offset_index.slot is not None
    assert reported.offset_index.file_position == 8 * reported.offset_index.slot
    assert reported.scan is not None
    assert reported.scan.start_position == example.floor[1]
    assert [one.header.base_offset for one in reported.scan.batches] == list(
        range(example.segment + example.floor[0], example.offset + 1)
    )
    assert reported.batch is not None
    assert reported.batch.is_crc_right
    assert reported.record is not None
    assert reported.record.record.offset == example.offset
    assert reported.record.record.value is not None
    assert reported.record.record.value.startswith(b"v%d" % example.offset)


def test_the_binary_search_is_shown_comparison_by_comparison(tmp_path: Path) -> None:
    example = SEED_EXAMPLES[1]
    make_seed_example(tmp_path, example)
    reported = explain_offset(FILES, tmp_path, "seed", 0, 170415)
    assert reported.offset_index is not None
    assert [(probe.slot, probe.key, probe.is_floor) for probe in reported.offset_index.probes] == [
        (2, 6, False),
        (1, 3, True),
    ]
    assert reported.offset_index.slot == 1


def test_an_offset_inside_a_compressed_batch_is_the_batch_and_the_record(tmp_path: Path) -> None:
    log = batch(0, 1, 2) + batch(2, 3, 4, 5, compression=Compression.ZSTD)
    write_segment(tmp_path, 0, log)
    reported = explain_offset(FILES, tmp_path, "t", 0, 3)
    assert reported.batch is not None
    assert reported.batch.position == len(batch(0, 1, 2))
    assert reported.batch.header.compression is Compression.ZSTD
    assert reported.record is not None
    assert (reported.record.number, reported.record.record.offset, reported.record.record.timestamp) == (1, 3, 4)


def test_the_log_end_is_distinguished_from_what_is_after_it(tmp_path: Path) -> None:
    write_segment(tmp_path, 5, batch(5, 1, 2))
    assert explain_offset(FILES, tmp_path, "t", 0, 7).ending is Ending.AT_LOG_END
    assert explain_offset(FILES, tmp_path, "t", 0, 8).ending is Ending.OUT_OF_RANGE
    assert "log end offset 7" in explain_offset(FILES, tmp_path, "t", 0, 8).reason


def test_an_empty_log_ends_where_it_begins(tmp_path: Path) -> None:
    write_segment(tmp_path, 5, b"")
    assert explain_offset(FILES, tmp_path, "t", 0, 5).ending is Ending.AT_LOG_END


def test_what_was_deleted_is_out_of_range_with_the_reason(tmp_path: Path) -> None:
    write_segment(tmp_path, 5, batch(5, 1, 2, 3))
    assert "the first segment begins at 5" in explain_offset(FILES, tmp_path, "t", 0, 4).reason
    write_offsets(FILES, tmp_path / layout.LOG_START_OFFSET_CHECKPOINT_FILE, {TopicPartition("t", 0): 7})
    reported = explain_offset(FILES, tmp_path, "t", 0, 6)
    assert reported.ending is Ending.OUT_OF_RANGE
    assert "the log starts at 7" in reported.reason
    assert explain_offset(FILES, tmp_path, "t", 0, 7).ending is Ending.FOUND


def test_a_compacted_offset_is_answered_by_the_next_one(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, batch(0, 1))
    write_segment(tmp_path, 10, batch(12, 2))
    reported = explain_offset(FILES, tmp_path, "t", 0, 11)
    assert reported.ending is Ending.FOUND_LATER
    assert reported.record is not None
    assert reported.record.record.offset == 12
    reported = explain_offset(FILES, tmp_path, "t", 0, 5)
    assert reported.segment is not None
    assert (reported.segment.base_offset, reported.ending) == (10, Ending.FOUND_LATER)


def test_a_batch_whose_last_records_were_compacted_away_is_passed_by(tmp_path: Path) -> None:
    shortened = bytearray(batch(0, 1, 2))
    struct.pack_into(">i", shortened, 23, 5)  # last offset delta stays when the cleaner drops the last records
    struct.pack_into(">I", shortened, 17, compute_crc(shortened))
    write_segment(tmp_path, 0, bytes(shortened) + batch(6, 3))
    reported = explain_offset(FILES, tmp_path, "t", 0, 4)
    assert reported.ending is Ending.FOUND_LATER
    assert reported.record is not None
    assert reported.record.record.offset == 6
    assert reported.scan is not None
    assert [one.is_wanted for one in reported.scan.batches] == [False, True]


def test_garbage_and_torn_tails_are_reported_with_their_position(tmp_path: Path) -> None:
    sound = batch(0, 1)
    write_segment(tmp_path, 0, sound + batch(1, 2)[:-3])
    reported = explain_offset(FILES, tmp_path, "t", 0, 1)
    assert reported.ending is Ending.BROKEN
    assert f"at position {len(sound)}" in reported.reason
    assert explain_offset(FILES, tmp_path, "t", 0, 0).ending is Ending.FOUND
    write_segment(tmp_path, 0, sound + b"\xff" * 100)
    assert explain_offset(FILES, tmp_path, "t", 0, 1).ending is Ending.BROKEN


def test_a_wrong_checksum_is_reported_and_nothing_is_decoded(tmp_path: Path) -> None:
    damaged = bytearray(batch(0, 1))
    damaged[-1] ^= 1
    write_segment(tmp_path, 0, bytes(damaged))
    reported = explain_offset(FILES, tmp_path, "t", 0, 0)
    assert reported.batch is not None
    assert not reported.batch.is_crc_right
    assert reported.record is None
    assert reported.ending is Ending.BROKEN


@pytest.mark.parametrize(
    ("index", "problem"),
    [
        (b"\0\0\0\5\0\0\0\5\0", "not a multiple of the 8 bytes"),
        (struct.pack(">iiii", 2, 70, 1, 80), "entry 1 does not come after entry 0"),
        (struct.pack(">ii", 1, 9999), "points to byte 9999"),
        (None, "not there"),
    ],
)
def test_a_broken_index_is_reported_and_the_scan_begins_at_the_start(
    tmp_path: Path, index: bytes | None, problem: str
) -> None:
    write_segment(tmp_path, 0, batch(0, 1) + batch(1, 2) + batch(2, 3))
    path = layout.offset_index_file(tmp_path / "t-0", 0)
    path.unlink() if index is None else path.write_bytes(index)
    reported = explain_offset(FILES, tmp_path, "t", 0, 2)
    assert reported.ending is Ending.FOUND
    assert reported.offset_index is not None
    assert problem in reported.offset_index.problem
    assert reported.scan is not None
    assert reported.scan.start_position == 0


def test_kafkas_preallocated_zeros_are_no_entries(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, batch(0, 1) + batch(1, 2) + batch(2, 3))
    path = layout.offset_index_file(tmp_path / "t-0", 0)
    path.write_bytes(struct.pack(">ii", 1, len(batch(0, 1))) + b"\0" * 8000)
    reported = explain_offset(FILES, tmp_path, "t", 0, 2)
    assert reported.offset_index is not None
    assert (reported.offset_index.entries, reported.offset_index.slot) == (1, 0)


def test_a_long_scan_keeps_its_first_batches_and_its_last(tmp_path: Path) -> None:
    count = MAX_SCANNED_KEPT + 5
    write_segment(tmp_path, 0, b"".join(batch(offset, 1) for offset in range(count)))
    reported = explain_offset(FILES, tmp_path, "t", 0, count - 1)
    assert reported.scan is not None
    assert (reported.scan.headers_read, len(reported.scan.batches)) == (count, MAX_SCANNED_KEPT)
    assert reported.scan.batches[-1].header.base_offset == count - 1


def test_a_timestamp_is_found_to_the_record_in_the_middle_of_a_batch(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, batch(0, 100, 101) + batch(2, 200, 201, 202), [(4, 60)], [(202, 4)])
    layout.offset_index_file(tmp_path / "t-0", 0).write_bytes(struct.pack(">ii", 4, len(batch(0, 100, 101))))
    write_segment(tmp_path, 5, batch(5, 300, 301), None, [(301, 6)])
    reported = explain_timestamp(FILES, tmp_path, "t", 0, 201)
    assert reported.record is not None
    assert (reported.record.record.offset, reported.record.record.timestamp) == (3, 201)
    assert [(one.base_offset, one.largest_timestamp, one.is_late_enough) for one in reported.timestamps] == [
        (0, 202, True)
    ]
    reported = explain_timestamp(FILES, tmp_path, "t", 0, 203)
    assert reported.record is not None
    assert reported.record.record.offset == 5
    assert [one.is_late_enough for one in reported.timestamps] == [False, True]


def test_a_time_index_entry_shortens_the_scan(tmp_path: Path) -> None:
    one, two = batch(0, 100), batch(1, 200)
    write_segment(tmp_path, 0, one + two + batch(2, 300), [(1, len(one)), (2, len(one + two))], [(200, 1), (300, 2)])
    reported = explain_timestamp(FILES, tmp_path, "t", 0, 250)
    assert reported.time_index is not None
    assert reported.time_index.raw == struct.pack(">qi", 200, 1)
    assert reported.scan is not None
    assert reported.scan.start_position == len(one)
    assert reported.record is not None
    assert reported.record.record.offset == 2


def test_the_active_segments_newest_batches_count_though_no_index_knows_them(tmp_path: Path) -> None:
    one = batch(0, 100)
    write_segment(tmp_path, 0, one + batch(1, 50) + batch(2, 400), [(1, len(one))], [(100, 0)])
    reported = explain_timestamp(FILES, tmp_path, "t", 0, 300)
    assert reported.record is not None
    assert reported.record.record.offset == 2


def test_out_of_order_stamps_answer_the_first_record_by_offset(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, batch(0, 500, 100) + batch(2, 300))
    reported = explain_timestamp(FILES, tmp_path, "t", 0, 200)
    assert reported.record is not None
    assert reported.record.record.offset == 0


def test_records_before_the_log_start_offset_are_not_found_by_time(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, batch(0, 100, 200, 300))
    write_offsets(FILES, tmp_path / layout.LOG_START_OFFSET_CHECKPOINT_FILE, {TopicPartition("t", 0): 2})
    reported = explain_timestamp(FILES, tmp_path, "t", 0, 100)
    assert reported.record is not None
    assert reported.record.record.offset == 2


def test_a_time_after_all_records_finds_nothing(tmp_path: Path) -> None:
    write_segment(tmp_path, 0, batch(0, 100))
    assert explain_timestamp(FILES, tmp_path, "t", 0, 101).ending is Ending.NOTHING_SO_LATE


def test_a_partition_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(NoSuchPartition, match="t-0 is not there"):
        explain_offset(FILES, tmp_path, "t", 0, 0)
    (tmp_path / "t-0").mkdir()
    with pytest.raises(NoSuchPartition, match="holds no segment"):
        explain_offset(FILES, tmp_path, "t", 0, 0)


def test_explaining_changes_nothing_on_disk(tmp_path: Path) -> None:
    directory = make_seed_example(tmp_path, SEED_EXAMPLES[0])
    layout.time_index_file(directory, 10).write_bytes(b"\0" * 7)
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.iterdir()}
    explain_offset(FILES, tmp_path, "seed", 0, 15)
    explain_timestamp(FILES, tmp_path, "seed", 0, TIMESTAMP_MS + 15)
    assert {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["seed-0"]
