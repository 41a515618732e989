"""Transactions that Apache Kafka left in a directory: which records readers of committed records may not see."""

from __future__ import annotations

import pytest
from kit.kafka_segments import ONE, TWO, Kafka, aborted_and_committed
from kit.logs import DIRECTORY, append_values, open_test_log

from ottla.storage.formats import layout
from ottla.storage.producers.transactions import (
    NONE_OPEN,
    AbortedTransaction,
    CorruptTransactionIndex,
    LogTransactions,
    encode_transaction_index,
    parse_transaction_index,
)


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


def test_an_open_transaction_is_remembered_over_clean_and_unclean_stops(
    kafka: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
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
