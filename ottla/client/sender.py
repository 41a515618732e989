"""Moves batches from their queues to the leaders and back: the part of the producer that talks.

`pump` looks at every queue with something to send and writes as many requests as leaders may have in flight, each
with at most one batch of a partition. It runs when a batch is full, when one has lingered, when an answer came, when a
leader became reachable; it never waits. Answers finish batches, or put them back to be retried.

Order and exactly-once within a partition (KIP-98, KIP-360): batches carry sequences. When one fails, nothing more of
its partition is sent until all that is in flight has come back; then everything goes again in the old order. A batch
that was refused for good lets those behind it move up. One that was given up while the broker may have it leaves a gap
of unknown kind: what follows keeps its sequences, and only if the broker refuses them is the epoch raised and counted
from 0.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from uuid import UUID

from ottla.client.accumulator import NO_IDENTITY, NO_SEQUENCE, Batch, PartitionQueue
from ottla.client.cluster import Cluster, is_worth_retrying
from ottla.client.connection import Connection
from ottla.client.errors import ClientTimeout, ConnectionLost, KafkaError
from ottla.client.identity import IdentityKeeper
from ottla.client.metrics import ProducerMetrics
from ottla.client.producer_options import ProducerOptions
from ottla.client.splitting import may_be_split, size_after, split
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.compression import Compression
from ottla.protocol.types import ZERO_UUID

logger = logging.getLogger(__name__)

_LAST_VERSION_WITH_TOPIC_NAMES = 12
_UNKNOWN_OUTCOME = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Errors after which the broker may or may not have the batch."""
_STALE_METADATA = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.FENCED_LEADER_EPOCH,
    }
)
"""Errors that say that the leader is perhaps another one."""
_LOST_IDENTITY = frozenset({ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
"""Errors after which an idempotent producer goes on under another identity; the batch was not appended."""


class Sender:
    """See the module. The producer fills queues and calls `activate` and `wake`; `on_closed` hears that
    a batch takes no more records, `on_finished` that its memory is free, `on_split` that it has parts instead."""

    def __init__(
        self,
        cluster: Cluster,
        options: ProducerOptions,
        metrics: ProducerMetrics,
        *,
        on_closed: Callable[[Batch], None],
        on_finished: Callable[[Batch], None],
        on_split: Callable[[Batch], None],
    ) -> None:
        self.is_hurried = False
        """Somebody waits (flush, close, a full buffer): batches do not linger."""
        self._cluster = cluster
        self._metrics = metrics
        self._acks = options.acks
        self._is_idempotent = bool(options.enable_idempotence)
        self._compression = Compression.named(options.compression_type)
        self._level = options.compression_level
        self._max_in_flight = options.max_in_flight_requests_per_connection
        self._max_request_bytes = options.max_request_size
        self._retries = options.retries
        self._on_closed = on_closed
        self._on_finished = on_finished
        self._on_split = on_split
        self._loop = asyncio.get_running_loop()
        self._identity = IdentityKeeper(cluster, on_renewed=self.wake)
        self._active: dict[PartitionQueue, None] = {}
        self._in_flight: dict[int, int] = defaultdict(int)
        self._connecting: dict[int, asyncio.Task[None]] = {}
        self._throttled_until: dict[int, float] = {}
        self._is_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._is_closed = False

    async def start(self, timeout_ms: int) -> None:
        """Get a producer id, if sequences are wanted."""
        if self._is_idempotent:
            await self._identity.start(timeout_ms)

    async def close(self) -> None:
        """Stop sending. What was not finished is left to the producer."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._connecting.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, self._identity.close(), return_exceptions=True)

    def activate(self, queue: PartitionQueue) -> None:
        """Look after a queue that has a batch now, and come back when the batch has lingered."""
        self._active[queue] = None
        self._wake_at(queue.waiting[-1].linger_until)

    def close_batch(self, batch: Batch) -> None:
        """Let no more records into a batch."""
        if not batch.is_closed:
            batch.is_closed = True
            self._on_closed(batch)

    @property
    def requests_in_flight(self) -> int:
        """How many requests wait for their answer."""
        return sum(self._in_flight.values())

    def wake(self) -> None:
        """Pump as soon as the loop is free."""
        if not self._is_scheduled and not self._is_closed:
            self._is_scheduled = True
            self._loop.call_soon(self._pump)

    def expire(self, batch: Batch) -> None:
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
        self.wake()

    # Sending ----------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Write every request that may be written now, and set the timer for what has to wait."""
        self._is_scheduled = False
        if self._is_closed:
            return
        now = self._loop.time()
        while requests := self._gather(now):
            for leader_id, (connection, batches) in requests.items():
                self._send(leader_id, connection, batches)
        for queue in [queue for queue in self._active if queue.is_idle]:
            del self._active[queue]

    def _gather(self, now: float) -> dict[int, tuple[Connection, list[Batch]]]:
        """Take at most one batch of each queue, grouped by leaders that can take a request."""
        requests: dict[int, tuple[Connection, list[Batch]]] = {}
        sizes: dict[int, int] = defaultdict(int)
        for queue in self._active:
            if not self._may_send(queue, now):
                continue
            leader_id = self._cluster.leader_of(queue.topic, queue.partition)
            if leader_id < 0:
                self._cluster.mark_stale()
                continue
            if queue.in_flight and queue.leader_id != leader_id:
                continue  # the old leader's answers first, or sequences would overtake each other
            if self._in_flight[leader_id] >= self._max_in_flight or self._is_throttled(leader_id, now):
                continue
            connection = self._cluster.open_connection(leader_id)
            if connection is None:
                self._connect(leader_id)
                continue
            if not connection.is_writable:
                connection.on_writable = self.wake
                continue
            batch = queue.waiting[0]
            size_bytes = batch.builder.size_bytes
            if sizes[leader_id] and sizes[leader_id] + size_bytes > self._max_request_bytes:
                continue
            sizes[leader_id] += size_bytes
            queue.waiting.popleft()
            queue.in_flight.append(batch)
            queue.leader_id = leader_id
            requests.setdefault(leader_id, (connection, []))[1].append(batch)
        if requests:  # who came first now comes last, so that a full request does not starve the others
            for _, batches in requests.values():
                for batch in batches:
                    del self._active[batch.queue]
                    self._active[batch.queue] = None
        return requests

    def _may_send(self, queue: PartitionQueue, now: float) -> bool:
        if not queue.waiting or (queue.in_flight and queue.is_unsettled):
            return False
        if self._is_idempotent and queue.in_flight and not queue.is_known_to_broker:
            return False
        if now < queue.not_before:
            self._wake_at(queue.not_before)
            return False
        if self._is_idempotent and queue.identity == NO_IDENTITY and self._identity.is_renewing:
            return False
        batch = queue.waiting[0]
        if batch.is_closed or self.is_hurried or now >= batch.linger_until:
            return True
        self._wake_at(batch.linger_until)
        return False

    def _is_throttled(self, leader_id: int, now: float) -> bool:
        until = self._throttled_until.get(leader_id, 0.0)
        if now < until:
            self._wake_at(until)
            return True
        return False

    def _wake_at(self, when: float) -> None:
        if self._timer is not None:
            if self._timer_at <= when:
                return
            self._timer.cancel()
        self._timer_at = when  # kept here, since uvloop's handle of a time that has passed cannot tell it
        self._timer = self._loop.call_at(when, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._is_scheduled = True
        self._pump()

    def _connect(self, leader_id: int) -> None:
        if leader_id not in self._connecting:
            self._connecting[leader_id] = asyncio.create_task(self._dial(leader_id), name=f"ottla-dial-{leader_id}")

    async def _dial(self, leader_id: int) -> None:
        try:
            await self._cluster.connection(leader_id)
        except KafkaError as failed:
            logger.warning("broker %d: %s", leader_id, failed.message)
            self._cluster.mark_stale()
            await asyncio.sleep(self._cluster.options.reconnect_pause_s(1))
        finally:
            del self._connecting[leader_id]
        self.wake()

    def _send(self, leader_id: int, connection: Connection, batches: list[Batch]) -> None:
        by_topic: dict[str, list[ProduceRequest.PartitionProduceData]] = defaultdict(list)
        try:
            for batch in batches:
                by_topic[batch.queue.topic].append(self._seal(batch))
            ids = {topic: self._cluster.topic_id(topic) for topic in by_topic}
            has_ids = all(topic_id != ZERO_UUID for topic_id in ids.values())
            version = connection.version_for(ProduceRequest, 2**15 - 1 if has_ids else _LAST_VERSION_WITH_TOPIC_NAMES)
            request = ProduceRequest(
                acks=self._acks,
                timeout_ms=self._cluster.options.request_timeout_ms,
                topic_data=[
                    ProduceRequest.TopicProduceData(name=topic, topic_id=ids[topic], partition_data=data)
                    for topic, data in by_topic.items()
                ],
            )
            if self._acks == 0:
                connection.send_only(request, version)
                for batch in batches:
                    self._on_appended(batch, -1, -1)
                self.wake()
                return
            answer = connection.send(request, ProduceResponse, version)
        except KafkaError as failed:
            for batch in batches:
                self._on_failed(batch, failed, is_unknown=False)
            return
        self._in_flight[leader_id] += 1
        self._metrics.records_per_request.add(sum(batch.record_count for batch in batches), self._loop.time())
        names = {topic_id: topic for topic, topic_id in ids.items()}
        answer.add_done_callback(partial(self._on_answer, leader_id, batches, names if version > 12 else None))

    def _seal(self, batch: Batch) -> ProduceRequest.PartitionProduceData:
        self.close_batch(batch)
        batch.attempts += 1
        queue = batch.queue
        if self._is_idempotent:
            queue.number(batch, self._identity.current)
        if batch.sealed is None:
            batch.sealed = batch.builder.seal(
                compression=self._compression,
                level=self._level,
                producer_id=queue.identity.producer_id,
                producer_epoch=queue.identity.epoch,
                base_sequence=batch.sequence,
            )
        if batch.attempts == 1:
            self._measure(batch, len(batch.sealed))
        return ProduceRequest.PartitionProduceData(index=queue.partition, records=batch.sealed)

    def _measure(self, batch: Batch, sealed_bytes: int) -> None:
        now = self._loop.time()
        self._metrics.records_sent.add(batch.record_count, now)
        self._metrics.batch_bytes.add(sealed_bytes, now)
        self._metrics.compression_rate.add(sealed_bytes / batch.builder.size_bytes, now)
        self._metrics.queue_ms.add((now - batch.opened_at) * 1000, now)

    # Answers ----------------------------------------------------------------------------------------------------

    def _on_answer(
        self,
        leader_id: int,
        batches: list[Batch],
        names_by_id: dict[UUID, str] | None,
        answer: asyncio.Future[ProduceResponse],
    ) -> None:
        self._in_flight[leader_id] -= 1
        if answer.cancelled():
            return
        failed = answer.exception()
        if failed is not None:
            error = failed if isinstance(failed, KafkaError) else ConnectionLost(str(failed))
            for batch in batches:
                self._on_failed(batch, error, is_unknown=True)
        else:
            self._take(batches, names_by_id, answer.result())
            throttle_ms = answer.result().throttle_time_ms
            self._metrics.throttle_ms.add(throttle_ms, self._loop.time())
            if throttle_ms > 0:
                self._throttled_until[leader_id] = self._loop.time() + throttle_ms / 1000
        if not self._is_closed:
            self._is_scheduled = True
            self._pump()

    def _take(self, batches: list[Batch], names_by_id: dict[UUID, str] | None, answer: ProduceResponse) -> None:
        waiting = {(batch.queue.topic, batch.queue.partition): batch for batch in batches}
        for topic in answer.responses:
            name = topic.name if names_by_id is None else names_by_id.get(topic.topic_id, "")
            for told in topic.partition_responses:
                batch = waiting.pop((name, told.index), None)
                if batch is None:
                    continue
                if told.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    self._on_appended(batch, told.base_offset, told.log_append_time_ms)
                    continue
                code = ErrorCode.of(told.error_code)
                self._on_failed(batch, KafkaError(code, _explain(batch, told, code)), code in _UNKNOWN_OUTCOME)
        for batch in waiting.values():
            silent = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker said nothing of this partition")
            self._on_failed(batch, silent, is_unknown=True)

    def _on_appended(self, batch: Batch, base_offset: int, log_append_time_ms: int) -> None:
        queue = batch.queue
        queue.in_flight.remove(batch)
        queue.note_appended(batch)
        if not batch.is_finished:
            batch.finish(base_offset, log_append_time_ms)
            self._on_finished(batch)
        if queue.is_unsettled:
            queue.settle()

    def _on_failed(self, batch: Batch, error: KafkaError, is_unknown: bool) -> None:
        queue = batch.queue
        queue.in_flight.remove(batch)
        batch.maybe_appended |= is_unknown
        if error.code in _STALE_METADATA:
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
            part.expiry = self._loop.call_at(part.deadline, self.expire, part)
        batch.replace(parts)
        self._on_split(batch)
        queue.failed += parts
        queue.failed.sort(key=lambda failed: failed.serial)
        self._active[queue] = None
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


def _explain(batch: Batch, told: ProduceResponse.PartitionProduceResponse, code: ErrorCode) -> str:
    """Say which partition, what the broker said, and which records it names."""
    message = f"{batch.queue.topic}-{batch.queue.partition}: {told.error_message or code.message}"
    named = [
        f"record {refused.batch_index}: {refused.batch_index_error_message or 'refused'}"
        for refused in told.record_errors[:3]
    ]
    return f"{message} ({'; '.join(named)})" if named else message
