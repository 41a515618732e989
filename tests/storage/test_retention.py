"""What goes by time, by size and by log start, what stays, and when files leave the disk."""

from __future__ import annotations

import errno

import pytest
from kit.logs import DIRECTORY, NOW_MS, append, batch, disk, open_test_log, stored, sync
from kit.simulated_files import SimulatedFiles

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.log import Log


def segmented(files: SimulatedFiles | None = None, *, step_ms: int = 1000, **overrides: str) -> Log:
    """Five segments with one batch each, stamped 0, 1, 2, 3 and 4 steps after NOW_MS."""
    log = open_test_log(files or disk(), {"ottla.acks.all": "page-cache"} | overrides)
    for number in range(5):
        if number:
            log.roll(NOW_MS)
        stamp = NOW_MS + number * step_ms if step_ms else -1
        append(log, batch(b"x" * 900, stamps=[stamp]))
    return log


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_segments_go_by_the_time_of_their_newest_record() -> None:
    log = segmented(**{"retention.ms": "10000"})
    assert log.apply_retention(NOW_MS + 10_000) == []  # as old as allowed, not older
    assert [one.base_offset for one in log.apply_retention(NOW_MS + 12_500)] == [0, 1, 2]
    assert (bases(log), log.log_start_offset) == ([3, 4], 3)


def test_the_active_segment_is_rolled_and_goes_when_it_is_too_old() -> None:
    log = segmented(**{"retention.ms": "10000"})
    log.apply_retention(NOW_MS + 100_000)
    assert (bases(log), log.log_start_offset, log.log_end_offset) == ([5], 5, 5)
    assert log.apply_retention(NOW_MS + 10**9) == []


def test_segments_go_by_size_as_long_as_what_stays_is_enough() -> None:
    log = segmented(**{"retention.bytes": "2000", "retention.ms": "-1"})
    size = log.segments[0].size_bytes
    assert 2 * size < 2000 < 3 * size
    log.apply_retention(NOW_MS)
    assert bases(log) == [2, 3, 4]
    assert log.size_bytes == 3 * size


def test_without_timestamps_the_file_tells_the_age() -> None:
    files = disk()
    files.now_ms = NOW_MS
    log = segmented(files, step_ms=0, **{"retention.ms": "1000"})
    assert log.apply_retention(NOW_MS + 900) == []
    assert len(log.apply_retention(NOW_MS + 1100)) == 5


def test_nothing_above_the_high_watermark_goes() -> None:
    log = segmented(**{"retention.ms": "1", "ottla.acks.all": "sync"})
    assert log.apply_retention(NOW_MS + 10**9) == []
    sync(log)
    assert len(log.apply_retention(NOW_MS + 10**9)) == 5


def test_a_compacted_topic_loses_only_what_lies_below_its_start() -> None:
    log = segmented(**{"retention.ms": "1", "cleanup.policy": "compact"})
    assert log.apply_retention(NOW_MS + 10**9) == []
    log.delete_records(3)
    log.apply_retention(NOW_MS)
    assert bases(log) == [3, 4]


def test_delete_records_moves_the_start_and_stops_at_the_high_watermark() -> None:
    log = segmented(**{"retention.ms": "-1"})
    assert log.delete_records(2) == 2
    assert log.delete_records(1) == 2
    with pytest.raises(KafkaError) as caught:
        log.delete_records(6)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.delete_records(-1) == 5
    assert stored(log) == {}
    log.apply_retention(NOW_MS)
    assert bases(log) == [4]


def test_files_are_renamed_at_once_and_unlinked_after_the_delay() -> None:
    files = disk()
    log = segmented(files, **{"file.delete.delay.ms": "5000"})
    log.delete_records(1)
    log.apply_retention(NOW_MS)
    names = files.list_directory(DIRECTORY)
    assert "00000000000000000000.log.deleted" in names
    assert "00000000000000000000.log" not in names
    assert log.unlink_due(NOW_MS + 4999) == 0
    assert log.unlink_due(NOW_MS + 5000) == 3
    assert not any(name.endswith(".deleted") for name in files.list_directory(DIRECTORY))


def test_the_epochs_begin_at_the_log_start() -> None:
    log = segmented(**{"retention.ms": "-1"})
    log.start_leader_epoch(2)
    log.delete_records(3)
    assert [tuple(one) for one in log.epochs.entries] == [(0, 3), (2, 5)]


def test_a_disk_that_cannot_rename_stops_retention_and_not_the_log() -> None:
    files = disk()
    log = segmented(files)
    log.delete_records(2)
    files.fail("rename", "*.log", errno.EIO)
    assert len(log.apply_retention(NOW_MS)) <= 1
    append(log, batch(b"more"))
    assert log.log_end_offset == 6
