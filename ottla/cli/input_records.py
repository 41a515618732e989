"""A line of input as a record: a value, key and value, or a JSON object as `ottla consume --json` prints it. Pure."""

from __future__ import annotations

import base64
import binascii
import difflib
import json
from collections.abc import Callable
from typing import Final

_FIELDS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""The fields that `record_lines.json_line` writes. A copy has a topic and an offset of its own."""
_NO_TIMESTAMP: Final = -1
_BYTES_IN_WORDS: Final = 'neither text, null nor {"base64": "..."}'


Headers = tuple[tuple[str, bytes | None], ...]
InputRecord = tuple[bytes | None, bytes | None, Headers, int | None, int | None]
"""Key, value, headers, timestamp and partition; None leaves the last two to the producer. A plain tuple: there is one
for each line."""
Reader = Callable[[bytes], InputRecord | None]
"""Makes a record of a line, None of a blank one. Raises ValueError; the line is the subject of its message."""


def plain_reader(separator: bytes | None, null_marker: bytes | None, headers: Headers, partition: int | None) -> Reader:
    """A line is a value; with `separator` a key and a value. A key or a value that is `null_marker` is null."""

    def with_key(line: bytes) -> InputRecord:
        key: bytes | None = None
        value: bytes | None = line
        if separator is not None:
            key, found, value = line.partition(separator)
            if not found:
                raise ValueError(f"has no separator {separator.decode('utf-8', 'backslashreplace')!r}")
        if null_marker is not None:
            key, value = (None if one == null_marker else one for one in (key, value))
        return key, value, headers, None, partition

    return with_key if separator or null_marker else lambda line: (None, line, headers, None, partition)


def json_reader(headers: Headers, partition: int | None, *, keeps_partition: bool) -> Reader:
    """A line is a JSON object, or blank. `headers` are added to its own; `partition` counts before its own, which is
    ignored without `keeps_partition`.
    """

    def read(line: bytes) -> InputRecord | None:
        if not line.strip():
            return None
        fields = _object(line)
        own_partition = _partition(fields.get("partition"))
        if partition is not None or not keeps_partition:
            own_partition = partition
        return (
            _bytes(fields.get("key"), '"key"'),
            _bytes(fields["value"], '"value"'),
            (*_headers(fields.get("headers")), *headers),
            _timestamp(fields.get("timestamp")),
            own_partition,
        )

    return read


def _object(line: bytes) -> dict[str, object]:
    try:
        found = json.loads(line.decode())
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError):  # a number of thousands of digits, or as many brackets
        raise ValueError("is not JSON that can be read") from None
    if not isinstance(found, dict):
        raise ValueError('is JSON, but not an object such as {"key": "text", "value": "text"}')
    for name in found:
        if name not in _FIELDS:
            near = difflib.get_close_matches(name, _FIELDS, n=1)
            meant = f', perhaps for "{near[0]}"' if near else f"; there are {', '.join(_FIELDS)}"
            raise ValueError(f"has an unknown field {json.dumps(name)}{meant}")
    if "value" not in found:
        raise ValueError('has no "value"; null is that of a tombstone')
    return found


def _bytes(given: object, name: str) -> bytes | None:
    """The reverse of `show.json_bytes`."""
    if given is None:
        return None
    if isinstance(given, str):
        try:
            return given.encode()
        except UnicodeEncodeError:
            raise ValueError(f"has a {name} with half of a surrogate pair, which is not text") from None
    if not isinstance(given, dict) or given.keys() != {"base64"} or not isinstance(given["base64"], str):
        raise ValueError(f"has a {name} that is {_BYTES_IN_WORDS}")
    try:
        return base64.b64decode(given["base64"], validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"has a {name} that is not base64: {error}") from None


def _headers(given: object) -> Headers:
    if given is None:
        return ()
    if not isinstance(given, list):
        raise ValueError('has "headers" that are not a list of [name, value]')
    headers = []
    for pair in given:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise ValueError('has "headers" that are not a list of [name, value]')
        try:
            pair[0].encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise ValueError("has a header name with half of a surrogate pair, which is not text") from None
        headers.append((pair[0], _bytes(pair[1], f"header {json.dumps(pair[0])}")))
    return tuple(headers)


def _timestamp(given: object) -> int | None:
    if given is None or given == _NO_TIMESTAMP:
        return None
    if not _is_number(given, 2**63):
        raise ValueError('has a "timestamp" that is not a whole number of milliseconds since 1970')
    assert isinstance(given, int)
    return given


def _partition(given: object) -> int | None:
    if given is None:
        return None
    if not _is_number(given, 2**31):
        raise ValueError('has a "partition" that is not a whole number from 0')
    assert isinstance(given, int)
    return given


def _is_number(given: object, bound: int) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and 0 <= given < bound
