"""What becomes of a batch that was sent: delivered, sent again, split, or given up.

Order and exactly-once within a partition (KIP-98, KIP-360): batches carry sequences. When one fails, nothing more of
its partition is sent until all that is in flight has come back; then everything goes again in the old order. A batch
that was refused for good lets those behind it move up. One that was given up while the broker may have it leaves a gap
of unknown kind: what follows keeps its sequences, and only if the broker refuses them is the epoch raised and counted
from 0.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ottla.client.accumulator import NO_SEQUENCE, Batch, PartitionQueue
from ottla.client.cluster import Cluster
from ottla.client.errors import ClientTimeout, KafkaError, is_worth_retrying
from ottla.client.identity import IdentityKeeper
from ottla.client.metrics import ProducerMetrics
from ottla.client.producer_options import ProducerOptions
from ottla.client.splitting import may_be_split, size_after, split
from ottla.client_core.cluster_view import STALE_METADATA
from ottla.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

UNKNOWN_OUTCOME = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Errors after which the broker may or may not have the batch."""
_LOST_IDENTITY = frozenset({ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
"""Errors after which an idempotent producer goes on under another identity; the batch was not appended."""


class Outcomes:
    """See the module. The sender tells what came of each batch; `on_finished` hears that a batch's memory is free,
    `on_split` that it has parts instead, `on_expired` is called when a part's time is over."""

    def __init__(
        self,
        cluster: Cluster,
        options: ProducerOptions,
        metrics: ProducerMetrics,
        identity: IdentityKeeper,
        *,
        on_expired: Callable[[Batch], None],
        on_finished: Callable[[Batch], None],
        on_split: Callable[[Batch], None],
    ) -> None:
        self._cluster = cluster
        self._retries = options.retries
        self._is_idempotent = bool(options.enable_idempotence)
        self._metrics = metrics
        self._identity = identity
        self._on_expired = on_expired
        self._on_finished = on_finished
        self._on_split = on_split
        self._loop = asyncio.get_running_loop()

    def appended(self, batch: Batch, base_offset: int, log_append_time_ms: int) -> None:
        """Finish a batch that the broker has."""
        queue = batch.queue
        queue.in_flight.remove(batch)
        queue.note_appended(batch)
        if not batch.is_finished:
            batch.finish(base_offset, log_append_time_ms)
            self._on_finished(batch)
        if queue.is_unsettled:
            queue.settle()

    def failed(self, batch: Batch, error: KafkaError, is_unknown: bool) -> None:
        """Put a batch back to be sent again, or in parts, or give it up; `is_unknown`: the broker may have it."""
        queue = batch.queue
        queue.in_flight.remove(batch)
        batch.maybe_appended |= is_unknown
        if error.code in STALE_METADATA:
            self._cluster.mark_stale()
        if error.code == ErrorCode.MESSAGE_TOO_LARGE and may_be_split(batch):
            self._split(batch)
        elif not batch.is_finished and self._is_to_be_retried(batch, error):
            self._metrics.record_retries.add(batch.record_count, self._loop.time())
            logger.info("%s-%d: %s; will be sent again", queue.topic, queue.partition, error)
            queue.failures += 1
            queue.not_before = self._loop.time() + self._cluster.options.retry_pause_s(queue.failures)
            queue.failed.append(batch)
            queue.failed.sort(key=lambda failed: failed.serial)
        else:
            queue.note_given_up(batch)
            self._conclude(batch, error)
        queue.settle()

    def expired(self, batch: Batch) -> None:
        """Give up a batch whose delivery timeout is over; one in flight is waited for, but not retried."""
        queue = batch.queue
        self._conclude(batch, ClientTimeout(f"{queue.topic}-{queue.partition}: not delivered before the timeout"))
        if batch in queue.in_flight:
            return
        queue.note_given_up(batch)
        if batch in queue.waiting:
            queue.waiting.remove(batch)
        if batch in queue.failed:
            queue.failed.remove(batch)
        queue.settle()

    def _split(self, batch: Batch) -> None:
        """Let the records of a batch that is too large for its topic go again in two; those behind it move up."""
        queue = batch.queue
        now = self._loop.time()
        logger.info(
            "%s-%d: a batch of %d bytes is too large for the topic and is split",
            queue.topic,
            queue.partition,
            batch.builder.size_bytes,
        )
        batch.maybe_appended = False
        queue.note_given_up(batch)
        queue.batch_bytes = min(queue.batch_bytes, size_after(batch))
        parts = split(batch, now)
        for part in parts:
            part.expiry = self._loop.call_at(part.deadline, self._on_expired, part)
        batch.replace(parts)
        self._on_split(batch)
        queue.failed += parts
        queue.failed.sort(key=lambda failed: failed.serial)
        self._metrics.batch_splits.add(1, now)

    def _is_to_be_retried(self, batch: Batch, error: KafkaError) -> bool:
        """Whether a batch goes again; decides also about the identity, which some refusals call into question."""
        queue = batch.queue
        if batch.attempts > self._retries:
            return False
        if self._is_idempotent and error.code in _LOST_IDENTITY:
            self._identity.change(queue, by_epoch=error.code == ErrorCode.UNKNOWN_PRODUCER_ID)
            return True
        if self._is_idempotent and error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if self._has_earlier(queue, batch) or queue.rewind_to is not None:
                return True  # the one before it failed: it had to be refused
            self._identity.change(queue, by_epoch=True)
            return (
                queue.unknown_gap is not None
            )  # without a gap of ours, acknowledged records are gone: that is to be told
        return is_worth_retrying(error)

    def _has_earlier(self, queue: PartitionQueue, batch: Batch) -> bool:
        """Whether a batch that was sent before this one is still to be retried or under way."""
        others = [*queue.failed, *queue.in_flight]
        return any(other.serial < batch.serial and other.sequence != NO_SEQUENCE for other in others)

    def _conclude(self, batch: Batch, error: KafkaError) -> None:
        if batch.is_finished:
            return
        logger.warning(
            "%s-%d: %d records were not delivered: %s",
            batch.queue.topic,
            batch.queue.partition,
            batch.record_count,
            error,
        )
        self._metrics.record_errors.add(batch.record_count, self._loop.time())
        batch.fail(error)
        self._on_finished(batch)
