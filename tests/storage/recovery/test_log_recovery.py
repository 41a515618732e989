"""Starting again: after a clean stop, after a crash, on damage, on leftovers; and what one sync promises."""

from __future__ import annotations

import errno
import logging
import random

import pytest
from kit.logs import (
    DIRECTORY,
    NOW_MS,
    append,
    append_values,
    batch,
    disk,
    open_test_log,
    stored,
    sync,
    write_snapshot,
)
from kit.simulated_files import CrashPoint, SimulatedFiles

from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import iter_batches
from ottla.storage.files.health import IndependentDirectory
from ottla.storage.formats import layout
from ottla.storage.formats.leader_epoch_checkpoint import begin_leader_epochs

LOG_0 = layout.log_file(DIRECTORY, 0)


def overwrite(files: SimulatedFiles, path, position: int, data: bytes) -> None:
    file = files.open(path, writable=True)
    file.pwritev([data], position)
    file.fdatasync()
    file.close()


def content(files: SimulatedFiles, name: str) -> bytes:
    return files.written_state()[f"{DIRECTORY}/{name}"]


# -- syncing


def test_a_sync_covers_what_was_written_before_it_began() -> None:
    log = open_test_log(disk())
    append_values(log, b"a")
    ticket = log.begin_sync()
    assert ticket is not None
    append_values(log, b"b")
    ticket.run()
    log.end_sync(ticket)
    assert (log.synced_offset, log.high_watermark, log.recovery_point) == (1, 1, 1)
    sync(log)
    assert (log.synced_offset, log.high_watermark) == (2, 2)
    assert log.begin_sync() is None


def test_page_cache_shows_records_at_once_and_sync_does_not() -> None:
    shown, hidden = open_test_log(disk(), {"ottla.acks.all": "page-cache"}), open_test_log(disk())
    append_values(shown, b"a")
    append_values(hidden, b"a")
    assert (shown.high_watermark, hidden.high_watermark) == (1, 0)


def test_the_high_watermark_never_goes_back_when_the_promise_changes() -> None:
    log = open_test_log(disk(), {"ottla.acks.all": "page-cache"})
    append_values(log, b"a")
    log.configure(open_test_log(disk()).config)
    append_values(log, b"b")
    assert log.high_watermark == 1
    sync(log)
    assert log.high_watermark == 2


def test_one_ticket_at_a_time() -> None:
    log = open_test_log(disk())
    append_values(log, b"a")
    log.begin_sync()
    with pytest.raises(RuntimeError):
        log.begin_sync()


def test_a_sync_over_a_roll_covers_both_segments_and_the_directory() -> None:
    files = disk()
    log = open_test_log(files, {"segment.bytes": "1024"})
    append_values(log, b"x" * 700)
    append_values(log, b"y" * 700)
    sync(log)
    synced = files.synced_state()
    assert log.log_end_offset == log.recovery_point == 2
    assert len(synced[str(LOG_0)]) > 700
    assert len(synced[str(layout.log_file(DIRECTORY, 1))]) > 700


def test_a_failed_sync_is_never_tried_again_and_what_it_should_have_covered_is_not_acknowledged() -> None:
    files = disk()
    health = IndependentDirectory()
    log = open_test_log(files, health=health)
    append_values(log, b"a")
    ticket = log.begin_sync()
    assert ticket is not None
    files.fail("fdatasync", "*.log", errno.EIO)
    with pytest.raises(OSError, match="error") as caught:
        ticket.run()
    log.fail(caught.value)
    log.end_sync(ticket)
    assert (log.synced_offset, log.high_watermark) == (0, 0)
    assert health.is_offline
    assert log.begin_sync() is None
    (result,) = append(log, batch(b"b"))
    assert result.error_code is ErrorCode.KAFKA_STORAGE_ERROR


def test_what_a_failed_sync_lost_is_written_again_at_the_next_start() -> None:
    files = disk()
    log = open_test_log(files)
    append_values(log, b"a")
    ticket = log.begin_sync()
    assert ticket is not None
    files.fail("fdatasync", "*.log", errno.EIO)
    with pytest.raises(OSError, match="error"):
        ticket.run()
    log.abandon()
    # The process starts again on the same page cache, which calls the lost pages clean.
    log = open_test_log(files, was_clean=False)
    assert stored(log) == {0: b"a"}
    again = open_test_log(files.crash(random.Random(1)), was_clean=False)
    assert stored(again) == {0: b"a"}


