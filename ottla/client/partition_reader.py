"""PartitionReader: the part of a Consumer that reads assigned partitions, no matter how they were assigned.

It handles positions, pauses and records. Batches are fetched ahead of the reader, up to `max_partition_fetch_bytes` per
partition. Records are returned within a *poll* (`getone`, `getmany`, iteration); a group changes the assignment only
there, see `ottla.client.groups.poll_gate`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from operator import index
from types import TracebackType
from typing import Any, Generic, Self

from ottla.client.assigned import AssignedPartition
from ottla.client.assignment import Assignment
from ottla.client.cluster import Cluster
from ottla.client.consumer_options import ISOLATION_LEVELS, RESETS, ConsumerOptions
from ottla.client.decoded_records import Row
from ottla.client.errors import ClientClosed, ClientTimeout, KafkaError, not_started
from ottla.client.fetcher import Fetcher
from ottla.client.groups.poll_gate import PollGate
from ottla.client.interceptors import before_consuming, close_all
from ottla.client.metrics import ConsumerMetrics
from ottla.client.offsets import EARLIEST, LATEST, OffsetAndTimestamp, list_offsets
from ottla.client.polled_records import PolledRecords
from ottla.client.record_limits import check_max_records
from ottla.client.structs import ConsumerRecord, K, TopicPartition, V, require_int64

_NO_LIMIT = sys.maxsize
_NOTHING: Iterator[Any] = iter(())


class PartitionReader(Generic[K, V]):
    """See the module; `Consumer` is the class for programs."""

    def __init__(self, servers: list[tuple[str, int]], options: ConsumerOptions) -> None:
        self._servers, self._options = servers, options
        self._isolation_level = ISOLATION_LEVELS[options.isolation_level]
        self._max_partition_fetch_bytes = options.max_partition_fetch_bytes
        self._timeout_ms = options.default_api_timeout_ms
        self._interceptors = options.interceptors
        self._assignment = Assignment(RESETS[options.auto_offset_reset])
        self._partitions = self._assignment.partitions
        self._current: AssignedPartition | None = None
        """The partition of the last record, if no poll has begun since then."""
        self._records: Iterator[ConsumerRecord[K, V]] = _NOTHING
        """The iterator over the records of `_current`; it has ended if the next record must come from a poll."""
        self._waiters: set[asyncio.Future[None]] = set()
        self._gate = PollGate(self._call_readers)
        self._failure: BaseException | None = None
        self._cluster: Cluster | None = None
        self._fetcher: Fetcher | None = None
        self._metrics = ConsumerMetrics(0)
        self._is_closed = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Find the cluster; raises NoBrokersAvailable."""
        self._loop = asyncio.get_running_loop()
        self._metrics = ConsumerMetrics(self._loop.time())
        cluster = Cluster(self._servers, self._options, allow_auto_create_topics=self._options.allow_auto_create_topics)
        fetcher = Fetcher(cluster, self._partitions, self._options, self._metrics, on_data=self._wake_readers)
        cluster.on_update = fetcher.wake
        try:
            await cluster.start()
        except BaseException:
            await cluster.close()
            raise
        self._cluster, self._fetcher = cluster, fetcher

    async def close(self) -> None:
        """End immediately, without waiting for requests in flight. Waiting readers raise ClientClosed."""
        if self._is_closed:
            return
        self._is_closed = True
        self._interrupt()  # the decoded records were not committed
        self._wake_readers()
        try:
            if self._fetcher is not None:
                await self._fetcher.close()
        finally:
            if self._cluster is not None:
                await self._cluster.close()
            close_all(self._interceptors)

    # Assignment -------------------------------------------------------------------------------------------------

    def assignment(self) -> list[TopicPartition]:
        """Return the assigned partitions."""
        return list(self._partitions)

    async def partitions_for(self, topic: str) -> list[int]:
        """Return the partitions of a topic; raises KafkaError if it is not found within `default_api_timeout_ms`."""
        cluster, _ = self._started()
        return sorted((await cluster.topic(topic, self._timeout_ms)).partitions)

    def _replace_assignment(self, wanted: Iterable[TopicPartition], *, awaits_committed: bool) -> None:
        """Read these partitions and no others; those that were assigned before keep their position and their pause."""
        self._assignment.replace(wanted, awaits_committed=awaits_committed)
        if self._current is not None and self._current.partition not in self._partitions:
            self._interrupt()
        self._wake_readers()  # one may wait for the position of a partition that is no longer assigned
        self._started()[1].wake()

    # Positions --------------------------------------------------------------------------------------------------

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Continue reading at `offset`. Records that were fetched already are dropped.

        Raises ValueError for an offset below 0 or above 2^63-1, TypeError for one that is no integer.
        """
        offset = index(offset)
        require_int64("an offset", offset)
        self._assignment.find(partition).move(offset)
        self._after_move(partition)

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Continue at the first offset of these partitions, or of all."""
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Continue at the end of these partitions, or of all: the end when the broker is asked (see `position`)."""
        self._reset(partitions, LATEST)

    async def seek_to_times(self, timestamps: Mapping[TopicPartition, int]) -> None:
        """Continue at the first record with that timestamp (ms) or later, at the end if there is none."""
        for partition, found in (await self.offsets_for_times(timestamps)).items():
            if found is None:
                self.seek_to_end(partition)
            else:
                self.seek(partition, found.offset)

    async def position(self, partition: tuple[str, int]) -> int:
        """Return the offset of the next record of a partition; waits while it is being looked up.

        Raises the KafkaError of a failed look-up, ClientTimeout after `default_api_timeout_ms`, ValueError for a
        partition that is not, or no longer, assigned.
        """
        assigned = self._assignment.find(partition)
        self._look_up_positions()
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                while assigned.next_offset < 0:
                    self._raise_failure(assigned)
                    await self._await_data()
                    assigned = self._assignment.find(partition)
        except TimeoutError:
            raise ClientTimeout(f"{assigned.partition}: no position within {self._timeout_ms} ms") from None
        return assigned.next_offset

    async def has_reached(self, partition: tuple[str, int], offset: int) -> bool:
        """Return whether every record of a partition below `offset` was read; waits while the position is looked up.

        Use this for results of `end_offsets`. If the last records of a log were removed by compaction, the position
        never reaches its end; then an answer of the leader shows that no more records come. Raises as `position`.
        """
        return await self.position(partition) >= offset or self._assignment.find(partition).has_reached(offset)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return, per partition, its first record with that timestamp (ms) or later; None if there is none."""
        for partition, timestamp in timestamps.items():
            require_int64(f"{partition}: a timestamp", timestamp)
        return await self._list_offsets(timestamps)

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        return await self._edges(partitions, EARLIEST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition (for read_committed: the last stable one)."""
        return await self._edges(partitions, LATEST)

    def high_watermark(self, partition: tuple[str, int]) -> int:
        """Return the high watermark in the last answer, -1 before the first."""
        return self._assignment.find(partition).high_watermark

    def lag(self, partition: tuple[str, int]) -> int:
        """Return the number of offsets between the position and the end of the log; -1 before that is known."""
        assigned = self._assignment.find(partition)
        end = assigned.last_stable_offset if self._isolation_level == 1 else assigned.high_watermark
        return max(0, end - assigned.next_offset) if end >= 0 and assigned.next_offset >= 0 else -1

    def metrics(self) -> dict[str, float]:
        """Return the consumer's metrics, by Kafka's metric names; NaN for those without any value yet.

        Times are in ms, sizes in bytes; rates, averages and maxima cover the last half to whole minute.
        """
        cluster, _ = self._started()
        now = self._loop.time()
        lags = {partition: self.lag(partition) for partition in self._partitions}
        return {
            **cluster.metrics.snapshot(now),
            **self._metrics.snapshot(now, {partition: lag for partition, lag in lags.items() if lag >= 0}),
            "assigned-partitions": len(self._partitions),
            "metadata-age": now - cluster.asked_at,
            **self._group_metrics(),
        }

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Return no records of these partitions until `resume`; fetched records are kept."""
        for partition in partitions:
            assigned = self._assignment.find(partition)
            assigned.is_paused = True
            if self._current is assigned:
                self._interrupt()

    def resume(self, *partitions: tuple[str, int]) -> None:
        """End a `pause`."""
        _, fetcher = self._started()
        for partition in partitions:
            self._assignment.find(partition).is_paused = False
        self._wake_readers()
        fetcher.wake()

    def paused(self) -> list[TopicPartition]:
        """Return the paused partitions."""
        return [assigned.partition for assigned in self._partitions.values() if assigned.is_paused]

    # Records ----------------------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord[K, V]:
        for record in self._records:
            return record
        return await self.getone()

    async def getone(self) -> ConsumerRecord[K, V]:
        """Return the next record; waits for it.

        Raises ClientClosed, RuntimeError without an assignment and a subscription, and the error of a partition.
        """
        for record in self._records:
            return record
        self._require_source()
        self._before_poll()
        with self._gate.polling():
            while True:
                self._interrupt()
                if self._is_closed or self._fetcher is None:
                    self._started()
                if self._gate.is_wanted:
                    await self._gate.passed()
                    self._started()
                for assigned in self._assignment.in_turn():
                    if self._fill(assigned):
                        self._current = assigned
                        self._records = self._as_intercepted(assigned.decoded.records)
                        break
                else:
                    self._raise_failures()
                    await self._await_data()
                for record in self._records:
                    return record

    def _as_intercepted(self, records: Iterator[ConsumerRecord[K, V]]) -> Iterator[ConsumerRecord[K, V]]:
        """Return the records as the interceptors change them, one by one."""
        if not self._interceptors:
            return records

        def intercepted(record: ConsumerRecord[K, V]) -> ConsumerRecord[K, V] | None:
            partition = TopicPartition(record.topic, record.partition)
            left = before_consuming(self._interceptors, {partition: [record]}).get(partition)
            return left[0] if left else None

        return filter(None, map(intercepted, records))  # not a generator, which two threads cannot share

    async def getmany(
        self, *partitions: tuple[str, int], timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, Sequence[ConsumerRecord[K, V]]]:
        """Return the fetched records, by partition; waits up to `timeout_ms` for the first ones.

        A `ConsumerRecord` is created when it is taken from its sequence; `list(...)` of a sequence can be changed. The
        result has records of `partitions` only, if some are given, and at most `max_records` (None:
        `max_poll_records`); it is empty after the timeout. Raises a partition's error when there is nothing to return,
        and ValueError for a `max_records` below 1.
        """
        check_max_records(max_records)
        self._started()
        self._before_poll()
        deadline = self._loop.time() + timeout_ms / 1000
        limit = max_records or self._options.max_poll_records or _NO_LIMIT
        chosen = {self._assignment.find(partition).partition for partition in partitions}
        with self._gate.polling():
            self._interrupt()
            while True:
                if self._gate.is_wanted:
                    await self._gate.passed()
                self._started()
                taken: dict[TopicPartition, Sequence[ConsumerRecord[K, V]]] = {**self._take_many(chosen, limit)}
                if taken and self._interceptors:
                    seen = before_consuming(self._interceptors, {place: list(some) for place, some in taken.items()})
                    taken = {partition: list(some) for partition, some in seen.items() if some}
                    if not taken:
                        continue  # the interceptors removed all of them: look for more
                if taken:
                    return taken
                self._raise_failures()
                left_s = deadline - self._loop.time()
                if not left_s > 0:  # also for NaN, with which the loop's timers would never end
                    return {}
                try:
                    async with asyncio.timeout(left_s):
                        await self._await_data()
                except TimeoutError:
                    return {}

    def _take_many(self, chosen: Set[TopicPartition], limit: int) -> dict[TopicPartition, PolledRecords[K, V]]:
        """Return up to `limit` fetched records, of the `chosen` partitions if there are any."""
        taken: dict[TopicPartition, PolledRecords[K, V]] = {}
        room = limit
        for assigned in self._assignment.in_turn():
            if chosen and assigned.partition not in chosen:
                continue
            rows: list[Row] = []
            while room > 0 and self._fill(assigned):
                some = assigned.decoded.take(room)
                rows += some
                room -= len(some)
            if rows:
                taken[assigned.partition] = PolledRecords(rows)
            if room <= 0:
                break
        return taken

    # Inside -----------------------------------------------------------------------------------------------------

    def _before_poll(self) -> None:
        """Called at the beginning of a poll."""

    def _require_source(self) -> None:
        """Called before a wait without a timeout. Raises RuntimeError if nothing could end it."""

    def _group_metrics(self) -> dict[str, float]:
        """Called for a group's metrics."""
        return {}

    def _look_up_positions(self) -> None:
        """Called where a position may have to be looked up in the group."""

    def _started(self) -> tuple[Cluster, Fetcher]:
        if self._is_closed or self._cluster is None or self._fetcher is None:
            raise ClientClosed("the consumer is closed") if self._is_closed else not_started("the consumer")
        return self._cluster, self._fetcher

    def _fill(self, assigned: AssignedPartition) -> bool:
        """Decode records of a partition, if needed; return whether it has any."""
        if assigned.decoded:
            return True
        if not assigned.fetched:
            return False
        was_full = assigned.buffered_bytes >= self._max_partition_fetch_bytes
        try:
            assigned.decode_next(self._options, self._metrics, self._loop.time())
        except KafkaError as failed:
            assigned.failure = failed
        if was_full and assigned.buffered_bytes < self._max_partition_fetch_bytes:
            self._started()[1].wake()
        return bool(assigned.decoded)

    def _raise_failures(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        for assigned in self._partitions.values():
            if assigned.failure is not None and not assigned.is_paused:
                self._raise_failure(assigned)

    def _raise_failure(self, assigned: AssignedPartition) -> None:
        """Raise a partition's failure; after that it is fetched again, if its position is known."""
        if assigned.failure is not None:
            failure, assigned.failure = assigned.failure, None
            if assigned.is_nowhere:
                assigned.miss_position()
            self._started()[1].wake()
            raise failure

    def _interrupt(self) -> None:
        """Let the next record come from a poll; decoded records wait until then."""
        current, self._current, self._records = self._current, None, _NOTHING
        if current is not None:
            current.interrupt()

    def _call_readers(self) -> None:
        """Let readers pass the gate soon: decoded records wait until then."""
        self._interrupt()
        self._wake_readers()

    def _wake_readers(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _await_data(self) -> None:
        """Wait for fetched records, a failure or a position; raises ClientClosed when the consumer is closed."""
        if self._is_closed:
            self._started()
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
        if self._is_closed:
            self._started()

    def _reset(self, partitions: Iterable[tuple[str, int]], reset_to: int) -> None:
        for partition in list(partitions) or list(self._partitions):
            self._assignment.find(partition).move(-1, reset_to=reset_to)
            self._after_move(partition)

    def _after_move(self, partition: tuple[str, int]) -> None:
        if self._current is not None and self._current.partition == tuple(partition):
            self._interrupt()
        self._started()[1].wake()

    async def _list_offsets(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        cluster, _ = self._started()
        asked = {TopicPartition(*partition): timestamp for partition, timestamp in timestamps.items()}
        return await list_offsets(cluster, asked, isolation_level=self._isolation_level, timeout_ms=self._timeout_ms)

    async def _edges(self, partitions: Iterable[TopicPartition], edge: int) -> dict[TopicPartition, int]:
        found = await self._list_offsets(dict.fromkeys(partitions, edge))
        return {partition: place.offset for partition, place in found.items() if place is not None}
