"""Conversion of a program's columns (lists, iterators, numpy, pandas, Arrow) to lists of Python objects.

No such library is imported here: the type of an object is detected by its methods.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Column = Iterable[Any]
"""A column of values or keys: any iterable; those of numpy, pandas and Arrow are converted as a whole."""
Headers = Iterable[Sequence[tuple[str, bytes | None]] | None]
_BINARY = ("binary", "large_binary")


def listed(column: Iterable[Any]) -> list[Any]:
    """Return a column as a list; a list is returned unchanged. Raises TypeError for text or bytes: single values."""
    if type(column) is list:
        return column
    if isinstance(column, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"a column is an iterable with an item for each record, not {type(column).__name__}")
    if hasattr(column, "to_pylist"):  # Arrow
        if str(column.type) in _BINARY:  # type: ignore[attr-defined]  # an Arrow array
            return list(column.to_numpy(zero_copy_only=False).tolist())  # type: ignore[attr-defined]  # six times as fast
        return list(column.to_pylist())
    if hasattr(column, "tolist"):  # numpy, pandas
        return list(column.tolist())
    return list(column)


def taken_apart(
    values: Any, keys: Column | None, headers: Headers | None, timestamps_ms: int | Iterable[int] | None
) -> tuple[Column, Column | None, Headers | None, int | Iterable[int] | None]:
    """Return the columns of an Arrow record batch or table that was given as `values`; other arguments unchanged.

    Its columns `key`, `headers` and `timestamp` are used if they exist and the program gives no others; further columns
    are ignored. Raises ValueError without a column `value`.
    """
    if not hasattr(values, "schema") or not hasattr(values, "column"):
        return values, keys, headers, timestamps_ms
    names = values.schema.names
    if "value" not in names:
        raise ValueError(f"a record batch or table to be sent has a column value; this one has {', '.join(names)}")
    if keys is None and "key" in names:
        keys = values.column("key")
    if headers is None and "headers" in names:
        headers = [
            [(header["key"], header["value"]) for header in each or ()] for each in values.column("headers").to_pylist()
        ]
    if timestamps_ms is None and "timestamp" in names:
        column = values.column("timestamp")
        timestamps_ms = column.cast("timestamp[ms]", safe=False).cast("int64").to_pylist()
    return values.column("value"), keys, headers, timestamps_ms
