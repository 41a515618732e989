"""A transaction that writes to many partitions at once, turn by turn."""

from __future__ import annotations

from kit.nodes import partition_of
from kit.topics import create
from kit.transaction_life import TransactionalProducer, TransactionLife

from ottla.broker.catalog.catalog import NewTopic
from ottla.broker.partitions.first_appends import FIRST_APPENDS_PER_TURN
from ottla.broker.runtime.pending import Pending
from ottla.protocol.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from ottla.protocol.api.produce import ProduceRequest
from ottla.protocol.message import Response
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.record import Record

MANY = 2 * FIRST_APPENDS_PER_TURN + 10
TOPIC = "many"


class WideProducer(TransactionalProducer):
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


def has_open(life: TransactionLife) -> bool:
    """Whether a transaction is open in a partition."""
    return any(partition_of(life.node, TOPIC, index).open_transactions() for index in range(MANY))
