"""What goes by time, by size and by log start, what stays, and when files leave the disk."""

from __future__ import annotations

import errno
import itertools
import random
from collections.abc import Callable, Generator
from contextlib import suppress

import pytest
from kit.logs import DIRECTORY, NOW_MS, append, batch, disk, open_test_log, stored, sync, topic_config, write_snapshot
from kit.simulated_files import CrashPoint, SimulatedFiles
from kit.transactional import transactional_batch

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.formats import layout
from ottla.storage.log import leader_epochs, log_retention
from ottla.storage.log.append import TAKES_TRANSACTIONS
from ottla.storage.log.log import Log
from ottla.storage.segment.segment import Segment


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
    assert log.retention.apply(NOW_MS + 10_000) == []  # as old as allowed, not older
    assert [one.base_offset for one in log.retention.apply(NOW_MS + 12_500)] == [0, 1, 2]
    assert (bases(log), log.log_start_offset) == ([3, 4], 3)


def test_the_active_segment_is_rolled_and_goes_when_it_is_too_old() -> None:
    log = segmented(**{"retention.ms": "10000"})
    log.retention.apply(NOW_MS + 100_000)
    assert (bases(log), log.log_start_offset, log.log_end_offset) == ([5], 5, 5)
    assert log.retention.apply(NOW_MS + 10**9) == []


def test_segments_go_by_size_as_long_as_what_stays_is_enough() -> None:
    log = segmented(**{"retention.bytes": "2000", "retention.ms": "-1"})
    size = log.segments[0].size_bytes
    assert 2 * size < 2000 < 3 * size
    log.retention.apply(NOW_MS)
    assert bases(log) == [2, 3, 4]
    assert log.size_bytes == 3 * size


@pytest.mark.parametrize("acks_all", ["sync", "page-cache"])
def test_a_segment_with_aborted_transactions_may_go_while_it_is_synced(acks_all: str) -> None:
    """Its `.txnindex` has another name then: that is no failed sync, which would take the directory offline."""
    log = open_test_log(disk(), {"ottla.acks.all": acks_all, "retention.ms": "-1", "retention.bytes": "10"})
    log.append_batches([memoryview(transactional_batch(7, 0))], NOW_MS, TAKES_TRANSACTIONS)
    log.append_marker(7, 0, is_commit=False, coordinator_epoch=0, now_ms=NOW_MS)
    sync(log)
    log.transactions.show(log.high_watermark)
    log.roll(NOW_MS)
    append(log, batch(b"x"))
    ticket = log.begin_sync()
    assert ticket is not None
    assert [one.base_offset for one in log.retention.apply(NOW_MS)] == [0]
    ticket.run()
    log.end_sync(ticket)
    assert log.recovery_point == log.log_end_offset == 3


def test_without_timestamps_the_file_gives_the_age() -> None:
    files = disk()
    files.now_ms = NOW_MS
    log = segmented(files, step_ms=0, **{"retention.ms": "1000"})
    assert log.retention.apply(NOW_MS + 900) == []
    assert len(log.retention.apply(NOW_MS + 1100)) == 5


