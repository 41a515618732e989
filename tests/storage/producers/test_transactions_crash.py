"""A power cut, or a kill, at each call that changes the disk: the next start knows which transactions are open and
which were aborted, though the index of the aborted ones is written behind.
"""

from __future__ import annotations

import errno
import random

import pytest
from kit.logs import DIRECTORY, NOW_MS, append_values, disk, open_test_log, sync, write_snapshot
from kit.simulated_files import CrashPoint, SimulatedFiles
from kit.transactional import transactional_batch

from ottla.protocol.errors import ErrorCode
from ottla.storage.formats import layout
from ottla.storage.log.append import TAKES_TRANSACTIONS
from ottla.storage.log.log import Log
from ottla.storage.producers.transaction_index import ENTRIES_BEHIND, ENTRY, parse_transaction_index

ONE, TWO, THREE = 1000, 2000, 3000


class Life:
    """A log, and what was appended to it: (offset, producer id, what it does)."""

    def __init__(self) -> None:
        self.files: SimulatedFiles = disk()
        self.log: Log = open_test_log(self.files)
        self.appended: list[tuple[int, int, str]] = []

    def write(self, producer_id: int) -> None:
        known = self.log.producers.get(producer_id)
        batch = transactional_batch(producer_id, 0 if known is None else known.last_sequence + 1)
        offset = self.log.log_end_offset
        self.appended.append((offset, producer_id, "write"))
        (result,) = self.log.append_batches([memoryview(batch)], NOW_MS, TAKES_TRANSACTIONS)
        assert (result.error_code, result.base_offset) == (ErrorCode.NONE, offset)

    def end(self, producer_id: int, *, is_commit: bool) -> None:
        self.appended.append((self.log.log_end_offset, producer_id, "commit" if is_commit else "abort"))
        result = self.log.append_marker(producer_id, 0, is_commit=is_commit, coordinator_epoch=0, now_ms=NOW_MS)
        assert result.error_code is ErrorCode.NONE

    def show(self) -> None:
        sync(self.log)
        self.log.transactions.show(self.log.high_watermark)

    def roll(self) -> None:
        self.log.roll(NOW_MS)

    def run(self) -> None:
        """Three segments, snapshots, and the first segment is deleted while a transaction that began in it is open."""
        self.write(ONE)
        self.write(TWO)
        self.end(ONE, is_commit=False)
        self.show()
        self.roll()
        self.write(THREE)
        self.show()
        write_snapshot(self.log)
        self.end(TWO, is_commit=False)
        self.write(ONE)
        self.roll()
        self.end(ONE, is_commit=True)
        self.write(TWO)
        self.end(TWO, is_commit=False)
        self.show()
        self.log.delete_records(3)
        self.log.retention.apply(NOW_MS)
        self.log.retention.unlink_due(NOW_MS + 10**9)
        self.write(ONE)
        self.end(ONE, is_commit=False)
        self.show()
        self.log.close()

    def expected(self, end_offset: int) -> tuple[dict[int, int], list[tuple[int, int, int]]]:
        """What is open in a log that ends there, and (producer, first, last offset) of the aborted transactions."""
        open_offsets: dict[int, int] = {}
        aborted = []
        for offset, producer_id, what in self.appended:
            if offset >= end_offset:
                break
            if what == "write":
                open_offsets.setdefault(producer_id, offset)
            else:
                first_offset = open_offsets.pop(producer_id)
                aborted += [(producer_id, first_offset, offset)] if what == "abort" else []
        return open_offsets, aborted


def changes_of_a_life() -> int:
    life = Life()
    before = life.files.changes
    life.run()
    return life.files.changes - before


CHANGES = changes_of_a_life()


