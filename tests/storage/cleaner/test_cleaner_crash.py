"""A machine that stops at any call of a cleaning, and at any call of the start after it, loses no newest record."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from kit.cleaning import clean, newest_by_key, records_of
from kit.logs import DIRECTORY, NOW_MS, append, disk, open_test_log, sync
from kit.simulated_files import CrashPoint, SimulatedFiles

from ottla.protocol.records.batch import Compression, encode_batch
from ottla.protocol.records.record import Record
from ottla.storage.formats import layout
from ottla.storage.log.log import Log
from ottla.storage.recovery.missing_offsets import ANYWHERE

COMPACT = {"cleanup.policy": "compact", "segment.bytes": "2000", "index.interval.bytes": "200"}
SEEDS = range(2)


def filled(files: SimulatedFiles) -> Log:
    """Segments that shrink to one, one that stays as it is, one that loses all; the active one is left."""
    log = open_test_log(files, COMPACT)
    keys = [*(["a", "b", "c"] * 4), *(f"only-{number}" for number in range(5)), *(["d"] * 4), "a", "b", "c", "d"]
    for number, key in enumerate(keys):
        value = None if number == 11 else b"%d:" % number + b"x" * 150
        records = [Record(0, NOW_MS + number, key.encode(), value, ())]
        compression = Compression.GZIP if number % 5 == 0 else Compression.NONE
        producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number // 6} if number % 6 == 0 else {}
        append(log, encode_batch(records, compression=compression, **producer))
        if number % 4 == 3:
            log.roll(NOW_MS)  # so that several become one
    transactions = files.open(layout.txn_index_file(DIRECTORY, log.segments[1].base_offset), create=True)
    transactions.pwritev([b"t" * 34], 0)
    transactions.fdatasync()
    sync(log)
    files.sync_directory(DIRECTORY)
    return log


class Covered:
    """The recovery point in the checkpoint: nothing until the cleaner asks for it."""

    def __init__(self) -> None:
        self.offset = 0

    def __call__(self, offset: int) -> None:
        self.offset = max(self.offset, offset)


def reopened(files: SimulatedFiles, recovery_point: int | None) -> Log:
    """None: the recovery point is lost, and nobody knows any more what was cleaned."""
    if recovery_point is None:
        return open_test_log(files, COMPACT, was_clean=False, gaps_before=ANYWHERE)
    return open_test_log(files, COMPACT, was_clean=False, recovery_point=recovery_point)


def run_until(files: SimulatedFiles, point: int, work: Callable[[], object]) -> bool:
    """Whether `work` came to its end before it made `point` calls."""
    files.crash_at = files.calls + point
    try:
        work()
    except CrashPoint:
        return False
    files.crash_at = None
    return True


def check(log: Log, before: list[Record]) -> None:
    now = records_of(log)
    assert newest_by_key(now) == newest_by_key(before)
    assert set(now) <= set(before)
    assert log.log_end_offset == before[-1].offset + 1
    assert not [name for name in log.files.list_directory(DIRECTORY) if name.endswith((".cleaned", ".swap"))]


def cleaned_records() -> list[Record]:
    log = filled(disk())
    clean(log)
    return records_of(log)


def test_a_crash_at_any_call_of_a_cleaning_leaves_the_old_or_the_new() -> None:
    expected = cleaned_records()
    point = 0
    is_over = False
    while not is_over:
        files = disk()
        log = filled(files)
        before = records_of(log)
        covered = Covered()
        is_over = run_until(files, point, partial(clean, log, cover=covered))
        for seed in SEEDS:
            survivor = files.crash(random.Random(point * 1000 + seed))
            after = reopened(survivor, covered.offset if seed else None)
            check(after, before)
            clean(after)
            assert records_of(after) == expected
            after.close()
        point += 1
    assert point > 80


def test_a_crash_at_any_call_of_a_cleaning_is_distinguished_from_a_loss_without_the_recovery_point() -> None:
    """It is older than the cleaning, and so is the checkpoint of the cleaner: the batches show what was cleaned."""
    point = 0
    is_over = False
    while not is_over:
        files = disk()
        log = filled(files)
        before = records_of(log)
        is_over = run_until(files, point, partial(clean, log))
        after = reopened(files.kill() if point % 2 else files.crash(random.Random(point)), recovery_point=0)
        check(after, before)
        assert not after.recovery.quarantined
        after.close()
        point += 1
    assert point > 80


def with_a_swap_under_way() -> list[tuple[int, int]]:
    """Points and seeds after which a start finds a `.swap` that covers segments which are still there."""
    found = []
    for point in range(20, 110, 2):
        files = disk()
        run_until(files, point, partial(clean, filled(files)))
        names = files.crash(random.Random(point)).list_directory(DIRECTORY)
        bases = [layout.parse_offset_file(name) for name in names if name.endswith(".log")]
        swaps = [layout.parse_offset_file(name) for name in names if name.endswith(".log.swap")]
        if swaps and swaps[0] is not None and len([one for one in bases if one and one.offset >= swaps[0].offset]) > 2:
            found.append((point, point))
    return found


def test_a_crash_at_any_call_of_the_start_after_a_crash_does_no_more_harm() -> None:
    expected = cleaned_records()
    started = with_a_swap_under_way()
    assert len(started) >= 2
    for point, seed in (started[len(started) // 2],):
        again = 0
        is_over = False
        while not is_over:
            files = disk()
            log = filled(files)
            before = records_of(log)
            run_until(files, point, partial(clean, log))
            survivor = files.crash(random.Random(seed))
            is_over = run_until(survivor, again, partial(reopened, survivor, log.synced_offset))
            for second in range(3):
                after = reopened(survivor.crash(random.Random(again * 10 + second)), log.synced_offset)
                check(after, before)
                clean(after)
                assert records_of(after) == expected
            again += 1
