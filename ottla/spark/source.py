"""The data source as Spark calls it: options and schema on the driver, offset ranges to tasks, Arrow batches back.

Spark creates an `OttlaDataSource` on the driver and gets a schema and a reader or writer from it. It pickles these to
the executors' Python workers, where `read` or `write` runs. So nothing here holds a connection. Modules that take long
to import (numpy, pyarrow) are imported where they are used: Spark imports this module for every first look-up of any
data source.
"""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader

from ottla.spark.errors import reported_in_one_line
from ottla.spark.partition import RangePartition, read_partition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from ottla.spark.options import ReadOptions
    from ottla.spark.stream_reader import OttlaStreamReader, RefusedStream
    from ottla.spark.writer import BatchWriter, StreamWriter

logger = logging.getLogger(__name__)

FORMAT = "ottla"


class OttlaDataSource(DataSource):
    """Format `ottla`: topics of Ottla, or of any Kafka since 0.11, as tables, streams and sinks."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns of a reader; wrong options are refused here, at `load()`."""
        from ottla.spark.columns import schema_of
        from ottla.spark.options import wants_headers

        with reported_in_one_line():
            return schema_of(wants_headers(self.options))

    def reader(self, schema: StructType) -> RangeReader:
        """Return the reader of a batch query for the columns of the user's schema or of `schema()`."""
        from ottla.spark.columns import check_schema
        from ottla.spark.options import read_options

        with reported_in_one_line():
            options = read_options(self.options)
            check_schema(schema, options.include_headers)
        return RangeReader(options, schema)

    def streamReader(self, schema: StructType) -> OttlaStreamReader | RefusedStream:  # noqa: N802  # Spark's name
        """Return the reader of a stream for the columns of the user's schema or of `schema()`, or one that raises."""
        from ottla.spark.columns import check_schema
        from ottla.spark.errors import OptionError, SchemaError
        from ottla.spark.options import stream_options
        from ottla.spark.stream_reader import OttlaStreamReader, RefusedStream

        try:
            options = stream_options(self.options)
            check_schema(schema, options.include_headers)
        except (OptionError, SchemaError) as refusal:
            return RefusedStream(refusal)
        return OttlaStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the writer of a batch query. Mode overwrite is refused, since records are always appended."""
        from ottla.spark.errors import OptionError
        from ottla.spark.option_names import warn_once
        from ottla.spark.write_options import write_options
        from ottla.spark.writer import BatchWriter

        with reported_in_one_line():
            if overwrite:
                raise OptionError('a topic is not overwritten, records are appended to it: write.mode("append")')
            options = write_options(self.options, schema)
        warn_once(options.warning)
        return BatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802  # Spark's name
        """Return the writer of a micro-batch; in output mode complete (`overwrite`) each appends the whole result."""
        from ottla.spark.write_options import write_options
        from ottla.spark.writer import StreamWriter

        with reported_in_one_line():
            return StreamWriter(write_options(self.options, schema))


class RangeReader(DataSourceReader):
    """Plans the offset ranges of a batch query, and reads one of them in a task."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition per offset range. Raises OptionError, DataLoss, BrokerUnavailable, ProtocolFailure."""
        from ottla.spark.cluster import Cluster
        from ottla.spark.planner import plan

        for warning in self._options.warnings:
            logger.warning("%s", warning)
        with reported_in_one_line(), closing(Cluster(self._options.client)) as cluster:
            return [RangePartition(wanted) for wanted in plan(self._options, cluster)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one range, in a task."""
        return read_partition(partition, self._options, self._schema)
