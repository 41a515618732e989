"""The beginning and end of each record of many batches.

A record opens with its length, so within a batch the next record is known only from the one before. But batches do not
depend on each other: each is a *lane*, and step j reads the length of the j-th record of all lanes together. Lanes are
sorted by their number of records, so those with more records are always a prefix. When fewer than FEWEST_LANES are left
(few, huge batches), a plain loop over the lengths reads the rest, which is faster there than numpy's fixed cost per
step; no other field is ever read one by one.

Invariant on return: every record is inside its lane, and the records of a lane, exactly its count, fill it to the last
byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ottla.arrow.varints import INT32_VARINT_BYTES, read_varints
from ottla.protocol.records.errors import CorruptBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.arrow.varints import Positions, Words

FEWEST_LANES = 160
"""Below this many lanes a step of numpy (about 25 us) costs more than reading them one by one (0.15 us a record)."""

SMALLEST_RECORD_BYTES = 7
"""Length, attributes, timestamp delta, offset delta, key length, value length, number of headers: one byte each."""


class RecordBounds(NamedTuple):
    """The records of all lanes, lane after lane: where their bodies (after the length) start and where they end."""

    starts: Positions
    ends: Positions


def find_records(data: memoryview, words: Words, starts: Positions, ends: Positions, counts: Positions) -> RecordBounds:
    """Return the bounds of the `counts[i]` records from `starts[i]` to `ends[i]`, for every lane i.

    Raises CorruptBatch when a record leaves its lane, a length is impossible, or a lane holds more or fewer records.
    """
    check_counts(starts, ends, counts)
    first_slots = np.cumsum(counts) - counts
    total = int(counts.sum())
    bounds = RecordBounds(np.empty(total, np.int64), np.empty(total, np.int64))
    order = np.argsort(-counts, kind="stable")
    lanes = _Lanes(starts[order], ends[order], counts[order], first_slots[order])
    step = _walk_together(words, lanes, bounds)
    _walk_apart(data, words, lanes, step, bounds)
    last_ends = starts.copy()
    filled = counts > 0
    last_ends[filled] = bounds.ends[(first_slots + counts - 1)[filled]]
    if (last_ends != ends).any():
        raise CorruptBatch("a batch holds more bytes than its records")
    return bounds


def check_counts(starts: Positions, ends: Positions, counts: Positions) -> None:
    """Raise CorruptBatch when a lane claims more records than its bytes can hold."""
    if (counts < 0).any() or (counts * SMALLEST_RECORD_BYTES > ends - starts).any():
        raise CorruptBatch("a batch claims more records than its bytes can hold")


def find_in_pieces(
    data: memoryview, words: Words, start: int, end: int, count: int, most: int
) -> Iterator[RecordBounds]:
    """Yield the bounds of the `count` records of one lane, at most `most` at a time.

    This is for a lane with so many records that their bounds and fields would take many times its bytes. Raises
    CorruptBatch as `find_records` does; excess bytes at the end of the lane are found with the last piece.
    """
    position = start
    for done in range(0, count, most):
        ends = _walk_lane(data, position, end, min(most, count - done))
        _, bodies = read_varints(words, np.array([position, *ends[:-1]], np.int64))
        position = ends[-1]
        if done + len(ends) == count and position != end:
            raise CorruptBatch("a batch holds more bytes than its records")
        yield RecordBounds(bodies, np.array(ends, np.int64))


class _Lanes:
    """Lanes in descending order of their number of records, with the position up to which each has been read."""

    __slots__ = ("counts", "ends", "positions", "slots")

    def __init__(self, positions: Positions, ends: Positions, counts: Positions, slots: Positions) -> None:
        self.positions = positions
        self.ends = ends
        self.counts = counts
        self.slots = slots

    def keep(self, running: int) -> None:
        """Drop the lanes that have no further record."""
        self.positions = self.positions[:running]
        self.ends = self.ends[:running]
        self.counts = self.counts[:running]
        self.slots = self.slots[:running]


def _walk_together(words: Words, lanes: _Lanes, bounds: RecordBounds) -> int:
    """Step all lanes together while there are enough; return how many records were read of each lane that is left."""
    step = 0
    while True:
        running = len(lanes.counts)
        while running and lanes.counts[running - 1] <= step:
            running -= 1
        if running < len(lanes.counts):
            lanes.keep(running)
        if running < FEWEST_LANES:
            return step
        lengths, bodies = read_varints(words, lanes.positions)
        after = bodies + lengths
        if (lengths < 0).any():
            raise CorruptBatch("a record with a length below 0")
        if (after > lanes.ends).any():
            raise CorruptBatch("a record is longer than its batch")
        slots = lanes.slots + step
        bounds.starts[slots] = bodies
        bounds.ends[slots] = after
        lanes.positions = after
        step += 1


def _walk_apart(data: memoryview, words: Words, lanes: _Lanes, step: int, bounds: RecordBounds) -> None:
    """Finish the lanes one after the other."""
    starts: list[int] = []
    ends: list[int] = []
    for position, end, count in zip(lanes.positions.tolist(), lanes.ends.tolist(), lanes.counts.tolist(), strict=True):
        found = _walk_lane(data, position, end, count - step)
        if found:
            starts.append(position)
            starts += found[:-1]
            ends += found
    _, bodies = read_varints(words, np.array(starts, np.int64))
    after = np.array(ends, np.int64)
    done = 0
    for count, slot in zip((lanes.counts - step).tolist(), (lanes.slots + step).tolist(), strict=True):
        bounds.starts[slot : slot + count] = bodies[done : done + count]
        bounds.ends[slot : slot + count] = after[done : done + count]
        done += count


def _walk_lane(data: memoryview, start: int, end: int, count: int) -> list[int]:
    """Return where each of `count` records from `start` on ends; none ends after `end`.

    Only the lengths are read, in a loop over a copy, since Python indexes bytes in half the time of a view. After two
    records of the same length, the lengths at all later positions with this distance are compared in one call.
    """
    lane = bytes(data[start:end])
    ends: list[int] = []
    append = ends.append
    position = size = alone = 0
    try:
        while len(ends) < count:
            before = position
            raw = lane[position]
            if raw < 0x80:
                position += 1 + (raw >> 1)
            elif (second := lane[position + 1]) < 0x80:
                raw = raw & 0x7F | second << 7
                position += 2 + (raw >> 1)
            else:
                raw, position = _long_length(lane, position)
                position += raw >> 1
            if raw & 1:
                raise CorruptBatch("a record with a length below 0")
            append(position)
            if position - before != size:
                size = position - before
            elif alone:
                alone -= 1
            else:
                equal = min(_count_equal(lane, before, size) - 1, count - len(ends))
                if equal < _WORTHWHILE:
                    alone = _ALONE
                else:
                    ends += range(position + size, position + size * equal + 1, size)
                    position = ends[-1]
    except IndexError:
        raise CorruptBatch("a record's length is cut short, or a record is longer than its batch") from None
    if position > len(lane):
        raise CorruptBatch("a record is longer than its batch")
    return [start + one for one in ends] if start else ends


_WORTHWHILE = 8
_ALONE = 50
"""After fewer than _WORTHWHILE records of the same length, this many are read one by one before the next try."""


def _count_equal(lane: bytes, position: int, size: int) -> int:
    """Return how many whole records from `position` on, `size` bytes apart, have the same length."""
    most = (len(lane) - position) // size
    width = 1 if lane[position] < 0x80 else 2 if lane[position + 1] < 0x80 else INT32_VARINT_BYTES
    for byte in range(position, position + min(width, size)):
        column = lane[byte : byte + size * most : size]
        most = len(column) - len(column.lstrip(lane[byte : byte + 1]))
    return most


def _long_length(lane: bytes, position: int) -> tuple[int, int]:
    """Return a length of three bytes or more, still zigzag-encoded, and the position after it."""
    shift = raw = 0
    while True:
        if shift >= 7 * INT32_VARINT_BYTES:
            raise CorruptBatch("a record's length is longer than 5 bytes")
        byte = lane[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return raw, position
        shift += 7
