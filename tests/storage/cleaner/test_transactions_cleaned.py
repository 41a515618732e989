"""Transactions in a compacted log: aborted records go, markers as long as they are needed and `delete.retention.ms`."""

from __future__ import annotations

import pytest
from kit.cleaning import clean, records_of
from kit.logs import DIRECTORY, NOW_MS, append, batch, disk, open_test_log, sync
from kit.simulated_files import SimulatedFiles
from kit.transactional import transactional_batch

from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import BatchHeader, iter_batches
from ottla.storage.formats import layout
from ottla.storage.log.append import TAKES_TRANSACTIONS
from ottla.storage.log.log import Log
from ottla.storage.producers.transaction_index import (
    AbortedTransaction,
    parse_transaction_index,
)

ONE, TWO = 1000, 2000
RETENTION_MS = 10_000
COMPACT = {"cleanup.policy": "compact", "delete.retention.ms": str(RETENTION_MS)}


def opened(files: SimulatedFiles, **state: bool | int) -> Log:
    return open_test_log(files, COMPACT, **state)  # type: ignore[arg-type]  # handed through


def put(log: Log, producer_id: int, key: bytes, value: bytes = b"v") -> None:
    if producer_id < 0:
        (result,) = append(log, batch(value, key=key))
    else:
        known = log.producers.get(producer_id)
        sequence = 0 if known is None else known.last_sequence + 1
        data = memoryview(transactional_batch(producer_id, sequence, key=key, value=value))
        (result,) = log.append_batches([data], NOW_MS, TAKES_TRANSACTIONS)
    assert result.error_code is ErrorCode.NONE


def end(log: Log, producer_id: int, *, is_commit: bool, epoch: int = 0) -> None:
    result = log.append_marker(producer_id, epoch, is_commit=is_commit, coordinator_epoch=0, now_ms=NOW_MS)
    assert result.error_code is ErrorCode.NONE
    sync(log)
    log.transactions.show(log.high_watermark)


def roll(log: Log) -> None:
    log.roll(NOW_MS)
    sync(log)


def values(log: Log) -> list[tuple[bytes | None, bytes | None]]:
    headers = [header for segment in log.segments for header in headers_of(segment.file.pread(segment.size_bytes, 0))]
    control = {header.base_offset for header in headers if header.is_control}
    return [(one.key, one.value) for one in records_of(log) if one.offset not in control]


def headers_of(data: bytes) -> list[BatchHeader]:
    return [header for _, header in iter_batches(data)]


def markers(log: Log) -> list[tuple[int, bool]]:
    """Offset of each marker, and whether it has its horizon."""
    return [
        (header.base_offset, header.has_delete_horizon)
        for segment in log.segments
        for header in headers_of(segment.file.pread(segment.size_bytes, 0))
        if header.is_control and header.record_count
    ]


def index(log: Log, base_offset: int = 0) -> list[AbortedTransaction]:
    data = log.files.read_bytes(layout.txn_index_file(DIRECTORY, base_offset))
    return parse_transaction_index(data, base_offset, log.log_end_offset)


def test_aborted_records_go_and_supersede_nothing_and_committed_ones_are_records_like_others() -> None:
    log = opened(disk())
    put(log, -1, b"a", b"old")
    put(log, -1, b"b", b"old")
    put(log, ONE, b"a", b"aborted")
    put(log, TWO, b"b", b"committed")
    end(log, ONE, is_commit=False)
    end(log, TWO, is_commit=True)
    put(log, ONE, b"c")
    put(log, TWO, b"c", b"last")
    end(log, ONE, is_commit=True)
    end(log, TWO, is_commit=True)
    roll(log)
    clean(log)
    assert values(log) == [(b"a", b"old"), (b"b", b"committed"), (b"c", b"last")]


