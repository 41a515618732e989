"""Records to Arrow: blocks of records to the columns of Spark's Kafka source, with numpy and pyarrow alone.

Each field is read for all records of a block together (`read_varints` at the records' positions). Each field's end is
compared with its record's end before the next is read, so hostile bytes raise CorruptBatch and no read leaves the
block. Keys and values are then copied with one trick: the block's bytes, split at start and end of every value, are an
Arrow binary array [value, gap, value, gap, ..., value]; taking its even elements copies just the values, in C++.

Only the requested columns are built, and no field after the last one that they need is read. Worked example of a
record's body: `00 | 04 | 02 | 04 "k1" | 06 "abc" | 00`: attributes, timestamp delta 2, offset delta 1, key of 2
bytes, value of 3 bytes, no headers.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute  # otherwise `take` imports it during the first batch

from ottla.arrow.batches import Block, check_checksums, choose, unpack
from ottla.arrow.record_bounds import check_counts, find_in_pieces, find_records
from ottla.arrow.varints import INT64_VARINT_BYTES, read_varints, words_over
from ottla.protocol.records.errors import CorruptBatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from ottla.arrow.batches import AbortedTransaction, Survey
    from ottla.arrow.record_bounds import RecordBounds
    from ottla.arrow.varints import Positions, Words

MAX_ARROW_BATCH_BYTES = 16 * 1024 * 1024
"""A block larger than this (one huge compressed batch) is returned in several Arrow batches of about this size."""

MAX_RECORDS_AT_ONCE = 1_000_000
"""A block with more records (few bytes each, which compress a thousandfold) is decoded in pieces of this many: the
state of a record takes some 150 bytes while it is decoded."""

CREATE_TIME, LOG_APPEND_TIME = 0, 1  # Kafka's TimestampType ids, the values of the column timestampType
_MICROSECONDS_PER_MS = 1000
_MAX_TIMESTAMP_MS = np.iinfo(np.int64).max // _MICROSECONDS_PER_MS


class _Slices(NamedTuple):
    """The positions of one field of each record in the data; `nulls` is None when no value is null."""

    starts: Positions
    ends: Positions
    nulls: npt.NDArray[np.bool_] | None


class _Rows(NamedTuple):
    """The decoded fields of a block's records, one row per record."""

    offsets: Positions
    timestamps: Positions
    timestamp_types: npt.NDArray[np.int32]
    keys: _Slices | None
    values: _Slices | None
    header_starts: Positions | None
    ends: Positions


