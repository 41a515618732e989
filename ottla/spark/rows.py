"""Rows to batches: a task's Arrow tables are divided by topic and partition, encoded, and given to the sender.

Rows of the same task keep their order within a partition. The column `partition` decides the partition of a row; else
its key does, as in Java's producer; rows without both fill partitions in turn, batch by batch. The timestamp of a
record is the time of writing, or with `includeTimestamp` the row's."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from ottla.spark.errors import WriteFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from ottla.arrow.encoder import Rows
    from ottla.spark.sender import Batch, Sender
    from ottla.spark.write_options import WriteOptions

CHUNK_BYTES = 8 * 1024 * 1024
"""Arrow batches are gathered to about this size before they are encoded, so that many partitions get whole batches."""


def chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield the rows of a task as tables, none of which is empty."""
    import pyarrow as pa

    gathered: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows:
            gathered.append(batch)
        if sum(part.nbytes for part in gathered) >= CHUNK_BYTES:
            yield pa.Table.from_batches(gathered)
            gathered = []
    if gathered:
        yield pa.Table.from_batches(gathered)


class TaskRows:
    """Sends the rows of one task; remembers the next partition for rows without a key."""

    def __init__(self, options: WriteOptions, sender: Sender) -> None:
        self._options = options
        self._sender = sender
        self._next_partition: dict[str, int] = {}

    def write(self, table: pa.Table) -> None:
        """Send a table's rows: batches of all its topics together, so that they share requests."""
        if self._options.topic is not None:
            tables = {self._options.topic: table}
        else:
            tables = by_topic(table)
        self._sender.find(tables)
        self._sender.send([batch for topic, rows in tables.items() for batch in self._encoded(topic, rows)])

    def _encoded(self, topic: str, table: pa.Table) -> list[Batch]:
        from ottla.arrow.encoder import encode_rows
        from ottla.arrow.errors import UnsendableRow
        from ottla.spark.sender import Batch

        now_ms = time.time_ns() // 1_000_000
        rows = self._rows(table, now_ms)
        partitions = self._partitions(topic, table, rows)
        settings = self._options.producer
        bodies = encode_rows(
            rows,
            partitions,
            batch_bytes=self._sender.batch_bytes(topic),
            most_bytes=settings.max_request_bytes,
            most_name="kafka.max.request.size",
        )
        try:
            return [Batch(topic, body, now_ms) for body in bodies]
        except UnsendableRow as refused:
            raise WriteFailed(str(refused)) from None

    def _rows(self, table: pa.Table, now_ms: int) -> Rows:
        from ottla.arrow.encoder import Rows, as_binary

        columns = self._options.columns
        return Rows(
            keys=as_binary(table["key"]) if "key" in columns else None,
            values=as_binary(table["value"]),
            headers=table["headers"].combine_chunks() if "headers" in columns else None,
            timestamps_ms=_milliseconds(table["timestamp"], now_ms) if "timestamp" in columns else None,
        )

    def _partitions(self, topic: str, table: pa.Table, rows: Rows) -> npt.NDArray[np.int64]:
        """Return the partition of each row: its own one, else its key's, else the next in turn."""
        import numpy as np
        import pyarrow.compute as pc

        from ottla.arrow.murmur2 import partitions_of

        count = self._sender.partition_count(topic)
        chosen = np.full(len(rows.values), -1, np.int64)
        if "partition" in self._options.columns:
            given = table["partition"].combine_chunks()
            named = given.is_valid().to_numpy(zero_copy_only=False)
            chosen[named] = given.drop_null().to_numpy()
            if len(wrong := chosen[named][(chosen[named] < 0) | (chosen[named] >= count)]):
                problem = f"column partition says {wrong[0]}, topic {topic} has partitions 0 to {count - 1}"
                raise WriteFailed(f"{problem}; without the column, the key decides")
        left = chosen < 0
        if rows.keys is not None and left.any():
            keyed = left & rows.keys.is_valid().to_numpy(zero_copy_only=False)
            chosen[keyed] = partitions_of(pc.array_filter(rows.keys, keyed), count)
            left &= ~keyed
        if left.any():
            chosen[left] = self._turns(topic, int(left.sum()), count, rows.values.nbytes)
        return chosen

    def _turns(self, topic: str, rows: int, partition_count: int, size_bytes: int) -> npt.NDArray[np.int64]:
        """Fill the partitions in turn, about a batch at a time, beginning with a random one."""
        import numpy as np

        runs = min(partition_count, rows, 1 + size_bytes // self._options.producer.batch_bytes)
        first = self._next_partition.get(topic, random.randrange(partition_count))
        self._next_partition[topic] = (first + runs) % partition_count
        return (first + np.arange(rows) * runs // rows) % partition_count


def _milliseconds(column: pa.ChunkedArray, now_ms: int) -> npt.NDArray[np.int64]:
    """Return Spark's microseconds as Kafka's milliseconds, rounded down; `now_ms` for null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    micros = pc.fill_null(column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()), now_ms * 1000).to_numpy()
    if len(micros) and micros.min() < 0:
        raise WriteFailed("column timestamp holds a time before 1970, and a record of Kafka cannot")
    found: npt.NDArray[np.int64] = micros // 1000
    return found


def by_topic(table: pa.Table) -> dict[str, pa.Table]:
    """Return the rows of each topic in the column, in the order of the topics' first rows."""
    import numpy as np

    from ottla.spark.write_options import checked_topic

    names = table["topic"].combine_chunks()
    if names.null_count:
        raise WriteFailed("column topic is null in a row; option topic would send all rows to one")
    encoded = names.dictionary_encode()  # numbers the topics in the order of their first rows
    topics = [checked_topic(name) for name in encoded.dictionary.to_pylist()]
    if len(topics) == 1:
        return {topics[0]: table}
    numbers = encoded.indices.to_numpy()
    order = np.argsort(numbers, kind="stable")
    edges = np.searchsorted(numbers[order], np.arange(len(topics) + 1))
    together = table.take(order)
    return {
        topic: together.slice(first, last - first)
        for topic, first, last in zip(topics, edges[:-1].tolist(), edges[1:].tolist(), strict=True)
    }
