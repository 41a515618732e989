"""The columns of records, in Arrow's types: those of Spark's own Kafka source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable

HEADERS = "headers"
_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
        pa.field(HEADERS, pa.list_(_HEADER)),
    ]
)
"""All columns; `timestampType` is 0 for the producer's timestamp, 1 for that of the append."""


def schema_of(columns: Iterable[str]) -> pa.Schema:
    """Return the schema with these columns, in this order; raises ValueError for unknown or repeated names, or none."""
    names = list(columns)
    for name in names:
        if name not in SCHEMA.names:
            raise ValueError(f"there is no column {name}: the columns are {', '.join(SCHEMA.names)}")
    if not names or len(set(names)) < len(names):
        raise ValueError("name at least one column, and each once")
    return pa.schema([SCHEMA.field(name) for name in names])