class RecordDecoder:
    """Turns the fetched batches of one topic-partition into Arrow batches of `schema`.

    `schema` names any of key, value, topic, partition, offset, timestamp, timestampType, headers, with the types of
    `columns.py`.
    """

    def __init__(self, schema: pa.Schema, topic: str, partition: int, *, check_crcs: bool = True) -> None:
        self._schema = schema
        self._names = frozenset(schema.names)
        self._topic = topic
        self._partition = partition
        self._check_crcs = check_crcs

    def decode(
        self, found: Survey, first_offset: int, end_offset: int, aborted: Sequence[AbortedTransaction] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records from `first_offset` to before `end_offset`.

        Raises CorruptBatch when a batch is damaged.
        """
        if self._check_crcs:
            check_checksums(found, end_offset)
        wanted = choose(found, first_offset, end_offset, aborted)
        last_offset = -1
        for block in unpack(found, wanted):
            words = words_over(block.data)
            for piece, bounds in _pieces(block, words):
                rows = self._read_rows(piece, words, bounds)
                if len(rows.offsets):
                    if rows.offsets[0] <= last_offset:
                        raise CorruptBatch("records whose offsets do not grow")
                    last_offset = int(rows.offsets[-1])
                rows = _within(rows, first_offset, end_offset)
                for part in _parts(rows):
                    yield self._arrow_batch(block.data, words, part)

    def _read_rows(self, block: Block, words: Words, bounds: RecordBounds) -> _Rows:
        """Read the fields of every record that the columns need."""
        starts, ends = bounds
        if (ends - starts).min(initial=6) < 6:
            raise CorruptBatch("a record is shorter than its fields")
        timestamp_deltas, position = _read(words, starts + 1, ends, INT64_VARINT_BYTES)
        offset_deltas, position = _read(words, position, ends)
        keys = values = header_starts = None
        if self._names & {"key", "value", "headers"}:
            keys = _read_slices(words, position, ends)
            if self._names & {"value", "headers"}:
                values = _read_slices(words, keys.ends, ends)
                header_starts = values.ends
        log_append_time = np.repeat(block.log_append_time, block.counts)
        return _Rows(
            offsets=_offsets(block, offset_deltas),
            timestamps=_timestamps(block, timestamp_deltas, log_append_time) if "timestamp" in self._names else ends,
            timestamp_types=np.where(log_append_time, LOG_APPEND_TIME, CREATE_TIME).astype(np.int32),
            keys=keys,
            values=values,
            header_starts=header_starts,
            ends=ends,
        )

    def _arrow_batch(self, data: memoryview, words: Words, rows: _Rows) -> pa.RecordBatch:
        columns = [self._column(name, data, words, rows) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _column(self, name: str, data: memoryview, words: Words, rows: _Rows) -> pa.Array:
        count = len(rows.offsets)
        if name == "key":
            return _gather(data, _present(rows.keys))
        if name == "value":
            return _gather(data, _present(rows.values))
        if name == "topic":
            return _repeated(self._topic, count)
        if name == "partition":
            return _numbers(np.full(count, self._partition, np.int32))
        if name == "offset":
            return _numbers(rows.offsets)
        if name == "timestamp":
            microseconds = _numbers(rows.timestamps * _MICROSECONDS_PER_MS)
            return microseconds.view(pa.timestamp("us", tz="UTC"))
        if name == "timestampType":
            return _numbers(rows.timestamp_types)
        return _headers(data, words, _present(rows.header_starts), rows.ends, self._schema.field("headers").type)


def _pieces(block: Block, words: Words) -> Iterator[tuple[Block, RecordBounds]]:
    """Yield all records of a block together or, if there are too many, batch by batch in pieces."""
    if int(block.counts.sum()) <= MAX_RECORDS_AT_ONCE:
        yield block, find_records(block.data, words, block.starts, block.ends, block.counts)
        return
    check_counts(block.starts, block.ends, block.counts)
    for lane in range(len(block.counts)):
        columns: list[Any] = [column[lane : lane + 1] for column in block[1:]]
        batch = Block(block.data, *columns)
        start, end, count = int(batch.starts[0]), int(batch.ends[0]), int(batch.counts[0])
        for bounds in find_in_pieces(block.data, words, start, end, count, MAX_RECORDS_AT_ONCE):
            yield batch._replace(counts=np.array([len(bounds.starts)])), bounds


def _present(value: Any) -> Any:
    """Return a field that `_read_rows` has read because its column is in the schema."""
    assert value is not None
    return value


def _read(
    words: Words, positions: Positions, ends: Positions, max_bytes: int | None = None
) -> tuple[Positions, Positions]:
    """Read one varint per record; it must end before the record's end."""
    values, after = read_varints(words, positions) if max_bytes is None else read_varints(words, positions, max_bytes)
    if (after > ends).any():
        raise CorruptBatch("a field is past the end of its record")
    return values, after


def _read_slices(words: Words, positions: Positions, ends: Positions) -> _Slices:
    """Read a length and the bytes after it, once per record; a length of -1 is null."""
    lengths, starts = _read(words, positions, ends)
    after = starts + np.maximum(lengths, 0)
    if (lengths < -1).any() or (after > ends).any():
        raise CorruptBatch("a key, value or header is longer than its record")
    nulls = lengths < 0
    return _Slices(starts, after, nulls if nulls.any() else None)


def _offsets(block: Block, deltas: Positions) -> Positions:
    offsets = np.repeat(block.base_offsets, block.counts) + deltas
    if (deltas < 0).any() or (offsets > np.repeat(block.last_offsets, block.counts)).any():
        raise CorruptBatch("a record with an offset outside of its batch")
    if (offsets[1:] <= offsets[:-1]).any():
        raise CorruptBatch("records whose offsets do not grow")
    return offsets


def _timestamps(block: Block, deltas: Positions, log_append_time: npt.NDArray[np.bool_]) -> Positions:
    """Return milliseconds since 1970: the record's time, or the broker's where the batch has LogAppendTime."""
    created = np.repeat(block.base_timestamps, block.counts) + deltas
    timestamps = np.where(log_append_time, np.repeat(block.append_timestamps, block.counts), created)
    if (timestamps > _MAX_TIMESTAMP_MS).any() or (timestamps < -_MAX_TIMESTAMP_MS).any():
        raise CorruptBatch(
            "a record with a timestamp that microseconds cannot hold; a schema without the column timestamp reads it"
        )
    return timestamps


def _within(rows: _Rows, first_offset: int, end_offset: int) -> _Rows:
    """Remove the records before and after the range; offsets grow, so the rest is one slice."""
    low, high = np.searchsorted(rows.offsets, [first_offset, end_offset])
    return _cut(rows, int(low), int(high))


def _cut(rows: _Rows, low: int, high: int) -> _Rows:
    if low == 0 and high == len(rows.offsets):
        return rows
    return _Rows(*(_cut_field(field, low, high) for field in rows))


def _cut_field(field: Any, low: int, high: int) -> Any:
    if field is None:
        return None
    if isinstance(field, _Slices):
        return _Slices(*(_cut_field(part, low, high) for part in field))
    return field[low:high]


def _parts(rows: _Rows) -> Iterator[_Rows]:
    """Split the rows of a block so that no part spans more than about MAX_ARROW_BATCH_BYTES of it."""
    if not len(rows.offsets):
        return
    first = int(rows.ends[0])
    if int(rows.ends[-1]) - first <= MAX_ARROW_BATCH_BYTES:
        yield rows
        return
    steps = np.flatnonzero(np.diff((rows.ends - first) // MAX_ARROW_BATCH_BYTES)) + 1
    edges = [0, *steps.tolist(), len(rows.offsets)]
    for low, high in itertools.pairwise(edges):
        yield _cut(rows, low, high)


_TYPES = {np.dtype(np.int32): pa.int32(), np.dtype(np.int64): pa.int64()}


def _numbers(column: npt.NDArray[Any], nulls: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return an Arrow array over numpy's own memory. (`pa.array` and `pa.scalar` would import pandas, which
    takes 0.4 s.)"""
    valid = None if nulls is None else pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    contiguous = np.ascontiguousarray(column)
    return pa.Array.from_buffers(_TYPES[column.dtype], len(column), [valid, pa.py_buffer(contiguous)])


def _repeated(text: str, count: int) -> pa.Array:
    data = text.encode()
    edges = np.arange(count + 1, dtype=np.int32) * np.int32(len(data))
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(edges), pa.py_buffer(data * count)])


def _flags(column: npt.NDArray[np.bool_]) -> pa.Array:
    return pa.Array.from_buffers(pa.bool_(), len(column), [None, pa.py_buffer(np.packbits(column, bitorder="little"))])


def _gather(data: memoryview, slices: _Slices) -> pa.Array:
    """Copy the slices, which must be in ascending order, into an Arrow binary array."""
    starts, ends, nulls = slices
    if nulls is not None and nulls.all():
        return pa.nulls(len(starts), pa.binary())
    if not len(starts):
        return pa.array([], pa.binary())
    edges = np.empty(2 * len(starts), np.int32)
    edges[0::2] = starts
    edges[1::2] = ends
    alternating = pa.Array.from_buffers(pa.binary(), len(edges) - 1, [None, pa.py_buffer(edges), pa.py_buffer(data)])
    return alternating.take(_numbers(np.arange(0, len(edges) - 1, 2), nulls))


def _headers(data: memoryview, words: Words, positions: Positions, ends: Positions, kind: pa.DataType) -> pa.Array:
    """Return the headers of each record as a list of (key, value), null for a record without any, as Spark's source."""
    counts, positions = _read(words, positions, ends)
    if (counts < 0).any() or (counts * 2 > ends - positions).any():
        raise CorruptBatch("a record claims more headers than its bytes can hold")
    first_slots = np.cumsum(counts) - counts
    total = int(counts.sum())
    key_starts, key_ends, value_starts, value_ends = (np.empty(total, np.int64) for _ in range(4))
    value_nulls = np.zeros(total, np.bool_)
    left = np.flatnonzero(counts)
    step = 0
    while len(left):
        keys = _read_slices(words, positions[left], ends[left])
        if keys.nulls is not None:
            raise CorruptBatch("a header without a key")
        values = _read_slices(words, keys.ends, ends[left])
        slots = first_slots[left] + step
        key_starts[slots], key_ends[slots] = keys.starts, keys.ends
        value_starts[slots], value_ends[slots] = values.starts, values.ends
        if values.nulls is not None:
            value_nulls[slots] = values.nulls
        positions[left] = values.ends
        step += 1
        left = left[counts[left] > step]
    keys_column = _as_text(_gather(data, _Slices(key_starts, key_ends, None)))
    values_column = _gather(data, _Slices(value_starts, value_ends, value_nulls if value_nulls.any() else None))
    pairs = pa.StructArray.from_arrays([keys_column, values_column], fields=list(kind.value_type))
    edges = np.append(first_slots, total).astype(np.int32)
    return pa.ListArray.from_arrays(_numbers(edges), pairs, type=kind, mask=_flags(counts == 0))


def _as_text(keys: pa.Array) -> pa.Array:
    """Return header keys as strings; bytes that are not UTF-8 become U+FFFD, as in Java's decoder."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())
