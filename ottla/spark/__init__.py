"""The PySpark data source: topics as Spark tables, without a jar.

Spark finds format `ottla` by itself, through the module `pyspark_ottla`. It gives that up, for every source and
without a word, when any `pyspark_*` package on the path cannot be imported; then `register(spark)` does it by hand.

Reading works in every thread, but `save()` of a write and `start()` of a stream look the format up in the session that
is *active* in the calling thread (Spark's DataSource.lookupDataSource asks SparkSession.getActiveSession), and a new
Python thread has none. No source in Python is found there without one, so `register(spark)` makes the session active.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["each_batch", "register"]


def register(spark: SparkSession) -> None:
    """Register format `ottla` with this session, and make it the calling thread's active one, as writing needs.

    Called first thing in each thread that writes, or as the initializer of a ThreadPoolExecutor. Harmless when Spark
    has found the format already, and from many threads at once.
    """
    from ottla.spark.source import OttlaDataSource

    spark.dataSource.register(OttlaDataSource)
    _activate(spark)


def _activate(spark: SparkSession) -> None:
    """Say in the JVM that this is the thread's session; PySpark does the same in `createDataFrame`."""
    jvm = getattr(spark, "_jvm", None)
    if jvm is not None:  # a session of Spark Connect has none, and its server looks the format up
        session_class = type(spark)._get_j_spark_session_class(jvm)
        session_class.setActiveSession(spark._jsparkSession)


def each_batch(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that appends every micro-batch to a topic, by format `ottla`.

    It is the way to write a stream in output mode `update`, which Spark refuses to every data source in Python.
    `options` are those of the sink. A batch that Spark runs again is written again: at least once, as with the sink.
    """
    chosen = dict(options)

    def append(batch: DataFrame, batch_id: int) -> None:
        _activate(batch.sparkSession)
        batch.write.format("ottla").options(**chosen).mode("append").save()

    return append
