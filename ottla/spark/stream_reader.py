"""The reader of a stream: the methods that Spark calls on the driver, with long-lived connections.

Spark keeps one such reader per query in a Python process of the driver, and requests offsets and ranges from it for
each batch. Pickled copies read ranges in tasks. So nothing is connected before the first request, and `read` uses only
options and schema. Once a cluster has answered, the reader waits for a broker that is away, up to
`kafkaConsumer.pollTimeoutMs`, so that a restart of the broker does not end a stream."""

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
        """Return the start of a stream without a checkpoint, by `startingOffsets` and the options about times."""
        return self._ask(lambda planner, cluster: planner.initial(cluster)).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """Return the limit of the options; Spark has none with two bounds, so the planner applies the lower one."""
        limits = self._options.limits
        if limits.most is not None:
            return ReadMaxRows(limits.most)
        return ReadAllAvailable() if limits.least is None else ReadMinRows(limits.least)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Return the end of the micro-batch from `start`."""
        from ottla.spark.stream_offsets import StreamOffsets

        with reported_in_one_line():
            begin = StreamOffsets.from_json(start)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        take_all = isinstance(limit, ReadAllAvailable)  # no limit among the options, or a trigger that overrides it
        end = self._ask(lambda planner, cluster: planner.next_end(begin, most, take_all=take_all, cluster=cluster))
        return end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  # Spark's name
        """Return the last known ends of the logs, for the query's progress: their distance to its end is the lag."""
        newest = None if self._planner is None else self._planner.newest
        return None if newest is None else newest.to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """End this run at the ends of the logs when it starts."""
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
        """Return planner and cluster; the first request opens connections."""
        from ottla.spark.cluster import Cluster
        from ottla.spark.stream_planner import StreamPlanner

        if self._cluster is None or self._planner is None:
            for warning in self._options.warnings:
                logger.warning("%s", warning)
            self._cluster = Cluster(self._options.client)
            self._planner = StreamPlanner(self._options, time.monotonic)
        return self._planner, self._cluster

    def _ask(self, question: Callable[[StreamPlanner, Cluster], T]) -> T:
        with reported_in_one_line():
            planner, cluster = self._connected()
            give_up_at = time.monotonic() + self._options.client.poll_timeout_ms / 1000
            level = logging.WARNING
            while True:
                try:
                    answer = question(planner, cluster)
                except BrokerUnavailable as problem:
                    if not self._has_answered or time.monotonic() >= give_up_at:
                        raise
                    logger.log(level, "%s; the stream waits for it", problem)
                    level = logging.INFO  # one warning is enough, however long that takes
                else:
                    self._has_answered = True
                    return answer
                time.sleep(self._options.client.retry_backoff_ms / 1000)


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream whose options or schema are wrong: the first call by Spark raises the error.

    `streamReader` does not raise it, since Spark's process for readers would then fail to close a reader that it does
    not have, and the last line of its message would be an UnboundLocalError.
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
