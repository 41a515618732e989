"""Producer: sends records, in batches, to the leaders of their partitions.

`await producer.send(topic, value, key=...)` adds a record to its partition's batch and returns a `Delivery`
immediately; it waits only for metadata of a new topic and for room in `buffer_memory`. `await` the delivery for the
record's offset, or `await producer.flush()` until all records are delivered. Records of a partition keep their order,
and with `enable_idempotence` (the default) none is written twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import NoReturn, Self, Unpack

from ottla.client.accumulator import Batch, Delivery
from ottla.client.cluster import Cluster
from ottla.client.column_inputs import Column
from ottla.client.errors import ClientClosed, ClientFailed, KafkaError, RecordTooLarge, not_started
from ottla.client.filling import BatchFiller
from ottla.client.interceptors import close_all
from ottla.client.metrics import ProducerMetrics
from ottla.client.options import Servers, read_options
from ottla.client.partitioner import Partitioner
from ottla.client.producer_metadata import ProducerMetadata
from ottla.client.producer_options import ProducerKeywords, ProducerOptions
from ottla.client.record_preparation import (
    LARGEST_TIMESTAMP_MS,
    RecordPreparation,
    check_every_headers,
    check_headers,
    to_bytes,
    to_milliseconds,
)
from ottla.client.room import Room
from ottla.client.sender import Sender
from ottla.client.sent_records import Deliveries, Run
from ottla.client.structs import ProducerRecord, RecordMetadata
from ottla.client.transaction_driver import TransactionDriver
from ottla.client.transactional import TransactionMethods
from ottla.client.unfinished_batches import UnfinishedBatches
from ottla.client.unsent import warn_of_unsent
from ottla.client_core.partition_queue import PartitionQueue
from ottla.protocol.records.batch import HEADER_BYTES
from ottla.protocol.records.builder import BatchBuilder
from ottla.protocol.records.record import encode_plain_record, encode_record

logger = logging.getLogger(__name__)

_HEADER_ALLOWANCE_BYTES = 61
_PLAIN_ALLOWANCE_BYTES = 40
_HURRIED_CLOSE_MS = 10_000
"""How long `close` waits for deliveries when the program leaves the context by an exception."""


class Producer(TransactionMethods):
    """See the module. Use it as a context manager, or call `start` and `close`.

    `bootstrap_servers` is `host:port`, with commas or as a list; or a mapping of options under Kafka's dotted names,
    including `bootstrap.servers`. Options as keywords have underscores: `ProducerOptions` and `ClientOptions` describe
    them. Raises ValueError for an option that does not exist or is invalid.
    """

    def __init__(
        self,
        bootstrap_servers: Servers | Mapping[str, object] | None = None,
        **options: Unpack[ProducerKeywords],
    ) -> None:
        self._servers, self._options = read_options(ProducerOptions, bootstrap_servers, options)
        self._max_record_bytes = min(
            self._options.max_request_size - _HEADER_ALLOWANCE_BYTES, self._options.buffer_memory
        )
        self._max_block_ms = self._options.max_block_ms
        self._partitioner = Partitioner(self._options.partitioner, ignores_keys=self._options.partitioner_ignore_keys)
        self._interceptors = self._options.interceptors
        self._preparation = RecordPreparation(self._options)
        self._is_plain = self._preparation.is_plain
        self._queues: dict[str, list[PartitionQueue[Batch]]] = {}
        """The partitions of the topics whose metadata is kept current, by topic; `_topics` maintains it."""
        self._topics: ProducerMetadata | None = None
        self._room = Room(self._options.buffer_memory, self._options.max_block_ms, self._hurry)
        self._batches = UnfinishedBatches(self._options, self._room)
        self._waiting_flushes = 0
        self._cluster: Cluster | None = None
        self._sender: Sender | None = None
        self._pid = os.getpid()
        self._metrics = ProducerMetrics(0)
        self._takes_records = False
        """Whether it was started, is not closed, and is inside a transaction if it has a `transactional_id`."""
        self._failure: BaseException | None = None
        """The unexpected exception that ended it; it can then only be closed."""
        self._is_closed = False

    async def start(self) -> None:
        """Find the cluster and get a producer id; raises KafkaError when that fails within `max_block_ms`.

        With a `transactional_id` this fences every other producer that has it, and aborts a transaction that one of
        them may have left open. A second call does nothing; raises ClientClosed after `close`.
        """
        self._refuse_if_closed()
        if self._sender is not None:
            return
        self._loop = asyncio.get_running_loop()
        cluster = Cluster(self._servers, self._options, allow_auto_create_topics=True)
        self._metrics = ProducerMetrics(self._loop.time())
        sender = Sender(
            cluster,
            self._options,
            self._metrics,
            add_sent=self._batches.add_sent,
            on_closed=self._on_closed,
            on_finished=self._batches.finish,
            on_split=self._batches.split,
            on_failure=self._on_failure,
        )
        self._batches.sender = sender
        if self._options.transactional_id is not None:
            driver = TransactionDriver(cluster, self._options, self._batches, self._on_change)
            sender.transactions = self._transactions = driver
        try:
            await cluster.start()
            await sender.start(self._max_block_ms)
        except BaseException:
            await sender.close()
            await cluster.close()
            raise
        self._cluster, self._sender = cluster, sender
        self._on_change()
        self._filler = BatchFiller(
            sender,
            self._room,
            self._partitioner,
            queues_of=self._queues_of,
            open_batch=self._batches.open,
            max_record_bytes=self._options.max_request_size - _HEADER_ALLOWANCE_BYTES,
        )
        self._topics = ProducerMetadata(cluster, self._options, self._queues)
        cluster.on_update = self._on_metadata

    async def close(self, timeout_ms: int | None = None) -> None:
        """Deliver the sent records, then end; after `timeout_ms` (None: the delivery timeout) the rest is given up.

        An open transaction is aborted. When all is closed, this raises the error of a record that was not delivered and
        whose delivery was not awaited.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._on_change()
        if self._sender is None or self._cluster is None:
            return
        try:
            await self._abort_open_transaction(timeout_ms)
            await self._await_all(None if timeout_ms is None else timeout_ms / 1000)
            if self._options.acks == 0:  # there are no answers to show that the broker has read the sent records
                limit_ms = self._options.request_timeout_ms if timeout_ms is None else timeout_ms
                await self._cluster.finish_requests(limit_ms / 1000)
        finally:
            self._give_up()
            try:
                await self._sender.close()
            finally:
                await self._cluster.close()
                close_all(self._interceptors)
        self._batches.raise_failure()

    def __del__(self) -> None:
        """Log the records that are lost because the event loop ended before `close`; a forked child has sent none."""
        if getattr(self, "_sender", None) is not None and not self._is_closed and self._pid == os.getpid():
            how = "`await close()` or use `async with`"
            warn_of_unsent(logger, self._count_unsent(), self._servers, "the event loop", how)

    def _count_unsent(self) -> int:
        """Return the number of records that are not delivered yet, including those in flight."""
        return self._batches.count_records()

    def _give_up(self) -> None:
        """Send nothing more, and end every wait. It never waits itself, so that it also runs in a cancelled `close`."""
        assert self._topics is not None
        assert self._sender is not None
        self._sender.stop()
        self._room.close()
        self._topics.stop()
        self._batches.give_up(ClientClosed("the producer was closed before the record was delivered"))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
            return
        with contextlib.suppress(KafkaError):  # the program's own exception must not be hidden
            await self.close(_HURRIED_CLOSE_MS)

    # Sending ----------------------------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: object = None,
        *,
        key: object = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """Start sending a record and return its delivery.

        Key and value are bytes, or objects for the serializers. `timestamp_ms` is since 1970 (None: now); for
        `partition` None the partitioner chooses. Raises RecordTooLarge, BufferExhausted, ClientClosed, ClientFailed,
        KafkaError if the topic is not available within `max_block_ms`, ValueError for a partition that the topic does
        not have, TypeError for keys and values that are not bytes, for headers that are not pairs and a time that is no
        integer, and the exceptions of a serializer.
        """
        if self._is_plain:
            now_ms = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
            batch = self._put_now(topic, value, key, headers, now_ms, partition)
            if batch is not None:
                return Delivery(batch, batch.record_count - 1, now_ms)
            return await self._put(topic, value, key, headers, timestamp_ms, partition)
        return await self._put_prepared(
            self._preparation.prepare(ProducerRecord(topic, value, key, headers, timestamp_ms, partition))
        )

    async def _put_prepared(self, record: ProducerRecord) -> Delivery:
        """Add a prepared record to its batch, and call interceptors if that fails."""
        try:
            return await self._put(
                record.topic, record.value, record.key, record.headers, record.timestamp_ms, record.partition
            )
        except Exception as failed:  # whatever the caller gets, interceptors get, too
            self._preparation.report_refused(record, failed)
            raise

    async def _put(
        self,
        topic: str,
        value: object,
        key: object,
        headers: Sequence[tuple[str, bytes | None]],
        timestamp_ms: int | None,
        partition: int | None,
    ) -> Delivery:
        """Add a record to its partition's batch, when the topic is known and there is room."""

        def put(has_turn: bool = False) -> Delivery | None:
            now_ms = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
            batch = self._put_now(topic, value, key, headers, now_ms, partition, has_turn=has_turn)
            if batch is None:
                return None
            delivery = Delivery(batch, batch.record_count - 1, now_ms)
            if batch.deliveries is not None:
                batch.deliveries.append(delivery)
            return delivery

        delivery = put()
        if delivery is None:
            await self._queues_of(topic)
            delivery = put()
        if delivery is None:
            await self._room.await_turn(_bound(to_bytes(key, "key"), to_bytes(value, "value"), headers))
            await self._queues_of(topic)  # the topic may have been dropped as idle meanwhile
            delivery = put(has_turn=True)
        assert delivery is not None
        return delivery

    def _put_now(  # noqa: PLR0915  # one path in one place: a call per step would cost as much as the step
        self,
        topic: str,
        value: object,
        key: object,
        headers: Sequence[tuple[str, bytes | None]],
        timestamp_ms: int,
        partition: int | None,
        is_awaited: bool = False,
        has_turn: bool = False,
    ) -> Batch | None:
        """Add a record to its partition's batch and return the batch; None if that has to wait, for topic or room.

        `is_awaited`: the program waits for this record, which is sent in this step if no request is in flight.
        `has_turn`: it is first in the queue of calls that wait for room.
        """
        if not self._takes_records:
            self._refuse_records()
        if type(value) is not bytes and value is not None:
            value = to_bytes(value, "value")
        if type(key) is not bytes and key is not None:
            key = to_bytes(key, "key")
        if type(timestamp_ms) is not int:
            timestamp_ms = to_milliseconds(timestamp_ms)
        queues = self._queues.get(topic)
        if queues is None:
            return None
        if headers:
            try:
                bound = BatchBuilder.upper_bound(key, value, headers)
            except (TypeError, ValueError):
                check_headers(headers)
                raise
        else:
            bound = _PLAIN_ALLOWANCE_BYTES + (len(key) if key else 0) + (len(value) if value else 0)
        room = self._room
        if bound > self._max_record_bytes:
            bounds = f"max_request_size or buffer_memory ({self._max_record_bytes} bytes)"
            raise RecordTooLarge(f"{topic}: a record of up to {bound} bytes, above {bounds}")
        if (
            room.used_bytes + bound > room.capacity_bytes or (room.owes_a_break and not is_awaited) or room.line
        ) and not has_turn:
            return None  # the same condition as in `room.is_at_hand`, but a program that waits needs no break
        if partition is None:
            partition = self._partitioner.choose(topic, key, len(queues))
        elif not 0 <= partition < len(queues):
            raise ValueError(f"{topic} has partitions 0 to {len(queues) - 1}, not {partition}")
        if not 0 <= timestamp_ms <= LARGEST_TIMESTAMP_MS:
            raise ValueError(f"timestamp_ms must be 0 to 2^63-1, not {timestamp_ms}")

        queue = queues[partition]
        sender = self._batches.sender
        if (
            is_awaited
            and not queue.waiting
            and (route := sender.route_alone(queue, now := self._loop.time())) is not None
        ):
            if key is None and value is not None and not headers:
                record = encode_plain_record(value)
            else:
                try:
                    record = encode_record(0, 0, key, value, headers)
                except BaseException:
                    check_headers(headers)
                    raise
            return sender.send_first(queue, route, record, 1, timestamp_ms, timestamp_ms, now)
        is_full, is_new = False, True
        if queue.waiting and not (batch := queue.waiting[-1]).is_closed:
            if batch.builder.size_bytes + bound > queue.batch_bytes and batch.record_count:
                sender.close_batch(batch)
                is_full = True
                batch = self._batches.add(queue)
            else:
                is_new = False
        else:
            batch = self._batches.add(queue)
        builder = batch.builder
        body = builder.body
        before = len(body)
        try:
            place = builder.append(timestamp_ms, key, value, headers)
        except BaseException:
            if not batch.record_count:
                self._batches.take_back(batch)
            check_headers(headers)
            raise
        added = len(body) - before
        batch.record_count = place + 1
        batch.reserved_bytes += added
        room.used_bytes += added
        if HEADER_BYTES + len(body) >= queue.batch_bytes:
            sender.close_batch(batch)
            is_full = True
        if is_full:
            sender.wake()
            room.owes_a_break = room.owes_a_break or not is_awaited
        if is_new:
            sender.activate(queue)
        if is_awaited:
            sender.send_soon(batch)
        return batch

    async def send_many(
        self,
        topic: str,
        values: Column,
        *,
        keys: Column | None = None,
        headers: Iterable[Sequence[tuple[str, bytes | None]] | None] | None = None,
        timestamps_ms: int | Iterable[int] | None = None,
        partition: int | None = None,
    ) -> Deliveries:
        """Start sending many records and return their deliveries, one object for all of them.

        `values` and `keys` are lists, other iterables, numpy columns or Arrow arrays of bytes or None, or of objects
        for the serializers; all columns have equal length and are read to their end first. Instead of `values` an
        Arrow record batch or table can provide the columns value, key, headers and timestamp, as `Consumer.arrow`
        yields them. `timestamps_ms` is one time for all records, or one for each (None: now).

        Records keep their order within a partition. They are encoded column by column, which costs a fraction of as
        many calls of `send`.

        Raises before any record is sent: RecordTooLarge, ValueError and TypeError, which name the record by its index,
        the exceptions of a serializer, and those of `send` for a topic. BufferExhausted, ClientClosed and a
        cancellation may come after the first records were sent. `flush` raises the errors of those.
        """
        if not self._takes_records:
            self._refuse_records()
        preparation = self._preparation
        records = preparation.prepare_many(values, keys, headers, timestamps_ms, partition)
        runs: list[Run] = []
        if preparation.has_interceptors:
            for index, record in enumerate(preparation.one_by_one(topic, records)):
                delivery = await self._put_prepared(preparation.prepare(record))
                runs.append(Run(delivery._batch, delivery._place, [index]))
        else:
            try:
                await self._filler.fill(topic, records, runs)
            except (AttributeError, TypeError, ValueError):
                check_every_headers(records.headers or ())
                raise
        return Deliveries(topic, len(records.values), runs, records.timestamps_ms)

    async def send_and_wait(
        self,
        topic: str,
        value: object = None,
        *,
        key: object = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> RecordMetadata:
        """Send one record, wait for its delivery and return its metadata; see `send`."""
        if self._is_plain:
            now_ms = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
            batch = self._put_now(topic, value, key, headers, now_ms, partition, True)
            if batch is None:
                return await (await self._put(topic, value, key, headers, timestamp_ms, partition))
            place = batch.record_count - 1
            if not batch.is_finished:
                waiter = batch.new_waiter(self._loop)
                try:
                    await waiter
                except BaseException:
                    batch.forget(waiter)
                    raise
            if batch.base_offset >= 0:
                return batch.place_of(place, now_ms)
            return await Delivery(batch, place, now_ms)  # which raises the error, or follows the record
        sent = await self.send(topic, value, key=key, headers=headers, timestamp_ms=timestamp_ms, partition=partition)
        return await sent

    async def flush(self) -> None:
        """Wait until all sent records are delivered or given up, without lingering.

        Raises the error of a record that was given up since the last flush and whose delivery was not awaited.
        """
        if self._sender is None:
            raise not_started("the producer")
        await self._await_all(None)
        self._batches.raise_failure()

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the partitions of a topic, which the broker may create; raises as `send`."""
        return list(range(len(self._queues.get(topic) or await self._open_topic(topic))))

    def metrics(self) -> dict[str, float]:
        """Return the producer's metrics, by Kafka's metric names; NaN for those without any value yet.

        Times are in ms, sizes in bytes; rates, averages and maxima cover the last half to whole minute.
        """
        if self._cluster is None or self._sender is None:
            raise not_started("the producer")
        now = self._loop.time()
        return {
            **self._cluster.metrics.snapshot(now),
            **self._metrics.snapshot(now),
            "buffer-total-bytes": self._room.capacity_bytes,
            "buffer-available-bytes": self._room.capacity_bytes - self._room.used_bytes,
            "waiting-threads": self._room.waiting,
            "requests-in-flight": self._sender.requests_in_flight,
            "metadata-age": now - self._cluster.asked_at,
            **({} if self._transactions is None else self._transactions.metrics()),
        }

    # Inside -----------------------------------------------------------------------------------------------------

    def _on_closed(self, batch: Batch) -> None:
        topic = batch.queue.topic
        partitions = len(self._queues[topic])
        if partitions > 1:
            self._partitioner.on_batch_closed(topic, batch.queue.partition, partitions)

    def _on_change(self) -> None:
        is_open = self._transactions is None or self._transactions.state.takes_records
        is_usable = self._failure is None and not self._is_closed
        self._takes_records = is_open and self._sender is not None and is_usable

    def _on_failure(self, bug: BaseException) -> None:
        """Accept no more records, and end every wait with the failure."""
        self._failure = bug
        failure = ClientFailed(bug)
        if self._transactions is not None:
            self._transactions.fail(failure)
        self._on_change()
        self._room.close()
        self._batches.give_up(failure)

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise ClientClosed("the producer is closed")

    def _refuse_records(self) -> NoReturn:
        self._refuse_if_closed()
        if self._failure is not None:
            raise ClientFailed(self._failure)
        if self._transactions is None or self._sender is None:
            raise not_started("the producer")
        self._transactions.state.refuse_records()

    async def _await_all(self, timeout_s: float | None) -> None:
        self._hurry(1)
        try:
            await self._batches.wait(timeout_s)
        finally:
            self._hurry(-1)

    def _hurry(self, change: int) -> None:
        assert self._sender is not None
        self._waiting_flushes += change
        self._sender.hurry(self._waiting_flushes > 0)

    # Topics -----------------------------------------------------------------------------------------------------

    async def _queues_of(self, topic: str) -> list[PartitionQueue[Batch]]:
        """Return the queues of a topic; raises if no records may be sent, such as ClientClosed."""
        queues = self._queues.get(topic) or await self._open_topic(topic)
        if not self._takes_records:
            self._refuse_records()
        return queues

    async def _open_topic(self, topic: str) -> list[PartitionQueue[Batch]]:
        """Look up a topic's partitions; raises ClientClosed also if the producer is closed before they are known."""
        if self._topics is None:
            raise not_started("the producer")
        queues = await self._topics.open(topic)
        self._refuse_if_closed()
        return queues

    def _on_metadata(self) -> None:
        assert self._topics is not None
        assert self._sender is not None
        self._topics.update(self._loop.time())
        self._sender.wake()


def _bound(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> int:
    """Return the most bytes that a record can need in a batch."""
    if headers:
        return BatchBuilder.upper_bound(key, value, headers)
    return _PLAIN_ALLOWANCE_BYTES + (len(key) if key else 0) + (len(value) if value else 0)
