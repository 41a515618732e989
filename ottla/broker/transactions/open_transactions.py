"""The transactions in the logs of this broker, also those that no coordinator knows: open ones, and newest epochs."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.runtime.steps import Pace

if TYPE_CHECKING:
    from ottla.broker.catalog.catalog import Catalog
    from ottla.broker.runtime.steps import Steps
    from ottla.broker.transactions.state import TopicPartition

PRODUCERS_PER_STEP: Final = 5_000
"""Producers, and logs, that one step of a load looks up: 2 ms."""


class OpenTransaction(NamedTuple):
    """A transaction whose end is not in the log."""

    where: TopicPartition
    producer_id: int
    producer_epoch: int
    first_offset: int


def open_transactions(catalog: Catalog) -> Iterator[OpenTransaction]:
    """All transactions that are open in the partitions."""
    for topic in list(catalog.topics.values()):
        for partition in topic.partitions:
            if partition is None:
                continue
            producers = partition.log.producers
            for producer_id, first_offset in partition.open_transactions().items():
                entry = producers.get(producer_id)
                epoch = -1 if entry is None else entry.epoch
                yield OpenTransaction((partition.topic, partition.index), producer_id, epoch, first_offset)


def newest_epochs(catalog: Catalog, producer_ids: Set[int]) -> Steps[dict[int, int]]:
    """The newest epoch with which each of these producers has written to a partition.

    In steps, between which these producers cannot write: their coordinator is not loaded. For each log, the smaller set
    is looked up in the other: its own producers, or these.
    """
    newest: dict[int, int] = {}
    pace = Pace(PRODUCERS_PER_STEP)
    logs = [each.log for topic in catalog.topics.values() for each in topic.partitions if each is not None]
    for log in logs:
        known = log.producers
        wanted = producer_ids if len(producer_ids) < len(known) else [entry.producer_id for entry in known]
        if pace.is_up():
            yield
        for producer_id in wanted:
            if pace.is_up():
                yield
            entry = known.get(producer_id)
            if entry is not None and producer_id in producer_ids and entry.epoch > newest.get(producer_id, -1):
                newest[producer_id] = entry.epoch
    return newest
