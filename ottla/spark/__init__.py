"""The PySpark data source: topics as Spark tables, without a jar.

Spark finds format `ottla` by itself, through the module `pyspark_ottla`. It gives that up, for every source and
without a word, when any `pyspark_*` package on the path cannot be imported; then `register(spark)` does it by hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession) -> None:
    """Register format `ottla` with this session. Harmless when Spark has found it already."""
    from ottla.spark.source import OttlaDataSource

    spark.dataSource.register(OttlaDataSource)