def test_a_log_that_is_deleted_under_a_running_sync_is_no_disk_failure() -> None:
    files = disk()
    health = IndependentDirectory()
    log = open_test_log(files, {"segment.bytes": "1024"}, health=health)
    append_values(log, b"a" * 800)
    append_values(log, b"b" * 800)
    ticket = log.begin_sync()
    assert ticket is not None
    log.abandon()
    files.rename(DIRECTORY, DIRECTORY.with_name("orders-0.0123-delete"))
    ticket.run()
    log.end_sync(ticket)
    assert (log.synced_offset, health.is_offline) == (0, False)


# -- clean stops


def test_a_clean_stop_scans_nothing_and_keeps_everything() -> None:
    files = disk()
    small = {"segment.bytes": "1024", "index.interval.bytes": "200"}
    log = open_test_log(files, small)
    for number in range(40):
        append(log, batch(b"%d" % number * 20, producer_id=5, producer_epoch=0, base_sequence=number))
    expected = stored(log)
    log.close()
    assert files.written_state() == files.synced_state()
    log = open_test_log(files, small)
    assert stored(log) == expected
    assert log.recovery.scanned_bytes == 0
    known = log.producers.get(5)
    assert known is not None
    assert known.last_sequence == 39
    (repeat,) = append(log, batch(b"39" * 20, producer_id=5, producer_epoch=0, base_sequence=39))
    assert repeat.is_duplicate


def test_close_that_cannot_sync_says_so() -> None:
    files = disk()
    log = open_test_log(files)
    append_values(log, b"a")
    files.fail("fdatasync", "*.log", errno.EIO)
    with pytest.raises(OSError, match="error"):
        log.close()


@pytest.mark.parametrize("name", ["00000000000000000000.index", "00000000000000000000.timeindex"])
@pytest.mark.parametrize("how", ["missing", "torn", "nonsense"])
@pytest.mark.parametrize("sealed", [False, True])
def test_missing_and_damaged_indexes_are_rebuilt_byte_for_byte(name: str, how: str, sealed: bool) -> None:
    files = disk()
    overrides = {"index.interval.bytes": "100"}
    log = open_test_log(files, overrides)
    for number in range(20):
        append(log, batch(b"v" * 60, stamps=[NOW_MS + number]))
    if sealed:
        log.roll(NOW_MS)
        append_values(log, b"tail")
    log.close()
    original = content(files, name)
    path = DIRECTORY / name
    if how == "missing":
        files.unlink(path)
    elif how == "torn":
        overwrite(files, path, len(original), b"\x01\x02\x03")
    else:
        overwrite(files, path, 8 if "time" not in name else 12, b"\xff" * 4)
    log = open_test_log(files, overrides)
    found = log.offset_for_timestamp(NOW_MS + 13, end_offset=20)
    assert found is not None
    assert found[:2] == (13, NOW_MS + 13)
    assert set(stored(log)) == set(range(log.log_end_offset))
    log.close()
    assert content(files, name) == original


@pytest.mark.parametrize("name", ["00000000000000000000.index", "00000000000000000000.timeindex"])
def test_an_index_that_a_start_makes_again_survives_a_power_cut(name: str) -> None:
    """The next start believes what it finds below the recovery point; a file that was not synced may be zeros."""
    files = disk()
    overrides = {"index.interval.bytes": "100"}
    log = open_test_log(files, overrides)
    for number in range(20):
        append(log, batch(b"v" * 60, stamps=[NOW_MS + number]))
    log.roll(NOW_MS)
    append_values(log, b"tail")
    log.close()
    original = content(files, name)
    files.unlink(DIRECTORY / name)
    files.sync_directory(DIRECTORY)
    open_test_log(files, overrides, was_clean=False, recovery_point=21)
    files.sync_directory(DIRECTORY)  # the name may come to the disk at any time
    assert files.synced_state()[str(DIRECTORY / name)] == original


# -- unclean stops


def make_unsynced_log(files: SimulatedFiles, **overrides: str) -> None:
    log = open_test_log(files, overrides)
    for number in range(12):
        append_values(log, b"%d" % number * 50)
    log.abandon()


