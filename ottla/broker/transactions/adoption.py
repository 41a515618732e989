"""The assignment of transactions that are open in logs, during a load: each belongs to its transactional id's current
transaction, to the next one, or to none.

The records of clients and of `__transaction_state` are written in the same turn and synced together, so a power cut may
keep only the former. After a decided end it may also have kept records of the next transaction, and lost the record
that the end is complete. These records have the epoch, or the producer id, that the producer got with the answer to its
EndTxn (`transaction.version` 2), and so with the markers: their partitions need no marker any more, and another one
would end the wrong transaction. Producers of older versions write only after a durable record of the next transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.transactions.machine import VERSION_WITH_EPOCH_BUMPS
from ottla.broker.transactions.state import NO_PRODUCER_ID, Transaction

if TYPE_CHECKING:
    from ottla.broker.transactions.open_transactions import OpenTransaction
    from ottla.broker.transactions.state import TopicPartition


class Adoption(NamedTuple):
    """Open transactions of known producers, if no record contains them.

    Attributes:
        current: partitions by transactional id, to add to the transaction, which begins if none is open.
        next: the same, for the transaction after the one whose end is decided.
        stale: those with another epoch, so that no producer could end them.
    """

    current: dict[str, set[TopicPartition]]
    next: dict[str, set[TopicPartition]]
    stale: list[tuple[OpenTransaction, Transaction]]


def sort_open(transactions: Mapping[str, Transaction], open_in_logs: Iterable[OpenTransaction]) -> Adoption:
    """Assign each open transaction; those of producers without a transactional id in this shard are left out."""
    by_producer: dict[int, Transaction] = {}
    for one in transactions.values():
        by_producer[one.producer_id] = one
        if one.next_producer_id != NO_PRODUCER_ID:
            by_producer[one.next_producer_id] = one
    adoption = Adoption({}, {}, [])
    if not by_producer:
        return adoption  # no producer, no open transaction: else each of 50 empty shards would read all logs
    for found in open_in_logs:
        known = by_producer.get(found.producer_id)
        if known is None:
            continue
        if _is_of_the_next(found, known):
            adoption.next.setdefault(known.transactional_id, set()).add(found.where)
        elif _is_marked_by_the_end(found, known):
            pass
        elif (found.producer_id, found.producer_epoch) == known[1:3] and not known.is_prepared:
            adoption.current.setdefault(known.transactional_id, set()).add(found.where)
        else:
            adoption.stale.append((found, known))
    return adoption


def _is_of_the_next(found: OpenTransaction, known: Transaction) -> bool:
    """Whether it was certainly written after the answer to the EndTxn that decided the end of `known`."""
    if not known.is_prepared or known.client_version < VERSION_WITH_EPOCH_BUMPS:
        return False
    if known.next_producer_id != NO_PRODUCER_ID:
        return (found.producer_id, found.producer_epoch) == (known.next_producer_id, 0)
    return found.producer_epoch == known.producer_epoch


def _is_marked_by_the_end(found: OpenTransaction, known: Transaction) -> bool:
    """Whether the end of `known` will write a marker that ends it."""
    is_of_its_producer = found.producer_id == known.producer_id and found.producer_epoch <= known.producer_epoch
    return is_of_its_producer and found.where in known.partitions
