"""The partition that Spark pickles to a task, and how the task reads it; the same for batch queries and streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ottla.spark.options import ReadOptions
    from ottla.spark.planner import OffsetRange


class RangePartition(InputPartition):
    """The work of one task."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(wanted)


def read_partition(partition: InputPartition, options: ReadOptions, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield the records of one range; Spark passes a partition of None when there is none to read."""
    from ottla.spark.columns import arrow_schema_of
    from ottla.spark.reading import read_range

    if partition.value is None:
        return iter(())
    return read_range(partition.value, options, arrow_schema_of(schema))
