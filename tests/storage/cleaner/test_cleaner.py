"""One cleaning of one log: what it takes away, what it leaves in place, and what of it readers notice."""

from __future__ import annotations

import random

import pytest
from kit.cleaning import clean, records_of
from kit.logs import DIRECTORY, NOW_MS, append, disk, open_test_log, snapshot_of, sync, write_snapshot
from kit.old_segments import mixed_segment
from kit.simulated_files import SimulatedFiles

from ottla.protocol.records.batch import Compression, encode_batch
from ottla.protocol.records.formats import decode_any, iter_any
from ottla.protocol.records.legacy import encode_message_set
from ottla.protocol.records.record import Record
from ottla.storage.cleaner.cleanable import LogToAssess, assess
from ottla.storage.cleaner.cleaner import CleaningAborted, LogCleaning, Uncleanable
from ottla.storage.formats import layout
from ottla.storage.log.log import Log
from ottla.storage.recovery.missing_offsets import ANYWHERE

COMPACT = {"cleanup.policy": "compact", "delete.retention.ms": "1000"}
Pairs = list[tuple[bytes, bytes | None]]


def put(log: Log, pairs: Pairs) -> None:
    records = [Record(number, NOW_MS + number, key, value, ()) for number, (key, value) in enumerate(pairs)]
    (result,) = append(log, encode_batch(records))
    assert result.base_offset >= 0


def compacted(*segments: Pairs, files: SimulatedFiles | None = None, **overrides: str) -> Log:
    """A log with these segments sealed, and an empty active one."""
    keys = {key.replace("_", "."): value for key, value in overrides.items()}
    log = open_test_log(files or disk(), COMPACT | keys)
    for pairs in segments:
        put(log, pairs)
        log.roll(NOW_MS)
    sync(log)
    return log


def held(log: Log) -> dict[int, tuple[bytes | None, bytes | None]]:
    return {record.offset: (record.key, record.value) for record in records_of(log)}


def begun(log: Log) -> LogCleaning:
    state = LogToAssess.of(log, log.high_watermark, None)
    return LogCleaning(
        log,
        state,
        assess(state, NOW_MS),
        dedupe_buffer_bytes=1 << 20,
        load_factor=0.9,
        now_ms=NOW_MS,
        cover=lambda _: None,
        checkpoint=lambda _: None,
    )


A, B, C = b"a", b"b", b"c"


def test_only_the_newest_record_of_a_key_stays_at_its_offset() -> None:
    log = compacted([(A, b"1"), (B, b"1")], [(A, b"2")], [(C, b"1"), (B, b"2")])
    cleaning = clean(log)
    assert held(log) == {2: (A, b"2"), 3: (C, b"1"), 4: (B, b"2")}
    assert cleaning.end_offset == 5
    assert log.size_bytes == cleaning.bytes_after < cleaning.bytes_before
    assert (cleaning.records_read, cleaning.records_kept) == (5, 3)


def test_neighbours_become_one_segment_as_long_as_they_fit() -> None:
    log = compacted([(A, b"x" * 900)], [(B, b"x" * 900)], [(C, b"x" * 900)], [(A, b"1")], segment_bytes="2048")
    clean(log)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]
    assert list(held(log)) == [1, 2, 3]


def test_the_active_segment_is_not_touched_and_supersedes_nothing() -> None:
    log = compacted([(A, b"1"), (A, b"2")])
    put(log, [(A, b"3"), (A, b"4")])
    sync(log)
    clean(log)
    assert held(log) == {1: (A, b"2"), 2: (A, b"3"), 3: (A, b"4")}


def test_what_is_not_synced_supersedes_nothing() -> None:
    """It may be gone after a crash, and what it superseded would be, too."""
    log = compacted([(A, b"1")], ottla_acks_all="page-cache")
    put(log, [(A, b"2")])
    log.roll(NOW_MS)
    put(log, [(B, b"1")])
    assert log.high_watermark == 3
    clean(log)
    assert held(log)[0] == (A, b"1")
    sync(log)
    clean(log)
    assert held(log) == {1: (A, b"2"), 2: (B, b"1")}


def test_what_is_not_stable_supersedes_nothing() -> None:
    log = compacted([(A, b"1")], [(A, b"2")])
    state = LogToAssess.of(log, 1, None)
    assert assess(state, NOW_MS).first_uncleanable_offset == 1


def test_a_consumer_that_reads_the_old_segments_reads_them_to_the_end() -> None:
    files = disk()
    log = compacted([(A, b"1")], [(A, b"2")], files=files)
    files.cold.append("*.log")
    waiting = log.read(0, 1 << 20, end_offset=log.high_watermark)
    assert waiting.view is None
    clean(log)
    assert len(waiting.read_blocking()) > 60
    log.retention.unlink_due(NOW_MS + 10**9)
    assert not [name for name in files.list_directory(DIRECTORY) if name.endswith(".deleted")]
    assert held(log) == {1: (A, b"2")}


