"""The load of one partition's transactional ids, after the replay of its records: what other partitions' logs add.

A load also finds open transactions of its producers in logs (`open_in_logs`) for which it has no record. It makes them
part of the transaction, as if the record had been kept (`adoption.py`), so that its end or its timeout ends them. If
its own log is not synced, it may have lost assigned epochs, and takes them from the logs (`_raise_epochs`).

Then timeouts begin, and decided ends continue.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from ottla.broker.runtime.steps import Pace
from ottla.broker.transactions import machine
from ottla.broker.transactions.adoption import sort_open
from ottla.broker.transactions.open_transactions import PRODUCERS_PER_STEP
from ottla.broker.transactions.shard_state import IDS_PER_STEP, ShardState
from ottla.broker.transactions.state import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.protocol.stored.transaction import TransactionStatus
from ottla.shown import counted

if TYPE_CHECKING:
    from ottla.broker.coordination.shard import ShardContext
    from ottla.broker.runtime.steps import Steps
    from ottla.broker.transactions.machine import ProducerIdAndEpoch
    from ottla.broker.transactions.open_transactions import OpenTransaction
    from ottla.broker.transactions.settings import TransactionServices
    from ottla.broker.transactions.state import TopicPartition, Transaction

logger = logging.getLogger(__name__)


class ShardLoad(ShardState):
    """See the module."""

    def __init__(self, context: ShardContext, services: TransactionServices) -> None:
        super().__init__(context, services)
        self._next_open: dict[str, set[TopicPartition]] = {}
        """From a load: partitions to which the transaction after a decided end has written. They have the marker of
        that end already."""
        self._epochs_in_logs: dict[str, ProducerIdAndEpoch] = {}
        """From a load: newer epochs than those of decided ends. They count when the end is complete."""
        self._beginning: Iterator[None] | None = None

    @abstractmethod
    def _begin(self, transaction: Transaction) -> None:
        """Continue a decided end, or begin the timeout of an open transaction."""

    def begin_some(self) -> bool:
        """Start timeouts and continue decided ends, after the replay: one step; return whether more steps are left."""
        if self._beginning is None:
            self._beginning = self._begin_in_steps()
        for _ in self._beginning:
            return True
        self._beginning = None
        return False

    def _begin_in_steps(self) -> Iterator[None]:
        self._adopt_open()
        if self.partition.log.config.ottla_acks_all != "sync":
            yield from self._raise_epochs()
        transactional_ids = [each.transactional_id for each in self.transactions.values() if not each.is_idle]
        for first in range(0, len(transactional_ids), IDS_PER_STEP):
            if first:
                yield
            for transactional_id in transactional_ids[first : first + IDS_PER_STEP]:
                self._begin(self.transactions[transactional_id])

    def _adopt_open(self) -> None:
        """Add the open transactions of this shard's producers in logs to their transactions (`adoption.py`); abort
        those that no producer could end.
        """
        adoption = sort_open(self.transactions, self._services.open_in_logs())
        for transactional_id, partitions in adoption.current.items():
            self._adopt(transactional_id, partitions)
        self._next_open.update(adoption.next)
        for found, known in adoption.stale:
            self._abort_stale(found, known)

    def _raise_epochs(self) -> Steps[None]:
        """Take newer epochs from the partitions: a power cut has removed their records from this log. If such an epoch
        were assigned again, the first batch of the new producer would look like a duplicate of the former one: it would
        be acknowledged, and not stored.

        A transaction that is open by the records had ended before the newer epoch was assigned. Its markers may be
        lost: it is aborted.
        """
        transactions = self.transactions.values()
        producer_ids = {one.producer_id for one in transactions} | {one.next_producer_id for one in transactions}
        newest = yield from self._services.epochs_in_logs(producer_ids - {NO_PRODUCER_ID})
        pace = Pace(PRODUCERS_PER_STEP)
        for known in list(self.transactions.values()):
            producer = _after_the_end(known)
            epoch = newest.get(producer.producer_id, NO_PRODUCER_EPOCH)
            if pace.is_up():
                yield
            if epoch <= producer.epoch:
                continue
            logger.warning(
                "transactional id %r: epoch %d is on record, and producer %d has written with epoch %d: that counts",
                known.transactional_id,
                *reversed(producer),
                epoch,
            )
            raised = known._replace(producer_epoch=epoch, last_producer_epoch=NO_PRODUCER_EPOCH)
            if known.is_prepared:  # its markers have its own epoch
                self._epochs_in_logs[known.transactional_id] = producer._replace(epoch=epoch)
            elif known.is_idle:
                self._keep(raised, ())
            else:
                self._services.counters.aborted("fenced")
                now_ms = self.now().wall_ms
                # For good: the next epoch may have been assigned, too, and its record lost. No second producer gets it.
                fenced = machine.fence_for_good(raised, server_version=self._services.version(), now_ms=now_ms)
                self._keep(fenced, ())

    def _adopt(self, transactional_id: str, partitions: Collection[TopicPartition]) -> None:
        known = self.transactions[transactional_id]
        producer = machine.ProducerIdAndEpoch(known.producer_id, known.producer_epoch)
        logger.warning(
            "transactional id %r: %s that its transaction has written to %s not on record; it is part of it now",
            transactional_id,
            counted(len(partitions), "partition"),
            "was" if len(partitions) == 1 else "were",
        )
        self._keep(machine.add_partitions(known, producer, partitions, now_ms=self.now().wall_ms), ())

    def _abort_stale(self, found: OpenTransaction, known: Transaction) -> None:
        """Abort an open transaction in a log whose epoch is not the current one of its transactional id.

        After a power cut without syncs (`page-cache`) it may be newer: then that epoch counts.
        """
        if found.producer_id == known.next_producer_id:
            known = known._replace(producer_id=found.producer_id, producer_epoch=found.producer_epoch)
        if found.producer_epoch > known.producer_epoch and known.is_idle:
            known = known._replace(producer_epoch=found.producer_epoch, last_producer_epoch=NO_PRODUCER_EPOCH)
            self._keep(known, ())
        epoch = max(found.producer_epoch, known.producer_epoch)
        stale = known._replace(producer_epoch=epoch, status=TransactionStatus.PREPARE_ABORT)

        def done(error: BaseException | None) -> None:
            logger.warning(
                "%s-%d: the transaction of producer %d, epoch %d, which no record names, %s",
                *found.where,
                found.producer_id,
                found.producer_epoch,
                "is aborted" if error is None else f"cannot be aborted: {error}",
            )

        self._services.write_marker(found.where, stale, self.partition.leader_epoch, done)


def _after_the_end(known: Transaction) -> ProducerIdAndEpoch:
    """The producer id and epoch on record; of a decided end that brings a new id, those after it."""
    if known.next_producer_id != NO_PRODUCER_ID:
        return machine.ProducerIdAndEpoch(known.next_producer_id, 0)
    return machine.ProducerIdAndEpoch(known.producer_id, known.producer_epoch)
