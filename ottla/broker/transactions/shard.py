"""The transactional ids of one partition of `__transaction_state`: their requests, ends and timers.

    request, timer, load -> step of the machine -> one record -> durable -> markers visible -> the next record

An end has two records. The first decides it (prepared). When it is durable the markers are written, and when all are
visible the second completes the end. EndTxn is answered when the markers are visible: a reader that begins then sees
the committed records. If a partition cannot be written for `END_WAIT_MS`, EndTxn is answered nevertheless, as Kafka
always does: the end is decided, and the next transaction waits for it. The answer does not wait for the second record,
since a load that finds only the first one writes the markers again.

`shard_state.py` keeps the records, `shard_load.py` has the load.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.broker.coordination.effects import Effects
from ottla.broker.coordination.writes import give
from ottla.broker.transactions import machine
from ottla.broker.transactions.limits import TransactionLimits
from ottla.broker.transactions.marking import Marking
from ottla.broker.transactions.shard_load import ShardLoad
from ottla.broker.transactions.state import (
    IDLE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    Transaction,
)
from ottla.protocol.api.end_txn import EndTxnResponse
from ottla.protocol.api.init_producer_id import InitProducerIdResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.stored.transaction import TransactionStatus

if TYPE_CHECKING:
    from ottla.broker.coordination.effects import Now, Reply, Waiter
    from ottla.broker.coordination.shard import ShardContext
    from ottla.broker.transactions.machine import ProducerIdAndEpoch
    from ottla.broker.transactions.settings import TransactionServices
    from ottla.broker.transactions.state import TopicPartition

logger = logging.getLogger(__name__)

MARKER_RETRY_MS: Final = 500
END_WAIT_MS: Final = 5_000
"""How long EndTxn waits for markers that cannot be written."""


class TransactionShard(ShardLoad):
    """One partition's transactional ids, from the start of its load until the partition goes or its disk fails."""

    def __init__(self, context: ShardContext, services: TransactionServices) -> None:
        super().__init__(context, services)
        self._limits = TransactionLimits(services)
        self._clock = context.services.clock
        self._markings: dict[str, Marking] = {}
        self._ends: dict[str, list[Waiter]] = {}
        """EndTxn requests that wait for the markers."""
        self._decided_ms: dict[str, float] = {}
        """When the ends for which they wait were decided."""

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
            version = self._services.version()
            fenced = machine.fence(known, server_version=version, now_ms=now.wall_ms, new_producer_id=new_producer_id)
            self._services.counters.aborted("fenced")
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

    def _begin(self, transaction: Transaction) -> None:
        if transaction.is_prepared:
            self._mark(transaction)
        else:
            self._plan_timeout(transaction, self.now())

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
        transaction = self.transactions.get(key)
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
            try:
                self._abort(transaction, machine.fence)
            except machine.NeedsProducerId:
                self._services.new_producer_id(partial(self._abort_with_id, transaction))

    def _abort_with_id(self, timed_out: Transaction, new_producer_id: int | None) -> None:
        """Abort a transaction that has timed out in the last epoch of its producer id, unless it has ended meanwhile.
        Without a new id (none could be stored) its producer is fenced for good: readers wait for no id.
        """
        known = self.transactions.get(timed_out.transactional_id)
        if self.is_dead or known is None or known.status is not TransactionStatus.ONGOING:
            return
        if known[1:3] != timed_out[1:3] or known.start_ms != timed_out.start_ms:
            return  # the next transaction
        if new_producer_id is None:
            self._abort(known, machine.fence_for_good)
        else:
            self._abort(known, partial(machine.fence, new_producer_id=new_producer_id))

    def _abort(self, timed_out: Transaction, fence: Callable[..., Transaction]) -> None:
        now = self.now()
        fenced = fence(timed_out, server_version=self._services.version(), now_ms=now.wall_ms)
        self._services.counters.aborted("timeout")
        self._prepare(fenced, None, now)

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


def _ended(transaction: Transaction) -> EndTxnResponse:
    """The answer with which the producer continues."""
    return EndTxnResponse(producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch)
