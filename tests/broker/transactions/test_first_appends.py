"""The first batches of many partitions in a transaction: some in each turn, and the coordinator is asked in each."""

from __future__ import annotations

from collections import Counter

import pytest
from kit.nodes import partition_of
from kit.transaction_life import TIMEOUT_MS, TransactionLife
from kit.wide_transactions import MANY, WideProducer, ends, finish, has_open, run_turn

from ottla.broker.partitions.first_appends import FIRST_APPENDS_PER_TURN
from ottla.broker.runtime.pending import Pending
from ottla.protocol.api.end_txn import EndTxnResponse
from ottla.protocol.api.init_producer_id import InitProducerIdRequest
from ottla.protocol.api.produce import ProduceResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Response

each_version = pytest.mark.parametrize("version", [0, 2])


def codes(pending: Pending[Response]) -> list[int]:
    """The error of each partition."""
    assert pending.done
    assert pending.error is None
    assert isinstance(pending.response, ProduceResponse)
    return [one.error_code for one in pending.response.responses[0].partition_responses]


@each_version
@pytest.mark.parametrize("acks_all", ["page-cache", "sync"])
def test_they_are_made_some_in_each_turn_and_committed_together(acks_all: str, version: int) -> None:
    life = TransactionLife(ottla_acks_all=acks_all)
    producer = WideProducer(life, version)
    producer.add_all()
    pending = producer.write_all()
    assert pending.parks
    assert [run_turn(life) for _ in range(4)] == [FIRST_APPENDS_PER_TURN, FIRST_APPENDS_PER_TURN, 10, 0]
    life.node.settle()
    assert codes(pending) == [0] * MANY
    producer.end()
    assert not has_open(life)
    assert ends(life) == [2] * MANY, "the record and its marker"
    producer.sequences[0] = 1 if version < 2 else 0
    producer.add_all()
    pending = producer.write_all()
    assert run_turn(life) == MANY, "no longer the first ones"


def test_all_their_partitions_are_in_the_coordinators_first_record() -> None:
    life = TransactionLife()
    producer = WideProducer(life, 2)
    producer.write_all()
    run_turn(life)
    assert sum(len(topic.partitions) for topic in life.describe("tx").topics) == MANY
    log = partition_of(
        life.node, "__transaction_state", life.node.services.transactions.get().shards.partition_of("tx")
    )
    written = log.log.log_end_offset
    finish(life)
    assert log.log.log_end_offset == written


@each_version
def test_of_a_transaction_that_ends_between_the_turns_the_later_ones_are_refused(version: int) -> None:
    life = TransactionLife(ottla_acks_all="page-cache")
    producer = WideProducer(life, version)
    producer.add_all()
    pending = producer.write_all()
    life.node.services.turn.end()
    end = life.begin(producer.end_request(), 5 if version >= 2 else 4)
    finish(life)
    assert end.done
    assert isinstance(end.response, EndTxnResponse)
    assert end.response.error_code == ErrorCode.NONE
    finish(life)
    results = Counter(codes(pending))
    assert results.pop(ErrorCode.NONE) == FIRST_APPENDS_PER_TURN
    # Those of older clients pass while the markers are being written.
    passing = {ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.TRANSACTION_ABORTABLE}
    assert set(results) == (passing if version < 2 else {ErrorCode.INVALID_PRODUCER_EPOCH})
    assert not has_open(life)
    assert life.state() == "CompleteCommit"


@each_version
def test_of_a_producer_that_is_fenced_between_the_turns_the_later_ones_are_refused(version: int) -> None:
    life = TransactionLife(ottla_acks_all="page-cache")
    producer = WideProducer(life, version)
    producer.add_all()
    pending = producer.write_all()
    life.node.services.turn.end()
    other = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=TIMEOUT_MS)
    life.begin(other, 5)  # aborts the open transaction
    finish(life)
    results = Counter(codes(pending))
    assert results[ErrorCode.NONE] == FIRST_APPENDS_PER_TURN
    assert len(results) == 2
    assert not has_open(life)
    assert life.state() == "CompleteAbort"


def test_partitions_that_are_not_in_the_transaction_are_refused_and_the_others_are_written() -> None:
    life = TransactionLife(ottla_acks_all="page-cache")
    producer = WideProducer(life, 0)
    producer.add_all(MANY - 5)
    pending = producer.write_all()
    assert [run_turn(life) for _ in range(4)] == [FIRST_APPENDS_PER_TURN, FIRST_APPENDS_PER_TURN, 5, 0]
    life.node.settle()
    assert codes(pending) == [0] * (MANY - 5) + [ErrorCode.TRANSACTION_ABORTABLE] * 5
    producer.end()
    assert not has_open(life)