def test_an_unclean_stop_is_scanned_from_the_recovery_point_and_written_again() -> None:
    files = disk()
    make_unsynced_log(files)
    before = len(files.history)
    log = open_test_log(files, was_clean=False, recovery_point=6)
    assert log.log_end_offset == log.synced_offset == log.recovery_point == 12
    assert content(files, LOG_0.name) == files.synced_state()[str(LOG_0)]
    calls = [call for call, path in files.history[before:] if path == LOG_0]
    assert calls.index("pwritev") < calls.index("fdatasync")


@pytest.mark.parametrize("cut", [1, 30, 60, 70])
def test_a_torn_tail_is_cut(cut: int) -> None:
    files = disk()
    make_unsynced_log(files)
    whole = content(files, LOG_0.name)
    file = files.open(LOG_0, writable=True)
    file.truncate(len(whole) - cut)
    log = open_test_log(files, was_clean=False)
    assert log.log_end_offset == 11
    assert log.recovery.truncated_bytes > 0
    assert log.recovery.quarantined == []
    assert append_values(log, b"next").base_offset == 11


def test_a_torn_tail_below_the_high_watermark_is_quarantined_because_it_was_promised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = disk()
    make_unsynced_log(files)
    whole = content(files, LOG_0.name)
    files.open(LOG_0, writable=True).truncate(len(whole) - 30)
    log = open_test_log(files, was_clean=False, high_watermark=12)
    assert log.recovery.gap == (11, 12)
    (aside,) = log.recovery.quarantined
    assert whole.endswith(content(files, aside) + whole[-30:])
    assert log.recovery.lost_below_high_watermark
    assert "records that were acknowledged are gone" in caplog.text


def test_a_tail_of_zeros_is_cut() -> None:
    files = disk()
    make_unsynced_log(files)
    overwrite(files, LOG_0, len(content(files, LOG_0.name)), bytes(5000))
    log = open_test_log(files, was_clean=False)
    assert log.log_end_offset == 12
    assert log.recovery.truncated_bytes == 5000


def test_a_bad_batch_with_sound_ones_after_it_is_quarantined_with_all_that_follows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = disk()
    make_unsynced_log(files, **{"segment.bytes": "1024"})
    data = content(files, LOG_0.name)
    positions = [position for position, _ in iter_batches(data)]
    overwrite(files, LOG_0, positions[3] + 70, b"!")
    with caplog.at_level(logging.WARNING):
        log = open_test_log(files, {"segment.bytes": "1024"}, was_clean=False, high_watermark=9)
    assert log.recovery.gap == (3, 9)
    assert stored(log) == {number: b"%d" % number * 50 for number in range(3)}
    aside = log.recovery.quarantined
    assert aside[0] == f"{LOG_0.name}.corrupt-{NOW_MS}"
    assert len(aside) > 1
    assert content(files, aside[0])[:61] == data[positions[3] : positions[3] + 61]
    assert log.recovery.lost_below_high_watermark
    lines = [record for record in caplog.records if "the log ends at offset 3" in record.message]
    assert lines[0].levelno == logging.ERROR
    log.close()
    assert open_test_log(files, {"segment.bytes": "1024"}).log_end_offset == 9


def test_damage_below_the_recovery_point_is_not_looked_for() -> None:
    files = disk()
    make_unsynced_log(files)
    overwrite(files, LOG_0, 70, b"!")
    assert open_test_log(files, was_clean=False, recovery_point=12).log_end_offset == 12


def test_recovery_may_be_interrupted_anywhere_and_done_again() -> None:
    def prepare() -> SimulatedFiles:
        files = disk()
        make_unsynced_log(files, **{"segment.bytes": "1024"})
        data = content(files, LOG_0.name)
        overwrite(files, LOG_0, [position for position, _ in iter_batches(data)][4] + 65, b"!")
        return files

    number, done = 1, False
    while not done:
        files = prepare()
        files.crash_at = files.calls + number
        try:
            open_test_log(files, {"segment.bytes": "1024"}, was_clean=False)
            done = True
        except CrashPoint:
            files.crash_at, files.has_crashed = None, False
            # The process died, the page cache did not.
            log = open_test_log(files, {"segment.bytes": "1024"}, was_clean=False, now_ms=NOW_MS + 1)
            assert stored(log) == {offset: b"%d" % offset * 50 for offset in range(4)}
            assert append_values(log, b"next").base_offset == 4
        number += 1
    assert number > 20


