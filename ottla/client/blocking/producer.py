"""The blocking Producer: `send` hands records over in handfuls, because a visit to the loop thread for each would cost
ten times what sending it costs.

A record waits in the inbox until the loop thread takes all that is there at once, in the order of the calls. The inbox
is bounded: when it is full, senders wait. Interceptors, serializers and the check of types run where the program sends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Unpack

from ottla.address import host_and_port
from ottla.client.accumulator import Delivery as AsyncDelivery
from ottla.client.blocking.loop_thread import EXIT_LIMIT_MS
from ottla.client.blocking.twins import ProducerMethods
from ottla.client.errors import BufferExhausted, ClientClosed, ClientTimeout, KafkaError
from ottla.client.options import Servers
from ottla.client.producer import Producer as AsyncProducer
from ottla.client.producer_options import ProducerKeywords
from ottla.client.structs import ProducerRecord, RecordMetadata
from ottla.client.unseen_failures import UnseenFailures

logger = logging.getLogger(__name__)

_INBOX_BYTES = 256 * 1024
"""How much may wait to be handed over before senders wait."""
_RECORD_BYTES = 100
"""What a record weighs in the inbox beside its key and value, so that empty ones are bounded too."""
_HURRIED_CLOSE_MS = 10_000


class Delivery:
    """What becomes of one sent record: `result` waits for its `RecordMetadata`, or raises what ended it.

    It need not be asked: `flush` and `close` raise the error of records whose delivery nobody asked.
    """

    __slots__ = ("_error", "_inner", "_is_observed", "_producer", "_record")

    def __init__(self, producer: Producer, record: ProducerRecord) -> None:
        self._producer = producer
        self._record = record
        self._inner: AsyncDelivery | None = None
        self._error: Exception | None = None
        self._is_observed = False

    def done(self) -> bool:
        """Whether it is known what became of the record."""
        inner = self._inner
        return self._error is not None or (inner is not None and inner.done())

    def result(self, timeout_ms: float | None = None) -> RecordMetadata:
        """Return where the record went, or raise why it did not go; ClientTimeout when that is open after `timeout_ms`.

        None waits for as long as the producer's `delivery_timeout_ms` lets it.
        """
        if not self.done():
            self._producer.await_delivery(self, timeout_ms)
        if self._error is not None:
            self._is_observed = True
            raise self._error
        assert self._inner is not None
        return self._inner.result()


class Producer(ProducerMethods):
    """The blocking twin of `ottla.client.Producer`: the same options and methods, which wait. A context manager.

    Only `send` differs: it waits for nothing but a new topic and room; its delivery raises what is wrong with a record.
    """

    def __init__(
        self, bootstrap_servers: Servers | Mapping[str, object] | None = None, **options: Unpack[ProducerKeywords]
    ) -> None:
        super().__init__(bootstrap_servers, **options)
        self._max_block_ms = self._inner._options.max_block_ms
        self._prepare = self._inner._preparation.prepare
        self._known: set[str] = set()
        self._changed = threading.Condition()
        """Guards what follows; notified when the inbox was emptied, and at the end."""
        self._inbox: list[Delivery] = []
        self._inbox_bytes = 0
        self._in_hand: list[Delivery] = []
        """What was taken from the inbox and is being put into batches."""
        self._handed_over = 0
        """How many records were put into the inbox, of which `_taken` are in batches or refused."""
        self._taken = 0
        self._is_draining = False
        self._is_closing = False
        self._draining: asyncio.Task[None] | None = None
        self._refused: UnseenFailures[Delivery] = UnseenFailures(lambda delivery: delivery._is_observed)

    def send(
        self,
        topic: str,
        value: object = None,
        *,
        key: object = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> Delivery:
        """Put a record on its way and return its delivery.

        Key and value are bytes, or what the serializers take. `timestamp_ms` is since 1970 (None: now); `partition`
        None leaves the choice to the partitioner. Raises ClientClosed, KafkaError when the topic cannot be had within
        `max_block_ms`, BufferExhausted when there is no room for so long, TypeError for keys and values that are not
        bytes, and what a serializer raises. Its delivery raises everything else that is wrong with a record.
        """
        thread = self._running()
        if timestamp_ms is None:
            timestamp_ms = int(time.time() * 1000)
        record = self._prepare(ProducerRecord(topic, value, key, headers, timestamp_ms, partition))
        if record.topic not in self._known:
            self.partitions_for(record.topic)
            self._known.add(record.topic)
        delivery = Delivery(self, record)
        with self._changed:
            if self._inbox_bytes >= _INBOX_BYTES:
                self._await_room()
            if self._is_closing:
                raise ClientClosed("the producer is closed")
            if not self._is_draining:  # woken first: an interrupt in between leaves nothing that nobody looks after
                try:
                    thread.loop.call_soon_threadsafe(self._start_draining)
                except RuntimeError:  # the loop ended
                    raise ClientClosed("the program is ending") from None
                self._is_draining = True
            self._inbox.append(delivery)
            self._inbox_bytes += _weigh(record)
            self._handed_over += 1
        return delivery

    def send_and_wait(
        self,
        topic: str,
        value: object = None,
        *,
        key: object = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> RecordMetadata:
        """Send one record and return where it went; see `send`."""
        return self.send(
            topic, value, key=key, headers=headers, timestamp_ms=timestamp_ms, partition=partition
        ).result()

    def flush(self) -> None:
        """Wait until everything that was sent is delivered or given up, without lingering.

        Raises the error of a record that was given up since the last flush and whose delivery nobody asked.
        """
        self._await(self._flush())
        self._raise_refused()

    def close(self, timeout_ms: int | None = None) -> None:
        """Deliver what was sent, then end; after `timeout_ms` the rest is given up (None: after the delivery timeout).

        Raises, once all is closed, the error of a record that was not delivered and whose delivery nobody asked. In a
        forked child, where the producer does not work, nothing happens.
        """
        if self._thread is not None and self._thread.pid == os.getpid():
            with self._changed:
                self._is_closing = True
                self._changed.notify_all()
        self._end(self._close(timeout_ms))
        self._raise_refused()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        with contextlib.suppress(KafkaError):  # the program's own error is the one to be seen
            self.close(_HURRIED_CLOSE_MS)

    def await_delivery(self, delivery: Delivery, timeout_ms: float | None) -> None:
        """Wait until it is known what became of a record, also while `close` runs; `Delivery.result` calls it."""
        thread = self._thread
        if thread is None or thread.pid != os.getpid():
            thread = self._running()
        thread.wait_for(self._await_delivery(delivery, timeout_ms))

    async def close_at_exit(self) -> None:
        """End because the program does; what cannot be delivered in a few seconds is given up, counted and logged."""
        limit_ms = EXIT_LIMIT_MS
        try:
            async with asyncio.timeout(EXIT_LIMIT_MS / 1000):
                await self._drained()
                await self._inner._await_all(None)
        except TimeoutError:
            limit_ms = 0
            open_here = [one for one in (*self._in_hand, *self._inbox) if one._inner is None and one._error is None]
            _warn_of_unsent(self._inner, self._inner._count_unsent() + len(open_here))
        try:
            await self._close(limit_ms)
        except ClientClosed:  # what was counted above
            if limit_ms:
                raise
        self._raise_refused()

    def _closing_when_dropped(self) -> Callable[[], Coroutine[Any, Any, None]]:
        inner = self._inner

        async def close() -> None:  # the inbox is empty: draining it needs, and so keeps, the object
            try:
                await inner._await_all(None)
            except asyncio.CancelledError:  # the program ends
                _warn_of_unsent(inner, inner._count_unsent())
                with contextlib.suppress(ClientClosed):
                    await inner.close(0)
            else:
                await inner.close()

        return close

    def _await_room(self) -> None:
        """Wait, holding the lock, until the inbox was emptied."""
        has_room = self._changed.wait_for(
            lambda: self._inbox_bytes < _INBOX_BYTES or self._is_closing, self._max_block_ms / 1000
        )
        if not has_room:
            raise BufferExhausted(f"buffer_memory stayed full for {self._max_block_ms} ms")

    def _raise_refused(self) -> None:
        refused = self._refused.take()
        if refused is not None and refused._error is not None:
            raise refused._error

    # In the loop thread -----------------------------------------------------------------------------------------

    def _start_draining(self) -> None:
        if self._draining is None or self._draining.done():
            self._draining = asyncio.create_task(self._drain(), name="ottla-inbox")

    async def _drain(self) -> None:
        """Put what is in the inbox into batches, in order; what came meanwhile is the next one's work."""
        with self._changed:
            taken, self._inbox, self._inbox_bytes = self._inbox, [], 0
            self._in_hand = taken
            self._changed.notify_all()
        try:
            for delivery in taken:
                try:
                    delivery._inner = await self._inner._put_prepared(delivery._record)
                except Exception as refused:  # whatever it is, who sent the record has to hear it
                    delivery._error = refused
                    self._refused.add(delivery)
        finally:
            self._taken += len(taken)
            self._in_hand = []
            with self._changed:
                self._is_draining = bool(self._inbox)
                if self._is_draining:
                    self._draining = asyncio.create_task(self._drain(), name="ottla-inbox")

    async def _drained(self) -> None:
        """Wait until all that was sent before is in batches; others may send on."""
        sent = self._handed_over
        while self._taken < sent:
            self._start_draining()
            assert self._draining is not None
            await asyncio.wait([self._draining])

    async def _flush(self) -> None:
        await self._drained()
        await self._inner.flush()

    async def _await_delivery(self, delivery: Delivery, timeout_ms: float | None) -> None:
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                while delivery._inner is None and delivery._error is None:
                    await self._drained()
                if delivery._inner is not None:
                    await _end_of(delivery._inner)
        except TimeoutError:
            raise ClientTimeout(f"it is not known after {timeout_ms} ms what became of the record") from None

    async def _close(self, timeout_ms: int | None) -> None:
        with contextlib.suppress(TimeoutError):  # what is not in a batch by then is refused by the closed producer
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._drained()
        await self._inner.close(timeout_ms)
        await self._drained()


def _warn_of_unsent(producer: AsyncProducer, records: int) -> None:
    if records:
        logger.warning(
            "%d %s not sent to %s when the program ended: call close() or use `with`, which wait for them and raise "
            "what is wrong",
            records,
            "record was" if records == 1 else "records were",
            ",".join(host_and_port(host, port) for host, port in producer._servers),
        )


async def _end_of(delivery: AsyncDelivery) -> None:
    """Wait for the end, whichever it is: `Delivery.result` returns or raises it."""
    with contextlib.suppress(KafkaError):
        await delivery


def _weigh(record: ProducerRecord) -> int:
    weight = _RECORD_BYTES
    for data in (record.key, record.value):
        if isinstance(data, bytes):
            weight += len(data)
    return weight
