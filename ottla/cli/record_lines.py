"""A record as a line: its fields with a separator between them, or a JSON object."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.show import json_bytes, printable, show_time

if TYPE_CHECKING:
    from ottla.client import ConsumerRecord


class Fields(NamedTuple):
    """The fields of a record that are printed beside its value."""

    timestamps: bool
    offsets: bool
    keys: bool
    headers: bool
    separator: bytes


def plain_line(fields: Fields, record: ConsumerRecord, *, for_terminal: bool) -> bytes:
    """The fields and the value; on a terminal control characters are escaped."""
    parts: list[bytes] = []
    if fields.timestamps:
        parts.append(show_time(record.timestamp_ms).encode())
    if fields.offsets:
        parts.append(b"%d:%d" % (record.partition, record.offset))
    if fields.keys:
        parts.append(_shown(record.key, for_terminal))
    if fields.headers:
        headers = (
            name.encode("utf-8", "surrogateescape") + b"=" + _shown(value, for_terminal)
            for name, value in record.headers
        )
        parts.append(b",".join(headers))
    parts.append(_shown(record.value, for_terminal))
    return fields.separator.join(parts) + b"\n"


def json_line(record: ConsumerRecord) -> bytes:
    """All fields of a record, as a JSON object; `input_records.py` reads it back."""
    row = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": json_bytes(record.key),
        "value": json_bytes(record.value),
        "headers": [[name, json_bytes(value)] for name, value in record.headers],
    }
    return json.dumps(row).encode() + b"\n"


def _shown(data: bytes | None, for_terminal: bool) -> bytes:
    if data is None:
        return b"null"
    return printable(data).encode() if for_terminal else data