def test_a_log_that_ends_below_its_start_begins_again_at_the_start() -> None:
    files = disk()
    make_unsynced_log(files)
    log = open_test_log(files, was_clean=False, log_start_offset=40)
    assert (log.log_start_offset, log.log_end_offset) == (40, 40)
    assert append_values(log, b"next").base_offset == 40


# -- leftovers


def test_leftovers_of_an_interrupted_stop_are_tidied() -> None:
    files = disk()
    log = open_test_log(files)
    append_values(log, b"a")
    log.close()
    for name in ("x.log.deleted", "00000000000000000009.log.cleaned", "y.tmp", "00000000000000000077.index"):
        files.open(DIRECTORY / name, create=True).close()
    log = open_test_log(files)
    assert stored(log) == {0: b"a"}
    left = [name for name in files.list_directory(DIRECTORY) if name.endswith((".deleted", ".cleaned", ".tmp"))]
    assert left == []
    assert not files.exists(DIRECTORY / "00000000000000000077.index")


def test_a_complete_swap_replaces_the_segments_that_it_covers() -> None:
    files = disk()
    log = open_test_log(files)
    for value in (b"a", b"b", b"c"):
        append_values(log, value)
        log.roll(NOW_MS)
    append_values(log, b"d")
    log.close()
    joined = content(files, layout.log_file(DIRECTORY, 0).name) + content(files, layout.log_file(DIRECTORY, 1).name)
    swap = files.open(layout.log_file(DIRECTORY, 0, layout.SWAP_SUFFIX), create=True)
    swap.pwritev([joined], 0)
    log = open_test_log(files)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 3]
    assert stored(log) == {0: b"a", 1: b"b", 2: b"c", 3: b"d"}


def test_a_swap_beside_unfinished_files_is_dropped() -> None:
    files = disk()
    log = open_test_log(files)
    append_values(log, b"a")
    log.close()
    files.open(layout.log_file(DIRECTORY, 0, layout.SWAP_SUFFIX), create=True).close()
    files.open(layout.log_file(DIRECTORY, 0, layout.CLEANED_SUFFIX), create=True).close()
    assert stored(open_test_log(files)) == {0: b"a"}


@pytest.mark.parametrize("suffix", [layout.INDEX_SUFFIX, layout.TIME_INDEX_SUFFIX])
def test_an_index_of_a_swap_whose_log_kept_its_old_name_is_dropped(suffix: str) -> None:
    """A power cut before the names of a swap were synced: the index is that of other positions and offsets."""
    files = disk()
    log = open_test_log(files, {"index.interval.bytes": "1"})
    for value in (b"a", b"b", b"c"):
        append_values(log, value)
    log.roll(NOW_MS)
    log.close()
    own = layout.offset_file_name(0, suffix)
    before = content(files, own)
    assert before
    swap = files.open(DIRECTORY / (own + layout.SWAP_SUFFIX), create=True)
    swap.pwritev([before[:-4] + b"\0\0\0\2"], 0)
    open_test_log(files)
    assert content(files, own) == before
    assert not files.exists(DIRECTORY / (own + layout.SWAP_SUFFIX))


def test_a_swap_of_which_an_index_is_left_is_finished() -> None:
    """The old files were renamed before, and the `.log` has its own name already."""
    files = disk()
    log = open_test_log(files, {"index.interval.bytes": "1"})
    for value in (b"a", b"b", b"c"):
        append_values(log, value)
    log.roll(NOW_MS)
    log.close()
    own = layout.offset_file_name(0, layout.TIME_INDEX_SUFFIX)
    before = content(files, own)
    files.rename(DIRECTORY / own, DIRECTORY / (own + layout.SWAP_SUFFIX))
    open_test_log(files)
    assert content(files, own) == before


# -- producers and epochs across starts


