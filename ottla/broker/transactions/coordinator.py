"""The transaction coordinator of this broker, for API handlers and the node.

Each partition of `__transaction_state` is a shard (`shard.py`) with the transactional ids that hash to it; the runtime
finds it (`coordination/runtime.py`). Code that writes records with a transactional id calls `admit_batches` or
`admit_offsets` in the step in which the records are gathered, so that nothing can come in between: Kafka's verification
guards are not needed here.

All calls on the broker's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, TypeVar

from ottla.broker.coordination.runtime import CoordinatorRuntime
from ottla.broker.runtime.pending import Pending
from ottla.broker.transactions import answers
from ottla.broker.transactions.admission import Admission
from ottla.broker.transactions.machine import VERSION_WITH_EPOCH_BUMPS, NeedsProducerId, ProducerIdAndEpoch
from ottla.broker.transactions.open_transactions import newest_epochs, open_transactions
from ottla.broker.transactions.settings import TransactionServices, TransactionSettings
from ottla.broker.transactions.state import NO_PRODUCER_ID
from ottla.broker.transactions.transactions_topic import transactions_definition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.formats.layout import OFFSETS_TOPIC

if TYPE_CHECKING:
    from ottla.broker.coordination.effects import Waiter
    from ottla.broker.partitions.visibility import VisibleCallback
    from ottla.broker.runtime.steps import Steps
    from ottla.broker.runtime.timers import Timer
    from ottla.broker.services import Services
    from ottla.broker.transactions.settings import OffsetsOfGroups
    from ottla.broker.transactions.shard import TransactionShard
    from ottla.broker.transactions.state import TopicPartition, Transaction
    from ottla.protocol.api.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
    from ottla.protocol.api.end_txn import EndTxnRequest, EndTxnResponse
    from ottla.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
    from ottla.protocol.api.list_transactions import ListTransactionsRequest, ListTransactionsResponse

P = TypeVar("P")

FIRST_END_VERSION_WITH_EPOCH_BUMPS = 5


class TransactionCoordinator:
    """All transactional ids of one broker."""

    def __init__(self, services: Services, groups: Callable[[], OffsetsOfGroups]) -> None:
        self.settings = TransactionSettings(services.config)
        self._services = services
        self._groups = groups
        of_transactions = TransactionServices(
            settings=self.settings,
            counters=services.metrics.transactions,
            write_marker=self._write_marker,
            open_in_logs=lambda: open_transactions(services.catalog),
            epochs_in_logs=lambda producer_ids: newest_epochs(services.catalog, producer_ids),
            version=lambda: services.catalog.transaction_version,
            new_producer_id=self._new_producer_id,
            id_count=lambda: self.id_count,
            open_count=self.count_open,
        )
        self._runtime = CoordinatorRuntime(services, transactions_definition(services.config, of_transactions))
        self.shards = self._runtime.shards
        """The transactional ids themselves, by the partitions of `__transaction_state`."""
        self._expiry_timer: Timer | None = None
        self._is_closed = False

    def open(self) -> None:
        """As `CoordinatorRuntime.open`; transactional ids, if there are any, expire from now on."""
        self._runtime.open()
        if self.shards.is_adopted:
            self._plan_expiry()

    def close(self) -> None:
        """As `CoordinatorRuntime.close`."""
        self._is_closed = True
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
            self._expiry_timer = None
        self._runtime.close()

    def prepare(self, transactional_id: str, done: Callable[[KafkaError | None], None]) -> None:
        """As `CoordinatorRuntime.prepare`: for FindCoordinator."""
        self._runtime.prepare(transactional_id, done)

    # --- requests of producers ---------------------------------------------------------------------------------------

    def init_producer_id(self, request: InitProducerIdRequest) -> Pending[InitProducerIdResponse]:
        """Begin a producer with a transactional id, or let it continue after an error."""
        pending: Pending[InitProducerIdResponse] = Pending()
        transactional_id, timeout_ms = request.transactional_id, request.transaction_timeout_ms
        assert transactional_id is not None
        if not 0 < timeout_ms <= self.settings.max_timeout_ms:
            text = f"a timeout of {timeout_ms} ms is not within 1 and {self.settings.max_timeout_ms}"
            pending.fail(KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"{text} (transaction.max.timeout.ms)"))
            return pending
        expected = None
        if request.producer_id != NO_PRODUCER_ID:
            expected = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)

        def step(shard: TransactionShard, new_producer_id: int | None) -> None:
            shard.init_producer_id(transactional_id, expected, timeout_ms, new_producer_id, pending)
            self._plan_expiry()

        return self._run_with_id(transactional_id, pending, step)

    def end(self, request: EndTxnRequest, api_version: int) -> Pending[EndTxnResponse]:
        """End the transaction of a producer."""
        pending: Pending[EndTxnResponse] = Pending()
        producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
        version = VERSION_WITH_EPOCH_BUMPS if api_version >= FIRST_END_VERSION_WITH_EPOCH_BUMPS else 0

        def step(shard: TransactionShard, new_producer_id: int | None) -> None:
            shard.end(request.transactional_id, producer, request.committed, version, new_producer_id, pending)

        return self._run_with_id(request.transactional_id, pending, step)

    def end_now(self, transactional_id: str, producer: ProducerIdAndEpoch, is_commit: bool, waiter: Waiter) -> bool:
        """As `end` of the versions that raise the epoch, answered to `waiter`. Returns False and does nothing if that
        is refused, or needs more than this step.
        """
        try:
            shard = self._ready(transactional_id)
            shard.end(transactional_id, producer, is_commit, VERSION_WITH_EPOCH_BUMPS, None, waiter)
        except (KafkaError, NeedsProducerId):
            return False
        return True

    def admit_batches(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        adds: bool,
    ) -> Admission:
        """Check whether a producer may write to these partitions now. With `adds` they become part of its transaction,
        which begins if none is open; else those that are not part of it are `missing`.
        """
        producer = ProducerIdAndEpoch(producer_id, producer_epoch)
        if not adds and not self.settings.is_verified:
            return Admission(None)
        missing: Collection[TopicPartition] = ()
        try:
            shard = self._ready(transactional_id)
            if adds:
                shard.add_partitions(transactional_id, producer, partitions)
            else:
                missing = shard.missing(transactional_id, producer, partitions)
        except KafkaError as refusal:
            return Admission(refusal)
        return Admission(None, missing, shard, transactional_id)

    def admit_offsets(
        self, transactional_id: str, producer_id: int, producer_epoch: int, group_id: str, *, adds: bool
    ) -> Admission:
        """As `admit_batches`, for offsets of a group."""
        index = self._groups().offsets_partition_of(group_id)
        admission = self.admit_batches(
            transactional_id, producer_id, producer_epoch, [(OFFSETS_TOPIC, index)], adds=adds
        )
        if admission.missing:
            refusal = KafkaError(ErrorCode.TRANSACTION_ABORTABLE, "the group's offsets are not part of the transaction")
            return Admission(refusal)
        return admission

    def _ready(self, transactional_id: str) -> TransactionShard:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        if not self.shards.is_adopted:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "the transactional id is not known")
        return self.shards.ready(transactional_id)

    # --- administration ----------------------------------------------------------------------------------------------

    def describe(self, request: DescribeTransactionsRequest) -> Pending[DescribeTransactionsResponse]:
        """Transactional ids with their partitions."""
        return answers.describe_transactions(self.shards, request)

    def list(
        self, request: ListTransactionsRequest, may_see: Callable[[str], bool]
    ) -> Steps[Pending[ListTransactionsResponse]]:
        """All transactional ids, or some of them, of those that the client may see."""
        now_ms = self._services.clock_trust.estimate_ms()
        return answers.list_transactions(self.shards, request, now_ms, may_see)

    # --- events ------------------------------------------------------------------------------------------------------

    def on_topics_changed(self, deleted: Collection[str]) -> Iterator[None]:
        """React to a change of the catalog's topics, of which `deleted` are gone. Yields the steps of long work."""
        return self._runtime.on_topics_changed(deleted)

    def _plan_expiry(self, delay_ms: float | None = None) -> None:
        if self._expiry_timer is None and not self._is_closed:
            delay_ms = self.settings.expiry_interval_ms if delay_ms is None else delay_ms
            at_ms = self._services.clock.monotonic_ms() + delay_ms
            self._expiry_timer = self._services.timers.surely_at(at_ms, self._expire)

    def _expire(self) -> None:
        has_more = self._runtime.expire_some()
        self._expiry_timer = None
        self._plan_expiry(0 if has_more else None)

    # --- figures -----------------------------------------------------------------------------------------------------

    @property
    def id_count(self) -> int:
        """The number of transactional ids."""
        return sum(len(shard.transactions) for shard in self.shards.active())

    @property
    def open_count(self) -> int:
        """The number of transactions that are open or being ended."""
        return self.count_open()

    def count_open(self) -> int:
        """As `open_count`."""
        count = 0
        for shard in self.shards.active():
            count += shard.open_count
        return count

    def oldest_open_ms(self) -> int:
        """The age of the oldest open transaction; 0 without one."""
        starts = [shard.oldest_start_ms for shard in self.shards.active() if shard.open_count]
        return max(0, self._services.clock_trust.estimate_ms() - min(starts)) if starts else 0

    @property
    def loads_under_way(self) -> int:
        """The number of partitions that are being loaded."""
        return self.shards.loads_under_way

    # --- internals ---------------------------------------------------------------------------------------------------

    def _run_with_id(
        self, transactional_id: str, pending: Pending[P], step: Callable[[TransactionShard, int | None], None]
    ) -> Pending[P]:
        """Run a step on the shard, and again with a new producer id if it needs one."""
        if not transactional_id:
            pending.fail(KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty"))
            return pending

        def run(new_producer_id: int | None) -> None:
            def attempt(shard: TransactionShard) -> None:
                try:
                    step(shard, new_producer_id)
                except NeedsProducerId:
                    self._services.producer_ids.next(given)

            self._runtime.run(transactional_id, pending, attempt)

        def given(producer_id: int | None) -> None:
            if producer_id is None:
                text = "no block of producer ids could be stored"
                pending.fail(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, text))
            else:
                run(producer_id)

        run(None)
        return pending

    def _new_producer_id(self, given: Callable[[int | None], None]) -> None:
        """Pass a new producer id to `given`, or None, unless the broker stops before: as for `_write_marker`."""

        def given_unless_closed(producer_id: int | None) -> None:
            if not self._is_closed:
                given(producer_id)

        self._services.producer_ids.next(given_unless_closed)

    def _write_marker(
        self, where: TopicPartition, ended: Transaction, coordinator_epoch: int, done: VisibleCallback
    ) -> None:
        """Write the marker of an ended transaction into one partition (`settings.MarkerWriter`).

        When the broker stops, no marker is begun, and a visible one leads to no record: while the last syncs end,
        nothing may be appended any more. The next start continues.
        """

        def done_unless_closed(error: BaseException | None) -> None:
            if not self._is_closed:
                done(error)

        if not self._is_closed:
            producer = ended.producer_id, ended.producer_epoch
            self.write_marker(where, producer, ended.is_commit, coordinator_epoch, done_unless_closed)

    def write_marker(
        self,
        where: TopicPartition,
        producer: tuple[int, int],
        is_commit: bool,
        coordinator_epoch: int,
        done: VisibleCallback,
        *,
        bumps_epoch: bool = False,
    ) -> None:
        """End the transaction of a producer (id and epoch) in one partition; `done` and `bumps_epoch` as for
        `Partition.end_transaction`.
        """
        topic, index = where
        producer_id, epoch = producer
        if topic == OFFSETS_TOPIC:
            self._groups().end_transaction(
                index,
                producer_id,
                epoch,
                is_commit=is_commit,
                coordinator_epoch=coordinator_epoch,
                done=done,
                bumps_epoch=bumps_epoch,
            )
            return
        catalog = self._services.catalog
        partition = catalog.partition(topic, index)
        if partition is None:
            code = catalog.why_missing(topic, index)
            done(KafkaError(code, f"{topic}-{index} is not there, or offline"))
            return
        partition.end_transaction(producer_id, epoch, is_commit, coordinator_epoch, done, bumps_epoch=bumps_epoch)
