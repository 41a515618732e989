"""Epochs that a power cut has taken from a coordinator that does not sync (`page-cache`), and that partitions have."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kit.nodes import partition_of
from kit.transaction_life import TIMEOUT_MS, TransactionalProducer, TransactionLife

from ottla.broker.transactions.state import MAX_EPOCH
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import decode_batch, iter_batches
from ottla.protocol.stored.transaction import TransactionLogValue, TransactionStatus, decode_transaction_record
from ottla.storage.formats.layout import TRANSACTIONS_TOPIC

INDEX = 0


def after_the_first_decision(life: TransactionLife) -> TransactionLife:
    """The start after a power cut that has left the coordinator's log up to its first decided end, and all else."""
    path = partition_of(life.node, TRANSACTIONS_TOPIC).log.directory / "00000000000000000000.log"
    files = life.files.kill()
    data, end = files.read_bytes(path), 0
    for position, header in iter_batches(data):
        end = position + header.size_bytes
        (record,) = decode_batch(memoryview(data)[position:])
        _, value = decode_transaction_record(record.key or b"", record.value)
        assert isinstance(value, TransactionLogValue)
        if value.transaction_status in (TransactionStatus.PREPARE_COMMIT, TransactionStatus.PREPARE_ABORT):
            break
    file = files.open(path, writable=True)
    file.truncate(end)
    file.close()
    return TransactionLife(files, life.clock, **life.keys)


def synced(life: TransactionLife) -> None:
    """Only the partition is brought to the disk, as where its segment is rolled."""
    life.node.services.syncer.request(partition_of(life.node, "t", INDEX).log, lambda _: None)
    life.node.settle()


def lives(prepare: Callable[[TransactionLife], None]) -> Iterator[TransactionLife]:
    """The start after a power cut, as different ones have left it; `prepare` makes what was there before."""
    for seed in range(6):
        life = TransactionLife(ottla_acks_all="page-cache")
        TransactionalProducer(life).init()
        life = life.restarted()  # the coordinator has the first epoch on the disk
        prepare(life)
        synced(life)
        yield life.crashed(seed)


def started(life: TransactionLife, version: int) -> TransactionalProducer:
    """A new producer, once it has an epoch."""
    producer = TransactionalProducer(life, version=version)
    while producer.epoch < 0:
        try:
            producer.init()
        except KafkaError as error:
            if error.code != ErrorCode.CONCURRENT_TRANSACTIONS:
                raise
            life.pass_ms(1_000)
    return producer


@pytest.mark.parametrize("version", [0, 2])
def test_the_first_batch_of_a_new_producer_is_not_taken_for_one_of_the_former(version: int) -> None:
    def write(life: TransactionLife) -> None:
        producer = TransactionalProducer(life, version=version)
        producer.init()
        producer.produce(b"old", INDEX)
        producer.end()

    for life in lives(write):
        producer = started(life, version)
        producer.produce(b"new", INDEX)
        producer.end()
        assert life.committed(INDEX) == [b"old", b"new"]


@pytest.mark.parametrize("version", [0, 2])
def test_a_transaction_that_is_open_of_a_lost_epoch_is_aborted_and_the_next_producer_writes(version: int) -> None:
    def write(life: TransactionLife) -> None:
        first = TransactionalProducer(life, version=version)
        first.init()
        first.produce(b"of an epoch that is fenced", INDEX)
        second = started(life, version)
        second.produce(b"open", INDEX)

    for life in lives(write):
        producer = started(life, version)
        producer.produce(b"new", INDEX)
        producer.end()
        assert life.committed(INDEX) == [b"new"]
        assert life.state() == "CompleteCommit"


def in_the_first_epochs_of_a_new_id(life: TransactionLife, producers: int) -> TransactionalProducer:
    """A transaction has used up the epochs of a producer id. Of the next id, so many producers have come since."""
    first = TransactionalProducer(life)
    first.init()
    shard = life.node.services.transactions.get().shards.ready("tx")
    shard.transactions["tx"] = shard.transactions["tx"]._replace(producer_epoch=MAX_EPOCH - 1)
    first.epoch = MAX_EPOCH - 1
    first.produce(b"old", INDEX)
    first.end()
    producer = first
    for _ in range(producers):
        producer = TransactionalProducer(life)
        producer.init()
    return producer


@pytest.mark.parametrize("is_ended", [False, True])
@pytest.mark.parametrize("producers", [0, 1, 2, 3])
def test_lost_epochs_of_a_producer_id_that_a_decided_end_brings_are_not_assigned_again(
    producers: int, is_ended: bool
) -> None:
    """The decision is the last record that was kept, and the partition has records of later epochs."""
    life = TransactionLife(ottla_acks_all="page-cache")
    last = in_the_first_epochs_of_a_new_id(life, producers)
    last.produce(b"last", INDEX)
    if is_ended:
        last.end()
    life = after_the_first_decision(life)
    life.pass_ms(1_000)
    assert life.state() == ("Ongoing" if producers == 0 and not is_ended else "CompleteCommit")
    life.pass_ms(2 * TIMEOUT_MS)
    kept = [b"old", b"last"] if is_ended else [b"old"]
    assert life.committed(INDEX) == kept
    assert life.last_stable_offset(INDEX) == partition_of(life.node, "t", INDEX).high_watermark
    new = TransactionalProducer(life)
    new.init()
    new.produce(b"new", INDEX)
    new.end()
    assert life.committed(INDEX) == [*kept, b"new"]