def test_producers_are_replayed_from_the_newest_sound_snapshot() -> None:
    files = disk()
    log = open_test_log(files, {"segment.bytes": "1024"})
    for number in range(20):
        append(log, batch(b"x" * 300, producer_id=5, producer_epoch=0, base_sequence=number))
        sync(log)
        write_snapshot(log)
    log.abandon()
    snapshots = [name for name in files.list_directory(DIRECTORY) if name.endswith(".snapshot")]
    overwrite(files, DIRECTORY / snapshots[-1], 12, b"\xff")
    stale = layout.snapshot_file(DIRECTORY, 999)
    files.open(stale, create=True).close()
    log = open_test_log(files, {"segment.bytes": "1024"}, was_clean=False)
    known = log.producers.get(5)
    assert known is not None
    assert known.last_sequence == 19
    assert not files.exists(stale)
    (repeat,) = append(log, batch(b"x" * 300, producer_id=5, producer_epoch=0, base_sequence=18))
    assert repeat.is_duplicate


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_a_leader_epoch_that_a_flipped_bit_made_is_not_taken_over(has_checkpoint: bool) -> None:
    files = disk()
    log = open_test_log(files)
    log.start_leader_epoch(2)
    for number in range(6):
        append_values(log, b"%d" % number)
    sync(log)
    position = [at for at, _ in iter_batches(content(files, LOG_0.name))][3]
    overwrite(files, LOG_0, position + 12, b"\x40")  # no checksum covers it
    if not has_checkpoint:
        files.write_atomically(DIRECTORY / "leader-epoch-checkpoint", b"garbage")
    again = open_test_log(files, was_clean=False)
    assert again.log_end_offset == 6
    assert [tuple(one) for one in again.epochs.entries] == [(2, 0)]


def test_leader_epochs_survive_and_those_beyond_the_end_do_not() -> None:
    files = disk()
    log = open_test_log(files)
    log.start_leader_epoch(2)
    append_values(log, b"a")
    log.start_leader_epoch(5)
    append_values(log, b"b")
    sync(log)
    log.abandon()
    log = open_test_log(files, was_clean=False)
    assert [tuple(one) for one in log.epochs.entries] == [(2, 0), (5, 1)]
    log.abandon()
    files.open(LOG_0, writable=True).truncate(10)  # nothing whole is left
    log = open_test_log(files, was_clean=False)
    assert log.log_end_offset == 0
    assert [tuple(one) for one in log.epochs.entries] == [(2, 0)]


def test_epochs_of_a_partition_that_was_never_synced_are_written_again() -> None:
    """Their file may be in the page cache only, where it reads well."""
    files = disk()
    log = open_test_log(files)
    append_values(log, b"a")
    name = f"{DIRECTORY}/{layout.LEADER_EPOCH_CHECKPOINT_FILE}"
    begin_leader_epochs(files, DIRECTORY)
    log.abandon()
    log = open_test_log(files, was_clean=False)
    assert [tuple(one) for one in log.epochs.entries] == [(0, 0)]
    assert log.recovery_point == 1
    assert files.synced_state()[name] == b"0\n1\n0 0\n"


def test_a_blank_epoch_checkpoint_of_an_empty_log_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    files = disk()
    open_test_log(files).abandon()
    files.write_new(DIRECTORY / layout.LEADER_EPOCH_CHECKPOINT_FILE, bytes(8))
    with caplog.at_level(logging.INFO):
        log = open_test_log(files, was_clean=False)
    assert (log.epochs.entries, caplog.records) == ((), [])


def test_a_broken_epoch_checkpoint_is_rebuilt_from_the_batches() -> None:
    files = disk()
    log = open_test_log(files)
    for epoch in (1, 4):
        log.start_leader_epoch(epoch)
        append_values(log, b"a")
    log.close()
    overwrite(files, DIRECTORY / "leader-epoch-checkpoint", 0, b"?")
    assert [tuple(one) for one in open_test_log(files).epochs.entries] == [(1, 0), (4, 1)]


def test_damage_after_a_clean_stop_with_a_broken_epoch_checkpoint_does_not_stop_the_start() -> None:
    files = disk()
    log = open_test_log(files)
    for epoch in (1, 4, 6):
        log.start_leader_epoch(epoch)
        append_values(log, b"a")
        if epoch == 4:
            log.roll(NOW_MS)
    log.close()
    overwrite(files, DIRECTORY / "leader-epoch-checkpoint", 0, b"?")
    sealed = DIRECTORY / "00000000000000000000.log"
    overwrite(files, sealed, files.size(sealed) // 2, b"\xff" * 61)
    log = open_test_log(files, recovery_point=3)
    assert [tuple(one) for one in log.epochs.entries] == [(1, 0), (6, 2)]
    assert log.log_end_offset == 3
