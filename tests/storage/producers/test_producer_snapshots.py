"""What a roll makes known of producers gets to the disk behind it: by a worker, in pieces, and whatever comes between.

The model test at the end lives through rolls, late writes, stops and power cuts, and knows what each producer wrote.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from kit.examples import examples
from kit.logs import DIRECTORY, NOW_MS, append, batch, disk, open_test_log, snapshot_of, sync, write_snapshot
from kit.simulated_files import CrashPoint, SimulatedFiles

from ottla.protocol.errors import ErrorCode
from ottla.storage.formats import layout
from ottla.storage.log.log import Log
from ottla.storage.producers.producer_entry import ProducerEntry
from ottla.storage.producers.producer_snapshots import SnapshotWrite
from ottla.storage.producers.snapshot_format import PRODUCERS_PER_PIECE, encode_snapshot, parse_snapshot


def write(log: Log, producer_id: int, sequence: int, size: int = 10) -> None:
    (result,) = append(log, batch(b"x" * size, producer_id=producer_id, producer_epoch=0, base_sequence=sequence))
    assert result.error_code is ErrorCode.NONE, result


def begun(log: Log, calls: list[int] | None = None) -> SnapshotWrite:
    found = log.begin_snapshot(lambda: (calls if calls is not None else []).append(1))
    assert found is not None
    return found


def snapshots(files: SimulatedFiles) -> list[str]:
    return [name for name in files.list_directory(DIRECTORY) if "snapshot" in name]


def reported(files: SimulatedFiles, offset: int) -> dict[int, int]:
    """Last sequences by producer, as the snapshot at `offset` has them on the disk."""
    data = files.synced_state()[str(layout.snapshot_file(DIRECTORY, offset))]
    return {producer.producer_id: producer.last_sequence for producer in parse_snapshot(data)}


def rolled(files: SimulatedFiles, producers: int = 3, **overrides: str) -> Log:
    """A log with a batch of each producer, which is rolled and synced."""
    log = open_test_log(files, overrides)
    for producer_id in range(producers):
        write(log, producer_id, 0)
    log.roll(NOW_MS)
    sync(log)
    return log


# -- whose work it is


def test_a_roll_touches_no_snapshot_file_and_neither_does_the_sync_behind_it() -> None:
    files = disk()
    rolled(files)
    assert [path for _, path in files.history if "snapshot" in path.name] == []


def test_a_snapshot_has_the_producers_at_the_roll_though_they_continued_before_it_was_written() -> None:
    files = disk()
    log = rolled(files)
    write(log, 0, 1)
    write(log, 9, 0)
    sync(log)
    begun(log).run()
    assert reported(files, 3) == {0: 0, 1: 0, 2: 0}


def test_it_is_encoded_in_pieces_of_so_many_producers_and_pauses_between_them() -> None:
    producers = 2 * PRODUCERS_PER_PIECE + 1
    entries = [ProducerEntry.of(number, 0, ((0, number, 0, 5),), 5) for number in range(producers)]
    assert [len(piece) // 46 for _, piece in encode_snapshot(entries)] == [PRODUCERS_PER_PIECE] * 2 + [1, 0]
    log, calls = rolled(disk(), 2), list[int]()
    log.producer_snapshots.take(2, entries)
    begun(log, calls).run()
    assert len(calls) == 4


def test_each_piece_is_written_before_the_next_one_is_encoded() -> None:
    files = disk()
    log = rolled(files, 2)
    entries = [ProducerEntry.of(number, 0, ((0, number, 0, 5),), 5) for number in range(3 * PRODUCERS_PER_PIECE)]
    log.producer_snapshots.take(2, entries)
    begun(log).run()
    assert files.history.count(("pwritev", layout.snapshot_file(DIRECTORY, 2).with_suffix(".snapshot.tmp"))) == 4
    assert files.synced_state()[str(layout.snapshot_file(DIRECTORY, 2))] == snapshot_of(entries)


# -- when it is written


def test_it_waits_until_what_it_speaks_of_is_on_disk() -> None:
    log = open_test_log(disk())
    write(log, 0, 0)
    log.roll(NOW_MS)
    assert log.begin_snapshot() is None
    sync(log)
    assert begun(log).offset == 1


@pytest.mark.parametrize("seed", range(12))
def test_a_power_cut_leaves_no_snapshot_of_what_it_took(seed: int) -> None:
    files = disk()
    log = rolled(files)
    write(log, 0, 1)
    log.roll(NOW_MS)
    while write_snapshot(log):
        pass
    files = files.crash(random.Random(seed))
    assert snapshots(files) == [layout.snapshot_file(DIRECTORY, 3).name]


def test_two_wait_at_most_the_first_and_the_newest() -> None:
    files = disk()
    log = open_test_log(files)
    for number in range(6):
        write(log, 0, number)
        log.roll(NOW_MS)
    assert log.producer_snapshots.waiting_offsets == [1, 6]
    ahead = log.producer_snapshots.begin(3)
    assert ahead is not None
    assert ahead.offset == 1, "rolls that are faster than syncs do not put it off for ever"


def test_of_those_that_may_be_written_only_the_newest_is() -> None:
    files = disk()
    log = open_test_log(files)
    for number in range(3):
        write(log, 0, number)
        log.roll(NOW_MS)
    sync(log)
    assert write_snapshot(log)
    assert not write_snapshot(log)
    assert snapshots(files) == [layout.snapshot_file(DIRECTORY, 3).name]


def test_one_is_written_at_a_time_and_a_roll_meanwhile_waits() -> None:
    files = disk()
    log = rolled(files)
    first = begun(log)
    write(log, 0, 1)
    log.roll(NOW_MS)
    sync(log)
    assert log.begin_snapshot() is None
    first.run()
    log.end_snapshot(first)
    assert write_snapshot(log)
    assert (reported(files, 3)[0], reported(files, 4)[0]) == (0, 1)


def test_one_that_a_start_has_found_is_not_written_again() -> None:
    files = disk()
    log = open_test_log(files)
    write(log, 0, 0)
    log.close()
    log = open_test_log(files)
    log.roll(NOW_MS)
    assert not write_snapshot(log)
    files.history.clear()
    log.close()
    assert [path for call, path in files.history if "snapshot" in path.name and call != "list_directory"] == []


# -- what goes wrong


def test_a_full_disk_leaves_nothing_behind_and_the_next_roll_writes_one() -> None:
    files = disk()
    log = rolled(files)
    files.fail("pwritev", "*.snapshot.tmp", errno.ENOSPC)
    assert write_snapshot(log)
    assert not write_snapshot(log), "it is not tried again"
    assert snapshots(files) == []
    assert log.error is None
    write(log, 0, 1)
    log.roll(NOW_MS)
    sync(log)
    assert write_snapshot(log)
    assert reported(files, 4)[0] == 1


@pytest.mark.parametrize("call", ["pwritev", "fdatasync", "rename", "sync_directory"])
def test_a_disk_that_fails_ends_writing(call: str) -> None:
    files = disk()
    log = rolled(files)
    ready = begun(log)
    files.fail(call, "*", errno.EIO)
    ready.run()
    log.end_snapshot(ready)
    assert log.error is not None
    assert log.producer_snapshots.synced_offset == -1
    assert log.begin_snapshot() is None


def test_a_start_removes_what_a_stop_in_the_middle_has_left() -> None:
    files = disk()
    log = rolled(files)
    ready = begun(log)
    files.crash_when = lambda call, path: call == "rename"
    with suppress(CrashPoint):
        ready.run()
    files = files.kill()
    assert snapshots(files) == [layout.snapshot_file(DIRECTORY, 3).name + ".tmp"]
    log = open_test_log(files, was_clean=False)
    assert snapshots(files) == []
    assert len(log.producers) == 3


@pytest.mark.parametrize("first", [0, 1, 2])
def test_a_start_goes_on_behind_a_damaged_header_below_the_recovery_point(
    first: int, caplog: pytest.LogCaptureFixture
) -> None:
    files = disk()
    log = rolled(files)
    write(log, 3, 0)
    sync(log)
    files = files.kill()
    size = files.size(DIRECTORY / layout.offset_file_name(0, layout.LOG_SUFFIX)) // 3
    file = files.open(DIRECTORY / layout.offset_file_name(0, layout.LOG_SUFFIX), writable=True)
    file.pwritev([bytes(61)], first * size)
    log = open_test_log(files, was_clean=False, recovery_point=4, high_watermark=4)
    assert {entry.producer_id for entry in log.producers} == {0, 1, 2, 3} - {first}
    assert f"at position {first * size}: zeros where a batch was expected; producers" in caplog.text


# -- what comes between


def test_a_log_that_was_abandoned_gets_no_snapshot_and_says_when_no_thread_writes_one() -> None:
    files = disk()
    log = rolled(files)
    ready, quiet = begun(log), list[str]()
    log.call_when_quiet(lambda: quiet.append("quiet"))
    log.abandon()
    assert quiet == []
    files.rename(DIRECTORY, Path("/data/orders-0.gone-delete"))
    files.make_directory(DIRECTORY)
    ready.run()
    log.end_snapshot(ready)
    assert quiet == ["quiet"]
    assert [name for name in snapshots(files) if not name.endswith(".tmp")] == []
    assert log.begin_snapshot() is None


def test_whether_a_log_is_quiet_is_reported_at_once_where_nothing_is_written() -> None:
    quiet: list[str] = []
    rolled(disk()).call_when_quiet(lambda: quiet.append("quiet"))
    assert quiet == ["quiet"]


def test_a_stop_does_not_wait_for_a_thread_that_still_writes_one() -> None:
    log = rolled(disk())
    begun(log)
    with pytest.raises(RuntimeError, match="producer snapshot"):
        log.close()


def test_a_stop_writes_the_last_one_though_the_end_of_the_one_before_was_not_reported() -> None:
    files = disk()
    log = rolled(files)
    begun(log).run()
    write(log, 0, 1)
    log.close()
    assert reported(files, 4) == {0: 1, 1: 0, 2: 0}


def test_a_stop_is_not_clean_when_the_one_before_had_failed() -> None:
    files = disk()
    log = rolled(files)
    files.fail("fdatasync", "*.snapshot.tmp", errno.EIO)
    begun(log).run()
    with pytest.raises(OSError, match="has failed"):
        log.close()


def test_retention_lets_segments_go_when_the_snapshot_that_is_being_written_is_there() -> None:
    files = disk()
    log = rolled(files, **{"retention.bytes": "0"})
    ready = begun(log)
    assert log.retention.apply(NOW_MS) == []
    ready.run()
    log.end_snapshot(ready)
    assert [segment.base_offset for segment in log.retention.apply(NOW_MS)] == [0]


# -- a model of it


class Life:
    """A log, what its producers wrote, and how much of that is on disk."""

    def __init__(self, chance: random.Random) -> None:
        self.files = disk()
        self.chance = chance
        self.log = open_test_log(self.files, {"retention.bytes": "2000"})
        self.written: list[tuple[int, int]] = []
        """(producer, sequence) of the batch at each offset."""
        self.in_hand: SnapshotWrite | None = None

    def next_sequence(self, producer_id: int, end: int) -> int:
        return sum(producer == producer_id for producer, _ in self.written[:end])

    def append(self, producer_ids: Sequence[int]) -> None:
        for producer_id in producer_ids:
            sequence = self.next_sequence(producer_id, len(self.written))
            write(self.log, producer_id, sequence, 300)
            self.written.append((producer_id, sequence))

    def step(self, operation: str) -> None:
        log = self.log
        match operation:
            case "roll":
                log.roll(NOW_MS)
            case "sync":
                sync(log)
            case "begin":
                self.in_hand = log.begin_snapshot() or self.in_hand
            case "end" if self.in_hand is not None:
                self.in_hand.run()
                log.end_snapshot(self.in_hand)
                self.in_hand = None
            case "retention":
                log.retention.apply(NOW_MS)
            case "stop" if self.in_hand is None:
                log.close()
                self.open(was_clean=True)

    def loss(self, kind: str, calls: int, operation: str) -> None:
        """The process or the machine stops, at one of the next calls to the disk that this operation makes."""
        last = self.files.changes + calls
        self.files.crash_when = lambda call, path, files=self.files: files.changes > last
        with suppress(CrashPoint):
            self.step(operation)
        self.in_hand = None
        synced = self.log.synced_offset
        self.files = self.files.kill() if kind == "kill" else self.files.crash(self.chance)
        self.open(was_clean=False)
        assert synced <= self.log.log_end_offset <= len(self.written)
        del self.written[self.log.log_end_offset :]

    def open(self, *, was_clean: bool) -> None:
        start, mark = self.log.log_start_offset, self.log.high_watermark
        self.log = open_test_log(
            self.files,
            {"retention.bytes": "2000"},
            was_clean=was_clean,
            log_start_offset=start,
            high_watermark=mark,
            recovery_point=self.log.recovery_point,
        )

    def check(self) -> None:
        end = self.log.log_end_offset
        assert end == len(self.written)
        known = {producer.producer_id: producer for producer in self.log.producers}
        assert set(known) == {producer for producer, _ in self.written}
        for producer_id, producer in known.items():
            batches = [(at, number) for at, (one, number) in enumerate(self.written) if one == producer_id]
            # (Its own snapshots tell of all five, so that nothing is forgotten, whatever retention has deleted.)
            assert [(one.base_offset, one.last_sequence) for one in producer.batches] == batches[-5:]


OPERATIONS = ["roll", "sync", "begin", "end", "retention", "stop"]
WEIGHTS = [3, 4, 3, 3, 2, 0.3]


@settings(max_examples=examples(250), deadline=None)
@given(st.integers(0, 2**32))
def test_a_start_knows_every_producer_whatever_was_on_its_way_when_it_stopped(seed: int) -> None:
    chance = random.Random(seed)
    life = Life(chance)
    for _ in range(60):
        (operation,) = chance.choices(OPERATIONS, WEIGHTS)
        if chance.random() < 0.4:
            life.append([chance.randrange(6) for _ in range(chance.randint(1, 4))])
        elif chance.random() < 0.1:
            life.loss(chance.choice(["kill", "power"]), chance.randrange(10), operation)
        else:
            life.step(operation)
        life.check()