def test_reads_end_at_the_high_watermark_though_the_segment_that_it_ends_became_shorter() -> None:
    files = disk()
    log = compacted([(A, b"x" * 300)], [(A, b"2")], files=files)
    log.roll(NOW_MS)
    clean(log)
    for offset in range(2):
        data = log.read(offset, 1 << 20, end_offset=log.high_watermark).read_blocking()
        assert data == log.segments[0].file.pread(log.segments[0].size_bytes, 0)
        view = log.reader.read_on(offset, 1 << 20, log.high_watermark, allow_map=False)
        assert view is None or bytes(view) == data


def test_cleaned_twice_within_the_delay_of_deletion_both_old_lives_stay_readable() -> None:
    files = disk()
    log = compacted([(A, b"1"), (B, b"1")], [(A, b"2")], files=files)
    clean(log)
    middle = log.segments[0]
    put(log, [(B, b"2")])
    log.roll(NOW_MS)
    sync(log)
    held_before = middle.file.pread(middle.size_bytes, 0)
    clean(log)
    assert middle.file.pread(middle.size_bytes, 0) == held_before
    assert len([name for name in files.list_directory(DIRECTORY) if ".log." in name and "deleted" in name]) == 4
    assert log.retention.unlink_due(NOW_MS + 10**9) > 0
    assert not [name for name in files.list_directory(DIRECTORY) if "deleted" in name]


def test_a_segment_that_retention_takes_meanwhile_ends_the_cleaning() -> None:
    files = disk()
    log = compacted([(A, b"1")], [(A, b"2")], [(A, b"3")], files=files)
    cleaning = begun(log)
    steps = cleaning.run()
    steps.send(next(steps)())
    log.delete_records(1)
    assert log.retention.apply(NOW_MS)
    with pytest.raises(CleaningAborted):
        steps.send(0)
    assert held(log) == {1: (A, b"2"), 2: (A, b"3")}
    assert not [name for name in files.list_directory(DIRECTORY) if "cleaned" in name or "swap" in name]


@pytest.mark.parametrize("pieces", range(10))
def test_a_cleaning_may_be_dropped_anywhere_and_leaves_nothing_half_done(pieces: int) -> None:
    files = disk()
    log = compacted(*([(A, b"%d" % number)] for number in range(20)), files=files)
    steps = begun(log).run()
    work = next(steps)
    for _ in range(pieces):
        work = steps.send(work())
    steps.close()
    assert held(log)[19] == (A, b"19")
    names = files.list_directory(DIRECTORY)
    assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
    expected = held(log)
    log.close()
    assert held(open_test_log(files, COMPACT)) == expected


def test_files_of_a_clean_segment_count_as_last_written_when_the_old_ones_were() -> None:
    """Retention counts from there where records have no timestamps."""
    files = disk()
    files.now_ms = 111_000
    log = compacted([(A, b"1")], [(A, b"2")], files=files)
    files.now_ms = 999_000
    clean(log)
    assert files.modified_ms(log.segments[0].file.path) == 111_000


def test_producer_snapshots_of_segments_that_are_gone_go_with_them() -> None:
    files = disk()
    log = compacted([(A, b"1")], [(A, b"2")], [(A, b"3")], files=files)
    write_snapshot(log)
    for offset in (1, 2):
        files.write_atomically(layout.snapshot_file(DIRECTORY, offset), snapshot_of([]))
    clean(log)
    log.retention.unlink_due(NOW_MS + 10**9)
    assert [name for name in files.list_directory(DIRECTORY) if "snapshot" in name] == [f"{3:020d}.snapshot"]


def test_a_damaged_batch_leaves_the_log_as_it_is() -> None:
    files = disk()
    log = compacted([(A, b"1")], [(A, b"2")], files=files)
    log.segments[1].file.pwritev([b"\xff"], 63)
    before = files.written_state()
    with pytest.raises(Uncleanable, match="checksum"):
        clean(log)
    assert files.written_state() == before
    assert log.error is None


def with_old_segments(files: SimulatedFiles, **overrides: str) -> tuple[Log, list[Record]]:
    """A log whose first segment Kafka before 0.11 wrote, in all formats and codecs, behind it one of today."""
    old = mixed_segment()
    file = files.open(layout.log_file(DIRECTORY, 0), create=True)
    file.pwritev([old.data], 0)
    file.fdatasync()
    log = open_test_log(files, COMPACT | {key.replace("_", "."): value for key, value in overrides.items()})
    log.roll(NOW_MS)
    put(log, [(b"key 1", b"new"), (b"key 2", None), (B, b"1")])
    log.roll(NOW_MS)
    sync(log)
    return log, old.records


