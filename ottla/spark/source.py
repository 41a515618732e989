"""The data source as Spark calls it: options and schema on the driver, offset ranges to tasks, Arrow batches back.

Spark makes an `OttlaDataSource` on the driver, asks it for a schema and a reader, asks the reader once for its
partitions and pickles both to the executors' Python workers, where `read` runs. So nothing here holds a connection,
and whatever takes time to import (numpy, pyarrow) is imported where it is used: Spark imports this module for every
first look-up of any data source.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ottla.spark.options import ReadOptions
    from ottla.spark.planner import OffsetRange

from ottla.spark.errors import BrokerUnavailable, DataLoss, OptionError, ProtocolFailure, SchemaError

FORMAT = "ottla"

_REFUSALS = (OptionError, SchemaError, DataLoss, BrokerUnavailable, ProtocolFailure)


@contextmanager
def _told_in_one_line() -> Iterator[None]:
    """Cut the trace of an error whose message says it all: Spark shows people the whole trace, message last."""
    try:
        yield
    except _REFUSALS as refusal:
        raise refusal.with_traceback(None) from None


class OttlaDataSource(DataSource):
    """`spark.read.format("ottla")`: topics of Ottla, or of any Kafka since 0.11, as a table."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns; wrong options are refused here already, at `load()`."""
        from ottla.spark.columns import schema_of
        from ottla.spark.options import read_options

        with _told_in_one_line():
            return schema_of(read_options(self.options).include_headers)

    def reader(self, schema: StructType) -> RangeReader:
        """Return the reader of a batch query for the columns that the user or `schema()` named."""
        from ottla.spark.columns import check_schema
        from ottla.spark.options import read_options

        with _told_in_one_line():
            options = read_options(self.options)
            check_schema(schema, options.include_headers)
        return RangeReader(options, schema)


class RangePartition(InputPartition):
    """The work of one task."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(wanted)


class RangeReader(DataSourceReader):
    """Plans the offset ranges of a batch query, and reads one of them in a task."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition per offset range. Raises OptionError, DataLoss, BrokerUnavailable, ProtocolFailure."""
        from ottla.spark.cluster import Cluster
        from ottla.spark.planner import plan

        with _told_in_one_line(), closing(Cluster(self._options.client)) as cluster:
            return [RangePartition(wanted) for wanted in plan(self._options, cluster)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one range; Spark passes a partition of None when there is none to read."""
        from ottla.spark.columns import arrow_schema_of
        from ottla.spark.reading import read_range

        if partition.value is None:
            return iter(())
        return read_range(partition.value, self._options, arrow_schema_of(self._schema))