def test_records_that_are_deleted_while_the_epochs_are_written_hold_no_recovery_point_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stop would find it short of the log end, and not be clean."""
    log = open_test_log(disk(), {"ottla.acks.all": "page-cache"})
    log.start_leader_epoch(3)
    append(log, batch(b"1"), batch(b"2"))
    write = leader_epochs.write_leader_epochs

    def write_and_delete(*args: object) -> None:
        write(*args)  # type: ignore[arg-type]
        log.delete_records(1)

    monkeypatch.setattr(leader_epochs, "write_leader_epochs", write_and_delete)
    sync(log)
    assert (log.log_start_offset, log.recovery_point) == (1, 2)


def test_nothing_above_the_high_watermark_goes() -> None:
    log = segmented(**{"retention.ms": "1", "ottla.acks.all": "sync"})
    assert log.retention.apply(NOW_MS + 10**9) == []
    sync(log)
    assert len(log.retention.apply(NOW_MS + 10**9)) == 5


@pytest.mark.parametrize("cleanup_policy", ["compact", ""])
def test_a_topic_that_does_not_delete_loses_only_what_lies_below_its_start(cleanup_policy: str) -> None:
    log = segmented(**{"retention.ms": "1", "cleanup.policy": cleanup_policy})
    assert log.retention.apply(NOW_MS + 10**9) == []
    log.delete_records(3)
    log.retention.apply(NOW_MS)
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
    log.retention.apply(NOW_MS)
    assert bases(log) == [4]


@pytest.mark.parametrize(
    "overrides",
    [
        {"retention.ms": "10000"},
        {"retention.ms": "-1", "retention.bytes": "0"},
        {"retention.ms": "-1", "retention.bytes": "1000"},
        {"retention.ms": "-1"},
    ],
)
@pytest.mark.parametrize("most", [1, 2, 3, 5, 6])
def test_segments_that_are_found_some_at_a_time_are_the_same(
    overrides: dict[str, str], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ages: list[int] = []
    real = Segment.retention_timestamp_ms

    def counted(segment: Segment) -> int:
        ages.append(segment.base_offset)
        return real(segment)

    def deleted() -> tuple[list[int], list[int], int]:
        log = segmented(**overrides)
        log.delete_records(1)
        gone = [segment.base_offset for segment in log.retention.apply(NOW_MS + 12_500)]
        return gone, bases(log), log.log_start_offset

    together = deleted()
    assert together[0], "some are deleted"
    monkeypatch.setattr(log_retention, "SEGMENTS_PER_LOOK", most)
    assert deleted() == together
    monkeypatch.setattr(Segment, "retention_timestamp_ms", counted)
    log = segmented(**overrides)
    next(log.retention.steps(NOW_MS + 12_500), None)
    assert len(set(ages)) <= most


def test_nothing_is_looked_for_in_a_log_that_was_closed_since_the_last_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its topic was deleted: the ages of segments are in indexes that are closed."""
    monkeypatch.setattr(log_retention, "SEGMENTS_PER_LOOK", 1)
    files = disk()
    written = segmented(files, **{"retention.ms": "10000"})
    sync(written)
    written.close()
    log = open_test_log(files, {"ottla.acks.all": "page-cache", "retention.ms": "10000"})
    deleted: list[int] = []

    def until_it_is_closed() -> Generator[Callable[[], None], None, None]:
        gone = yield from log.retention.steps(NOW_MS + 12_500)
        deleted.extend(segment.base_offset for segment in gone)

    for work in until_it_is_closed():
        work()
        if log.log_start_offset and log.error is None:
            log.close()
    assert deleted == [0], "of three that are old enough"


def test_files_of_deleted_segments_are_taken_some_at_a_time() -> None:
    log = segmented(**{"retention.bytes": "0", "retention.ms": "-1", "file.delete.delay.ms": "0"})
    log.retention.apply(NOW_MS)
    counts = []
    while paths := log.retention.take_due_files(NOW_MS, 4):
        counts.append(len(paths))
    assert counts == [6, 6, 3], "whole segments, of three files each"
    assert not log.retention.due_unlinks


def test_files_are_renamed_at_once_and_unlinked_after_the_delay() -> None:
    files = disk()
    log = segmented(files, **{"file.delete.delay.ms": "5000"})
    log.delete_records(1)
    log.retention.apply(NOW_MS)
    names = files.list_directory(DIRECTORY)
    assert "00000000000000000000.log.deleted" in names
    assert "00000000000000000000.log" not in names
    assert log.retention.unlink_due(NOW_MS + 4999) == 0
    assert log.retention.unlink_due(NOW_MS + 5000) == 3
    assert not any(name.endswith(".deleted") for name in files.list_directory(DIRECTORY))


def test_files_go_after_the_delay_although_the_clock_was_put_back_by_a_year() -> None:
    files, year_ms = disk(), 365 * 24 * 3600 * 1000
    log = segmented(files, **{"file.delete.delay.ms": "5000"})
    log.delete_records(1)
    log.retention.apply(NOW_MS)
    back_ms = NOW_MS - year_ms
    assert log.retention.unlink_due(back_ms) == 0
    assert log.retention.unlink_due(back_ms + 4999) == 0
    assert log.retention.unlink_due(back_ms + 5000) == 3


