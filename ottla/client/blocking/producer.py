"""The blocking Producer: `send` passes records to the loop thread in groups, because a switch to that thread for each
record would cost ten times as much as sending it.

A record waits in the inbox until the loop thread takes all records from it together, in the order of the calls. The
inbox is bounded: when it is full, `send` waits. Interceptors, serializers and type checks run in the sending thread.
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

from ottla.client.blocking.awaited_record import AwaitedRecord
from ottla.client.blocking.deliveries import Deliveries, Delivery, Record, Refused, columns_of
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
from ottla.client.unsent import warn_of_unsent

logger = logging.getLogger(__name__)

_INBOX_BYTES = 256 * 1024
"""The size of the inbox at which `send` waits."""
_RECORD_BYTES = 100
"""The size of a record in the inbox besides its key and value, so that empty records are bounded, too."""
_HURRIED_CLOSE_MS = 10_000


class Producer(ProducerMethods):
    """The blocking twin of `ottla.client.Producer`: the same options and methods, which wait. A context manager.

    Only `send` differs: it waits only for a new topic and for room; its delivery raises the error of a record.
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
        """Guards the following attributes; notified when the inbox was emptied, and at the end."""
        self._inbox: list[Delivery] = []
        self._inbox_bytes = 0
        self._in_hand: list[Delivery] = []
        """The records that were taken from the inbox and are being added to batches."""
        self._handed_over = 0
        """The number of records that were put into the inbox, of which `_taken` are in batches or refused."""
        self._taken = 0
        self._is_draining = False
        self._awaiting_room = 0
        """The number of calls that wait for room in the inbox."""
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
        """Start sending a record and return its delivery.

        Key and value are bytes, or objects for the serializers. `timestamp_ms` is since 1970 (None: now); for
        `partition` None the partitioner chooses. Raises ClientClosed, KafkaError if the topic is not available within
        `max_block_ms`, BufferExhausted if there is no room for this time, TypeError for keys and values that are not
        bytes and for headers that are not pairs, and the exceptions of a serializer. The delivery raises all other
        errors of a record.
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
        """Put a record into the inbox; `wake` is called when its result may be known."""
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
        with self._lock:
            if self._inbox_bytes >= _INBOX_BYTES:
                self._await_room()
            if self._is_closing:
                raise ClientClosed("the producer is closed")
            if not self._is_draining:  # post first: after an interrupt in between, no record is left without a task
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
        """Start sending many records and return their deliveries, one object for all of them.

        `values` and `keys` are lists, other iterables, numpy columns or Arrow arrays of bytes or None, or of objects
        for the serializers; all columns have equal length and are read to their end first. Instead of `values` an
        Arrow record batch or table can provide the columns value, key, headers and timestamp, as `Consumer.arrow`
        yields them. `timestamps_ms` is one time for all records, or one for each (None: now).

        Records keep their order within a partition, after those that this thread has sent before. They are encoded
        column by column, which costs a fraction of as many calls of `send`.

        Raises before any record is sent: RecordTooLarge, ValueError and TypeError, which name the record by its index,
        the exceptions of a serializer, and those of `send` for a topic. BufferExhausted and ClientClosed may come after
        the first records were sent; `flush` raises the errors of those.
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
        """Send one record, wait for its delivery and return its metadata; see `send`."""
        thread = self._thread
        if (
            thread is not None
            and thread is LoopThread.current
            and threading.get_ident() != thread.ident
            and self._is_plain
            and topic in self._known
            and not (self._is_draining or self._is_closing or headers)
            and type(value) is bytes
            and (key is None or type(key) is bytes)
        ):
            now_ms = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
            return self._send_alone(thread, (topic, value, key, (), now_ms, partition))
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
        return sent.result()  # it continues to wait if needed

    def _send_alone(self, thread: LoopThread, record: Record) -> RecordMetadata:
        """Send a record that needs no preparation, with none before it, and wait for its result.

        It is in no list before the loop's thread has it: an interrupt leaves nothing behind.
        """
        awaited = AwaitedRecord(record)
        try:
            try:
                thread.post(partial(self._put_awaited, awaited))
            except RuntimeError:  # the loop ended
                raise ClientClosed("the program is ending") from None
            awaited.wait(LOOK_S)
            found = awaited.result()
            if found is not None:
                return found
            while (sent := awaited.as_delivery(self)) is None:
                if not awaited.wait(LOOK_S) and thread.loop.is_closed():
                    raise ClientClosed("the program is ending")
        finally:
            awaited.release()
        return sent.result()

    def transaction(self) -> Transaction:
        """Return a transaction, as a block: `with producer.transaction() as transaction`.

        It begins with the block and commits at its end. If the block raises an exception, it is aborted, and the
        exception propagates. If the commit fails, the end of the block raises AbortableTransactionError (it is aborted
        then, and the next one may begin), FatalTransactionError (the producer can only be closed), or ClientTimeout
        after `max_block_ms`, with an unknown result: `commit_transaction` then continues to wait for it.
        """
        return Transaction(self, self._inner.transaction())

    def commit_transaction(self) -> None:
        """Deliver the sent records, and commit. Raises AbortableTransactionError when it can only be aborted.

        After ClientTimeout the result is unknown, and another call continues to wait for it.
        """
        self._await(self.end_transaction(self._inner.commit_transaction))

    def abort_transaction(self) -> None:
        """Abort the transaction: records that were not sent yet are dropped, the rest never become visible."""
        self._await(self.end_transaction(self._inner.abort_transaction))

    def run_in_transaction(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine of a transaction, and wait for it; `Transaction` calls this."""
        self._await(work)

    async def end_transaction(self, end: Callable[[], Awaitable[None]]) -> None:
        """End a transaction, in the loop's thread; abort it if a record was refused without the program's knowledge."""
        await self._drained()
        refused = self._refused.take()
        if refused is not None:
            self._inner._fail_transaction(refused.error)
        await end()

    def flush(self) -> None:
        """Wait until all sent records are delivered or given up, without lingering.

        Raises the error of a record that was given up since the last flush and whose `result` was not called.
        """
        self._await(self._flush())
        self._raise_refused()

    def close(self, timeout_ms: int | None = None) -> None:
        """Deliver the sent records, then end; after `timeout_ms` (None: the delivery timeout) the rest is given up.

        When all is closed, this raises the error of a record that was not delivered and whose `result` was not called.
        In a forked child, where the producer does not work, it does nothing.
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
        with contextlib.suppress(KafkaError):  # the program's own exception must not be hidden
            self.close(_HURRIED_CLOSE_MS)

    def await_delivery(self, delivery: Delivery, timeout_ms: float | None) -> None:
        """Wait until the result of a record is known, also while `close` runs; `Delivery.result` calls this."""
        thread = self._thread
        if thread is None or thread.pid != os.getpid():
            thread = self._running()
        thread.refuse_own()
        deadline = math.inf if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        waiter = ThreadWaiter()
        hastens = not self._inner._options.lingers_awaited
        try:
            while not delivery.done():
                delivery.call_at_end(waiter.wake)
                try:
                    if delivery.done():
                        return
                    left_s = deadline - time.monotonic()
                    if left_s <= 0:
                        raise ClientTimeout(f"the result of the record is not known after {timeout_ms} ms")
                    if hastens:
                        hastens = False
                        with contextlib.suppress(RuntimeError):  # the loop ended, which the next lines find
                            thread.post(delivery.hasten)
                    if not waiter.wait(left_s) and thread.loop.is_closed():
                        raise ClientClosed("the program is ending")
                finally:
                    delivery.call_no_more(waiter.wake)
        finally:
            waiter.release()

    def await_deliveries(self, deliveries: AsyncDeliveries, timeout_ms: float | None) -> None:
        """Wait until the results of a call's records are known; `Deliveries.result` calls this."""
        thread = self._thread
        if thread is None or thread.pid != os.getpid():
            thread = self._running()
        thread.wait_for(self._await_deliveries(deliveries, timeout_ms))

    async def close_at_exit(self) -> None:
        """End because the program does; records that are not delivered in a few seconds are given up and logged."""
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
        except ClientClosed:  # the error of the records that were counted above
            if limit_ms:
                raise
        self._raise_refused()

    def _closing_when_dropped(self) -> Callable[[], Coroutine[Any, Any, None]]:
        inner = self._inner

        async def close() -> None:  # the inbox is empty, since draining it holds a reference to the object
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
        """Raise TypeError for headers that are not pairs, after reporting it to the interceptors."""
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

    def _put_awaited(self, awaited: AwaitedRecord) -> None:
        """Add a record for which a thread waits to its batch, or to the inbox after those that are there by now."""
        try:
            batch = None if self._is_draining else self._inner._put_now(*awaited.record, True)
        except Exception as refused:  # whatever it is, the caller must get it
            self._refuse(awaited.to_delivery(self), refused)
            return
        if batch is not None:
            awaited.put(batch)
            return
        delivery = awaited.to_delivery(self)
        _, value, key, *_ = awaited.record
        with self._lock:
            self._inbox.append(delivery)
            self._inbox_bytes += _RECORD_BYTES + len(value) + (0 if key is None else len(key))
            self._handed_over += 1
            is_first, self._is_draining = not self._is_draining, True
        if is_first:
            self._start_draining()

    def _put_alone(self, delivery: Delivery) -> bool:
        """Add a record, with none before it, to its batch, and send that if a thread waits for it.

        Return False if the record has to wait for its topic or for room.
        """
        record = delivery.record
        assert record is not None
        try:
            batch = self._inner._put_now(*record, delivery.is_awaited)
        except Exception as refused:  # whatever it is, the caller of `send` must get it
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
        """Add the records in the inbox, or those taken from it, to batches, in order; another task adds later ones."""
        if taken is None:
            taken = self._take_inbox()
        try:
            await self._put(taken)
        except Exception as bug:  # the program must get it for these records
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
        """Add records to batches, column by column if there are no interceptors."""
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
            except Exception as failed:  # whatever it is, the caller of `send` must get it
                refused = failed
            for batch, first, indexes in runs:
                for place, index in enumerate(indexes, first):
                    group[index].put(batch, place)
            if refused is None:
                return
            group = [delivery for delivery in group if delivery.batch is None]
            if isinstance(refused, BufferExhausted):  # the first record got no room in time, the next one waits again
                self._refuse(group.pop(0), refused)
            elif isinstance(refused, KafkaError) and not isinstance(refused, RecordTooLarge):
                for delivery in group:
                    self._refuse(delivery, refused)
                return
            else:  # one of them is invalid: send the rest
                await self._put_one_by_one(group)
                return

    async def _put_one_by_one(self, group: list[Delivery]) -> None:
        for delivery in group:
            try:
                assert delivery.record is not None
                inner = await self._inner._put_prepared(ProducerRecord(*delivery.record))
                delivery.put(inner._batch, inner._place)
            except Exception as refused:  # whatever it is, the caller of `send` must get it
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
        """Wait until all records sent before are in batches; other threads may continue to send."""
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
            raise ClientTimeout(f"the results of the records are not known after {timeout_ms} ms") from None

    async def _close(self, timeout_ms: int | None) -> None:
        with contextlib.suppress(TimeoutError):  # the closed producer refuses records that are not in a batch by then
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await self._drained()
        await self._inner.close(timeout_ms)
        await self._drained()


def _warn_of_unsent(producer: AsyncProducer, records: int) -> None:
    warn_of_unsent(logger, records, producer._servers, "the program", "close() or use `with`")


async def _end_of(delivery: AsyncDeliveries) -> None:
    """Wait for the end, successful or not: `result` returns or raises it."""
    with contextlib.suppress(KafkaError):
        await delivery
