"""The first batches of many partitions in a transaction: some in each turn, and the coordinator is asked in each."""

from __future__ import annotations

from collections import Counter

import pytest
from kit.nodes import partition_of
from kit.topics import create
from kit.transaction_life import TIMEOUT_MS, TransactionalProducer, TransactionLife

from ottla.broker.catalog.catalog import NewTopic
from ottla.broker.partitions.first_appends import FIRST_APPENDS_PER_TURN
from ottla.broker.runtime.pending import Pending
from ottla.protocol.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from ottla.protocol.api.end_txn import EndTxnResponse
from ottla.protocol.api.init_producer_id import InitProducerIdRequest
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.message import Response
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.record import Record

MANY = 2 * FIRST_APPENDS_PER_TURN + 10
TOPIC = "many"
each_version = pytest.mark.parametrize("version", [0, 2])


class Producer(TransactionalProducer):
    """One that writes to all partitions of a topic at once."""

    def __init__(self, life: TransactionLife, version: int) -> None:
        super().__init__(life, version=version)
        if TOPIC not in life.node.services.catalog.topics:
            create(life.node, NewTopic(TOPIC, partitions=MANY, replication_factor=1))
        self.init()

    def add_all(self, count: int = MANY) -> None:
        """What older clients have to ask for first."""
        if self.version >= 2:
            return
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=TOPIC, partitions=[*range(count)])
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[topic],
        )
        self.life.ask(AddPartitionsToTxnResponse, request, 3)

    def write_all(self) -> Pending[Response]:
        """A batch to each partition, in one request that has begun."""
        records = [Record(0, self.life.clock.wall_ms(), None, b"v", ())]
        batch = encode_batch(
            records,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequences.get(0, 0),
            is_transactional=True,
        )
        data = [
            ProduceRequest.PartitionProduceData(index=index, records=memoryview(bytearray(batch)))
            for index in range(MANY)
        ]
        topic = ProduceRequest.TopicProduceData(name=TOPIC, partition_data=data)
        request = ProduceRequest(transactional_id=self.transactional_id, acks=-1, timeout_ms=30_000, topic_data=[topic])
        return self.life.begin(request, self.produce_version)


def ends(life: TransactionLife) -> list[int]:
    """The end offset of each partition."""
    return [partition_of(life.node, TOPIC, index).log.log_end_offset for index in range(MANY)]


def run_turn(life: TransactionLife) -> int:
    """End the turn and run what is due in the next one: how many records were appended."""
    before = sum(ends(life))
    life.node.services.turn.end()
    appended = sum(ends(life)) - before
    life.node.services.timers.run_due(life.clock.monotonic_ms())
    return appended


def finish(life: TransactionLife) -> None:
    """Let all turns and syncs run."""
    for _ in range(6):
        run_turn(life)
    life.node.settle()


def codes(pending: Pending[Response]) -> list[int]:
    """The error of each partition."""
    assert pending.done
    assert pending.error is None
    assert isinstance(pending.response, ProduceResponse)
    return [one.error_code for one in pending.response.responses[0].partition_responses]


def has_open(life: TransactionLife) -> bool:
    """Whether a transaction is open in a partition."""
    return any(partition_of(life.node, TOPIC, index).open_transactions() for index in range(MANY))


@each_version
@pytest.mark.parametrize("acks_all", ["page-cache", "sync"])
def test_they_are_made_some_in_each_turn_and_committed_together(acks_all: str, version: int) -> None:
    life = TransactionLife(ottla_acks_all=acks_all)
    producer = Producer(life, version)
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
    producer = Producer(life, 2)
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
    producer = Producer(life, version)
    producer.add_all()
    pending = producer.write_all()
    life.node.services.turn.end()
    end = life.begin(producer.end_request(), 5 if version >= 2 else 4)
    life.node.settle()
    assert end.done
    assert isinstance(end.response, EndTxnResponse)
    assert end.response.error_code == ErrorCode.NONE
    finish(life)
    refused = ErrorCode.INVALID_PRODUCER_EPOCH if version >= 2 else ErrorCode.TRANSACTION_ABORTABLE
    assert Counter(codes(pending)) == {0: FIRST_APPENDS_PER_TURN, refused: MANY - FIRST_APPENDS_PER_TURN}
    assert not has_open(life)
    assert life.state() == "CompleteCommit"


@each_version
def test_of_a_producer_that_is_fenced_between_the_turns_the_later_ones_are_refused(version: int) -> None:
    life = TransactionLife(ottla_acks_all="page-cache")
    producer = Producer(life, version)
    producer.add_all()
    pending = producer.write_all()
    life.node.services.turn.end()
    other = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=TIMEOUT_MS)
    life.begin(other, 5)  # aborts the open transaction
    life.node.settle()
    finish(life)
    results = Counter(codes(pending))
    assert results[ErrorCode.NONE] == FIRST_APPENDS_PER_TURN
    assert len(results) == 2
    assert not has_open(life)
    assert life.state() == "CompleteAbort"


def test_partitions_that_are_not_in_the_transaction_are_refused_and_the_others_are_written() -> None:
    life = TransactionLife(ottla_acks_all="page-cache")
    producer = Producer(life, 0)
    producer.add_all(MANY - 5)
    pending = producer.write_all()
    assert [run_turn(life) for _ in range(4)] == [FIRST_APPENDS_PER_TURN, FIRST_APPENDS_PER_TURN, 5, 0]
    life.node.settle()
    assert codes(pending) == [0] * (MANY - 5) + [ErrorCode.TRANSACTION_ABORTABLE] * 5
    producer.end()
    assert not has_open(life)
