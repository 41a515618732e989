"""The PySpark data source: topics as Spark tables, without a jar.

Spark finds format `ottla` by itself, through the module `pyspark_ottla`. It silently ignores all such modules when any
`pyspark_*` package on the path cannot be imported. Then `register(spark)` registers the format.

Reading works in every thread. `save()` of a write and `start()` of a stream look the format up in the session that is
*active* in the calling thread (Spark's DataSource.lookupDataSource calls SparkSession.getActiveSession). A new Python
thread has no active session, and no source in Python is found without one: `register(spark)` makes the session active.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["each_batch", "register"]


def register(spark: SparkSession) -> None:
    """Register format `ottla` with this session, and make it the calling thread's active one, as writing needs.

    Call it first in each thread that writes, or as the initializer of a ThreadPoolExecutor. It is harmless when Spark
    has found the format already, and from many threads at the same time.
    """
    from ottla.spark.source import OttlaDataSource

    spark.dataSource.register(OttlaDataSource)
    _activate(spark)


def _activate(spark: SparkSession) -> None:
    """Make this the thread's session in the JVM; PySpark does the same in `createDataFrame`."""
    jvm = getattr(spark, "_jvm", None)
    if jvm is not None:  # a session of Spark Connect has none, and its server looks the format up
        session_class = type(spark)._get_j_spark_session_class(jvm)
        session_class.setActiveSession(spark._jsparkSession)


def each_batch(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """Return a function for `foreachBatch` that appends every micro-batch to a topic, by format `ottla`.

    Use it to write a stream in output mode `update`, which Spark refuses for every data source in Python.
    `options` are those of the sink. A batch that Spark runs again is written again, at least once, unless
    `exactlyOnceName` is among the options: then the sink recognises the batch as in a stream.
    """
    chosen = dict(options)

    def append(batch: DataFrame, batch_id: int) -> None:
        _activate(batch.sparkSession)
        batch.write.format("ottla").options(**chosen).mode("append").save()

    return append
