"""The program's own code that changes a record before it is added to a batch: interceptors first, then serializers.

It needs no event loop: the blocking producer prepares records in the thread that calls `send`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import index as to_int
from typing import Any

from ottla.client.column_inputs import Column, listed, taken_apart
from ottla.client.filling import ManyRecords
from ottla.client.interceptors import before_sending, report_acknowledgement
from ottla.client.producer_options import ProducerOptions
from ottla.client.structs import ProducerRecord, RecordMetadata

LARGEST_TIMESTAMP_MS = 2**63 - 1
_BYTES_OR_NONE = {bytes, type(None)}


class RecordPreparation:
    """See the module. `is_plain`: there is no such code, and records are sent unchanged."""

    def __init__(self, options: ProducerOptions) -> None:
        self._interceptors = options.interceptors
        self._key_serializer = options.key_serializer
        self._value_serializer = options.value_serializer
        self.has_interceptors = bool(self._interceptors)
        self.is_plain = not (self._interceptors or self._key_serializer or self._value_serializer)

    def prepare(self, record: ProducerRecord) -> ProducerRecord:
        """Call interceptors and serializers; key and value are bytes or None afterwards.

        Raises the exceptions of a serializer, TypeError for a result that is not bytes, after reporting them to the
        interceptors.
        """
        record = before_sending(self._interceptors, record)
        try:
            value, key = record.value, record.key
            if self._value_serializer is not None and value is not None:
                value = self._value_serializer(value)
            if self._key_serializer is not None and key is not None:
                key = self._key_serializer(key)
            return record._replace(value=to_bytes(value, "value"), key=to_bytes(key, "key"))
        except Exception as failed:  # whatever a program's own code raises
            self.report_refused(record, failed)
            raise

    def report_refused(self, record: ProducerRecord, failed: Exception) -> None:
        """Report to the interceptors that a record, which they got before, is not sent."""
        partition = -1 if record.partition is None else record.partition
        timestamp_ms = -1 if record.timestamp_ms is None else record.timestamp_ms
        report_acknowledgement(self._interceptors, RecordMetadata(record.topic, partition, -1, timestamp_ms), failed)

    def prepare_many(
        self,
        values: Column,
        keys: Column | None,
        headers: Iterable[Sequence[tuple[str, bytes | None]] | None] | None,
        timestamps_ms: int | Iterable[int] | None,
        partition: int | None,
    ) -> ManyRecords:
        """Return the columns of `send_many` as lists of equal length.

        Keys and values are bytes or None afterwards, unless interceptors have to get them first. Raises ValueError,
        TypeError with the index of a record, and the exceptions of a serializer.
        """
        values, keys, headers, timestamps_ms = taken_apart(values, keys, headers, timestamps_ms)
        some_values = listed(values)
        some_keys = None if keys is None else listed(keys)
        some_headers = None if headers is None else [one or () for one in listed(headers)]
        if not self.has_interceptors:
            some_values = _as_bytes(_serialized(some_values, self._value_serializer), "value")
            some_keys = None if some_keys is None else _as_bytes(_serialized(some_keys, self._key_serializer), "key")
        times: int | list[int]
        if timestamps_ms is None:
            times = int(time.time() * 1000)
        elif isinstance(timestamps_ms, int):
            times = timestamps_ms
        else:
            times = list(map(to_int, listed(timestamps_ms)))
        for name, column in (("keys", some_keys), ("headers", some_headers), ("timestamps_ms", times)):
            if isinstance(column, list) and len(column) != len(some_values):
                raise ValueError(f"{len(some_values)} values and {len(column)} {name}: columns are of equal length")
        oldest, newest = (times, times) if isinstance(times, int) else (min(times, default=0), max(times, default=0))
        if oldest < 0 or newest > LARGEST_TIMESTAMP_MS:
            raise ValueError(f"timestamps_ms must be 0 to 2^63-1, not {oldest if oldest < 0 else newest}")
        return ManyRecords(some_values, some_keys, some_headers, times, partition)

    def one_by_one(self, topic: str, records: ManyRecords) -> Iterator[ProducerRecord]:
        """Yield the records of columns, for the interceptors."""
        values, keys, headers, times, partition = records
        assert partition is None or isinstance(partition, int)
        for place, value in enumerate(values):
            yield ProducerRecord(
                topic,
                value,
                None if keys is None else keys[place],
                () if headers is None else headers[place],
                times if isinstance(times, int) else times[place],
                partition,
            )


def _serialized(column: list[Any], serialize: Callable[[Any], object] | None) -> list[Any]:
    return column if serialize is None else [None if one is None else serialize(one) for one in column]


def _as_bytes(column: list[Any], name: str) -> list[bytes | None]:
    """Return the column with each item as bytes or None; raises TypeError with the index of one that is neither."""
    if set(map(type, column)) <= _BYTES_OR_NONE:
        return column
    return [to_bytes(one, f"{name} of record {place}") for place, one in enumerate(column)]


def to_milliseconds(timestamp: object) -> int:
    """Return a time as an int. Raises TypeError for anything that is no integer, such as `time.time() * 1000`."""
    try:
        return to_int(timestamp)  # type: ignore[arg-type]  # objects without __index__ are refused
    except TypeError:
        raise TypeError(f"timestamp_ms must be a whole number of milliseconds, not {timestamp!r}") from None


def check_headers(headers: object) -> None:
    """Raise TypeError for headers that are not pairs of a name and bytes, such as a dict."""
    try:
        for name, content in headers:  # type: ignore[attr-defined]  # an object that is not iterable is refused
            if not isinstance(name, str) or not isinstance(content, (bytes, bytearray, memoryview, type(None))):
                break
        else:
            return
    except (TypeError, ValueError):
        pass
    raise TypeError(f"headers must be pairs of a str and bytes or None, not {headers!r}")


def check_every_headers(every: Iterable[object]) -> None:
    """Raise TypeError, which names the record by its index, for headers of records that are not such pairs."""
    for place, headers in enumerate(every):
        try:
            check_headers(headers)
        except TypeError as wrong:
            raise TypeError(f"record {place}: {wrong}") from None


def to_bytes(data: object, name: str) -> bytes | None:
    """Return a key or a value (`name`) as bytes. Raises TypeError for other objects."""
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    raise TypeError(f"the {name} must be bytes or None, not {type(data).__name__}")
