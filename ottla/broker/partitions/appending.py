"""The write side of a partition: batches are gathered, appended once per loop turn, and become visible.

`partition.py` has the rest, and the invariants. `Partition` is the only subclass.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.broker.partitions.visibility import NEVER_MS, VisibilityWaits, VisibleCallback
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.log.append import TAKES_ZSTD, Appended, AppendResult

if TYPE_CHECKING:
    from collections.abc import Collection

    from ottla.broker.partitions.append_shares import AppendPayer, AppendShares
    from ottla.broker.runtime.disk import GroupSyncer
    from ottla.broker.runtime.metrics import Metrics
    from ottla.broker.runtime.timers import Timer, Timers
    from ottla.broker.runtime.turn import Turn
    from ottla.broker.runtime.validity import Validity
    from ottla.config.topic import TopicConfig
    from ottla.storage.files.clock import Clock
    from ottla.storage.log.append import AppendEntry
    from ottla.storage.log.log import Log

LOG = logging.getLogger("ottla.partition")


class BatchWaiter(Protocol):
    """Gathers a batch, and gets its result in the turn's flush."""

    def appended(self, index: int, result: AppendResult) -> None:
        """Take the `result` of the batch that was gathered under `index`."""


class RunWaiter(Protocol):
    """Gathers several batches together, and gets their results together."""

    def run_appended(self, appended: Appended, partition: PartitionAppend) -> None:
        """Take the results of all of its batches of this turn for `partition`, in order."""


class _OneBatch:
    """The run of a waiter that gathers a single batch."""

    __slots__ = ("_index", "_waiter")

    def __init__(self, waiter: BatchWaiter, index: int) -> None:
        self._waiter = waiter
        self._index = index

    def run_appended(self, appended: Appended, partition: PartitionAppend) -> None:
        self._waiter.appended(self._index, appended[0])


class Watcher(Protocol):
    """A long poll: woken when more of a partition may be visible, or never will be."""

    def wake(self) -> None:
        """Plan to check again, but not now: this is called in the middle of a flush."""


class PartitionServices(NamedTuple):
    """The services that all partitions of a node share."""

    clock: Clock
    timers: Timers
    turn: Turn
    syncer: GroupSyncer
    metrics: Metrics
    validity: Validity


