"""What a load makes of the transactions that logs have open: each is of its transactional id's transaction, of the one
after it, or of none.

The records of clients and of `__transaction_state` are written in the same turn and synced together, so a power cut may
keep the former alone. Of a transaction whose end is decided it may also have kept the records of the next one, and lost
that the end is complete. Those are of the epoch, or the producer id, that the producer got with the answer to its
EndTxn (`transaction.version` 2), and so with the markers: their partitions need no marker any more, and one would end
the wrong transaction. Producers of older versions write only when a durable record says that the next one has begun.
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
    """Open transactions of producers that are known, as far as no record names them.

    Attributes:
        current: partitions by transactional id, to be made part of the transaction, which begins where none is open.
        next: the same, for the transaction after the one whose end is decided.
        stale: of another epoch, so that no producer could end them.
    """

    current: dict[str, set[TopicPartition]]
    next: dict[str, set[TopicPartition]]
    stale: list[tuple[OpenTransaction, Transaction]]


def sort_open(transactions: Mapping[str, Transaction], open_in_logs: Iterable[OpenTransaction]) -> Adoption:
    """Find for each open transaction what it is of; those of producers without a transactional id here are left out."""
    by_producer: dict[int, Transaction] = {}
    for one in transactions.values():
        by_producer[one.producer_id] = one
        if one.next_producer_id != NO_PRODUCER_ID:
            by_producer[one.next_producer_id] = one
    adoption = Adoption({}, {}, [])
    if not by_producer:
        return adoption  # nothing is of nobody: each of 50 empty shards would look at all logs
    for found in open_in_logs:
        known = by_producer.get(found.producer_id)
        if known is None:
            continue
        if _is_of_the_next(found, known):
            adoption.next.setdefault(known.transactional_id, set()).add(found.where)
        elif found.where in known.partitions and found.producer_epoch <= known.producer_epoch:
            pass  # its end will find it
        elif (found.producer_id, found.producer_epoch) == known[1:3] and not known.is_prepared:
            adoption.current.setdefault(known.transactional_id, set()).add(found.where)
        else:
            adoption.stale.append((found, known))
    return adoption


def _is_of_the_next(found: OpenTransaction, known: Transaction) -> bool:
    """Whether it can only have been written after the answer to the EndTxn that decided the end of `known`."""
    if not known.is_prepared or known.client_version < VERSION_WITH_EPOCH_BUMPS:
        return False
    if known.next_producer_id != NO_PRODUCER_ID:
        return found.producer_id == known.next_producer_id
    return found.producer_epoch == known.producer_epoch
