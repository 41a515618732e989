"""The PySpark data source: topics as Spark tables, without a jar.

Spark finds format `ottla` by itself, through the module `pyspark_ottla`. It gives that up, for every source and
without a word, when any `pyspark_*` package on the path cannot be imported; then `register(spark)` does it by hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["each_batch", "register"]


def register(spark: SparkSession) -> None:
    """Register format `ottla` with this session. Harmless when Spark has found it already."""
    from ottla.spark.source import OttlaDataSource

    spark.dataSource.register(OttlaDataSource)


def each_batch(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that appends every micro-batch to a topic, by format `ottla`.

    It is the way to write a stream in output mode `update`, which Spark refuses to every data source in Python.
    `options` are those of the sink. A batch that Spark runs again is written again: at least once, as with the sink.
    """
    chosen = dict(options)

    def append(batch: DataFrame, batch_id: int) -> None:
        batch.write.format("ottla").options(**chosen).mode("append").save()

    return append
