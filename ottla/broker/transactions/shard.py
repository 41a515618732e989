"""The transactional ids of one partition of `__transaction_state`: their requests, timers and loads.

    request, timer, load -> step of the machine -> one record -> durable -> markers visible -> the next record

An end has two records. The first decides it (prepared). When it is durable the markers are written, and when all are
visible the second completes the end. EndTxn is answered when the markers are visible: a reader that begins then sees
the committed records. If a partition cannot be written for `END_WAIT_MS`, EndTxn is answered nevertheless, as Kafka
always does: the end is decided, and the next transaction waits for it. The answer does not wait for the second record,
since a load that finds only the first one writes the markers again.

A load also finds open transactions of its producers in logs (`open_in_logs`) for which it has no record. It makes them
part of the transaction, as if the record had been kept (`adoption.py`), so that its end or its timeout ends them. If
its own log is not synced, it may have lost assigned epochs, and takes them from the logs (`_raise_epochs`).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.broker.coordination.effects import Effects
from ottla.broker.coordination.shard import CoordinatorShard
from ottla.broker.coordination.writes import give
from ottla.broker.runtime.steps import Pace
from ottla.broker.transactions import machine
from ottla.broker.transactions.adoption import sort_open
from ottla.broker.transactions.limits import TransactionLimits
from ottla.broker.transactions.marking import Marking
from ottla.broker.transactions.open_transactions import PRODUCERS_PER_STEP
from ottla.broker.transactions.packed_record import packed_in_batch, packed_record
from ottla.broker.transactions.state import (
    IDLE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Transaction,
    from_record,
    to_record,
)
from ottla.protocol.api.end_txn import EndTxnResponse
from ottla.protocol.api.init_producer_id import InitProducerIdResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.transaction import TransactionLogKey, TransactionLogValue, TransactionStatus
from ottla.shown import counted

if TYPE_CHECKING:
    from ottla.broker.coordination.effects import Now, Reply, Waiter
    from ottla.broker.coordination.shard import ShardContext
    from ottla.broker.runtime.steps import Steps
    from ottla.broker.transactions.machine import ProducerIdAndEpoch
    from ottla.broker.transactions.open_transactions import OpenTransaction
    from ottla.broker.transactions.settings import TransactionServices
    from ottla.broker.transactions.state import TopicPartition
    from ottla.protocol.message import Struct

logger = logging.getLogger(__name__)

MARKER_RETRY_MS: Final = 500
END_WAIT_MS: Final = 5_000
"""How long EndTxn waits for markers that cannot be written."""
IDS_PER_STEP: Final = 200
"""Transactional ids that one step of a load or of the expiry handles."""


class TransactionShard(CoordinatorShard):
    """One partition's transactional ids, from the start of its load until the partition goes or its disk fails."""

    def __init__(self, context: ShardContext, services: TransactionServices) -> None:
        super().__init__(context)
        self.transactions: dict[str, Transaction] = {}
        self._open_starts: dict[str, int] = {}
        """The start of each transaction that is open or being ended."""
        self._services = services
        self._limits = TransactionLimits(services)
        self._clock = context.services.clock
        self._clock_trust = context.services.clock_trust
        self._markings: dict[str, Marking] = {}
        self._ends: dict[str, list[Waiter]] = {}
        """EndTxn requests that wait for the markers."""
        self._decided_ms: dict[str, float] = {}
        """When the ends for which they wait were decided."""
        self._next_open: dict[str, set[TopicPartition]] = {}
        """From a load: partitions to which the transaction after a decided end has written. They have the marker of
        that end already."""
        self._epochs_in_logs: dict[str, ProducerIdAndEpoch] = {}
        """From a load: newer epochs than those of decided ends. They count when the end is complete."""
        self._beginning: Iterator[None] | None = None
        self._expiry: Iterator[str] | None = None

    @property
    def open_count(self) -> int:
        """The number of transactions that are open or being ended."""
        return len(self._open_starts)

    @property
    def oldest_start_ms(self) -> int:
        """When the oldest of them began; there must be one."""
        return min(self._open_starts.values())

    # --- load ------------------------------------------------------------------------------------------------------

    def replay(self, key: Struct, value: Struct | None) -> None:
        """Apply one record of the log."""
        assert isinstance(key, TransactionLogKey)
        if value is None:
            self._put(key.transactional_id, None)
        else:
            assert isinstance(value, TransactionLogValue)
            self._put(key.transactional_id, from_record(key, value))

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

    def _begin(self, transaction: Transaction) -> None:
        if transaction.is_prepared:
            self._mark(transaction)
        else:
            self._plan_timeout(transaction, self.now())

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
        newest = yield from self._services.epochs_in_logs({one.producer_id for one in self.transactions.values()})
        pace = Pace(PRODUCERS_PER_STEP)
        for known in list(self.transactions.values()):
            epoch = newest.get(known.producer_id, NO_PRODUCER_EPOCH)
            if pace.is_up():
                yield
            if epoch <= known.producer_epoch:
                continue
            logger.warning(
                "transactional id %r: epoch %d is on record, and producer %d has written with epoch %d: that counts",
                known.transactional_id,
                known.producer_epoch,
                known.producer_id,
                epoch,
            )
            raised = known._replace(producer_epoch=epoch, last_producer_epoch=NO_PRODUCER_EPOCH)
            if known.is_prepared:  # its markers have its own epoch
                self._epochs_in_logs[known.transactional_id] = machine.ProducerIdAndEpoch(known.producer_id, epoch)
            elif known.is_idle:
                self._keep(raised, ())
            else:
                self._services.counters.aborted("fenced")
                now_ms = self.now().wall_ms
                fenced = machine.fence(raised, server_version=self._services.version(), now_ms=now_ms)
                # The next epoch may have been assigned, too, and its record lost: no second producer gets it.
                self._keep(fenced._replace(last_producer_epoch=NO_PRODUCER_EPOCH), ())

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

    # --- requests ----------------------------------------------------------------------------------------------------

    def init_producer_id(
        self,
        transactional_id: str,
        expected: ProducerIdAndEpoch | None,
        timeout_ms: int,
        new_producer_id: int | None,
        waiter: Waiter,
    ) -> None:
        """InitProducerId: a new epoch. An open transaction is aborted first; CONCURRENT_TRANSACTIONS until it is.

        Raises KafkaError; NeedsProducerId.
        """
        known, now = self.transactions.get(transactional_id), self.now()
        if known is not None and known.status is TransactionStatus.ONGOING:
            machine.check_expected(known, expected)
            self._services.counters.aborted("fenced")
            fenced = machine.fence(known, server_version=self._services.version(), now_ms=now.wall_ms)
            self._prepare(fenced, None, now)
            refusal = KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the open transaction is being aborted: try again")
            self.finish(transactional_id, Effects(replies=[(waiter, refusal)]))
            return
        if known is None:
            self._limits.check_new_id(transactional_id, now.monotonic_ms)
        new = machine.init_producer_id(
            transactional_id,
            known,
            expected,
            timeout_ms=timeout_ms,
            now_ms=now.wall_ms,
            new_producer_id=new_producer_id,
        )
        self._limits.check_size(new, self.log)
        answer = InitProducerIdResponse(producer_id=new.producer_id, producer_epoch=new.producer_epoch)
        self._keep(new, [(waiter, answer)])

    def add_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> None:
        """Add these partitions to the transaction, which begins if none is open. Raises KafkaError."""
        known, now = self.transactions.get(transactional_id), self.now()
        new = machine.add_partitions(known, producer, partitions, now_ms=now.wall_ms)
        if new is known:
            return
        assert known is not None
        begins = known.status in IDLE
        self._limits.check_growth(new, self.log, begins=begins)
        self._keep(new, ())
        if begins:
            self._services.counters.begun += 1
            self._plan_timeout(new, now)

    def missing(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> list[TopicPartition]:
        """The partitions among these that the open transaction does not have. Raises KafkaError."""
        known = machine.check_producer(self.transactions.get(transactional_id), producer)
        return [where for where in partitions if where not in known.partitions]

    def end(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        is_commit: bool,
        client_version: int,
        new_producer_id: int | None,
        waiter: Waiter,
    ) -> None:
        """EndTxn, answered when the markers are visible. Raises KafkaError; NeedsProducerId."""
        known, now = self.transactions.get(transactional_id), self.now()
        new = machine.end(
            known,
            producer,
            is_commit=is_commit,
            client_version=client_version,
            now_ms=now.wall_ms,
            new_producer_id=new_producer_id,
        )
        if new is known:
            self.finish(transactional_id, Effects(replies=[(waiter, _ended(new))]))
            return
        if not is_commit:
            self._services.counters.aborted("client")
        self._prepare(new, waiter, now)

    # --- ends --------------------------------------------------------------------------------------------------------

    def _prepare(self, prepared: Transaction, waiter: Waiter | None, now: Now) -> None:
        """Store a decision; the markers follow when it is durable."""
        transactional_id = prepared.transactional_id
        if waiter is not None:
            self._ends.setdefault(transactional_id, []).append(waiter)
            self._decided_ms[transactional_id] = now.monotonic_ms
        self._keep(prepared, ())
        self._mark_when_durable(transactional_id)

    def _mark_when_durable(self, transactional_id: str) -> None:
        self.log.when_durable(transactional_id, partial(self._decided, transactional_id))

    def _decided(self, transactional_id: str, error: KafkaError | None) -> None:
        """Write the markers if the record of the decision is durable; else answer the error and wait again."""
        if self.is_dead:
            return
        if error is None:
            self._mark(self.transactions[transactional_id])
        else:  # the disk takes longer than a client waits
            self._answer_ends(transactional_id, error)
            self._mark_when_durable(transactional_id)

    def _mark(self, prepared: Transaction) -> None:
        transactional_id = prepared.transactional_id
        if written := self._next_open.get(transactional_id):
            prepared = prepared._replace(partitions=prepared.partitions - written)
        if len(prepared.partitions) == 1:  # most transactions: no `Marking` is needed
            (where,) = prepared.partitions
            marked = partial(self._marked, prepared, where)
            self._services.write_marker(where, prepared, self.partition.leader_epoch, marked)
        else:
            self._begin_marking(prepared).write_missing()

    def _begin_marking(self, prepared: Transaction) -> Marking:
        marking = self._markings[prepared.transactional_id] = Marking(
            prepared,
            self.partition.leader_epoch,
            self._services.write_marker,
            self._clock,
            self.later,
            visible=self._complete,
            delayed=self._plan_retry,
        )
        return marking

    def _marked(self, prepared: Transaction, where: TopicPartition, error: BaseException | None) -> None:
        """Complete the end if the only marker of the transaction is visible; else begin to retry."""
        if error is None:
            self._complete(prepared.transactional_id)
        elif not self.is_dead:
            self._begin_marking(prepared).note(where, error)

    def _plan_retry(self, transactional_id: str) -> None:
        if self.is_dead:
            return
        now = self.now()
        self.timer.plan(transactional_id, now.monotonic_ms + MARKER_RETRY_MS)
        prepared = self.transactions[transactional_id]
        if prepared.next_producer_id != NO_PRODUCER_ID:
            return  # its producer continues with another id, which is valid only after the end
        if now.monotonic_ms - self._decided_ms.get(transactional_id, now.monotonic_ms) >= END_WAIT_MS:
            self._answer_ends(transactional_id, _ended(machine.complete(prepared, now_ms=now.wall_ms)))

    def _complete(self, transactional_id: str) -> None:
        if self.is_dead:
            return
        self._markings.pop(transactional_id, None)
        completed = machine.complete(self.transactions[transactional_id], now_ms=self._clock_trust.estimate_ms())
        if self._epochs_in_logs:
            newer = self._epochs_in_logs.pop(transactional_id, None)
            if newer is not None and newer.producer_id == completed.producer_id:
                completed = completed._replace(producer_epoch=newer.epoch, last_producer_epoch=NO_PRODUCER_EPOCH)
        if completed.status is TransactionStatus.COMPLETE_COMMIT:
            self._services.counters.committed += 1
        self._keep(completed, ())
        self._answer_ends(transactional_id, _ended(completed))
        if written := self._next_open.pop(transactional_id, None):
            self._adopt(transactional_id, written)
            self._plan_timeout(self.transactions[transactional_id], self.now())

    def _answer_ends(self, transactional_id: str, answer: EndTxnResponse | KafkaError) -> None:
        """Answer the requests that wait for the markers. These are visible, or have taken too long: the answer does not
        wait for the second record.
        """
        self._decided_ms.pop(transactional_id, None)
        for waiter in self._ends.pop(transactional_id, ()):
            give(waiter, answer)

    # --- events ------------------------------------------------------------------------------------------------------

    def _plan_timeout(self, transaction: Transaction, now: Now) -> None:
        """Plan the abort of an open transaction after its timeout, rounded up to the abort interval.

        The plan stays when the transaction ends, and the next transaction postpones it: that costs less than to cancel
        and create it with each transaction. A transaction may have begun in the future, since the known time is older
        after a power cut; it may stay open for its timeout from now on, and no longer.
        """
        interval_ms = self._services.settings.abort_interval_ms
        left_ms = min(transaction.start_ms + transaction.timeout_ms - now.wall_ms, transaction.timeout_ms)
        due_ms = now.monotonic_ms + left_ms if left_ms > 0 else now.monotonic_ms
        self.timer.plan(transaction.transactional_id, (due_ms // interval_ms + 1) * interval_ms)

    def on_due(self, key: str) -> None:
        """Abort a transaction that has timed out, or retry markers."""
        transaction, now = self.transactions.get(key), self.now()
        if transaction is None:
            return
        marking = self._markings.get(key)
        if marking is not None:
            marking.write_missing()
        elif transaction.status is TransactionStatus.ONGOING:
            logger.info(
                "transactional id %r: its transaction is aborted, it was open for longer than %d ms",
                key,
                transaction.timeout_ms,
            )
            self._services.counters.aborted("timeout")
            fenced = machine.fence(transaction, server_version=self._services.version(), now_ms=now.wall_ms)
            self._prepare(fenced, None, now)

    def expire_some(self) -> bool:
        """Forget transactional ids that were unused for a long time; return whether some are left to check."""
        if self._expiry is None:
            self._expiry = iter(list(self.transactions))
        before_ms = self._clock_trust.deletion_ms() - self._services.settings.id_expiration_ms
        for _ in range(IDS_PER_STEP):
            transactional_id = next(self._expiry, None)
            if transactional_id is None:
                self._expiry = None
                return False
            known = self.transactions.get(transactional_id)
            if known is not None and known.is_idle and known.last_update_ms <= before_ms:
                self._put(transactional_id, None)
                self._services.counters.expired += 1
                self.write(transactional_id, [(TransactionLogKey(transactional_id=transactional_id), None)])
        return True

    def on_unload(self) -> Sequence[Reply]:
        """Refuse the requests that wait for markers; the next load writes the markers again."""
        refusal = KafkaError(ErrorCode.NOT_COORDINATOR)
        replies = [(waiter, refusal) for waiters in self._ends.values() for waiter in waiters]
        self._ends.clear()
        self._decided_ms.clear()
        for marking in self._markings.values():
            marking.stop()
        self._markings.clear()
        return replies

    def summary(self) -> str:
        """For the log: the numbers of transactional ids and of open transactions."""
        ids = counted(len(self.transactions), "transactional id")
        return f"{ids}, {self.open_count} with an open transaction"

    # --- records -----------------------------------------------------------------------------------------------------

    def _keep(self, new: Transaction, replies: Sequence[Reply]) -> None:
        """Store the result of a step, and write its record; the replies are sent when it is durable."""
        transactional_id = new.transactional_id
        self._put(transactional_id, new)
        version = self._services.version()
        if version and self.log.write_packed(transactional_id, packed_in_batch, new, replies):
            return
        packed = packed_record(new) if version else None
        if packed is not None:
            self.log.write_encoded(transactional_id, (packed,), replies)
        else:
            self.log.write(transactional_id, [to_record(new, version)], replies)

    def _put(self, transactional_id: str, new: Transaction | None) -> None:
        if new is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = new
        if new is None or new.status in IDLE:
            self._open_starts.pop(transactional_id, None)
        else:
            self._open_starts[transactional_id] = new.start_ms


def _ended(transaction: Transaction) -> EndTxnResponse:
    """The answer with which the producer continues."""
    return EndTxnResponse(producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch)
