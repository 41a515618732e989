"""The PySpark data source: topics as Spark tables, without a jar."""