def test_messages_of_old_kafka_are_compacted_in_their_format() -> None:
    files = disk()
    log, old = with_old_segments(files)
    end_offset = log.log_end_offset
    everything = records_of_any(log)
    clean(log)
    newest = {record.key: record.offset for record in everything}
    kept = [record for record in everything if newest[record.key] == record.offset]
    assert records_of_any(log) == kept
    old_keys = {record.key for record in kept if record.offset < len(old)}
    assert old_keys == {b"key", *(b"key %d" % number for number in (0, 3, 4, 5, 6))}
    data = log.segments[0].file.pread(log.segments[0].size_bytes, 0)
    assert {header.magic for _, header in iter_any(data)} == {1, 2}
    before = data
    clean(log)
    assert log.segments[0].file.pread(log.segments[0].size_bytes, 0) == before
    for offset in range(end_offset):
        found = log.read(offset, 1 << 20, end_offset=end_offset).read_blocking()
        first = next(record for _, one in whole(found) for record in one if record.offset >= offset)
        assert first == next(record for record in kept if record.offset >= offset)
    again = open_test_log(files.crash(random.Random(1)), COMPACT, was_clean=False, gaps_before=ANYWHERE)
    assert records_of_any(again) == kept


def test_tombstones_of_old_kafka_go_by_the_age_of_their_segment() -> None:
    files = disk()
    files.now_ms = NOW_MS
    old = encode_message_set([Record(0, NOW_MS, A, b"1"), Record(1, NOW_MS, A, None)], 1, compression=Compression.GZIP)
    file = files.open(layout.log_file(DIRECTORY, 0), create=True)
    file.pwritev([old], 0)
    file.fdatasync()
    log = open_test_log(files, COMPACT | {"segment.bytes": "1024"})
    log.roll(NOW_MS)
    sync(log)
    clean(log)
    assert [(record.offset, record.value) for record in records_of_any(log)] == [(1, None)]
    files.now_ms = NOW_MS + 1000
    for key in (B, C):
        put(log, [(key, b"x" * 900)])
        log.roll(NOW_MS)
    sync(log)
    clean(log, clean_offset=3)
    assert [record.key for record in records_of_any(log)] == [B, C]


def whole(data: bytes) -> list[tuple[int, list[Record]]]:
    return [
        (header.last_offset, decode_any(data[start : start + header.size_bytes])) for start, header in iter_any(data)
    ]


def records_of_any(log: Log) -> list[Record]:
    """Of every segment and format."""
    data = b"".join(segment.file.pread(segment.size_bytes, 0) for segment in log.segments)
    found = [record for _, one in whole(data) for record in one]
    offsets = [record.offset for record in found]
    assert offsets == sorted(set(offsets))
    return found


def test_a_batch_whose_keys_do_not_fit_the_map_is_said() -> None:
    log = compacted([(b"%d" % number, b"v") for number in range(40)])
    with pytest.raises(Uncleanable, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        clean(log, dedupe_buffer_bytes=24 * 16)


@pytest.mark.parametrize("count", [15, 63, 127, 1000])
def test_a_dirty_part_of_one_batch_of_different_keys_is_cleaned(count: int) -> None:
    """The map is only as large as the dirty part needs, and a batch that does not fit is never cleaned."""
    log = compacted([(b"%d" % number, b"1") for number in range(count)])
    assert clean(log).end_offset == count


def test_a_reboot_after_a_cleaning_finds_the_clean_log_and_its_gaps_are_no_damage() -> None:
    files = disk()
    log = compacted([(A, b"1"), (B, b"1"), (A, b"2")], [(A, b"3")], [(C, b"1")], files=files)
    clean(log)
    expected = held(log)
    for seed in range(5):
        survivor = files.crash(random.Random(seed))
        again = open_test_log(survivor, {"cleanup.policy": "compact"}, was_clean=False)
        assert held(again) == expected


def test_gaps_are_no_damage_where_the_topic_is_not_compacted_any_more() -> None:
    from kit.logs import TOPIC_ID, topic_config

    from ottla.storage.recovery.recovery import open_log

    files = disk()
    log = compacted([(A, b"1"), (B, b"1"), (A, b"2")], [(A, b"3")], [(C, b"1")], files=files)
    clean(log)
    expected = held(log)
    again = open_log(
        files.crash(random.Random(1)),
        DIRECTORY,
        topic="orders",
        partition=0,
        topic_id=TOPIC_ID,
        config=topic_config({"cleanup.policy": "delete"}),
        now_ms=NOW_MS,
        was_clean=False,
        gaps_before=ANYWHERE,
    )
    assert held(again) == expected
    assert not again.recovery.quarantined
