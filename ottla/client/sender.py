"""Moves batches from their queues to the leaders and back: the part of the producer that talks.

`pump` looks at every queue with something to send and writes as many requests as leaders may have in flight, each
with at most one batch of a partition. It runs when a batch is full, when one has lingered, when an answer came, when a
leader became reachable; it never waits. What answers mean for batches, `Outcomes` knows.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from uuid import UUID

from ottla.client.accumulator import NO_IDENTITY, Batch, PartitionQueue
from ottla.client.cluster import Cluster
from ottla.client.connection import Connection
from ottla.client.errors import ConnectionLost, KafkaError
from ottla.client.identity import IdentityKeeper
from ottla.client.metrics import ProducerMetrics
from ottla.client.outcomes import UNKNOWN_OUTCOME, Outcomes
from ottla.client.producer_options import ProducerOptions
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.compression import Compression
from ottla.protocol.types import ZERO_UUID

logger = logging.getLogger(__name__)

_LAST_VERSION_WITH_TOPIC_NAMES = 12


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
        self._on_closed = on_closed
        self._loop = asyncio.get_running_loop()
        self._identity = IdentityKeeper(cluster, on_renewed=self.wake)
        self._outcomes = Outcomes(
            cluster,
            options,
            metrics,
            self._identity,
            on_expired=self.expire,
            on_finished=on_finished,
            on_split=on_split,
        )
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

    def stop(self) -> None:
        """Send nothing more. What was not finished is left to the producer."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    async def close(self) -> None:
        """Stop, and end the tasks."""
        self.stop()
        tasks = list(self._connecting.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._identity.stop(), return_exceptions=True)

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
        self._outcomes.expired(batch)
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
            topic_id = self._cluster.topic_id(queue.topic)
            if queue.in_flight and (queue.leader_id, queue.topic_id) != (leader_id, topic_id):
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
            queue.go_to(leader_id, topic_id)
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
        if self._is_idempotent and queue.in_flight and not queue.may_overtake(queue.waiting[0]):
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
                    self._outcomes.appended(batch, -1, -1)
                self.wake()
                return
            answer = connection.send(request, ProduceResponse, version)
        except KafkaError as failed:
            for batch in batches:
                self._outcomes.failed(batch, failed, is_unknown=False)
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
                self._outcomes.failed(batch, error, is_unknown=True)
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
                    self._outcomes.appended(batch, told.base_offset, told.log_append_time_ms)
                    continue
                code = ErrorCode.of(told.error_code)
                self._outcomes.failed(batch, KafkaError(code, _explain(batch, told, code)), code in UNKNOWN_OUTCOME)
        for batch in waiting.values():
            silent = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker said nothing of this partition")
            self._outcomes.failed(batch, silent, is_unknown=True)


def _explain(batch: Batch, told: ProduceResponse.PartitionProduceResponse, code: ErrorCode) -> str:
    """Say which partition, what the broker said, and which records it names."""
    message = f"{batch.queue.topic}-{batch.queue.partition}: {told.error_message or code.message}"
    named = [
        f"record {refused.batch_index}: {refused.batch_index_error_message or 'refused'}"
        for refused in told.record_errors[:3]
    ]
    return f"{message} ({'; '.join(named)})" if named else message
