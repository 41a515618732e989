"""ColumnReader: the part of a Consumer that reads partitions as Arrow record batches.

It polls like `PartitionReader`. The first call imports `arrow_reading`, and with it numpy and pyarrow.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Generic

from ottla.client.errors import KafkaError
from ottla.client.partition_reader import PartitionReader
from ottla.client.structs import K, V

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.client.arrow_reading import ArrowReading, Taken


class ColumnReader(PartitionReader[K, V], Generic[K, V]):
    """See the module; `Consumer` is the class for programs."""

    async def arrow(
        self, *, columns: Iterable[str] | None = None, include_headers: bool = False
    ) -> AsyncIterator[pa.RecordBatch]:
        """Yield records as Arrow record batches, each of one partition; waits for more, without end.

        `columns` names the wanted ones of key, value, topic, partition, offset, timestamp, timestampType and headers
        (None: all, headers only with `include_headers`), which have the names and types of Spark's Kafka source.
        Yielded records count as read. Keys and values are bytes: deserializers are not called. A batch may hold more
        than `max_poll_records`.

        Raises ImportError without pyarrow and numpy (the extra `arrow`), ValueError for a column that does not
        exist and for a consumer with interceptors, and what `getone` raises.
        """
        reading = self._read_arrow(columns, include_headers=include_headers)
        while True:
            yield (await self._next_columns(reading)).columns

    def _read_arrow(self, columns: Iterable[str] | None, *, include_headers: bool) -> ArrowReading:
        if self._interceptors:
            raise ValueError("interceptors are called with records, which arrow() does not make")
        try:
            from ottla.client.arrow_reading import ArrowReading
        except ImportError as missing:
            raise ImportError(f"{missing}: arrow() needs pip install 'ottla[arrow]'") from None
        return ArrowReading(self._options, self._metrics, columns, include_headers=include_headers)

    async def _next_columns(self, reading: ArrowReading) -> Taken:
        """Return the next record batch, as `getone` does the next record."""
        self._started()
        self._require_source()
        self._before_poll()
        with self._gate.polling():
            while True:
                self._interrupt()
                if self._gate.is_wanted:
                    await self._gate.passed()
                _, fetcher = self._started()
                for assigned in self._assignment.in_turn():
                    try:
                        taken = reading.take(assigned, self._loop.time())
                    except KafkaError as failed:
                        assigned.failure = failed
                        continue
                    if assigned.buffered_bytes < self._max_partition_fetch_bytes:
                        fetcher.wake()
                    if taken is not None:
                        self._current = assigned
                        return taken
                self._raise_failures()
                await self._await_data()
