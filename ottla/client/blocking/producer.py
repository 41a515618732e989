"""The blocking Producer: `send` hands records over in handfuls, because a visit to the loop thread for each would cost
ten times what sending it costs.

A record waits in the inbox until the loop thread takes all that is there at once, in the order of the calls. The inbox
is bounded: when it is full, senders wait. Interceptors, serializers and the check of types run where the program sends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Unpack

from ottla.address import host_and_port
from ottla.client.blocking.deliveries import Deliveries, Delivery, Refused, columns_of
from ottla.client.blocking.loop_thread import EXIT_LIMIT_MS, LoopThread
from ottla.client.blocking.thread_waiter import LOOK_S, ThreadWaiter
from ottla.client.blocking.transaction import Transaction
from ottla.client.blocking.twins import ProducerMethods
from ottla.client.column_inputs import Column
from ottla.client.errors import BufferExhausted, ClientClosed, ClientFailed, ClientTimeout, KafkaError, RecordTooLarge
from ottla.client.options import Servers
from ottla.client.producer import Producer as AsyncProducer
from ottla.client.producer_options import ProducerKeywords
from ottla.client.record_preparation import check_headers, to_bytes
from ottla.client.sent_records import Deliveries as AsyncDeliveries
from ottla.client.sent_records import Run
from ottla.client.structs import ProducerRecord, RecordMetadata
from ottla.client.unseen_failures import UnseenFailures

logger = logging.getLogger(__name__)

_INBOX_BYTES = 256 * 1024
"""How much may wait to be handed over before senders wait."""
_RECORD_BYTES = 100
"""What a record weighs in the inbox beside its key and value, so that empty ones are bounded too."""
_HURRIED_CLOSE_MS = 10_000


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
        self._is_plain = self._inner._is_plain
        self._known: set[str] = set()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        """Guards what follows; notified when the inbox was emptied, and at the end."""
        self._inbox: list[Delivery] = []
        self._inbox_bytes = 0
        self._in_hand: list[Delivery] = []
        """What was taken from the inbox and is being put into batches."""
        self._handed_over = 0
        """How many records were put into the inbox, of which `_taken` are in batches or refused."""
        self._taken = 0
        self._is_draining = False
        self._awaiting_room = 0
        """How many calls wait for room in the inbox."""
        self._is_closing = False
        self._draining: asyncio.Task[None] | None = None
        self._refused: UnseenFailures[Refused] = UnseenFailures(lambda refused: refused.is_observed)

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
        bytes and for headers that are no pairs, and what a serializer raises. Its delivery raises everything else that
        is wrong with a record.
        """
        return self._hand_over(topic, value, key, headers, timestamp_ms, partition)

    def _hand_over(
        self,
        topic: str,
        value: object,
        key: object,
        headers: Sequence[tuple[str, bytes | None]],
        timestamp_ms: int | None,
        partition: int | None,
        wake: Callable[[], None] | None = None,
    ) -> Delivery:
        """Put a record into the inbox; `wake` is called when it may be known what became of it."""
        thread = self._thread
        if thread is None or thread is not LoopThread.current or self._is_closed:
            thread = self._running()
        if not self._inner._takes_records:
            self._inner._refuse_records()
        if timestamp_ms is None:
            timestamp_ms = int(time.time() * 1000)
        weight = _RECORD_BYTES
        if not self._is_plain:
            prepared = self._prepare(ProducerRecord(topic, value, key, headers, timestamp_ms, partition))
            topic, value, key, headers, _, partition = prepared
            timestamp_ms = timestamp_ms if prepared.timestamp_ms is None else prepared.timestamp_ms
        if value is not None:
            if type(value) is not bytes:
                value = to_bytes(value, "value")
            weight += len(value)  # type: ignore[arg-type]  # bytes, since the line before
        if key is not None:
            if type(key) is not bytes:
                key = to_bytes(key, "key")
            weight += len(key)  # type: ignore[arg-type]  # bytes, since the line before
        if headers:
            self._check_headers(ProducerRecord(topic, value, key, headers, timestamp_ms, partition))
        if topic not in self._known:
            self.partitions_for(topic)
            self._known.add(topic)
        delivery = Delivery(self, (topic, value, key, headers, timestamp_ms, partition), timestamp_ms, wake)
        if wake is not None and self._is_plain and not self._is_draining:
            # It is waited for, and no record is before it. Nobody else knows of it: an interrupt leaves nothing behind.
            if self._is_closing:
                raise ClientClosed("the producer is closed")
            try:
                thread.post(partial(self._put_awaited, delivery))
            except RuntimeError:  # the loop ended
                raise ClientClosed("the program is ending") from None
            return delivery
        with self._lock:
            if self._inbox_bytes >= _INBOX_BYTES:
                self._await_room()
            if self._is_closing:
                raise ClientClosed("the producer is closed")
            if not self._is_draining:  # woken first: an interrupt in between leaves nothing that nobody looks after
                try:
                    thread.post(self._start_draining)
                except RuntimeError:  # the loop ended
                    raise ClientClosed("the program is ending") from None
                self._is_draining = True
            self._inbox.append(delivery)
            self._inbox_bytes += weight
            self._handed_over += 1
        return delivery

    def send_many(
        self,
        topic: str,
        values: Column,
        *,
        keys: Column | None = None,
        headers: Iterable[Sequence[tuple[str, bytes | None]] | None] | None = None,
        timestamps_ms: int | Iterable[int] | None = None,
        partition: int | None = None,
    ) -> Deliveries:
        """Put many records on their way at once and return their deliveries, one object for all of them.

        `values` and `keys` are lists, other iterables, numpy columns or Arrow arrays of bytes or None, or of what the
        serializers take; all columns are of equal length and are read to their end first. In the place of `values` an
        Arrow record batch or table gives the columns value, key, headers and timestamp, as `Consumer.arrow` yields
        them. `timestamps_ms` is one time for all, or one for each (None: now).

        Records keep their order within a partition, behind those that this thread
        has sent before. They are encoded column by column, which
        costs a fraction of as many calls of `send`.

        Raises before any record is sent: RecordTooLarge, ValueError and TypeError, which name the record by its index,
        what a serializer raises, and what `send` raises for a topic. BufferExhausted and ClientClosed may come when the
        first records are on their way already; `flush` raises the errors of those.
        """
        sending = self._send_many(topic, values, keys, headers, timestamps_ms, partition)
        return Deliveries(self, self._await(sending))

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
        waiter = ThreadWaiter()
        try:
            sent = self._hand_over(topic, value, key, headers, timestamp_ms, partition, waiter.wake)
            try:
                if self._thread is not None:
                    self._thread.refuse_own()
                waiter.wait(LOOK_S)
            except BaseException:
                sent.call_no_more(waiter.wake)
                raise
        finally:
            waiter.release()
        return sent.result()  # which waits on for what takes longer

    def transaction(self) -> Transaction:
        """Return a transaction, as a block: `with producer.transaction() as transaction`.

        It begins with the block and commits at its end. When the block raises it is aborted, and the exception goes
        on. The end of the block raises what kept the transaction from being committed: AbortableTransactionError (it is
        aborted then, and the next one may begin), FatalTransactionError (the producer can only be closed), or
        ClientTimeout after `max_block_ms`, when it is open how the transaction ends: `commit_transaction` waits on.
        """
        return Transaction(self, self._inner.transaction())

    def commit_transaction(self) -> None:
        """Deliver what was sent, and commit it. Raises AbortableTransactionError when it can only be aborted.

        After ClientTimeout it is open how the transaction ends, and another call waits on.
        """
        self._await(self.end_transaction(self._inner.commit_transaction))

    def abort_transaction(self) -> None:
        """Abort the transaction: records that were not sent yet are dropped, the others never become visible."""
        self._await(self.end_transaction(self._inner.abort_transaction))

    def run_in_transaction(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine of a transaction, and wait for it; `Transaction` calls it."""
        self._await(work)

    async def end_transaction(self, end: Callable[[], Awaitable[None]]) -> None:
        """End a transaction, in the loop's thread: one with a refused record that nobody has heard of is aborted."""
        await self._drained()
        refused = self._refused.take()
        if refused is not None:
            self._inner._fail_transaction(refused.error)
        await end()

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
        thread.refuse_own()
        deadline = math.inf if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        waiter = ThreadWaiter()
        try:
            while not delivery.done():
                delivery.call_at_end(waiter.wake)
                try:
                    if delivery.done():
                        return
                    left_s = deadline - time.monotonic()
                    if left_s <= 0:
                        raise ClientTimeout(f"it is not known after {timeout_ms} ms what became of the record")
                    if not waiter.wait(left_s) and thread.loop.is_closed():
                        raise ClientClosed("the program is ending")
                finally:
                    delivery.call_no_more(waiter.wake)
        finally:
            waiter.release()

    def await_deliveries(self, deliveries: AsyncDeliveries, timeout_ms: float | None) -> None:
        """Wait until it is known what became of the records of a call; `Deliveries.result` calls it."""
        thread = self._thread
        if thread is None or thread.pid != os.getpid():
            thread = self._running()
        thread.wait_for(self._await_deliveries(deliveries, timeout_ms))

    async def close_at_exit(self) -> None:
        """End because the program does; what cannot be delivered in a few seconds is given up, counted and logged."""
        limit_ms = EXIT_LIMIT_MS
        try:
            async with asyncio.timeout(EXIT_LIMIT_MS / 1000):
                await self._drained()
                await self._inner._await_all(None)
        except TimeoutError:
            limit_ms = 0
            open_here = [one for one in (*self._in_hand, *self._inbox) if one.batch is None]
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
        self._awaiting_room += 1
        try:
            has_room = self._changed.wait_for(
                lambda: self._inbox_bytes < _INBOX_BYTES or self._is_closing, self._max_block_ms / 1000
            )
        finally:
            self._awaiting_room -= 1
        if not has_room:
            raise BufferExhausted(f"buffer_memory stayed full for {self._max_block_ms} ms")

    def _check_headers(self, record: ProducerRecord) -> None:
        """Raise TypeError for headers that are no pairs; the interceptors have heard of it then."""
        try:
            check_headers(record.headers)
        except TypeError as wrong:
            self._inner._preparation.report_refused(record, wrong)
            raise

    def _raise_refused(self) -> None:
        refused = self._refused.take()
        if refused is not None:
            raise refused.error

    # In the loop thread -----------------------------------------------------------------------------------------

    def _start_draining(self) -> None:
        if self._draining is not None and not self._draining.done():
            return
        alone: list[Delivery] | None = None
        if self._is_plain and len(self._inbox) == 1:
            alone = self._take_inbox()
            if len(alone) == 1 and self._put_alone(alone[0]):
                self._on_drained(alone)
                return
        self._draining = asyncio.create_task(self._drain(alone), name="ottla-inbox")

    def _put_awaited(self, delivery: Delivery) -> None:
        """Put a record that a thread waits for into its batch, or behind those that are in the inbox by now."""
        if not self._is_draining and self._put_alone(delivery):
            return
        with self._lock:
            self._inbox.append(delivery)
            self._inbox_bytes += _RECORD_BYTES
            self._handed_over += 1
            is_first, self._is_draining = not self._is_draining, True
        if is_first:
            self._start_draining()

    def _put_alone(self, delivery: Delivery) -> bool:
        """Put a record with none before it into its batch, and send that if a thread waits for it.

        Return False when it has to wait for its topic or for room.
        """
        record = delivery.record
        assert record is not None
        try:
            batch = self._inner._put_now(*record, delivery.is_awaited)
        except Exception as refused:  # whatever it is, the sender of the record has to get it
            self._refuse(delivery, refused)
            return True
        if batch is None:
            return False
        delivery.put(batch, batch.record_count - 1)
        return True

    def _take_inbox(self) -> list[Delivery]:
        with self._lock:
            taken, self._inbox, self._inbox_bytes = self._inbox, [], 0
            self._in_hand = taken
            if self._awaiting_room:
                self._changed.notify_all()
        return taken

    async def _drain(self, taken: list[Delivery] | None = None) -> None:
        """Put what is in the inbox, or was taken from it, into batches, in order; what came meanwhile is the next one's
        work.
        """
        if taken is None:
            taken = self._take_inbox()
        try:
            await self._put(taken)
        except Exception as bug:
            logger.exception("the producer failed")
            for delivery in taken:
                if delivery.batch is None:
                    self._refuse(delivery, ClientFailed(bug))
        finally:
            self._on_drained(taken)

    def _on_drained(self, taken: list[Delivery]) -> None:
        self._taken += len(taken)
        self._in_hand = []
        with self._lock:
            self._is_draining = bool(self._inbox)
            if self._is_draining:
                self._draining = asyncio.create_task(self._drain(), name="ottla-inbox")

    async def _put(self, taken: list[Delivery]) -> None:
        """Put records into batches, column by column where no interceptor is to see each."""
        topics: dict[str, list[Delivery]] = {}
        for delivery in taken:
            record = delivery.record
            assert record is not None
            if (group := topics.get(record[0])) is None:
                group = topics[record[0]] = []
            group.append(delivery)
        for topic, group in topics.items():
            if self._inner._interceptors or len(group) == 1:
                await self._put_one_by_one(group)
            else:
                await self._put_together(topic, group)

    async def _put_together(self, topic: str, group: list[Delivery]) -> None:
        while group:
            runs: list[Run] = []
            refused: Exception | None = None
            try:
                await self._inner._filler.fill(topic, columns_of(group), runs)
            except Exception as failed:  # whatever it is, the sender of the record has to get it
                refused = failed
            for batch, first, indexes in runs:
                for place, index in enumerate(indexes, first):
                    group[index].put(batch, place)
            if refused is None:
                return
            group = [delivery for delivery in group if delivery.batch is None]
            if isinstance(refused, BufferExhausted):  # the first has waited for room in vain, the next one waits again
                self._refuse(group.pop(0), refused)
            elif isinstance(refused, KafkaError) and not isinstance(refused, RecordTooLarge):
                for delivery in group:
                    self._refuse(delivery, refused)
                return
            else:  # one of them is wrong: the others are sent
                await self._put_one_by_one(group)
                return

    async def _put_one_by_one(self, group: list[Delivery]) -> None:
        for delivery in group:
            try:
                assert delivery.record is not None
                inner = await self._inner._put_prepared(ProducerRecord(*delivery.record))
                delivery.put(inner._batch, inner._place)
            except Exception as refused:  # whatever it is, the sender of the record has to get it
                self._refuse(delivery, refused)

    def _refuse(self, delivery: Delivery, error: Exception) -> None:
        self._refused.add(delivery.refuse(error))

    async def _send_many(self, *arguments: Any) -> AsyncDeliveries:
        await self._drained()
        topic, values, keys, headers, timestamps_ms, partition = arguments
        return await self._inner.send_many(
            topic, values, keys=keys, headers=headers, timestamps_ms=timestamps_ms, partition=partition
        )

    async def _drained(self) -> None:
        """Wait until all that was sent before is in batches; others may send on."""
        sent = self._handed_over
        while self._taken < sent:
            self._start_draining()
            if self._draining is not None and not self._draining.done():
                await asyncio.wait([self._draining])

    async def _flush(self) -> None:
        await self._drained()
        await self._inner.flush()

    async def _await_deliveries(self, deliveries: AsyncDeliveries, timeout_ms: float | None) -> None:
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await _end_of(deliveries)
        except TimeoutError:
            raise ClientTimeout(f"it is not known after {timeout_ms} ms what became of the records") from None

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


async def _end_of(delivery: AsyncDeliveries) -> None:
    """Wait for the end, whichever it is: `result` returns or raises it."""
    with contextlib.suppress(KafkaError):
        await delivery
