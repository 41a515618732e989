"""Records as JSON for the page: short forms of keys and values, and how each is to be read. Pure.

A key, a value or a header is one of

    null                                          null: a value of null is a tombstone in a compacted topic
    {"text": "…", "bytes": 5}                     UTF-8; `"cut": true` if this is its beginning
    {"base64": "…", "bytes": 4}                   anything else, also cut; control codes, too
    with "json": true                             text that is a JSON object or array, and not cut

Numbers that JavaScript would round (offsets and times above 2**53) are not expected of a topic that people look at.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from ottla.client import ConsumerRecord

SHORT_BYTES = 600
"""Of a key or a value in a list of records."""
LONG_BYTES = 1024 * 1024
"""Of one record that is shown in full."""
MOST_HEADERS = 50
_NO_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202d\u202e]")
"""Control codes, and the overrides of the direction of writing: "yek" on the screen would be "key" in the record."""


def shown_bytes(data: bytes | None, limit: int = SHORT_BYTES) -> dict[str, Any] | None:
    """A key or a value, of which at most `limit` bytes are given."""
    if data is None:
        return None
    shown: dict[str, Any] = {"bytes": len(data)}
    if len(data) > limit:
        shown["cut"] = True
    text = _text(data, limit)
    if text is None:
        shown["base64"] = base64.b64encode(data[:limit]).decode()
        return shown
    shown["text"] = text
    if len(data) <= limit and _is_json(data):
        shown["json"] = True
    return shown


def shown_record(record: ConsumerRecord, limit: int = SHORT_BYTES) -> dict[str, Any]:
    """A record. `time` is in ms since 1970, or null."""
    shown: dict[str, Any] = {
        "partition": record.partition,
        "offset": record.offset,
        "time": record.timestamp_ms if record.timestamp_ms >= 0 else None,
        "key": shown_bytes(record.key, limit),
        "value": shown_bytes(record.value, limit),
        "headers": [[name, shown_bytes(value, limit)] for name, value in record.headers[:MOST_HEADERS]],
    }
    if len(record.headers) > MOST_HEADERS:
        shown["more_headers"] = len(record.headers) - MOST_HEADERS
    return shown


class Search:
    """A text that keys, values or headers have to contain, without regard to case of ASCII letters; "" is in all."""

    def __init__(self, text: str) -> None:
        self._bytes = text.encode().lower()

    def matches(self, record: ConsumerRecord) -> bool:
        """Whether a record has it."""
        if not self._bytes:
            return True
        if any(data is not None and self._bytes in data.lower() for data in (record.key, record.value)):
            return True
        return any(
            self._bytes in name.encode().lower() or (value is not None and self._bytes in value.lower())
            for name, value in record.headers
        )


def _text(data: bytes, limit: int) -> str | None:
    """The beginning as text, without half a character at its end; None if it is not UTF-8, or _NO_TEXT is in it."""
    try:
        text = data[:limit].decode()
    except UnicodeDecodeError as error:
        if len(data) <= limit or error.reason != "unexpected end of data":
            return None
        text = data[: error.start].decode()
    return None if _NO_TEXT.search(text) else text


def _is_json(data: bytes) -> bool:
    if data[:1] not in (b"{", b"["):
        return False
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True
