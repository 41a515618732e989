"""The blocking Consumer: records that are decoded already are taken without the loop thread, and without a lock: the
iterator over them returns each to one thread only.

There is one reader at a time: `getone`, `getmany` and iteration in several threads share the records, each exactly
once. The rebalance listener is called in the thread that reads, closes or unsubscribes.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self, Unpack

from ottla.client.blocking.caller_calls import CallerCalls, ListenerInCaller
from ottla.client.blocking.loop_thread import LoopThread
from ottla.client.blocking.twins import ConsumerMethods
from ottla.client.consumer_options import ConsumerKeywords
from ottla.client.errors import ClientClosed
from ottla.client.groups.listeners import RebalanceListener
from ottla.client.options import Servers
from ottla.client.record_limits import check_max_records
from ottla.client.structs import ConsumerRecord, K, TopicPartition, V

if TYPE_CHECKING:
    import pyarrow as pa


class Consumer(ConsumerMethods[K, V]):
    """The blocking twin of `ottla.client.Consumer`: the same options and methods, which wait. A context manager.

    Iterate over it for its records.
    """

    def __init__(
        self,
        bootstrap_servers: Servers | Mapping[str, object] | None = None,
        *,
        key_deserializer: Callable[[bytes], K] | None = None,
        value_deserializer: Callable[[bytes], V] | None = None,
        **options: Unpack[ConsumerKeywords],
    ) -> None:
        super().__init__(
            bootstrap_servers, key_deserializer=key_deserializer, value_deserializer=value_deserializer, **options
        )
        self._reading = threading.Lock()
        self._callbacks = CallerCalls()

    def close(self) -> None:
        """Commit the offsets (with `enable_auto_commit`), leave the group and end. Waiting readers raise ClientClosed.

        It takes a few seconds at most, even if no broker answers. In a forked child, where the client does not work,
        it does nothing.
        """
        self._refuse_in_listener()
        self._end(self._inner.close(), self._callbacks.serve)

    async def close_at_exit(self) -> None:
        """End because the program does; no thread can run a listener."""
        self._callbacks.end()
        await super().close_at_exit()

    def _closing_when_dropped(self) -> Callable[[], Coroutine[Any, Any, None]]:
        inner, callbacks = self._inner, self._callbacks

        async def close() -> None:
            callbacks.end()
            await inner.close()

        return close

    def subscribe(
        self,
        topics: Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read the assigned partitions of these topics, or of all topics whose whole name matches a pattern.

        This replaces an earlier subscription. The following polls (`getone`, `getmany`, iteration) join the group. With
        `group_protocol` consumer the broker matches a pattern given as text, in RE2's syntax; otherwise, and always if
        it is compiled, the client matches it. The listener is called in the reading thread. Raises ValueError for an
        invalid subscription, KafkaError INVALID_GROUP_ID without a `group_id`.
        """
        heard = None if listener is None else ListenerInCaller(listener, self._callbacks)
        self._call(self._inner.subscribe, topics, pattern=pattern, listener=heard)

    def unsubscribe(self) -> None:
        """End the subscription and leave the group, or end the assignment by `assign`; nothing is assigned then.

        With `enable_auto_commit` the offsets are committed before. The listener is notified of the revoked partitions.
        """
        self._refuse_in_listener()
        self._await(self._inner.unsubscribe(), self._callbacks.serve)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord[K, V]:
        if self._thread is LoopThread.current and not self._callbacks.running_in:
            for record in self._inner._records:  # no interrupt can come between taking and returning it
                return record
        return self.getone()

    def getone(self) -> ConsumerRecord[K, V]:
        """Return the next record; waits for it. Raises ClientClosed, and the error of a partition."""
        if self._thread is LoopThread.current and not self._callbacks.running_in:
            for record in self._inner._records:
                return record
        self._running()
        self._refuse_in_listener()
        with self._reading:
            taken: list[tuple[tuple[str, int], int]] = []

            async def take() -> ConsumerRecord[K, V]:
                record = await self._inner.getone()
                taken.append(((record.topic, record.partition), record.offset))
                return record

            try:
                return self._await(take(), self._callbacks.serve)
            except Exception:  # an error of the read itself, which has taken nothing
                raise
            except BaseException:  # as in `_handing_back`, which would cost a record that is alone more steps
                self._hand_back(taken)
                raise

    def arrow(self, *, columns: Iterable[str] | None = None, include_headers: bool = False) -> Iterator[pa.RecordBatch]:
        """Yield records as Arrow record batches, each of one partition; waits for more, without end.

        `columns` names the wanted ones of key, value, topic, partition, offset, timestamp, timestampType and headers
        (None: all, headers only with `include_headers`), which have the names and types of Spark's Kafka source.
        Yielded records count as read. Keys and values are bytes: deserializers are not called. A batch may hold more
        than `max_poll_records`.

        Raises ImportError without pyarrow and numpy (the extra `arrow`), ValueError for a column that does not
        exist and for a consumer with interceptors, and what `getone` raises.
        """
        reading = self._inner._read_arrow(columns, include_headers=include_headers)
        while True:
            self._running()
            self._refuse_in_listener()
            with self._reading:
                taken: list[tuple[tuple[str, int], int]] = []

                async def take(taken: list[tuple[tuple[str, int], int]] = taken) -> pa.RecordBatch:
                    place, columns = await self._inner._next_columns(reading)
                    taken.append(place)
                    return columns

                with self._handing_back(taken):
                    found = self._await(take(), self._callbacks.serve)
            yield found

    def getmany(
        self, *partitions: tuple[str, int], timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, Sequence[ConsumerRecord[K, V]]]:
        """Return the fetched records, by partition; waits up to `timeout_ms` for the first ones.

        A `ConsumerRecord` is created when it is taken from its sequence; `list(...)` of a sequence can be changed. The
        result has records of `partitions` only, if some are given, and at most `max_records` (None:
        `max_poll_records`); it is empty after the timeout, also if another thread was reading all the time. Raises a
        partition's error when there is nothing to return, and ValueError for a `max_records` below 1.
        """
        check_max_records(max_records)  # here too: a poll that waits for another thread's would return nothing
        self._running()
        self._refuse_in_listener()
        if not self._reading.acquire(timeout=max(0.0, timeout_ms / 1000)):  # -1 would be forever
            return {}
        try:
            taken: list[tuple[tuple[str, int], int]] = []

            async def take() -> dict[TopicPartition, Sequence[ConsumerRecord[K, V]]]:
                found = await self._inner.getmany(*partitions, timeout_ms=timeout_ms, max_records=max_records)
                taken.extend((partition, records[0].offset) for partition, records in found.items())
                return found

            with self._handing_back(taken):
                return self._await(take(), self._callbacks.serve)
        finally:
            self._reading.release()

    @contextmanager
    def _handing_back(self, taken: list[tuple[tuple[str, int], int]]) -> Iterator[None]:
        """Read partitions again from these offsets, those of the first taken records, after an interrupt: the program
        did not get the records, and they would be committed."""
        try:
            yield
        except Exception:  # an error of the read itself, which has taken nothing
            raise
        except BaseException:  # an interrupt, which may come after records were taken
            self._hand_back(taken)
            raise

    def _hand_back(self, taken: list[tuple[tuple[str, int], int]]) -> None:
        def hand_back() -> None:
            for partition, offset in taken:
                with suppress(ValueError, ClientClosed):  # not assigned any more, or closed
                    self._inner.seek(partition, offset)

        self._call(hand_back)  # it runs after the cancellation, when `taken` is final

    def _refuse_in_listener(self) -> None:
        if self._callbacks.is_running_here:
            raise RuntimeError("a rebalance listener can neither read records nor end the subscription")
