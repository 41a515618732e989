"""Where Spark finds the format `ottla`: it looks into modules named `pyspark_*` for an attribute `DefaultSource`.

Thin on purpose. Spark imports it for the first look-up of any data source, and an import that fails here would switch
off the automatic registration of all of them.
"""

from __future__ import annotations

from ottla.spark.source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
