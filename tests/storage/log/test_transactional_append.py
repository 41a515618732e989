"""Batches and markers of transactions in a log: what is refused, what is open, and what a failed write leaves."""

from __future__ import annotations

import errno

import pytest
from kit.logs import NOW_MS, append_values, batch, disk, open_test_log, sync
from kit.transactional import transactional_batch

from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import crc_matches, parse_header
from ottla.protocol.records.control import end_transaction_marker
from ottla.storage.formats.layout import OFFSETS_TOPIC
from ottla.storage.log.append import BEGINS_AT_ZERO, TAKES_TRANSACTIONS, TAKES_ZSTD, AppendResult
from ottla.storage.log.log import Log
from ottla.storage.producers.transactions import NONE_OPEN

ONE, TWO = 1000, 2000


def put(log: Log, *batches: bytearray, takes: int = TAKES_ZSTD | TAKES_TRANSACTIONS) -> list[AppendResult]:
    return list(log.append_batches([memoryview(bytearray(one)) for one in batches], NOW_MS, takes))


def codes(results: list[AppendResult]) -> list[ErrorCode]:
    return [one.error_code for one in results]


def end(log: Log, producer_id: int, *, epoch: int = 0, is_commit: bool = False, coordinator: int = 0) -> AppendResult:
    result = log.append_marker(producer_id, epoch, is_commit=is_commit, coordinator_epoch=coordinator, now_ms=NOW_MS)
    sync(log)
    log.transactions.show(log.high_watermark)
    return result


def idempotent(sequence: int, epoch: int = 0) -> bytearray:
    return batch(b"x", producer_id=ONE, producer_epoch=epoch, base_sequence=sequence)


def test_the_first_batch_opens_the_transaction_and_the_marker_ends_it() -> None:
    log = open_test_log(disk())
    append_values(log, b"before")
    assert codes(put(log, transactional_batch(ONE, 0, 2), transactional_batch(ONE, 2))) == [ErrorCode.NONE] * 2
    known = log.producers.get(ONE)
    assert known is not None
    assert (known.current_txn_first_offset, known.last_sequence, len(known.batches)) == (1, 2, 2)
    assert (log.transactions.first_open_offset, log.transactions.open_offsets) == (1, {ONE: 1})
    assert end(log, ONE, coordinator=7).base_offset == 4
    known = log.producers.get(ONE)
    assert known is not None
    assert (known.current_txn_first_offset, known.coordinator_epoch, known.last_sequence) == (-1, 7, 2)
    assert log.transactions.first_open_offset == NONE_OPEN
    assert log.transactions.between(0, 9) == [(ONE, 1)]


@pytest.mark.parametrize("target", ["gzip", "snappy", "lz4", "zstd"])
def test_batches_that_are_compressed_again_are_still_of_their_transaction(target: str) -> None:
    log = open_test_log(disk(), {"compression.type": target})
    assert codes(put(log, transactional_batch(ONE, 0))) == [ErrorCode.NONE]
    assert parse_header(log.read(0, 1 << 20, end_offset=1).read_blocking()).is_transactional
    assert log.transactions.open_offsets == {ONE: 0}
    end(log, ONE)
    assert log.transactions.between(0, 9) == [(ONE, 0)]


def test_transactional_batches_without_a_transactional_request_are_refused() -> None:
    log = open_test_log(disk())
    refused = codes(put(log, transactional_batch(ONE, 0), takes=TAKES_ZSTD))
    assert refused == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    assert codes(put(log, transactional_batch(-1, -1, epoch=-1))) == [ErrorCode.INVALID_RECORD]
    assert log.log_end_offset == 0


@pytest.mark.parametrize("epoch", [0, 1])
def test_while_a_transaction_is_open_all_batches_of_its_producer_belong_to_it(epoch: int) -> None:
    log = open_test_log(disk())
    sequence = 1 if epoch == 0 else 0
    assert codes(put(log, transactional_batch(ONE, 0), idempotent(sequence, epoch))) == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TXN_STATE,
    ]
    assert codes(put(log, idempotent(sequence, epoch))) == [ErrorCode.INVALID_TXN_STATE]
    assert codes(put(log, transactional_batch(ONE, sequence, epoch=epoch))) == [ErrorCode.NONE]
    assert log.transactions.open_offsets == {ONE: 0}
    end(log, ONE, epoch=epoch)
    assert codes(put(log, idempotent(sequence + 1, epoch))) == [ErrorCode.NONE]


def test_producers_whose_first_batches_of_a_call_are_of_both_kinds_open_in_order() -> None:
    log = open_test_log(disk())
    put(log, idempotent(0), transactional_batch(TWO, 0), transactional_batch(ONE, 1))
    assert log.transactions.open_offsets == {TWO: 1, ONE: 2}
    assert log.transactions.first_open_offset == 1
    end(log, TWO)
    assert log.transactions.first_open_offset == 2


