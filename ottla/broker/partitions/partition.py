"""A partition as requests see it: its log, its leader epoch, and the visible part of the log.

Invariants: `log_start_offset <= high_watermark <= log_end_offset`, and the high watermark never decreases. With
`ottla.acks.all=sync` it follows the synced offset, with `page-cache` the log end. If Kafka's `flush.messages` requires
a sync in `page-cache`, the records that it covers are neither acknowledged nor visible before it.

Produce batches are gathered and appended once per loop turn. Any other reader of the log calls `settle()` first, so no
request sees a partition between two requests of one client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.partitions.appending import PartitionAppend
from ottla.broker.partitions.visibility import NEVER_MS
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import CorruptBatch
from ottla.protocol.records.formats import iter_any
from ottla.storage.log.leader_epochs import UNDEFINED_EPOCH
from ottla.storage.log.log_reader import ANY_BYTES
from ottla.storage.segment.slice import LogSlice

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.broker.partitions.appending import Watcher
    from ottla.broker.partitions.visibility import VisibleCallback
    from ottla.config.topic import TopicConfig
    from ottla.protocol.types import Buffer


class Partition(PartitionAppend):
    """One partition that this broker leads. All calls on the broker's thread.

    `last_stable_offset` is the high watermark, unless a transaction is open or its marker is not visible.
    """

    __slots__ = ()

    @property
    def leader_epoch(self) -> int:
        """The epoch with which this broker leads; the catalog sets it when the log has it."""
        return self._leader_epoch

    @leader_epoch.setter
    def leader_epoch(self, epoch: int) -> None:
        if epoch != self._leader_epoch:
            self._leader_epoch = epoch
            self._services.validity.change()

    @property
    def topic_id(self) -> UUID:
        """The topic's id."""
        return self.log.topic_id

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self.log.log_start_offset

    @property
    def last_stable_offset(self) -> int:
        """The first offset that read_committed readers may not see."""
        first_open_offset = self.log.transactions.first_open_offset
        if self.high_watermark <= first_open_offset:
            return self.high_watermark
        return max(first_open_offset, self.log.log_start_offset)

    def aborted_transactions(self, fetch_offset: int, records: Buffer) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions within `records`, read from `fetch_offset`."""
        end_offset = fetch_offset
        try:
            for _, header in iter_any(records, allow_partial_tail=True):
                end_offset = header.next_offset
        except CorruptBatch:
            end_offset = self.high_watermark
        return self.log.transactions.between(fetch_offset, end_offset)

    def end_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        is_commit: bool,
        coordinator_epoch: int,
        done: VisibleCallback,
        *,
        bumps_epoch: bool = False,
        now_ms: int | None = None,
    ) -> int:
        """Append the marker that ends a producer's transaction, after all gathered batches. Returns its offset. With
        `bumps_epoch` it must have a higher epoch than the records of an open transaction (KIP-1228).

        `done(None)` is called when readers may see it; at the same time they get the transaction's records, or see it
        in the list of aborted ones. If the marker is not appended, -1 is returned and `done` gets the error: KafkaError
        INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED or KAFKA_STORAGE_ERROR (nothing has changed, and the
        caller may try again), or the error given to `close`. If a sync fails later, `done` gets that error.
        """
        self.settle()
        log = self.log
        if self._closed_error is not None:
            done(self._closed_error)
            return -1
        is_shown_at_once = self.visible_on_append() and not (self._waits.waiting or self._watchers)
        result = log.append_marker(
            producer_id,
            producer_epoch,
            is_commit=is_commit,
            coordinator_epoch=coordinator_epoch,
            now_ms=self._services.clock.wall_ms() if now_ms is None else now_ms,
            bumps_epoch=bumps_epoch,
        )
        if result.error_code is not ErrorCode.NONE:
            done(KafkaError(result.error_code, result.error_message))
            return -1
        end_offset = result.last_offset + 1
        if is_shown_at_once and log.high_watermark == end_offset:  # the code below, inlined
            self.high_watermark = end_offset
            log.transactions.show(end_offset)
            done(None)
            return result.base_offset
        # First of the waits for the marker: a transaction ends when readers can see its end.
        self._waits.add(end_offset, self._show_transactions, NEVER_MS)
        self._waits.add(end_offset, done, NEVER_MS)
        if log.log_end_offset > log.synced_offset:
            self.ask_for_sync()
        self._advance()
        return result.base_offset

    def open_transactions(self) -> dict[int, int]:
        """Producer id → first offset of the transactions without a marker in the log, oldest first."""
        self.settle()
        return self.log.transactions.open_offsets

    def _show_transactions(self, error: BaseException | None) -> None:
        self.log.transactions.show(self.high_watermark)

    def must_list_aborted(self, offset: int) -> bool:
        """Whether a read_committed reader that begins at `offset` may have to skip aborted records."""
        return offset <= self.log.transactions.last_aborted_offset

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher.wake()` when the high watermark or the log start moves, or the partition closes."""
        self._watchers[watcher] = None
        self.log.reader.is_awaited = True

    def unwatch(self, watcher: Watcher) -> None:
        """Undo `watch`; does nothing without one."""
        self._watchers.pop(watcher, None)
        if not self._watchers:
            reader = self.log.reader
            reader.is_awaited, reader.newest = False, None

    @property
    def is_watched(self) -> bool:
        """Whether any watcher waits."""
        return bool(self._watchers)

    def configure(self, config: TopicConfig) -> None:
        """Set a new configuration of the log; it applies to waiting requests immediately.

        From `page-cache` to `sync`, visible records stay visible, and a sync follows. From `sync` to `page-cache`, a
        client that waits for a sync is answered.
        """
        if self.is_closed:
            return
        self._services.validity.change()
        self.log.configure(config)
        self.log.producers.expiration_ms = config.broker.producer_id_expiration_ms
        timer = self._flush_timer
        if timer is not None and timer.deadline_ms > self._services.clock.monotonic_ms() + config.flush_ms:
            timer.cancel()  # unsynced records wait no longer than the new flush.ms
            self._flush_timer = None
        if self.log.log_end_offset > self.log.synced_offset:
            self.ask_for_sync()
        self._advance()
        self.wake_watchers()

    def read(
        self,
        offset: int,
        max_bytes: int,
        at_least_one: bool,
        committed_only: bool = False,
        allow_map: bool = True,
        most_copied_bytes: int = ANY_BYTES,
    ) -> LogSlice:
        """Complete visible batches from the one that contains `offset` on, at most `max_bytes`.

        `at_least_one` returns the first batch even if it is larger. A read that is longer than `most_copied_bytes` and
        may not be mapped is left to a thread. Raises KafkaError(OFFSET_OUT_OF_RANGE).
        """
        if committed_only and self.must_list_aborted(offset):
            allow_map = False  # as in `read_on`: so what is long is left to a thread
        if allow_map or max_bytes <= most_copied_bytes:
            view = self.read_on(offset, max_bytes, at_least_one, committed_only, allow_map)
            if view is not None:
                return LogSlice(view, len(view))
        else:
            self.settle()
        log = self.log
        end_offset = self.last_stable_offset if committed_only else self.high_watermark
        return log.read(
            offset,
            max_bytes,
            end_offset=end_offset,
            at_least_one=at_least_one,
            allow_map=allow_map,
            most_copied_bytes=most_copied_bytes,
        )

    def read_on(
        self, offset: int, max_bytes: int, at_least_one: bool, committed_only: bool, allow_map: bool
    ) -> memoryview | None:
        """`read` for a consumer that continues where a read ended, if the bytes are in memory. None: call `read`.

        These two functions alone decide what a consumer gets, on the slow path and from request templates.
        Raises OSError.
        """
        if self.gathered:
            self.settle()
        end_offset = self.high_watermark
        if committed_only:
            end_offset = self.last_stable_offset
            if offset <= self.log.transactions.last_aborted_offset:
                allow_map = False  # the batches are read, to list aborted transactions; a map is for `send` only
        return self.log.reader.read_on(offset, max_bytes, end_offset, allow_map, at_least_one)

    def has_more(self, offset: int, read_bytes: int, committed_only: bool) -> bool:
        """Whether a read from `offset` on may have left out visible records. With `read_bytes`, the length of the log's
        newest read, the answer is exact.
        """
        end_offset = self.last_stable_offset if committed_only else self.high_watermark
        return offset < end_offset and not (read_bytes and self.log.reader.has_reached(end_offset))

    def visible_bytes(self, offset: int, committed_only: bool) -> int:
        """The number of visible bytes from the batch that contains `offset` to the end of its segment; more than any
        limit if further segments follow (as in Kafka's DelayedFetch). A read may return fewer: it ends with a complete
        batch. Raises OSError.
        """
        return self.log.visible_bytes(offset, self.last_stable_offset if committed_only else self.high_watermark)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch not above `epoch`, its end offset), never past the high watermark; (-1, -1) if unknown.

        While the leader's own epoch has no record, it begins at the log end, as if the log had it.
        """
        latest = self.log.epochs.latest
        if latest < self.leader_epoch and (latest < epoch <= self.leader_epoch or epoch < latest == UNDEFINED_EPOCH):
            is_before = epoch < self.leader_epoch and latest != UNDEFINED_EPOCH
            return latest if is_before else epoch, self.high_watermark
        found, end_offset = self.log.end_offset_for_epoch(epoch)
        return found, min(end_offset, self.high_watermark)

    def close(self, error: BaseException) -> None:
        """Close a partition that is deleted or whose disk failed: all its waits, and later calls, get `error`."""
        if self._closed_error is not None:
            return
        self._closed_error = error
        self.is_closed = True
        self.unsynced_config = None
        self._services.validity.change()
        self.flush(0)
        self._waits.fail(error)
        self._waits.stop()
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        self.wake_watchers()