def test_files_go_although_syncs_follow_each_other_without_a_pause() -> None:
    """Those that the sync under way has in hand wait for the next time; the others would wait for an idle moment."""
    files = disk()
    log = segmented(files, **{"retention.bytes": "0", "retention.ms": "-1", "file.delete.delay.ms": "0"})
    sync(log)
    write_snapshot(log)
    append(log, batch(b"unsynced"))
    ticket = log.begin_sync()
    assert ticket is not None
    log.retention.apply(NOW_MS)
    assert len(log.segments) == 1
    assert log.retention.unlink_due(NOW_MS + 1) == 4 * 3  # the snapshot is the last one's
    ticket.run()
    log.end_sync(ticket)
    assert log.retention.unlink_due(NOW_MS + 1) == 4


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
    assert len(log.retention.apply(NOW_MS)) <= 1
    append(log, batch(b"more"))
    assert log.log_end_offset == 6


def once(log: Log, sequence: int, size: int = 900) -> None:
    """A batch of the only producer, and the log acknowledges it."""
    (result,) = append(log, batch(b"x" * size, producer_id=7, producer_epoch=0, base_sequence=sequence))
    assert result.error_code is ErrorCode.NONE


@pytest.mark.parametrize("loss", ["rolled", "killed", "written", "not written"])
def test_a_producer_goes_on_after_a_power_cut_although_its_batches_are_gone(loss: str) -> None:
    for seed in range(24):
        files = disk()
        log = open_test_log(files, {"retention.bytes": "1000"})
        once(log, 0)
        log.roll(NOW_MS)
        once(log, 1)
        sync(log)
        if loss == "killed":  # what the next process reads was never synced
            log.roll(NOW_MS)
            files = files.kill()
            log = open_test_log(files, {"retention.bytes": "0"}, was_clean=False, high_watermark=2)
        elif loss == "written":
            assert write_snapshot(log)
        elif loss == "not written":
            files.fail("pwritev", "*.snapshot.tmp", errno.ENOSPC, times=1)
            assert write_snapshot(log)
        log.configure(topic_config({"retention.ms": "0"}))
        log.retention.apply(NOW_MS + 1)  # rolls the log if need be, and takes everything in it
        assert bases(log) == [2]
        files = files.crash(random.Random(seed))
        again = open_test_log(files, was_clean=False, log_start_offset=2, high_watermark=2)
        assert again.log_end_offset == 2
        once(again, 2)
        (repeated,) = append(again, batch(b"x" * 900, producer_id=7, producer_epoch=0, base_sequence=1))
        assert repeated.is_duplicate


def test_a_stop_does_not_put_the_only_snapshot_at_risk() -> None:
    for calls, seed in itertools.product(range(12), range(8)):
        files = disk()
        log = open_test_log(files, {"retention.ms": "0"})
        once(log, 0)
        sync(log)
        log.retention.apply(NOW_MS + 1)
        sync(log)
        files = files.crash(random.Random(seed))
        log = open_test_log(files, was_clean=False, log_start_offset=1, high_watermark=1)
        last = files.changes + calls
        files.crash_when = lambda kind, path, files=files, last=last: files.changes > last
        with suppress(CrashPoint):
            log.close()
        files = files.crash(random.Random(seed))
        again = open_test_log(files, was_clean=False, log_start_offset=1, high_watermark=1)
        once(again, 1)
        (repeated,) = append(again, batch(b"x" * 900, producer_id=7, producer_epoch=0, base_sequence=0))
        assert repeated.is_duplicate


def test_segments_wait_for_the_sync_that_their_producers_need() -> None:
    files = disk()
    log = open_test_log(files, {"retention.ms": "0"})
    once(log, 0)
    log.roll(NOW_MS)
    sync(log)
    write_snapshot(log)
    files.unlink(layout.snapshot_file(DIRECTORY, 1))
    log.producer_snapshots.synced_offset = -1  # it did not survive
    once(log, 1)  # not synced yet: nothing may speak of it
    assert log.retention.apply(NOW_MS + 1) == []
    sync(log)
    assert len(log.retention.apply(NOW_MS + 1)) == 2


def test_on_a_full_disk_segments_go_without_a_snapshot() -> None:
    files = disk()
    log = open_test_log(files, {"retention.bytes": "100"})
    files.fail("pwritev", "*.snapshot*", errno.ENOSPC, times=None)
    for sequence in range(3):
        once(log, sequence)
        log.roll(NOW_MS)
        sync(log)
    assert len(log.retention.apply(NOW_MS)) == 2
    once(log, 3)


