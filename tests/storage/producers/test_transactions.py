"""Transactions that Apache Kafka left in a directory: which records readers of committed records may not see."""

from __future__ import annotations

import errno
import random
import sys
from collections.abc import Callable
from types import FrameType

import pytest
from kit.kafka_segments import ONE, TWO, Kafka, aborted_and_committed
from kit.logs import DIRECTORY, NOW_MS, append_values, disk, open_test_log, sync, write_snapshot
from kit.transactional import transactional_batch

from ottla.storage.formats import layout
from ottla.storage.log.append import TAKES_TRANSACTIONS, TAKES_ZSTD
from ottla.storage.log.log import Log
from ottla.storage.producers import producer_state
from ottla.storage.producers.producer_entry import ProducerEntry
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.producers.transaction_index import (
    AbortedTransaction,
    CorruptTransactionIndex,
    encode_transaction_index,
    parse_transaction_index,
)
from ottla.storage.producers.transactions import NONE_OPEN, LogTransactions


@pytest.fixture
def kafka() -> Kafka:
    return aborted_and_committed()


ABORTED = AbortedTransaction(ONE, 0, 3, 2)


def test_an_index_is_read_and_trusted_after_a_clean_stop(kafka: Kafka) -> None:
    kafka.index(0, ABORTED)
    log = kafka.open()
    assert log.transactions.between(0, 6) == [(ONE, 0)]
    assert log.transactions.between(4, 6) == []
    assert log.transactions.first_open_offset == NONE_OPEN
    assert kafka.stored() == encode_transaction_index([ABORTED])


def test_what_a_crash_kept_from_the_index_is_found_in_the_batches_and_added(kafka: Kafka) -> None:
    log = kafka.open(was_clean=False)
    assert log.transactions.between(0, 6) == [(ONE, 0)]
    assert kafka.stored() == encode_transaction_index([ABORTED])
    log.close()
    again = open_test_log(kafka.files.kill())
    assert again.transactions.between(0, 6) == [(ONE, 0)]


def snapshot_behind(log: Log) -> None:
    """A producer snapshot on disk of what is after the marker: the next start does not look at that any more."""
    log.roll(NOW_MS)
    append_values(log, b"later")
    sync(log)
    assert write_snapshot(log)


@pytest.mark.parametrize("seed", range(8))
def test_an_index_that_was_written_and_not_synced_before_a_kill_is_synced_by_the_start(seed: int) -> None:
    """What the start has found in the page cache is not on disk, and the next snapshot relies on it."""
    files = disk()
    log = open_test_log(files)
    log.append_batches([memoryview(transactional_batch(ONE, 0))], NOW_MS, TAKES_ZSTD | TAKES_TRANSACTIONS)
    log.append_marker(ONE, 0, is_commit=False, coordinator_epoch=0, now_ms=NOW_MS)
    sync(log)
    log.unsynced.transaction_indexes.write()
    again = open_test_log(files.kill(), was_clean=False, recovery_point=2)
    snapshot_behind(again)
    survivor = open_test_log(files.crash(random.Random(seed)), was_clean=False, recovery_point=3)
    assert survivor.transactions.between(0, 2) == [(ONE, 0)]


@pytest.mark.parametrize("seed", range(4))
def test_a_start_without_room_writes_the_index_later(kafka: Kafka, seed: int) -> None:
    kafka.files.fail("open", "*.txnindex.tmp", errno.ENOSPC)
    log = kafka.open(was_clean=False)
    assert log.transactions.between(0, 6) == [(ONE, 0)]
    assert not kafka.files.exists(layout.txn_index_file(DIRECTORY, 0))
    snapshot_behind(log)
    again = open_test_log(kafka.files.crash(random.Random(seed)), was_clean=False, recovery_point=log.log_end_offset)
    assert again.transactions.between(0, 6) == [(ONE, 0)]


