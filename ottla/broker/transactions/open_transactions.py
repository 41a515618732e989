"""The transactions that the logs of this broker have open, those that no coordinator knows among them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.broker.catalog.catalog import Catalog
    from ottla.broker.transactions.state import TopicPartition


class OpenTransaction(NamedTuple):
    """A transaction whose end is not in the log."""

    where: TopicPartition
    producer_id: int
    producer_epoch: int
    first_offset: int


def open_transactions(catalog: Catalog) -> Iterator[OpenTransaction]:
    """All that the partitions have open."""
    for topic in list(catalog.topics.values()):
        for partition in topic.partitions:
            if partition is None:
                continue
            producers = partition.log.producers
            for producer_id, first_offset in partition.open_transactions().items():
                entry = producers.get(producer_id)
                epoch = -1 if entry is None else entry.epoch
                yield OpenTransaction((partition.topic, partition.index), producer_id, epoch, first_offset)
