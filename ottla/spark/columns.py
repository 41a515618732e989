"""The columns of the source: those of Spark's own Kafka source, from which a user's `.schema(...)` may select some.

Spark does not pass the columns of a query to a Python source. The user's schema does: only the columns in it are
decoded and returned. It is checked here, since Spark accepts any schema at load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.spark.errors import SchemaError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

COLUMNS = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP_LTZ, timestampType INT"
)
"""TIMESTAMP alone would be the type of spark.sql.timestampType, which may have no time zone."""

HEADERS_COLUMN = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"


def schema_of(include_headers: bool) -> str:
    """Return the columns, as DDL, that a query without a schema of its own gets."""
    return f"{COLUMNS}, {HEADERS_COLUMN}" if include_headers else COLUMNS


def check_schema(wanted: StructType, include_headers: bool) -> None:
    """Raise SchemaError unless every wanted column is one of the source's and has its type."""
    known = _column_types()
    for field in wanted.fields:
        if field.name not in known:
            raise SchemaError(f"column {field.name} does not exist; there are {', '.join(known)}")
        expected = known[field.name]
        if not _same_type(field.dataType, expected):
            raise SchemaError(
                f"column {field.name} is {expected.simpleString()}, the schema asks for {field.dataType.simpleString()}"
            )
        if field.name == "headers" and not include_headers:
            raise SchemaError("column headers needs option includeHeaders=true")
    if not wanted.fields:
        raise SchemaError("the schema names no column")
    if len({field.name for field in wanted.fields}) < len(wanted.fields):
        raise SchemaError("the schema names a column twice")


def arrow_schema_of(wanted: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark compares with what the tasks return."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(wanted, timezone="UTC")


def _column_types() -> dict[str, Any]:
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        IntegerType,
        LongType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    return {
        "key": BinaryType(),
        "value": BinaryType(),
        "topic": StringType(),
        "partition": IntegerType(),
        "offset": LongType(),
        "timestamp": TimestampType(),
        "timestampType": IntegerType(),
        "headers": ArrayType(header),
    }


def _same_type(found: Any, expected: Any) -> bool:
    """Compare types as Spark writes them; nullability makes no difference."""
    return bool(found.simpleString() == expected.simpleString())