def test_a_marker_goes_a_while_after_the_last_batch_of_its_transaction() -> None:
    log = opened(disk())
    put(log, ONE, b"a", b"aborted")
    end(log, ONE, is_commit=False)
    put(log, ONE, b"b")  # so that the producer's last batch is another one
    end(log, ONE, is_commit=True)
    put(log, -1, b"c")
    roll(log)
    aborted = AbortedTransaction(ONE, 0, 1, 2)
    clean(log)
    assert (markers(log), index(log)) == ([(1, False), (3, False)], [aborted])
    assert log.transactions.between(0, 9) == [(ONE, 0)]
    clean(log, now_ms=NOW_MS + 1)
    assert (markers(log), index(log)) == ([(1, True), (3, False)], [])
    assert log.transactions.between(0, 9) == []
    assert not log.transactions.has_aborted
    clean(log, now_ms=NOW_MS + RETENTION_MS)
    assert markers(log) == [(1, True), (3, False)]
    clean(log, now_ms=NOW_MS + 1 + RETENTION_MS)
    assert markers(log) == [(3, False)]
    assert values(log) == [(b"b", b"v"), (b"c", b"v")]


def test_a_marker_of_a_transaction_whose_header_stays_for_its_producer_stays_too() -> None:
    log = opened(disk())
    put(log, ONE, b"a", b"aborted")
    end(log, ONE, is_commit=False)
    put(log, -1, b"c")
    roll(log)
    for _ in range(3):
        clean(log, now_ms=NOW_MS + 5 * RETENTION_MS)
    assert (markers(log), index(log)) == ([(1, False)], [AbortedTransaction(ONE, 0, 1, 2)])
    assert values(log) == [(b"c", b"v")]


def test_the_epoch_of_a_producer_without_a_batch_is_kept_by_its_marker() -> None:
    files = disk()
    log = opened(files)
    end(log, ONE, is_commit=False, epoch=4)
    put(log, -1, b"c")
    roll(log)
    for round_number in range(3):
        clean(log, now_ms=NOW_MS + round_number * RETENTION_MS)
    assert markers(log) == []
    for name in files.list_directory(DIRECTORY):
        if name.endswith(".snapshot"):
            files.unlink(DIRECTORY / name)
    log.abandon()
    log = opened(files, was_clean=False, recovery_point=log.log_end_offset)
    known = log.producers.get(ONE)
    assert known is not None
    assert known.epoch == 4


def test_a_marker_that_is_not_cleaned_decides_about_batches_that_are() -> None:
    log = opened(disk())
    put(log, -1, b"a", b"old")
    put(log, ONE, b"a", b"aborted")
    put(log, TWO, b"b", b"committed")
    roll(log)
    put(log, -1, b"z")
    end(log, ONE, is_commit=False)
    end(log, TWO, is_commit=True)
    clean(log)
    assert values(log) == [(b"a", b"old"), (b"b", b"committed"), (b"z", b"v")]
    assert log.transactions.between(0, 9) == [(ONE, 1)]


def test_nothing_from_the_first_open_transaction_on_is_cleaned() -> None:
    log = opened(disk())
    put(log, -1, b"a", b"1")
    put(log, -1, b"a", b"2")
    roll(log)
    put(log, -1, b"a", b"3")
    put(log, ONE, b"a", b"open")
    put(log, -1, b"a", b"4")
    roll(log)
    clean(log)
    assert values(log) == [(b"a", b"2"), (b"a", b"3"), (b"a", b"open"), (b"a", b"4")]


@pytest.mark.parametrize("is_lost", [True, False])
def test_an_index_that_is_lost_or_wrong_deletes_no_committed_record(is_lost: bool) -> None:
    files = disk()
    log = opened(files)
    put(log, ONE, b"a", b"committed")
    end(log, ONE, is_commit=True)
    put(log, ONE, b"a", b"aborted")
    end(log, ONE, is_commit=False)
    roll(log)
    path = layout.txn_index_file(DIRECTORY, 0)
    if is_lost:
        files.unlink(path)
    else:
        files.write_atomically(
            path, bytes.fromhex("0000 00000000000003e8 0000000000000000 0000000000000003" + "0" * 16)
        )
    log.close()
    log = opened(files)
    clean(log)
    assert values(log) == [(b"a", b"committed")]
