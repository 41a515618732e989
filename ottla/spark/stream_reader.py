"""The reader of a stream: what Spark asks on the driver, with the connections and the patience of a long life.

Spark keeps one such reader per query in a Python process of the driver, where it asks for offsets and ranges batch
after batch; a copy of it, fresh from pickling, reads ranges in tasks. So nothing is connected before the first
question, and `read` uses no more than options and schema. Once a cluster has answered, a broker that goes away is
waited for, up to `kafkaConsumer.pollTimeoutMs`: a restart of the broker is no reason to end a stream."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ottla.spark.errors import BrokerUnavailable, reported_in_one_line
from ottla.spark.partition import RangePartition, read_partition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from ottla.spark.cluster import Cluster
    from ottla.spark.errors import OptionError, SchemaError
    from ottla.spark.options import ReadOptions
    from ottla.spark.stream_planner import StreamPlanner

T = TypeVar("T")

logger = logging.getLogger(__name__)


class OttlaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("ottla")`; see the module."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._cluster: Cluster | None = None
        self._planner: StreamPlanner | None = None
        self._has_answered = False

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Return where a stream without a checkpoint begins, by `startingOffsets` and the options about times."""
        return self._ask(lambda planner, cluster: planner.initial(cluster)).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """Return the limit of the options; Spark knows none of two sides, so the lower one is kept here."""
        limits = self._options.limits
        if limits.most is not None:
            return ReadMaxRows(limits.most)
        return ReadAllAvailable() if limits.least is None else ReadMinRows(limits.least)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Return where the micro-batch from `start` ends."""
        from ottla.spark.stream_offsets import StreamOffsets

        with reported_in_one_line():
            begin = StreamOffsets.from_json(start)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        take_all = isinstance(limit, ReadAllAvailable)  # no limit among the options, or a trigger that overrules them
        end = self._ask(lambda planner, cluster: planner.next_end(begin, most, take_all=take_all, cluster=cluster))
        return end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  # Spark's name
        """Return the ends of the logs as last seen, for the query's progress; a lag is their distance to the end."""
        newest = None if self._planner is None else self._planner.newest
        return None if newest is None else newest.to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """End this run at the records that are there when it starts."""
        planner, _ = self._connected()
        planner.stop_at_present_end()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return one partition per range of a micro-batch."""
        from ottla.spark.stream_offsets import StreamOffsets

        with reported_in_one_line():
            begin, stop = StreamOffsets.from_json(start), StreamOffsets.from_json(end)
        return [
            RangePartition(wanted)
            for wanted in self._ask(lambda planner, cluster: planner.ranges(begin, stop, cluster))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one range, in a task."""
        return read_partition(partition, self._options, self._schema)

    def stop(self) -> None:
        """Close the connections."""
        if self._cluster is not None:
            self._cluster.close()

    def _connected(self) -> tuple[StreamPlanner, Cluster]:
        """Return planner and cluster; connections are opened by the first question."""
        from ottla.spark.cluster import Cluster
        from ottla.spark.stream_planner import StreamPlanner

        if self._cluster is None or self._planner is None:
            self._cluster = Cluster(self._options.client)
            self._planner = StreamPlanner(self._options, time.monotonic)
        return self._planner, self._cluster

    def _ask(self, question: Callable[[StreamPlanner, Cluster], T]) -> T:
        with reported_in_one_line():
            planner, cluster = self._connected()
            give_up_at = time.monotonic() + self._options.client.poll_timeout_ms / 1000
            while True:
                try:
                    answer = question(planner, cluster)
                except BrokerUnavailable as problem:
                    if not self._has_answered or time.monotonic() >= give_up_at:
                        raise
                    logger.warning("%s; the stream waits for it", problem)
                else:
                    self._has_answered = True
                    return answer
                time.sleep(self._options.client.retry_backoff_ms / 1000)


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream whose options or schema are wrong: whatever Spark asks first is answered by saying so.

    It is not said by `streamReader` itself, since Spark's process for readers then fails at closing the one that it
    has not got, and an UnboundLocalError is the last line that people see.
    """

    def __init__(self, refusal: OptionError | SchemaError) -> None:
        self._refusal = refusal

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Raise the refusal."""
        raise self._error()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """Raise the refusal."""
        raise self._error()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Raise the refusal."""
        raise self._error()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Raise the refusal."""
        raise self._error()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Raise the refusal."""
        raise self._error()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raise the refusal."""
        raise self._error()

    def _error(self) -> OptionError | SchemaError:
        return self._refusal.with_traceback(None)
