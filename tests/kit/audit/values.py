"""What the audit's producers send: each value says who sent it as which of its records, and fills up with known bytes.

    7 1234 kept-2 Zk3...    producer 7, its record 1234, sent to partition 2 of `kept`; then bytes that follow from it

So a stored value needs no memory of what was sent: `mark_of` makes it again and compares, byte by byte.
"""

from __future__ import annotations

import base64
import random
from typing import NamedTuple

KEYS = 40
_FILLER = base64.b64encode(random.Random("filler").randbytes(6000))


class Mark(NamedTuple):
    """Which record it is: the number of its producer, and which of that producer's records."""

    producer: int
    sequence: int


class NotSent(ValueError):
    """Bytes that no producer of the audit can have sent to that place."""


def value_of(mark: Mark, topic: str, partition: int) -> bytes:
    """The bytes of a record."""
    start, size = mark.sequence * 131 % 4096, 20 + mark.sequence * 37 % 400
    return b"%d %d %s-%d " % (mark.producer, mark.sequence, topic.encode(), partition) + _FILLER[start : start + size]


def key_of(mark: Mark) -> bytes:
    """The key of a record in a compacted topic: a few, which come again and again."""
    return b"key-%d" % (mark.sequence % KEYS)


def mark_of(value: bytes, topic: str, partition: int) -> Mark:
    """Whose a stored value is. Raises NotSent."""
    parts = value.split(b" ", 2)
    try:
        mark = Mark(int(parts[0]), int(parts[1]))
    except (ValueError, IndexError):
        raise NotSent(f"{value[:60]!r} was sent by nobody") from None
    if value_of(mark, topic, partition) != value:
        raise NotSent(f"{value[:60]!r}... ({len(value)} bytes) is not what was sent as {mark}")
    return mark
