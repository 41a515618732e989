"""What a start after a crash looks at, writes and syncs, and what it leaves alone."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest
from kit.logs import DIRECTORY, NOW_MS, append, append_values, batch, disk, open_test_log, stored, sync
from kit.simulated_files import SimulatedFiles

from ottla.storage.directories import index_syncs
from ottla.storage.directories.index_syncs import IndexSyncs
from ottla.storage.formats import layout
from ottla.storage.formats.layout import TopicPartition
from ottla.storage.index.offset_index import OffsetIndex
from ottla.storage.log.log import Log

LOG_0 = layout.log_file(DIRECTORY, 0)
INDEX_0 = layout.offset_index_file(DIRECTORY, 0)
ONE = TopicPartition("orders", 0)
EVERY_BATCH = {"index.interval.bytes": "0"}
PAGE_CACHE = {"ottla.acks.all": "page-cache"}


def fill(log: Log, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        append(log, batch(b"v%d" % number, stamps=[NOW_MS + number]))


def calls_of_opening(files: SimulatedFiles, **known: int) -> list[tuple[str, Path]]:
    before = len(files.history)
    open_test_log(files, EVERY_BATCH, was_clean=False, **known)
    return files.history[before:]


def test_a_log_that_holds_nothing_unsure_is_neither_written_nor_synced() -> None:
    files = disk()
    log = open_test_log(files, EVERY_BATCH)
    fill(log, 10)
    sync(log)
    log.flush_indexes()
    calls = {call for call, _ in calls_of_opening(files, recovery_point=10, indexed_offset=10)}
    assert not calls & {"fdatasync", "sync_directory", "pwritev", "rename", "unlink"}


def test_what_lies_past_the_recovery_point_is_written_again_and_synced() -> None:
    files = disk()
    log = open_test_log(files, EVERY_BATCH)
    fill(log, 10)
    sync(log)
    fill(log, 3, 10)
    calls = calls_of_opening(files, recovery_point=10)
    assert ("pwritev", LOG_0) in calls
    assert ("fdatasync", LOG_0) in calls


def test_only_the_end_of_a_segment_is_looked_at_where_its_index_is_known_to_be_on_disk() -> None:
    files = disk()
    log = open_test_log(files, EVERY_BATCH)
    fill(log, 200)
    sync(log)
    log.flush_indexes()
    fill(log, 2, 200)
    again = open_test_log(files, EVERY_BATCH, was_clean=False, recovery_point=200, indexed_offset=150)
    assert again.log_end_offset == 202
    assert 50 * 60 < again.recovery.scanned_bytes < 60 * 90
    offsets = [entry.offset for entry in again.segment_list.active.offset_index]
    assert offsets == list(range(1, 202))
    assert [again.offset_for_timestamp(NOW_MS + n, end_offset=202) for n in (0, 149, 150, 201)] == [
        (n, NOW_MS + n, 0) for n in (0, 149, 150, 201)
    ]
    assert again.segment_list.active.largest_timestamp() == (NOW_MS + 201, 201)


@pytest.mark.parametrize("harm", ["missing", "shorter", "zeros", "of another log"])
def test_an_index_that_does_not_hold_what_the_checkpoint_says_is_rebuilt(harm: str) -> None:
    files = disk()
    log = open_test_log(files, EVERY_BATCH)
    fill(log, 100)
    sync(log)
    log.flush_indexes()
    if harm == "missing":
        files.unlink(INDEX_0)
    elif harm == "shorter":
        files.open(INDEX_0, writable=True).truncate(6 * OffsetIndex.ENTRY_BYTES)
    else:
        file = files.open(INDEX_0, writable=True)
        zeros = bytes(20 * OffsetIndex.ENTRY_BYTES)
        pair = b"".join((100 + n).to_bytes(4, "big") + (9000 + n).to_bytes(4, "big") for n in range(1))
        file.pwritev([zeros if harm == "zeros" else pair], 30 * OffsetIndex.ENTRY_BYTES)
    again = open_test_log(files, EVERY_BATCH, was_clean=False, recovery_point=100, indexed_offset=100)
    assert [entry.offset for entry in again.segment_list.active.offset_index] == list(range(1, 100))
    assert len(stored(again)) == 100


def test_the_rows_of_index_syncs_outlive_a_power_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_syncs, "BEHIND_BYTES", 500)
    files = disk()
    log = open_test_log(files, EVERY_BATCH)
    syncs = IndexSyncs()
    fill(log, 10)
    syncs.run([(ONE, log)])
    assert syncs.offset_of(ONE, log) == 0  # entries are written behind
    log.flush_indexes()
    syncs.run([(ONE, log)])
    assert syncs.offset_of(ONE, log) == 0  # it has not grown since
    fill(log, 90, 10)
    log.flush_indexes()
    syncs.run([(ONE, log)])
    fill(log, 100, 100)
    indexed = syncs.offset_of(ONE, log)
    assert indexed == 100
    sync(log)
    log.flush_indexes()
    for seed in range(20):
        survivor = files.crash(random.Random(seed))
        again = open_test_log(survivor, EVERY_BATCH, was_clean=False, recovery_point=200, indexed_offset=indexed)
        assert [entry.offset for entry in again.segment_list.active.offset_index] == list(range(1, 200))
        assert again.recovery.scanned_bytes < 110 * 80


def test_a_log_that_grew_little_and_one_that_is_gone_are_left_alone() -> None:
    files = disk()
    log = open_test_log(files, EVERY_BATCH)
    fill(log, 10)
    log.flush_indexes()
    syncs = IndexSyncs()
    syncs.run([(ONE, log)])
    assert syncs.offset_of(ONE, log) is None
    log.abandon()
    syncs.run([(ONE, log)])
    assert syncs.offset_of(ONE, log) is None


def test_a_second_segment_is_not_made_before_the_first_one_has_its_name_on_disk() -> None:
    files = disk()
    log = open_test_log(files, PAGE_CACHE)
    append_values(log, b"a")
    log.roll(NOW_MS)
    append_values(log, b"b")
    names = {Path(path).name for path in files.synced_state()}
    assert LOG_0.name in names
    for seed in range(30):
        again = open_test_log(files.crash(random.Random(seed)), PAGE_CACHE, was_clean=False)
        assert again.log_start_offset == 0


@pytest.mark.parametrize("rolls_before_the_death", [False, True])
def test_a_failed_write_that_was_cut_off_does_not_come_back_before_what_was_synced(
    rolls_before_the_death: bool,
) -> None:
    """The cut file is synced although no byte of it is unsure. Else a power cut brings its old length back, and a start
    takes what lies there for the end of the log.
    """
    for seed in range(40):
        files = disk()
        log = open_test_log(files, EVERY_BATCH)
        fill(log, 5)
        sync(log)
        files.fail("pwritev", "*.log", errno.ENOSPC, times=1, after_bytes=40)
        fill(log, 1, 5)
        assert log.log_end_offset == 5
        files.heal()
        if rolls_before_the_death:
            log.roll(NOW_MS)
        files = files.kill()
        log = open_test_log(files, EVERY_BATCH, was_clean=False, recovery_point=5)
        if not rolls_before_the_death:
            log.roll(NOW_MS)
        fill(log, 3, 5)
        sync(log)
        files = files.crash(random.Random(seed))
        log = open_test_log(files, EVERY_BATCH, was_clean=False, recovery_point=5)
        assert sorted(stored(log)) == list(range(8)), seed


# -- leader epochs


def test_a_new_epoch_is_written_with_the_first_sync_of_its_records_and_not_before() -> None:
    files = disk()
    log = open_test_log(files)
    log.start_leader_epoch(4)
    assert log.end_offset_for_epoch(4) == (4, 0)
    append_values(log, b"a")
    assert not files.exists(DIRECTORY / layout.LEADER_EPOCH_CHECKPOINT_FILE)
    sync(log)
    assert files.read_bytes(DIRECTORY / layout.LEADER_EPOCH_CHECKPOINT_FILE) == b"0\n1\n4 0\n"
    assert log.recovery_point == 1


def test_a_full_disk_that_does_not_take_the_epochs_holds_the_recovery_point_and_nothing_else() -> None:
    files = disk()
    log = open_test_log(files)
    log.start_leader_epoch(1)
    append_values(log, b"a")
    files.fail("pwritev", "*/leader-epoch-checkpoint.tmp", errno.ENOSPC, times=1)
    sync(log)
    assert (log.error, log.synced_offset, log.recovery_point) == (None, 1, 0)
    append_values(log, b"b")
    sync(log)
    assert (log.synced_offset, log.recovery_point) == (2, 2)


def test_a_disk_without_room_for_the_epochs_keeps_the_recovery_point_of_a_log_whose_start_moved() -> None:
    """Lowering it means to write a row of a checkpoint, for which there is no room, either: the log stayed unopened."""
    files = disk()
    log = open_test_log(files)
    log.start_leader_epoch(1)
    append_values(log, *[b"%d" % number for number in range(8)])
    files.fail("pwritev", "*/leader-epoch-checkpoint.tmp", errno.ENOSPC, times=None)
    sync(log)
    log.delete_records(5)
    append_values(log, b"and one more")
    sync(log)
    assert (log.log_start_offset, log.synced_offset, log.recovery_point) == (5, 9, 5)
    again = open_test_log(files, was_clean=False, recovery_point=5, log_start_offset=5)
    assert (again.log_start_offset, again.log_end_offset, again.recovery_point) == (5, 9, 5)


def test_a_disk_that_fails_to_write_the_epochs_ends_writing() -> None:
    files = disk()
    log = open_test_log(files)
    log.start_leader_epoch(1)
    append_values(log, b"a")
    files.fail("fdatasync", "*/leader-epoch-checkpoint.tmp", errno.EIO)
    ticket = log.begin_sync()
    assert ticket is not None
    with pytest.raises(OSError, match="leader-epoch-checkpoint"):
        ticket.run()


def test_epochs_of_records_that_were_never_synced_are_found_in_them() -> None:
    files = disk()
    log = open_test_log(files, PAGE_CACHE)
    for epoch in (2, 5):
        log.start_leader_epoch(epoch)
        append_values(log, b"x")
    again = open_test_log(files, PAGE_CACHE, was_clean=False)
    assert [tuple(entry) for entry in again.epochs.entries] == [(2, 0), (5, 1)]
