"""What a start makes of missing offsets: a cleaning, or a loss."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from kit.cleaning import clean, records_of
from kit.clock import ManualClock
from kit.exchange import STAMP_MS, Exchange, make_topic, produce_request
from kit.logs import DIRECTORY, NOW_MS, append, batch, disk, open_test_log, stored, sync
from kit.nodes import DATA, pass_time, start_node
from kit.simulated_files import CrashPoint, SimulatedFiles

from ottla.broker.node import Node
from ottla.protocol.records.batch import encode_batch, iter_batches
from ottla.protocol.records.record import Record
from ottla.storage.formats import layout
from ottla.storage.formats.checkpoint import read_offsets, write_offsets
from ottla.storage.formats.directory_format import FORMAT_VERSION, read_format
from ottla.storage.formats.layout import TopicPartition
from ottla.storage.log.log import Log
from ottla.storage.recovery.missing_offsets import ANYWHERE, gaps_before
from ottla.storage.tools.verify_findings import Counts, Promises
from ottla.storage.tools.verify_log import PartitionVerification

COMPACT = {"cleanup.policy": "compact", "segment.bytes": "1024"}
KEYS: dict[str, object] = {"log_segment_bytes": 1024}
ONE = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("may_be_cleaned", "clean_offset", "recovery_point", "keeps_order", "expected"),
    [
        (False, None, 70, True, 0),
        (False, None, None, False, 0),
        (True, None, None, True, 0),  # a log that is new
        (True, None, 70, True, 70),
        (True, 40, 70, True, 70),
        (True, 80, 70, True, 80),
        (True, 40, None, True, ANYWHERE),
        (True, None, 70, False, ANYWHERE),
        (True, None, None, False, ANYWHERE),
    ],
)
def test_missing_offsets_are_cleaned_ones_below_the_recovery_point_and_where_it_is_unknown(
    may_be_cleaned: bool, clean_offset: int | None, recovery_point: int | None, keeps_order: bool, expected: int
) -> None:
    found = gaps_before(
        may_be_cleaned=may_be_cleaned,
        clean_offset=clean_offset,
        recovery_point=recovery_point,
        keeps_order=keeps_order,
    )
    assert found == expected


def test_of_two_rows_that_say_how_far_a_log_was_on_disk_the_larger_one_counts() -> None:
    """A bit of either may have flipped; a smaller one would end the log where the cleaner was."""
    for recovery_point, synced_offset in ((70, 0), (2, 70), (70, 2)):
        found = gaps_before(
            may_be_cleaned=True,
            clean_offset=None,
            recovery_point=recovery_point,
            keeps_order=True,
            synced_offset=synced_offset,
        )
        assert found == 70


def with_a_torn_roll(value: bytes = b"x" * 200) -> tuple[SimulatedFiles, Log]:
    """Offsets 0 and 1 are synced; 2 is not, nor is 3 of its producer, which is in the next segment."""
    files = disk()
    log = open_test_log(files, COMPACT)
    append(log, batch(value), batch(value))
    sync(log)
    append(log, batch(value, producer_id=7, producer_epoch=0, base_sequence=0))
    append(log, batch(value, producer_id=7, producer_epoch=0, base_sequence=1))
    assert [segment.base_offset for segment in log.segments] == [0, 3]
    return files, log


def lose_the_end_of_the_first_segment(files: SimulatedFiles, log: Log) -> SimulatedFiles:
    """A power cut that took what was not synced of the first segment, and nothing else."""
    files.open(layout.log_file(DIRECTORY, 0), writable=True).truncate(2 * (log.segments[0].size_bytes // 3))
    return files.kill()


def test_the_lost_end_of_a_segment_is_not_taken_for_a_cleaned_one() -> None:
    """The next segment, and the snapshot at its base, tell of a batch that is gone."""
    files, log = with_a_torn_roll()
    again = open_test_log(
        lose_the_end_of_the_first_segment(files, log), COMPACT, was_clean=False, recovery_point=2, gaps_before=2
    )
    assert again.log_end_offset == 2
    assert list(stored(again)) == [0, 1]
    assert again.producers.get(7) is None
    assert again.recovery.quarantined == [f"{layout.log_file(DIRECTORY, 3).name}.corrupt-{NOW_MS}"]
    append(again, batch(b"again", producer_id=7, producer_epoch=0, base_sequence=0))
    assert stored(again)[2] == b"again"


def test_an_empty_segment_behind_a_lost_end_is_nothing_to_keep() -> None:
    files, log = with_a_torn_roll()
    files.open(layout.log_file(DIRECTORY, 3), writable=True).truncate(0)
    again = open_test_log(
        lose_the_end_of_the_first_segment(files, log), COMPACT, was_clean=False, recovery_point=2, high_watermark=2
    )
    assert again.log_end_offset == 2
    assert not again.recovery.quarantined
    assert layout.log_file(DIRECTORY, 3).name not in files.list_directory(DIRECTORY)


def test_a_lost_end_below_the_high_watermark_is_a_broken_promise_and_is_quarantined(
    caplog: pytest.LogCaptureFixture,
) -> None:
    files, log = with_a_torn_roll()
    files.open(layout.log_file(DIRECTORY, 3), writable=True).truncate(0)
    again = open_test_log(
        lose_the_end_of_the_first_segment(files, log), COMPACT, was_clean=False, recovery_point=2, high_watermark=3
    )
    assert again.recovery.quarantined
    assert again.recovery.lost_below_high_watermark
    assert "no batch between offset 2 and 3" in caplog.text


@pytest.mark.parametrize("first_offset", [1, 1 << 40])
def test_a_first_batch_that_says_a_later_offset_than_its_segment_is_damage_where_nothing_was_cleaned(
    first_offset: int,
) -> None:
    """No checksum covers the offset: a flipped bit in it leaves a sound batch at a place that is not its own."""
    files = disk()
    log = open_test_log(files)
    append(log, batch(b"first"), batch(b"second"))
    sync(log)
    path = layout.log_file(DIRECTORY, 0)
    files.open(path, writable=True).pwritev([first_offset.to_bytes(8, "big")], 0)
    spoilt = files.read_bytes(path)
    again = open_test_log(files.kill(), was_clean=False, high_watermark=2)
    assert again.recovery.gap == (0, 2)
    (aside,) = again.recovery.quarantined
    assert again.files.read_bytes(DIRECTORY / aside) == spoilt


def test_what_the_cleaner_took_is_no_loss_at_any_recovery_point_that_it_leaves() -> None:
    files = disk()
    log = open_test_log(files, COMPACT)
    for number in range(12):
        append(log, batch(b"%d" % number * 150, key=b"once" if number < 2 else b"often"))
    sync(log)
    points: list[int] = []
    clean(log, cover=points.append)
    kept = stored(log)
    assert points == [log.segments[-1].base_offset]
    assert len(kept) < 6
    for seed in range(5):
        append(log, batch(b"more", key=b"new %d" % seed))
        sync(log)
        survivor = files.crash(random.Random(seed))
        again = open_test_log(survivor, COMPACT, was_clean=False, recovery_point=points[0])
        assert not again.recovery.quarantined
        assert stored(again).items() >= kept.items()
        files, log = survivor, again


def cleaned_in_many_groups() -> tuple[SimulatedFiles, Log]:
    """Segments that are too large to be joined, and the cleaner took the last offsets of each."""
    files = disk()
    log = open_test_log(files, COMPACT)
    for number in range(9):
        append(log, batch(b"%d" % number * 240, key=b"often" if number % 3 else b"once %d" % number))
        if number % 3 == 2:
            log.roll(NOW_MS)
    append(log, batch(b"newest", key=b"often"))
    log.roll(NOW_MS)
    sync(log)
    clean(log)
    return files, log


@pytest.mark.parametrize("recovery_point", range(10))
def test_a_cleaned_segment_reaches_up_to_the_next_one(recovery_point: int) -> None:
    """A gap at its end would look like one that a power cut has left where the recovery point is too old."""
    files, log = cleaned_in_many_groups()
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 9, 10]
    assert list(stored(log)) == [0, 3, 6, 9]
    for segment, following in pairwise(log.segments):
        *_, (_, last) = iter_batches(segment.file.pread(segment.size_bytes, 0))
        assert last.next_offset == following.base_offset
    again = open_test_log(
        files.kill(), COMPACT, was_clean=False, recovery_point=recovery_point, gaps_before=recovery_point
    )
    assert not again.recovery.quarantined
    assert (again.log_end_offset, list(stored(again))) == (10, [0, 3, 6, 9])


def cleaned_log() -> tuple[SimulatedFiles, Log]:
    """Segments from which the cleaner took offsets at the beginning, in the middle and at the end, and one behind."""
    files = disk()
    log = open_test_log(files, COMPACT)
    for number in range(16):
        key = b"once %d" % number if number in {0, 6, 7, 10} else b"often"
        append(log, batch(b"%d" % (number % 10) * 150, key=key))
    sync(log)
    clean(log)
    sync(log)
    return files, log


def test_batches_show_themselves_that_the_cleaner_was_there_when_the_recovery_point_is_too_old() -> None:
    """As Kafka leaves it, killed while it cleans our directory, and as an old checkpoint that was put back does."""
    files, log = cleaned_log()
    kept, end_offset = stored(log), log.log_end_offset
    assert [segment.base_offset for segment in log.segments][:2] != [0, 3], "the cleaner took nothing"
    assert set(kept) < set(range(end_offset))
    for recovery_point in range(end_offset + 1):
        again = open_test_log(
            files.kill(), COMPACT, was_clean=False, recovery_point=recovery_point, gaps_before=recovery_point
        )
        assert not again.recovery.quarantined, recovery_point
        assert (again.log_end_offset, stored(again)) == (end_offset, kept)


@pytest.mark.parametrize("recovery_point", [0, 2, 9])
def test_the_verification_knows_too_what_the_batches_show(recovery_point: int) -> None:
    files, log = cleaned_log()
    log.abandon()
    promises = Promises(recovery_point, 0, was_clean=False, allows_gaps=True, gaps_before=recovery_point)
    going = PartitionVerification(files, DIRECTORY, promises, Counts(), lambda *_: None)
    assert [finding for finding in going.run() if "missing" in finding.problem] == []
    assert going.has_gaps


@pytest.mark.parametrize("bit", [1, 2, 3, 10, 40])
def test_an_offset_that_a_flipped_bit_made_larger_is_not_taken_for_the_cleaners_work(bit: int) -> None:
    """No checksum covers it; but what follows goes on from the true one."""
    files = disk()
    log = open_test_log(files, COMPACT)
    batches = [batch(b"v" * 100, key=b"%d" % number) for number in range(4)]
    append(log, *batches)
    sync(log)
    second_at = len(batches[0])
    files.open(layout.log_file(DIRECTORY, 0), writable=True).pwritev([(1 | 1 << bit).to_bytes(8, "big")], second_at)
    again = open_test_log(files.kill(), COMPACT, was_clean=False)
    assert list(stored(again)) == [0]
    assert again.recovery.quarantined


def test_a_recovery_point_does_not_go_back_when_a_segment_is_rolled_while_a_sync_runs() -> None:
    """What lies below it may have been cleaned meanwhile, and a start looks at the segment that it lies in anyway."""
    log = open_test_log(disk(), COMPACT)
    append(log, batch(b"1"), batch(b"2"))
    sync(log)
    append(log, batch(b"3"))
    ticket = log.begin_sync()
    assert ticket is not None
    ticket.run()
    log.roll(NOW_MS)
    log.end_sync(ticket)
    assert log.recovery_point == 2


def left_by_kafka() -> tuple[SimulatedFiles, ManualClock, list[int]]:
    """A compacted log with offsets missing beyond its recovery point, as Kafka may leave it; and what it holds."""
    node, files, clock = start_node(**KEYS)
    make_topic(node, "t", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    for number in range(8):
        record = Record(0, STAMP_MS, b"once" if number == 0 else b"often", b"v" * 900, ())
        Exchange(node).ask(produce_request("t", bytes(encode_batch([record]))), 9)
    pass_time(node, clock, 60_000)
    kept = offsets_in(node)
    assert kept[0] == 0
    assert len(kept) < 8
    files = files.crash(random.Random(1))
    for name in (layout.FORMAT_FILE, layout.CLEANER_OFFSET_CHECKPOINT_FILE, layout.INDEX_OFFSET_CHECKPOINT_FILE):
        if files.exists(DATA / name):
            files.unlink(DATA / name)
    write_offsets(files, DATA / layout.RECOVERY_POINT_CHECKPOINT_FILE, {ONE: 0})
    files.sync_directory(DATA)
    return files, clock, kept


def offsets_in(node: Node) -> list[int]:
    partition = node.services.catalog.partition("t", 0)
    assert partition is not None
    return [record.offset for record in records_of(partition.log)]


def test_in_kafkas_directory_no_missing_offset_is_a_loss_until_a_start_has_recovered_all_of_it() -> None:
    files, clock, kept = left_by_kafka()
    node, files, clock = start_node(files, clock, **KEYS)
    assert offsets_in(node) == kept
    assert read_format(files, DATA) == FORMAT_VERSION
    assert read_offsets(files, DATA / layout.RECOVERY_POINT_CHECKPOINT_FILE)[ONE] == 8
    node, _, _ = start_node(files.crash(random.Random(2)), clock, **KEYS)
    assert offsets_in(node) == kept


def test_a_first_start_on_kafkas_directory_may_be_cut_short_anywhere() -> None:
    point, is_over = 0, False
    while not is_over:
        files, clock, kept = left_by_kafka()
        files.crash_at = files.calls + point
        try:
            start_node(files, clock, **KEYS)
            is_over = True
        except CrashPoint:
            point += 3
        node, _, _ = start_node(files.crash(random.Random(point)), clock, **KEYS)
        assert offsets_in(node) == kept
    assert point > 60