def test_a_repeated_batch_of_a_transaction_is_answered_like_the_original_after_its_end() -> None:
    log = open_test_log(disk())
    put(log, transactional_batch(ONE, 0, 3))
    end(log, ONE, is_commit=True)
    (result,) = put(log, transactional_batch(ONE, 0, 3))
    assert (result.error_code, result.base_offset, result.is_duplicate) == (ErrorCode.NONE, 0, True)
    assert log.transactions.open_offsets == {}


def test_a_gap_inside_a_transaction_is_refused() -> None:
    log = open_test_log(disk())
    put(log, transactional_batch(ONE, 0))
    assert codes(put(log, transactional_batch(ONE, 2))) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]


@pytest.mark.parametrize("takes", [TAKES_TRANSACTIONS, TAKES_TRANSACTIONS | BEGINS_AT_ZERO])
def test_an_unknown_producer_that_has_to_begin_at_0_does_not_begin_later(takes: int) -> None:
    log = open_test_log(disk())
    expected = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if takes & BEGINS_AT_ZERO else ErrorCode.NONE
    assert codes(put(log, transactional_batch(ONE, 1), takes=takes)) == [expected]
    assert (
        codes(put(log, transactional_batch(TWO, 0), transactional_batch(TWO, 1), takes=takes)) == [ErrorCode.NONE] * 2
    )


def test_a_marker_of_an_older_epoch_or_coordinator_is_refused_and_changes_nothing() -> None:
    log = open_test_log(disk())
    put(log, transactional_batch(ONE, 0, epoch=3))
    assert end(log, ONE, epoch=2).error_code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert end(log, ONE, epoch=3, coordinator=5).error_code is ErrorCode.NONE
    before = log.producers.get(ONE)
    assert end(log, ONE, epoch=3, coordinator=4).error_code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert (log.producers.get(ONE), log.log_end_offset) == (before, 2)


def test_a_marker_without_an_open_transaction_is_stored_and_fences() -> None:
    log = open_test_log(disk())
    assert end(log, ONE, epoch=4).base_offset == 0
    assert not log.transactions.has_aborted
    assert codes(put(log, transactional_batch(ONE, 0, epoch=3))) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert codes(put(log, transactional_batch(ONE, 0, epoch=4))) == [ErrorCode.NONE]


def test_a_marker_of_a_newer_epoch_ends_the_transaction_and_forgets_the_batches() -> None:
    log = open_test_log(disk())
    put(log, transactional_batch(ONE, 0))
    end(log, ONE, epoch=1)
    known = log.producers.get(ONE)
    assert known is not None
    assert (known.epoch, known.batches, known.timestamp_ms) == (1, (), NOW_MS)
    assert codes(put(log, transactional_batch(ONE, 1, epoch=1))) == [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert codes(put(log, transactional_batch(ONE, 0, epoch=1))) == [ErrorCode.NONE]


def test_a_marker_has_kafkas_bytes_its_offset_and_the_leader_epoch() -> None:
    log = open_test_log(disk())
    log.start_leader_epoch(3)
    append_values(log, b"a", b"b")
    end(log, ONE, epoch=5, coordinator=9, is_commit=True)
    expected = end_transaction_marker(
        ONE, 5, is_commit=True, coordinator_epoch=9, timestamp_ms=NOW_MS, base_offset=2, leader_epoch=3
    )
    assert log.read(2, 1000, end_offset=3).read_blocking() == expected


def test_a_marker_has_the_kind_of_timestamp_of_its_topic() -> None:
    log = open_test_log(disk(), {"message.timestamp.type": "LogAppendTime"})
    end(log, ONE)
    data = log.read(0, 1000, end_offset=1).read_blocking()
    header = parse_header(data)
    assert (header.attributes, header.max_timestamp, crc_matches(data, header)) == (0x38, NOW_MS, True)


def test_a_marker_that_cannot_be_written_leaves_all_as_it_was() -> None:
    files = disk()
    log = open_test_log(files)
    put(log, transactional_batch(ONE, 0))
    before = log.producers.get(ONE), log.log_end_offset, log.size_bytes, log.transactions.open_offsets
    files.fail("pwritev", error=errno.ENOSPC)
    assert end(log, ONE).error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.producers.get(ONE), log.log_end_offset, log.size_bytes, log.transactions.open_offsets) == before
    assert end(log, ONE).error_code is ErrorCode.NONE
    assert log.transactions.between(0, 9) == [(ONE, 0)]


@pytest.mark.parametrize("topic", ["t", OFFSETS_TOPIC])
def test_a_batch_of_a_transaction_needs_its_sequence(topic: str) -> None:
    log = open_test_log(disk(), topic=topic)
    assert codes(put(log, transactional_batch(ONE, -1))) == [ErrorCode.INVALID_RECORD]