@pytest.mark.parametrize("is_power_cut", [False, True])
@pytest.mark.parametrize("stops_at", range(1, CHANGES + 2))
def test_a_start_after_a_stop_at_any_change_knows_all_transactions(stops_at: int, is_power_cut: bool) -> None:
    for seed in range(4 if is_power_cut else 1):
        life = Life()
        last = life.files.changes + stops_at
        files = life.files
        files.crash_when = lambda _kind, _path, files=files, last=last: files.changes >= last
        was_clean = False
        try:
            life.run()
            was_clean = True
        except CrashPoint:
            pass
        recovery_point, log_start_offset = life.log.recovery_point, life.log.log_start_offset
        visible = life.log.high_watermark
        files = files.crash(random.Random(seed)) if is_power_cut else files.kill()
        for is_second_start in (False, True):
            log = open_test_log(
                files,
                was_clean=was_clean or is_second_start,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
            )
            assert log.log_end_offset >= visible
            open_offsets, aborted = life.expected(log.log_end_offset)
            assert log.transactions.open_offsets == open_offsets
            known = [one[:3] for one in log.transactions.aborted_from(log.log_start_offset)]
            assert known == [one for one in aborted if one[2] >= log.log_start_offset]
            log.close()
            files = files.kill()


def test_entries_are_written_when_many_wait_and_before_a_snapshot_has_its_name() -> None:
    life = Life()
    path = layout.txn_index_file(DIRECTORY, 0)
    for number in range(ENTRIES_BEHIND + 1):
        life.write(number)
        life.end(number, is_commit=False)
        assert life.files.exists(path) is (number + 1 >= ENTRIES_BEHIND)
    assert life.files.size(path) == ENTRIES_BEHIND * ENTRY.size
    life.roll()
    life.show()
    write_snapshot(life.log)
    names = [(kind, found.suffix) for kind, found in life.files.history]
    assert ("fdatasync", ".txnindex") in names
    data = life.files.synced_state()[str(path)]
    assert len(parse_transaction_index(data, 0, life.log.log_end_offset)) == ENTRIES_BEHIND + 1


def test_without_room_for_the_index_no_snapshot_is_written_until_there_is() -> None:
    life = Life()
    life.write(ONE)
    life.end(ONE, is_commit=False)
    full = life.files.fail("pwritev", "*.txnindex", errno.ENOSPC, times=None)
    life.roll()
    life.show()
    assert not write_snapshot(life.log)
    assert life.log.recovery_point == 0  # the segment is not finished
    life.files.heal(full)
    append_values(life.log, b"later")
    life.show()
    assert life.log.recovery_point == life.log.log_end_offset
    assert write_snapshot(life.log)


def test_a_torn_index_of_zeros_is_rebuilt_from_the_batches() -> None:
    life = Life()
    life.write(ONE)
    life.write(TWO)
    life.end(TWO, is_commit=False)
    life.show()
    life.log.abandon()
    files = life.files.kill()
    files.write_atomically(layout.txn_index_file(DIRECTORY, 0), bytes(3 * ENTRY.size))
    log = open_test_log(files, was_clean=False, recovery_point=life.log.recovery_point)
    assert [one[:3] for one in log.transactions.aborted_from(0)] == [(TWO, 1, 2)]


@pytest.mark.parametrize("seed", range(8))
def test_an_index_that_a_killed_process_has_left_unsynced_is_on_disk_before_a_snapshot_relies_on_it(seed: int) -> None:
    life = Life()
    life.write(TWO)
    life.write(ONE)
    life.roll()
    life.show()
    life.end(ONE, is_commit=False)
    write_snapshot(life.log)  # of the roll; the entry of the marker after it is written, and not synced
    path = layout.txn_index_file(DIRECTORY, 2)
    assert (life.files.size(path), life.files.synced_state().get(str(path), b"")) == (ENTRY.size, b"")
    life.log.abandon()
    files = life.files.kill()
    life.log = open_test_log(files, was_clean=False, recovery_point=life.log.recovery_point)
    life.roll()
    life.show()
    write_snapshot(life.log)
    recovery_point = life.log.recovery_point
    log = open_test_log(files.crash(random.Random(seed)), was_clean=False, recovery_point=recovery_point)
    assert [one[:3] for one in log.transactions.aborted_from(0)] == [(ONE, 1, 2)]
