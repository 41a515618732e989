"""The sender: sends batches from their queues to the leaders, as asyncio driver of `ottla.client_core.send_queues`.

`_pump` writes as many requests as leaders may have in flight. It runs when a batch is full or has lingered, when an
answer came, or when a leader became reachable; it never waits. The core interprets the answers; this module completes
deliveries, counts metrics and sets timers.

A record for which the program waits, with nothing else to send, is written first (`send_first`): the broker works on it
while its batch is entered in the queues.

It is one file: each of its steps may close, send, complete or give up batches, and all use the same queues, routes and
timers.

An unexpected exception while a request is made ends the batches of that request. Anywhere else it ends the producer
(`fail`), since the state of the queues is then unknown. An interrupt (Ctrl-C, where asyncio does not handle it) does so
everywhere, and is raised.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from ottla.client.accumulator import Batch
from ottla.client.cluster import Cluster
from ottla.client.connection import Connection
from ottla.client.errors import ClientFailed, ClientTimeout, ConnectionLost, KafkaError
from ottla.client.identity import IdentityKeeper
from ottla.client.leader_connections import LeaderConnections
from ottla.client.metrics import ProducerMetrics
from ottla.client.producer_options import ProducerOptions
from ottla.client.routes import Route, Routes
from ottla.client.sent_batches import SentBatch, SentBatches
from ottla.client.splitting import size_after, split
from ottla.client.transaction_driver import TransactionDriver
from ottla.client_core.partition_queue import PartitionQueue, ProducerIdentity
from ottla.client_core.send_queues import LAST_VERSION_WITH_TOPIC_NAMES, SendQueues
from ottla.client_core.send_results import Result, SendResult, SendRules
from ottla.client_core.transaction_questions import LAST_OLD_PRODUCE_VERSION
from ottla.client_core.versions import ANY_VERSION
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.records.batch import HEADER_BYTES, TRANSACTIONAL_BIT, seal_batch
from ottla.protocol.records.compression import Compression, compress
from ottla.protocol.types import ZERO_UUID
from ottla.shown import counted

logger = logging.getLogger(__name__)


class Sender:
    """See the module. The producer fills queues and calls `activate` and `wake`.

    `add_sent` returns the batch of records that were sent before they had one. `on_closed` is called with a batch that
    takes no more records, `on_finished` with one whose memory is free, `on_split` with one that was split; `on_failure`
    once, with the exception that ends the producer. `transactions` is set before the start if there are any.
    """

    transactions: TransactionDriver | None = None

    def __init__(
        self,
        cluster: Cluster,
        options: ProducerOptions,
        metrics: ProducerMetrics,
        *,
        add_sent: Callable[[PartitionQueue[Batch], bytes, int, float], Batch],
        on_closed: Callable[[Batch], None],
        on_finished: Callable[[Batch], None],
        on_split: Callable[[Batch], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self.request_timeout_ms = cluster.options.request_timeout_ms
        self._acks = options.acks
        self._lingers = options.lingering_ms > 0
        self._lingers_awaited = options.lingers_awaited
        self._is_idempotent = bool(options.enable_idempotence)
        self._transactional_id = options.transactional_id
        self._codec = Compression.named(options.compression_type)
        self._attributes = int(self._codec)
        if options.transactional_id is not None:
            self._attributes |= TRANSACTIONAL_BIT
        self._level = options.compression_level
        self._add_sent = add_sent
        self._on_closed = on_closed
        self._on_finished = on_finished
        self._on_split = on_split
        self._on_failure = on_failure
        self.loop = asyncio.get_running_loop()
        self._identity = IdentityKeeper(cluster, on_renewed=self.identify)
        self._routes = Routes(cluster, options)
        self._leaders = LeaderConnections(cluster, on_change=self.wake)
        self._queues: SendQueues[Batch, int] = SendQueues(
            SendRules(
                is_idempotent=self._is_idempotent,
                max_in_flight=options.max_in_flight_requests_per_connection,
                max_request_bytes=options.max_request_size,
                backoff=options.retry_backoff,
                retries=options.retries,
                is_transactional=options.transactional_id is not None,
            ),
            seal=self._seal,
            split=self._split,
            leader_of=self._leader_of,
            topic_id=cluster.topic_id,
            may_write=self._leaders.may_write,
            may_go=None if options.transactional_id is None else self._may_go,
            chance=random.random,
        )
        self._is_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._is_closed = False

    async def start(self, timeout_ms: int) -> None:
        """Get a producer id, if the producer is idempotent."""
        if self.transactions is not None:
            self._queues.identify(await self.transactions.start(timeout_ms))
        elif self._is_idempotent:
            self._queues.identify(await self._identity.first(timeout_ms))

    def stop(self) -> None:
        """Send nothing more. The producer handles unfinished batches."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    async def close(self) -> None:
        """Stop, and end the tasks."""
        self.stop()
        tasks = self._leaders.stop()
        tasks += self.transactions.stop() if self.transactions is not None else self._identity.stop()
        await asyncio.gather(*tasks, return_exceptions=True)

    def fail(self, bug: BaseException) -> None:
        """End the producer because of an unexpected exception."""
        if not self._is_closed:
            logger.error("the producer failed", exc_info=bug)
            self.stop()
            self._on_failure(bug)

    def activate(self, queue: PartitionQueue[Batch]) -> None:
        """Include a queue that has a batch now, and wake up when the batch has lingered."""
        self._queues.activate(queue)
        if self.transactions is not None:
            self.transactions.will_write(queue.topic, queue.partition)
        if self._lingers:
            self._wake_at(queue.waiting[-1].linger_until)
        else:
            self.wake()

    def send_soon(self, batch: Batch) -> None:
        """Without linger for records that are awaited, send the waiting batches in this step if no request is in
        flight. `batch`, which is active, has such a record.

        Otherwise they are sent with the next answer, or in the loop's next iteration, together with records that other
        tasks add until then.
        """
        if self._lingers_awaited or self._is_closed:
            return
        batch.linger_until = 0.0
        if not self._queues.requests_in_flight:
            self._pump()
        elif self._lingers:
            self.wake()

    def route_alone(self, queue: PartitionQueue[Batch], now: float) -> Route | None:
        """Return the route by which the next batch of a queue may be sent in this step, as the only one; else None.

        The queue has no other batch that waits. Batches for which the program waits need not linger.
        """
        route = self._routes.found.get(queue)
        if route is None or route.view_version != self._cluster.version or not route.connection.is_clear():
            return None
        if self._lingers_awaited or self._is_closed:
            return None
        return route if self._queues.is_clear(queue, route.leader_id, route.template.topic_id, now) else None

    def send_first(
        self,
        queue: PartitionQueue[Batch],
        route: Route,
        body: bytes | bytearray,
        record_count: int,
        base_timestamp: int,
        max_timestamp: int,
        now: float,
        batch: Batch | None = None,
    ) -> Batch:
        """Send encoded records by the route of `route_alone`, in the same step; return their batch.

        The request is written first, and everything else is done while the broker works. `batch` has the records; None
        for a record that is in no batch yet. Raises ClientFailed for an unexpected exception: one before the request is
        written changes nothing, a later one ends the producer.
        """
        template, connection = route.template, route.connection
        (producer_id, epoch), sequence, opened = queue.identity, queue.next_sequence, None
        try:
            payload = compress(self._codec, body, self._level) if self._codec else body
            correlation_id = connection.take_correlation_id()
            buffers = template.frame_batch(  # by position, since keyword arguments would be slower
                correlation_id,
                payload,
                self._attributes,
                record_count - 1,
                base_timestamp,
                max_timestamp,
                producer_id,
                epoch,
                sequence,
                record_count,
            )
        except Exception as bug:  # whatever it is, the caller must get it as a failure of the client
            raise ClientFailed(bug) from bug
        try:
            queue.take_sequences(record_count)
            connection.write_now(buffers, now)
            # The broker works from here on.
            if batch is None:
                batch = opened = self._add_sent(queue, bytes(body), base_timestamp, now)
            batch.sequence, batch.attempts = sequence, 1  # it is sealed again if it has to be sent again
            self.close_batch(batch)
            self._is_scheduled = False  # the scheduled pump has nothing more to do
            self._queues.sent_alone(batch, route.leader_id)
            request = SentBatch(self, route.leader_id, batch, template, now)
            request.correlation_id = correlation_id
            connection.expect(request)
            self._measure_alone(batch, HEADER_BYTES + len(payload), now)
        except BaseException as bug:  # an interrupt, too: the batch may be sent, and is in no queue
            self.fail(bug)
            if opened is not None:
                opened.observed.update(range(opened.record_count))  # the caller gets the exception
            if isinstance(bug, Exception):
                raise ClientFailed(bug) from bug
            raise
        return batch

    def send_alone(self, batch: Batch) -> bool:
        """Send a batch in this step if it was not sent before, no other is to be sent, and the route to its leader is
        known; return whether it was sent. Its queue may be active or not.
        """
        queue = batch.queue
        if len(queue.waiting) != 1 or queue.waiting[0] is not batch:
            return False
        now = self.loop.time()
        route = self.route_alone(queue, now)
        if route is None:
            return False
        try:
            builder = batch.builder
            times = builder.base_timestamp, builder.max_timestamp
            self.send_first(queue, route, builder.body, builder.record_count, *times, now, batch)
        except ClientFailed:  # if it has not ended the producer, and with it the batch, `_send` tries again
            return batch.is_finished
        return True

    def close_batch(self, batch: Batch) -> None:
        """Add no more records to a batch."""
        if not batch.is_closed:
            batch.is_closed = True
            self._on_closed(batch)

    @property
    def requests_in_flight(self) -> int:
        """The number of requests that wait for an answer."""
        return self._queues.requests_in_flight

    def hurry(self, is_hurried: bool) -> None:
        """Stop or restart lingering; batches do not linger while the program waits (flush, close, a full buffer).

        Waiting batches are sent in this step if no request is in flight: the program adds no records to them now.
        """
        self._queues.is_hurried = is_hurried
        if is_hurried and not self._queues.requests_in_flight:
            self._pump()
        elif self._queues.has_waiting:
            self.wake()

    def wake(self) -> None:
        """Pump as soon as the loop is free."""
        if not self._is_scheduled and not self._is_closed:
            self._is_scheduled = True
            self.loop.call_soon(self._on_turn)

    def expire(self, batch: Batch) -> None:
        """Give up a batch after its delivery timeout; the answer to one in flight is awaited, but it is not retried."""
        self._give_up(batch, ClientTimeout(f"{batch.queue}: not delivered before the timeout"))
        self._queues.expire(batch)
        if self.transactions is not None:
            self.transactions.changed()
        self.wake()

    def discard(self, batch: Batch, error: KafkaError) -> None:
        """Give up a batch of an aborted transaction; the answer to one in flight is awaited, but it is not retried."""
        if not batch.is_finished:
            batch.fail(error)
            self._on_finished(batch)
        self._queues.expire(batch)

    def identify(self, identity: ProducerIdentity) -> None:
        """Send further batches under this identity, including those that a transaction held back."""
        self._queues.identify(identity)
        self.wake()

    # Sending ----------------------------------------------------------------------------------------------------

    def _on_turn(self) -> None:
        if self._is_scheduled:  # otherwise `send_soon` was faster
            self._pump()

    def _pump(self) -> None:
        """Write all requests that may be written now; for the rest, ask for metadata or an identity, or set a timer."""
        self._is_scheduled = False
        if self._is_closed:
            return
        try:
            now = self.loop.time()
            while requests := self._queues.gather(now):
                for leader_id, batches in requests.items():
                    self._send(leader_id, batches)
                if not self._queues.may_have_more:
                    break
            if self._queues.wake_at < math.inf:
                self._wake_at(self._queues.wake_at)
            if self._queues.needs_metadata:
                self._queues.needs_metadata = False
                self._cluster.mark_stale()
            if self._queues.wants_identity:
                self._identity.renew()
        except BaseException as bug:
            self.fail(bug)
            if not isinstance(bug, Exception):
                raise

    def _may_go(self, topic: str, partition: int) -> bool:
        return self.transactions is not None and self.transactions.state.may_write(topic, partition)

    def _leader_of(self, topic: str, partition: int) -> int | None:
        leader_id = self._cluster.leader_of(topic, partition)
        return None if leader_id < 0 else leader_id

    def _wake_at(self, when: float) -> None:
        if self._timer is not None:
            if self._timer_at <= when:
                return
            self._timer.cancel()
        self._timer_at = when  # stored here, since uvloop's handle does not know a time that has passed
        self._timer = self.loop.call_at(when, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._pump()

    def _send(self, leader_id: int, batches: list[Batch]) -> None:
        first_tries = [batch for batch in batches if not batch.attempts]
        try:
            for batch in first_tries:
                self.close_batch(batch)
            route = self._routes.find(batches[0].queue, leader_id) if len(batches) == 1 else None
            if route is not None:
                self._send_by_template(batches[0], route, self.loop.time())
                self._queues.sent(leader_id)
            else:
                self._send_together(leader_id, self._cluster.open_connection(leader_id), batches, first_tries)
        except KafkaError as failed:
            self._take(self._queues.refused(batches, failed, self.loop.time()))
        except Exception as bug:  # deliveries of these batches must get it
            logger.error("a Produce request failed", exc_info=bug)
            self._take(self._queues.refused(batches, ClientFailed(bug), self.loop.time(), is_unknown=True))

    def _send_by_template(self, batch: Batch, route: Route, now: float) -> None:
        batch.attempts += 1
        records = self._queues.seal(batch)
        template = route.template
        route.connection.send_template(SentBatch(self, route.leader_id, batch, template, now), template, records)
        if batch.attempts > 1:
            self._metrics.records_per_request.add(batch.record_count, now)
        else:
            self._measure_alone(batch, len(records), now)

    def _send_together(
        self, leader_id: int, connection: Connection | None, batches: list[Batch], first_tries: list[Batch]
    ) -> None:
        ids = {batch.queue.topic: self._cluster.topic_id(batch.queue.topic) for batch in batches}
        request = self._queues.produce_request(
            batches,
            acks=self._acks,
            timeout_ms=self.request_timeout_ms,
            ids=ids,
            transactional_id=self._transactional_id,
        )
        now = self.loop.time()
        for batch in first_tries:
            self._measure(batch, now)
        if connection is None:
            raise ConnectionLost(f"the connection to broker {leader_id} is closed")
        version = connection.version_for(ProduceRequest, self._newest_version(ids))
        if self._acks == 0:
            connection.send_only(request, version)
            self._take(self._queues.assume_appended(batches))
            self.wake()
            return
        names = {topic_id: topic for topic, topic_id in ids.items()}
        names_by_id = names if version > LAST_VERSION_WITH_TOPIC_NAMES else None
        connection.send_for(SentBatches(self, leader_id, batches, names_by_id), request, version)
        self._queues.sent(leader_id)
        if self.transactions is not None:
            self.transactions.state.has_written()
        self._metrics.records_per_request.add(sum(batch.record_count for batch in batches), now)

    def _newest_version(self, ids: Mapping[str, UUID]) -> int:
        """Return the newest version of Produce that may be used for topics with these ids."""
        if self.transactions is not None and self.transactions.state.is_old:
            return LAST_OLD_PRODUCE_VERSION  # from the next version on, a write adds its partition to the transaction
        return LAST_VERSION_WITH_TOPIC_NAMES if ZERO_UUID in ids.values() else ANY_VERSION

    def _seal(self, batch: Batch) -> bytearray:
        builder = batch.builder
        count = builder.record_count
        producer_id, epoch = batch.queue.identity
        times = builder.base_timestamp, builder.max_timestamp
        return seal_batch(  # by position, as above
            builder.body,
            0,
            -1,
            self._attributes,
            count - 1,
            *times,
            producer_id,
            epoch,
            batch.sequence,
            count,
            self._level,
        )

    def _measure_alone(self, batch: Batch, sealed_bytes: int, now: float) -> None:
        """Count a batch that is sent for the first time, alone in its request."""
        count = batch.record_count
        rate = sealed_bytes / (HEADER_BYTES + len(batch.builder.body))
        self._metrics.alone.add(now, count, sealed_bytes, rate, (now - batch.opened_at) * 1000, count)

    def _measure(self, batch: Batch, now: float) -> None:
        sealed_bytes = len(batch.sealed or b"")
        compression_rate = sealed_bytes / (HEADER_BYTES + len(batch.builder.body))
        queue_ms = (now - batch.opened_at) * 1000
        self._metrics.batches.add(now, batch.record_count, sealed_bytes, compression_rate, queue_ms)

    # Answers ----------------------------------------------------------------------------------------------------

    def on_appended(self, leader_id: int, batch: Batch, base_offset: int, log_append_time_ms: int) -> None:
        """Process the usual answer to a request with one batch: the broker has appended it."""
        try:
            has_more = self._queues.appended(leader_id, batch)
            if not batch.is_finished:
                batch.base_offset = base_offset
                batch.log_append_time_ms = log_append_time_ms
                batch.is_finished = True
                self._on_finished(batch)
            if has_more:
                self.wake()
        except BaseException as bug:
            self.fail(bug)
            batch.wake()  # the broker has appended it, and its deliveries may not be complete
            if not isinstance(bug, Exception):
                raise

    def on_answer(
        self, leader_id: int, batches: list[Batch], names_by_id: dict[UUID, str] | None, response: ProduceResponse
    ) -> None:
        """Process the answer to a request; `names_by_id` if it has no topic names."""
        try:
            now = self.loop.time()
            if response.throttle_time_ms > 0:
                self._metrics.throttle_ms.add(response.throttle_time_ms, now)
            self._take(self._queues.answered(leader_id, batches, response, now, names_by_id))
            self.wake()
        except BaseException as bug:
            self.fail(bug)
            if not isinstance(bug, Exception):
                raise

    def on_lost(self, leader_id: int, batches: list[Batch], error: KafkaError) -> None:
        """Note that a request gets no answer."""
        try:
            self._take(self._queues.lost(leader_id, batches, error, self.loop.time()))
            self.wake()
        except BaseException as bug:
            self.fail(bug)
            if not isinstance(bug, Exception):
                raise

    def _finish(self, batch: Batch, base_offset: int, log_append_time_ms: int) -> None:
        if not batch.is_finished:
            batch.finish(base_offset, log_append_time_ms)
            self._on_finished(batch)

    def _take(self, results: Iterable[SendResult[Batch]]) -> None:
        """Complete the deliveries of finished batches, and count the results of all."""
        for batch, result, error, answer in results:
            if result is Result.APPENDED:
                self._finish(batch, *((-1, -1) if answer is None else (answer.base_offset, answer.log_append_time_ms)))
            elif result is Result.RETRIED:
                self._metrics.record_retries.add(batch.record_count, self.loop.time())
                logger.info("%s: %s; will be sent again", batch.queue, error)
            elif result is Result.SPLIT:
                self._metrics.batch_splits.add(1, self.loop.time())
                self._on_split(batch)
            elif error is not None:
                self._give_up(batch, error)
        if self.transactions is not None:
            self.transactions.change_soon()

    def _split(self, batch: Batch) -> list[Batch]:
        """Split a batch that is too large for its topic in two, which are sent instead."""
        parts = split(batch, self.loop.time())
        if parts:
            size_bytes = batch.builder.size_bytes
            logger.info("%s: a batch of %d bytes is too large for the topic and is split", batch.queue, size_bytes)
            batch.queue.batch_bytes = min(batch.queue.batch_bytes, size_after(batch))
            batch.replace(parts)
        return parts

    def _give_up(self, batch: Batch, error: KafkaError) -> None:
        if batch.is_finished:
            return
        logger.warning("%s: %s not delivered: %s", batch.queue, counted(batch.record_count, "record"), error)
        self._metrics.record_errors.add(batch.record_count, self.loop.time())
        if (
            self.transactions is not None
        ):  # first, so that the transaction takes no more records when the program gets this error
            self.transactions.batch_failed(error)
        batch.fail(error)
        self._on_finished(batch)
