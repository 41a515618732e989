"""Epochs that a power cut has taken from a coordinator that does not sync (`page-cache`), and that partitions have."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kit.nodes import partition_of
from kit.transaction_life import TransactionalProducer, TransactionLife

from ottla.protocol.errors import ErrorCode, KafkaError

INDEX = 0


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