def test_a_snapshot_that_a_full_disk_did_not_take_is_not_left_for_damage() -> None:
    files = disk()
    log = open_test_log(files, {})
    once(log, 0)
    files.fail("pwritev", "*.snapshot.tmp", errno.ENOSPC, times=1)
    log.roll(NOW_MS)
    sync(log)
    assert write_snapshot(log)
    assert [name for name in files.list_directory(DIRECTORY) if "snapshot" in name] == []
    once(log, 1)
    log.roll(NOW_MS)
    sync(log)
    write_snapshot(log)
    assert files.size(layout.snapshot_file(DIRECTORY, 2)) > 0, "the next one is taken"


def test_a_disk_that_cannot_sync_the_snapshot_ends_writing_and_keeps_the_segments() -> None:
    files = disk()
    log = open_test_log(files, {"retention.ms": "0"})
    once(log, 0)
    sync(log)
    files.fail("fdatasync", "*.snapshot.tmp", errno.EIO)
    assert log.retention.apply(NOW_MS + 1) == []
    assert log.error is not None
    assert log.segments[0].base_offset == 0


def test_a_batch_that_delete_records_took_is_a_duplicate_after_a_crash_too() -> None:
    files = disk()
    log = open_test_log(files)
    once(log, 0)
    once(log, 1)
    sync(log)
    log.delete_records(1)
    sync(log)
    again = open_test_log(files.crash(random.Random(1)), was_clean=False, log_start_offset=1, high_watermark=2)
    assert again.log_start_offset == 1
    (repeated,) = append(again, batch(b"x" * 900, producer_id=7, producer_epoch=0, base_sequence=0))
    assert repeated.is_duplicate
    once(again, 2)


def test_offsets_go_on_after_a_power_cut_although_all_records_are_gone() -> None:
    for seed in range(24):
        files = disk()
        log = open_test_log(files)
        append(log, batch(b"x"))
        append(log, batch(b"y"))
        sync(log)
        log.configure(topic_config({"retention.ms": "0"}))
        steps = log.retention.steps(NOW_MS + 1)
        for work in steps:
            if log.log_start_offset == 2:
                break  # the segment is renamed, and the power is cut before that is synced
            work()
        assert bases(log) == [2]
        again = open_test_log(files.crash(random.Random(seed)), was_clean=False, high_watermark=2)
        assert again.log_end_offset == 2


def test_a_sync_of_names_that_retention_saw_fail_is_not_tried_again_by_the_group_sync() -> None:
    """The second would hear of no error, and acknowledge what lies in a segment whose name may be lost."""
    files = disk()
    log = segmented(files, **{"ottla.acks.all": "sync", "retention.bytes": "0", "retention.ms": "-1"})
    sync(log)
    log.roll(NOW_MS)
    append(log, batch(b"last"))
    steps = log.retention.steps(NOW_MS)
    work = next(steps)
    ticket = log.begin_sync()
    assert ticket is not None
    files.fail("sync_directory", str(DIRECTORY), errno.EIO)
    for run in (work, ticket.run):
        with pytest.raises(OSError, match="Input/output error"):
            run()


def test_a_configuration_that_keeps_more_counts_for_retention_that_has_not_begun_to_delete() -> None:
    log = segmented(**{"retention.bytes": "0", "retention.ms": "-1"})
    steps = log.retention.steps(NOW_MS)
    work = next(steps)
    log.configure(topic_config({"ottla.acks.all": "page-cache", "retention.bytes": "-1", "retention.ms": "-1"}))
    work()
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value == []
    assert (log.log_start_offset, bases(log)[0]) == (0, 0)


@pytest.mark.parametrize("call", ["sync_directory", "open"])
def test_retention_that_lacks_a_descriptor_goes_on_another_time(call: str) -> None:
    files = disk()
    log = open_test_log(files, {"retention.bytes": "0", "retention.ms": "-1"})
    for sequence in range(3):
        once(log, sequence)
        log.roll(NOW_MS)
        sync(log)
    log.producer_snapshots.synced_offset = -1  # it did not survive: one is written first
    lacking = files.fail(call, "*", errno.EMFILE, times=None)
    assert log.retention.apply(NOW_MS) == []
    assert log.error is None
    files.heal(lacking)
    assert len(log.retention.apply(NOW_MS)) == 3
