"""What the logs of this broker know of transactions, also what no coordinator knows: which are open, and epochs."""

from __future__ import annotations

from collections.abc import Collection, Iterator
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


def newest_epochs(catalog: Catalog, producer_ids: Collection[int]) -> dict[int, int]:
    """The newest epoch of each of these producers with which a partition was written to."""
    newest: dict[int, int] = {}
    for topic in list(catalog.topics.values()):
        for partition in topic.partitions:
            if partition is None:
                continue
            producers = partition.log.producers
            for producer_id in producer_ids:
                entry = producers.get(producer_id)
                if entry is not None and entry.epoch > newest.get(producer_id, -1):
                    newest[producer_id] = entry.epoch
    return newest