@pytest.mark.parametrize(
    "damaged",
    [
        encode_transaction_index([ABORTED])[:-1],
        b"\0\1" + encode_transaction_index([ABORTED])[2:],
        encode_transaction_index([ABORTED._replace(producer_id=-5)]),
        encode_transaction_index([ABORTED._replace(first_offset=9)]),
    ],
)
def test_an_index_that_cannot_be_read_is_rebuilt_from_all_batches(
    kafka: Kafka, damaged: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.open().close()  # a snapshot at the end: no start looks at the batches by itself any more
    kafka.put(layout.TXN_INDEX_SUFFIX, 0, damaged)
    log = open_test_log(kafka.files)
    assert log.transactions.between(0, 6) == [(ONE, 0)]
    assert kafka.stored() == encode_transaction_index([ABORTED])
    assert "00000000000000000000.txnindex: " in caplog.text


@pytest.mark.parametrize("seed", range(6))
def test_an_index_that_alone_has_kept_the_name_of_a_deletion_is_written_again(kafka: Kafka, seed: int) -> None:
    """Retention had renamed all files of the segment, and a power cut has kept that of the index alone."""
    kafka.open().close()
    index = layout.txn_index_file(DIRECTORY, 0)
    kafka.files.rename(index, index.with_name(index.name + layout.DELETED_SUFFIX))
    kafka.files.sync_directory(DIRECTORY)
    files = kafka.files.kill()
    first = open_test_log(files, was_clean=False, recovery_point=6)
    assert first.transactions.between(0, 6) == [(ONE, 0)]
    files = files.crash(random.Random(seed))
    again = open_test_log(files, was_clean=False, recovery_point=6)
    assert again.transactions.between(0, 6) == [(ONE, 0)]
    assert [name for name in files.list_directory(DIRECTORY) if name.endswith(layout.DELETED_SUFFIX)] == []


def test_an_index_of_a_segment_that_was_replaced_goes_with_it(kafka: Kafka) -> None:
    kafka.open().close()
    for suffix in (layout.LOG_SUFFIX, layout.TXN_INDEX_SUFFIX):
        kafka.put(suffix + layout.DELETED_SUFFIX, 0, encode_transaction_index([ABORTED]))
    kafka.put(layout.TXN_INDEX_SUFFIX, 0, b"")
    log = open_test_log(kafka.files)
    assert log.transactions.between(0, 6) == []
    assert [name for name in kafka.files.list_directory(DIRECTORY) if name.endswith(layout.DELETED_SUFFIX)] == []


def test_an_open_transaction_is_remembered_over_clean_and_unclean_stops(
    kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    kafka.index(0, ABORTED)
    kafka.records(TWO, 3)
    log = kafka.open(was_clean=False)
    assert log.transactions.first_open_offset == 6
    assert "a transaction of producer 2000 is open since offset 6" in caplog.text
    append_values(log, b"later")
    log.close()
    files = kafka.files
    for was_clean in (True, False):
        again = open_test_log(files, was_clean=was_clean)
        assert again.transactions.first_open_offset == 6
        again.close()


def test_entries_lie_beside_the_marker_and_beyond_the_log_end_they_go(kafka: Kafka) -> None:
    kafka.records(TWO)  # 6
    kafka.roll()
    kafka.records(TWO)  # 7
    kafka.abort(TWO)  # 8
    second = AbortedTransaction(TWO, 6, 8, 9)
    kafka.index(0, ABORTED)
    kafka.index(7, second, AbortedTransaction(ONE, 9, 12, 13))
    log = kafka.open(was_clean=False)
    assert log.transactions.between(0, 9) == [(ONE, 0), (TWO, 6)]
    assert (kafka.stored(0), kafka.stored(7)) == (
        encode_transaction_index([ABORTED]),
        encode_transaction_index([second]),
    )


def test_an_index_without_its_segment_speaks_for_none_that_comes_later(kafka: Kafka) -> None:
    kafka.index(0, ABORTED)
    kafka.segments[9] = bytearray(b"\xff" * 100)  # behind a hole, so that a start sets it aside
    kafka.index(9, AbortedTransaction(TWO, 9, 9, 10))
    log = kafka.open(was_clean=False)
    assert log.log_end_offset == 6
    assert not kafka.files.exists(layout.txn_index_file(DIRECTORY, 9))


def test_a_log_without_transactions_gets_no_index() -> None:
    kafka = Kafka()
    kafka.records(ONE, is_transactional=False)
    log = kafka.open(was_clean=False)
    assert not log.transactions.has_aborted
    assert [name for name in kafka.files.list_directory(DIRECTORY) if name.endswith(".txnindex")] == []


def test_a_long_transaction_is_found_behind_shorter_ones_that_ended_before_it() -> None:
    transactions = LogTransactions(
        [AbortedTransaction(1, 10, 20, 0), AbortedTransaction(2, 30, 40, 0), AbortedTransaction(3, 5, 50, 0)]
    )
    assert transactions.between(0, 8) == [(3, 5)]
    assert transactions.between(25, 26) == [(3, 5)]
    assert transactions.between(15, 35) == [(1, 10), (2, 30), (3, 5)]
    assert transactions.between(51, 99) == []


def test_an_entry_reads_as_kafka_writes_it() -> None:
    data = bytes.fromhex("0000 00000000000003e8 0000000000000005 0000000000000009 000000000000000a")
    entry = AbortedTransaction(1000, 5, 9, 10)
    assert parse_transaction_index(data, 0, 10) == [entry]
    assert encode_transaction_index([entry]) == data
    with pytest.raises(CorruptTransactionIndex, match="in a segment of offsets 10 to 19"):
        parse_transaction_index(data, 10, 20)


def opened(count: int) -> LogTransactions:
    transactions = LogTransactions()
    for number in range(count):
        transactions.begin([ProducerEntry.of(number, 0, [], 0, -1, 10 * number)])
    return transactions


def test_many_open_transactions_cost_no_more_than_few() -> None:
    def steps(count: int) -> int:
        """Lines of Python that ten ends take, of those that began in the middle, first and last."""
        transactions = opened(count)
        lines = 0

        def tracing(frame: FrameType, event: str, _: object) -> Callable[..., object]:
            nonlocal lines
            lines += event == "line"
            return tracing

        sys.settrace(tracing)
        try:
            for number, producer_id in enumerate(
                (0, 1, 2, count // 2, count // 2 + 1, count - 3, count - 2, count - 1)
            ):
                marker = 10 * count + number
                transactions.end(producer_id, marker, is_aborted=bool(number % 2))
                transactions.show(marker + 1)
        finally:
            sys.settrace(None)
        assert transactions.first_open_offset == 30
        return lines

    assert steps(10_000) == steps(100)


def test_ends_in_the_reverse_order_are_found_by_every_reader() -> None:
    count = 200
    transactions = opened(count)
    for number in reversed(range(count)):
        transactions.end(number, 10 * count + count - number, is_aborted=True)
        transactions.show(20 * count)
    assert transactions.between(0, 10 * count) == [(number, 10 * number) for number in reversed(range(count))]
    assert transactions.between(0, 11) == [(1, 10), (0, 0)]
    assert transactions.first_open_offset == NONE_OPEN


def test_a_list_ends_where_the_last_stable_offset_has_passed_what_is_read() -> None:
    transactions = LogTransactions([AbortedTransaction(1, 10 * n, 10 * n + 5, 10 * n + 6) for n in range(1000)])
    assert transactions.between(5_000, 5_020) == [(1, 5_000), (1, 5_010)]


def test_producers_with_an_open_transaction_are_not_forgotten_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "MAX_PRODUCERS", 100)
    states = ProducerStates(10**9)
    states.publish(ProducerEntry.of(7, 0, [(0, 5, 0, 0)], 0, -1, 5))
    for number in range(1000, 1500):
        states.publish(ProducerEntry.of(number, 0, [(0, number, 0, 0)], 0))
    assert len(states) <= 101
    known = states.get(7)
    assert known is not None
    assert known.current_txn_first_offset == 5