class PartitionAppend:
    """See the module."""

    __slots__ = (
        "_closed_error",
        "_flush_timer",
        "_gathered_bytes",
        "_leader_epoch",
        "_services",
        "_shares",
        "_takes",
        "_waiters",
        "_waits",
        "_watchers",
        "corrupt_reads",
        "counters",
        "gathered",
        "high_watermark",
        "holds_acknowledgements",
        "index",
        "is_closed",
        "log",
        "newest_waiter",
        "next_damage_line_ms",
        "tail",
        "topic",
        "unsynced_config",
    )

    def __init__(self, topic: str, index: int, log: Log, services: PartitionServices) -> None:
        self.topic = topic
        self.index = index
        self.log = log
        self._leader_epoch = log.leader_epoch
        self.high_watermark = log.high_watermark
        self.counters = services.metrics.topic(topic)
        self.corrupt_reads = 0
        """Reads that were answered CORRUPT_MESSAGE; `next_damage_line_ms` is when the next log line may come."""
        self.next_damage_line_ms = 0.0
        self._services = services
        self.gathered: list[memoryview] = []
        """Batches of this turn that are not appended yet: code that reads the log calls `settle` first."""
        self._waiters: list[tuple[int, RunWaiter]] = []
        """The waiters in order, each with its number of gathered batches."""
        self.newest_waiter: RunWaiter | None = None
        """The waiter that gathered the last of them."""
        self._takes = TAKES_ZSTD
        """The formats that the requests of these batches allow (`TAKES_ZSTD` ...)."""
        self._gathered_bytes = 0
        self._shares: AppendShares | None = None
        """The shares of payers in the time of the next append; None if no quota is charged."""
        self._waits = VisibilityWaits(services.clock, services.timers)
        self._watchers: dict[Watcher, None] = {}
        self.tail: Watcher | None = None
        """The fetches that wait at its end; None before the first. `fetch/parked_fetches.py` keeps them here."""
        self.holds_acknowledgements = False
        """Whether a sync for `flush.messages` is due, for which acks=1 waits, too (Kafka syncs inside the append)."""
        self.is_closed = False
        """Whether the topic was deleted, or the broker has given up the partition."""
        self._flush_timer: Timer | None = None
        self._closed_error: BaseException | None = None
        self.unsynced_config: TopicConfig | None = None
        """The log's configuration, if it is known to need no sync at all and nothing waits for an earlier one; None
        after `close`."""
        log.on_roll = self._rolled

    def gather(self, entry: AppendEntry, waiter: BatchWaiter, index: int) -> None:
        """Append `entry` at the end of this turn, then call `waiter.appended(index, result)`.

        `entry.records` must stay valid until the turn's flush. Batches of one idempotent producer may be gathered
        together: the log checks each against the producer state after the earlier ones of the same call.
        """
        records = entry.records
        self.gather_run([records], len(records), _OneBatch(waiter, index), entry.takes)

    def gather_run(
        self, batches: list[memoryview], size_bytes: int, waiter: RunWaiter, takes: int = TAKES_ZSTD
    ) -> None:
        """As `gather`, for several batches of `size_bytes` in all; the partition owns the list from now on.

        The `newest_waiter` may gather more: it gets the results of all together. `takes`: the formats that the requests
        allow (`TAKES_ZSTD` ...).
        """
        if takes != self._takes:
            self.settle()  # one call of the log is for requests of one kind
            self._takes = takes
        gathered, waiters, newest = len(self.gathered), self._waiters, self.newest_waiter
        gathered_bytes = self._gathered_bytes
        try:
            if gathered:
                self.gathered += batches
            else:
                self._services.turn.note_gathering(self)
                self.gathered = batches
            self._gathered_bytes = gathered_bytes + size_bytes
            self.newest_waiter = waiter
            if newest is waiter:
                waiters[-1] = (waiters[-1][0] + len(batches), waiter)
            else:
                waiters.append((len(batches), waiter))
        except BaseException:  # no memory: else another waiter would get the results of these batches
            del self.gathered[gathered:]
            self._gathered_bytes, self.newest_waiter = gathered_bytes, newest
            raise

    def charge_append(self, payer: AppendPayer, batches: int, size_bytes: int) -> None:
        """Charge the client that has just gathered so much its share of the append's time."""
        if self._shares is None:
            from ottla.broker.partitions.append_shares import AppendShares  # most brokers have no quotas

            self._shares = AppendShares()
        self._shares.add(payer, batches, size_bytes)

    def settle(self) -> None:
        """Append the gathered batches, if any: called before any other code reads the log."""
        if self.gathered:
            self.flush(self._services.clock.wall_ms())

    def flush(self, now_ms: int) -> None:
        """Append the gathered batches in one call, move the high watermark or request a sync, call the waiters."""
        batches = self.gathered
        if not batches:
            return
        waiters, gathered_bytes = self._waiters, self._gathered_bytes
        self.gathered, self._waiters, self._gathered_bytes = [], [], 0
        self.newest_waiter = None
        shares = self._shares
        if shares is not None:
            self._shares = None
            shares.begin()
        if self._closed_error is not None:
            code = self._code_of(self._closed_error)
            for count, waiter in waiters:
                waiter.run_appended(Appended.not_stored([AppendResult(code)] * count), self)
            return
        appended = self.append(batches, gathered_bytes, now_ms, self._takes)
        if shares is not None:
            shares.end(len(batches), gathered_bytes)
        if len(waiters) == 1:
            waiters[0][1].run_appended(appended, self)
            return
        results, first = appended[:], 0  # a copy: a waiter may append to the log again
        for count, waiter in waiters:
            waiter.run_appended(results[first : first + count], self)
            first += count

    def give_up(self) -> None:
        """Refuse the batches that `flush` could not take: their buffers are used again after this turn."""
        self.gathered.clear()
        self._gathered_bytes, self.newest_waiter = 0, None
        try:
            waiters = self._waiters[:]
        finally:
            self._waiters.clear()
        for count, waiter in waiters:
            waiter.run_appended(Appended.not_stored([AppendResult(ErrorCode.UNKNOWN_SERVER_ERROR)] * count), self)

    def has_nothing_before(self) -> bool:
        """Whether a batch may be appended now: nothing is gathered, no quota is charged, and it is not closed."""
        return not self.gathered and self._shares is None and self._closed_error is None

    def visible_on_append(self) -> bool:
        """Whether a batch appended now is visible and acknowledged immediately, and none waits to be appended before.

        Not if a sync is required or pending, and not if the partition has failed or was given up.
        """
        return self.log.config is self.unsynced_config and not self.gathered

    def may_acknowledge(self, end_offset: int, acks: int) -> bool:
        """Whether a producer that requires `acks` may be answered now about batches that end at `end_offset`; if not,
        use `when_visible`.
        """
        return self.high_watermark >= end_offset or acks == 0 or (acks == 1 and not self.holds_acknowledgements)

    def append(self, batches: list[memoryview], size_bytes: int, now_ms: int, takes: int = TAKES_ZSTD) -> Appended:
        """Append now, move the high watermark or request a sync, and count. Returns what `Log.append_batches` returns.

        Called by `flush`, and by a fast path that may answer without the turn (`visible_on_append`).
        """
        log = self.log
        old_end_offset, old_size_bytes = log.log_end_offset, log.size_bytes
        try:
            appended = log.append_batches(batches, now_ms, takes)
        except Exception:  # a bug must not leave the requests of a whole turn without an answer
            LOG.exception("bug: append to %s-%d failed", self.topic, self.index)
            appended = Appended.not_stored([AppendResult(ErrorCode.UNKNOWN_SERVER_ERROR)] * len(batches))
        config = log.config
        if config is not self.unsynced_config and log.log_end_offset > log.synced_offset:
            if config.ottla_acks_all == "sync" and log.error is None:
                # `ask_for_sync`, inlined: this runs for each partition of a request.
                self._services.syncer.request(log, self._synced)
            else:
                self.ask_for_sync()
        visible = log.high_watermark
        if visible > self.high_watermark:
            if self.holds_acknowledgements:
                self._advance()
            else:
                self.high_watermark = visible  # `_show`, inlined as in `_synced`
                if self._waits.waiting:
                    self._waits.reached(visible)
                watchers = self._watchers
                if watchers:  # `wake_watchers`, inlined
                    if len(watchers) == 1:  # nearly always: half the steps of a loop over a copy
                        (watcher,) = watchers
                        watcher.wake()
                    else:
                        for watcher in list(watchers):
                            watcher.wake()
        counters = self.counters
        counters.total_produce_requests += len(batches)
        counters.messages_in += log.log_end_offset - old_end_offset
        if log.size_bytes - old_size_bytes == size_bytes:
            counters.bytes_in += size_bytes  # all stored, and unchanged
        else:
            self._count_one_by_one(batches, appended)
        return appended

    def may_sync_here(self) -> bool:
        """Whether `append_synced` may append a batch now."""
        log = self.log
        return (
            log.config.ottla_acks_all == "sync"
            and self.has_nothing_before()
            and self._services.syncer.may_sync_here(log)
        )

    def append_synced(self, batches: list[memoryview], size_bytes: int, now_ms: int, takes: int) -> Appended:
        """As `append`, for the only request of the only client. The broker's thread syncs it immediately, if it may:
        then the high watermark covers the batches.
        """
        turn = self._services.turn
        turn.serves_one = True
        try:
            appended = self.append(batches, size_bytes, now_ms, takes)
            self._services.syncer.sync_here(self.log)
        finally:
            turn.serves_one = False  # the turn may not end: its next request may be another client's
        return appended

    def sync_last(self) -> bool:
        """Have the sync begin that this turn has requested, if the turn serves one request, of which this partition has
        got the last batch. Returns whether it has ended.
        """
        services = self._services
        return services.turn.serves_one and services.syncer.sync_here(self.log)

    def _count_one_by_one(self, batches: list[memoryview], appended: Appended) -> None:
        """Count the bytes of each batch: some were refused, were duplicates, or were stored in another form."""
        counters = self.counters
        for records, result in zip(batches, appended, strict=True):
            if result.base_offset < 0:
                counters.bytes_rejected += len(records)
                counters.failed_produce_requests += 1
            elif not result.is_duplicate:
                counters.bytes_in += len(records)

    def when_visible(self, end_offset: int, callback: VisibleCallback, deadline_ms: float = NEVER_MS) -> None:
        """Call back with None once the high watermark covers `end_offset`, immediately if it does.

        Or call back with an error: KafkaError(REQUEST_TIMED_OUT) once the monotonic time is past `deadline_ms`, the
        OSError of a failed sync, or the error given to `close`.
        """
        if self.high_watermark >= end_offset:
            callback(None)
            return
        error = self._closed_error or self.log.error
        if error is not None:
            callback(error)
            return
        self._waits.add(end_offset, callback, deadline_ms)

    @property
    def watchers(self) -> Collection[Watcher]:
        """The long polls that wait for more."""
        return self._watchers.keys()

    def wake_watchers(self) -> None:
        """Wake the long polls: something that they check has changed (log start, epoch, configuration)."""
        for watcher in list(self._watchers):
            watcher.wake()

    def ask_for_sync(self) -> None:
        """Request a sync after an append, or where an append had no memory to request it: always with `sync`; with
        `page-cache` by flush.messages or flush.ms.
        """
        log = self.log
        if log.error is not None:
            return
        config = log.config
        if config.ottla_acks_all == "sync":
            self._services.syncer.request(log, self._synced)
        elif log.log_end_offset - log.synced_offset >= config.flush_messages:
            self.holds_acknowledgements = True
            self._services.syncer.request(log, self._synced)
        elif config.flush_ms < NEVER_MS and self._flush_timer is None:
            deadline_ms = self._services.clock.monotonic_ms() + config.flush_ms
            self._flush_timer = self._services.timers.surely_at(deadline_ms, self._flush_by_time)
        elif (
            config.flush_messages >= NEVER_MS
            and config.flush_ms >= NEVER_MS
            and not self.holds_acknowledgements
            and self._closed_error is None
        ):
            self.unsynced_config = config

    def _rolled(self) -> None:
        """Sync a segment that takes no more records, whatever the configuration, as in Kafka: so a crash damages only
        the active segment, and a start checks only that. No request waits for it.
        """
        if self.log.config.ottla_acks_all != "sync":
            self._services.syncer.request(self.log, self._synced)

    def _flush_by_time(self) -> None:
        self._flush_timer = None
        if self.log.error is None:
            self._services.syncer.request(self.log, self._synced)

    def _synced(self, error: BaseException | None) -> None:
        log = self.log
        if error is None and not self.holds_acknowledgements:
            visible = log.high_watermark
            if visible > self.high_watermark:
                self.high_watermark = visible  # `_show`, inlined: this runs for each partition of a round
                if self._waits.waiting:
                    self._waits.reached(visible)
                if self._watchers:
                    self.wake_watchers()
            return
        # After an error, too: records that a failed sync should have covered never become visible.
        self.holds_acknowledgements = self.holds_acknowledgements and self._must_hold()
        if error is not None:
            self._waits.fail(error)
            self.wake_watchers()
        else:
            self._advance()

    def _must_hold(self) -> bool:
        """Whether unsynced records that `flush.messages` has held still have to wait for a sync: with `page-cache` the
        log's own high watermark is past them, also after a change to `sync`.
        """
        log = self.log
        config, unsynced = log.config, log.log_end_offset - log.synced_offset
        return unsynced >= config.flush_messages or (unsynced > 0 and config.ottla_acks_all == "sync")

    def _advance(self) -> None:
        """Follow the log's high watermark, and call the waits that it reaches."""
        visible = self.log.high_watermark
        if self.holds_acknowledgements:
            visible = min(visible, self.log.synced_offset)
        if visible > self.high_watermark:
            self._show(visible)

    def _show(self, visible: int) -> None:
        self.high_watermark = visible
        self._waits.reached(visible)
        if self._watchers:
            self.wake_watchers()

    @staticmethod
    def _code_of(error: BaseException) -> ErrorCode:
        return error.code if isinstance(error, KafkaError) else ErrorCode.KAFKA_STORAGE_ERROR
