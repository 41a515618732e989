"""Rows of Arrow columns to record batches, with numpy and pyarrow alone: the reverse of ottla.arrow.decoder.

The small numbers of all records (lengths, offset deltas) are written together as varints; keys and values are
already bytes in Arrow, and one C++ call joins the pieces of each record: [length, attributes, deltas, key length] key
[value length] value [headers]. In the resulting Arrow array the records follow each other, so the body of a batch
is a slice of it, without another copy. Worked example: the second record of a batch, key `k1`, value `abc`, no
headers: `16 00 00 02 04 "k1" 06 "abc" 00`.

If the rows have timestamps, so do the records (a delta to the batch's first, KIP-32's CreateTime). Otherwise all
records of a batch have the timestamp of its header, and the delta is 0, as in the example.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.arrow.errors import UnsendableRow
from ottla.protocol.records.batch import HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    Numbers = npt.NDArray[np.int64]

_MOST_OVERHEAD_BYTES = 5 * 4 + 2
"""Four varints of at most five bytes (length, offset delta, key length, value length), attributes, no timestamp."""

_MOST_TIMESTAMP_BYTES = 9
"""The most bytes of a timestamp delta: times come from microseconds in an int64, so milliseconds take 54 bits and a
sign."""


class Rows(NamedTuple):
    """Records to write, row by row: `large_binary` keys and values, headers as a list of (key, value) or None."""

    keys: pa.Array | None
    values: pa.Array
    headers: pa.Array | None
    timestamps_ms: Numbers | None = None
    """Milliseconds since 1970, not negative; None for rows without timestamps."""


class Body(NamedTuple):
    """The records of one batch for one partition, encoded."""

    partition: int
    records: memoryview
    record_count: int
    timestamps_ms: tuple[int, int] | None = None
    """The first record's timestamp and the largest one, for the batch's header; None for records without timestamps."""


class _Headers(NamedTuple):
    """For each row: the number of headers, and all of them encoded in one binary value."""

    counts: Numbers
    encoded: pa.Array


def encode_rows(
    rows: Rows, partitions: Numbers, *, batch_bytes: int, most_bytes: int, most_name: str = "max.request.size"
) -> Iterator[Body]:
    """Yield batches of at most about `batch_bytes`, partition after partition, each in the order of its rows.

    Raises UnsendableRow when one record alone needs a batch of more than `most_bytes`, or a header has no key.
    """
    order = np.argsort(partitions, kind="stable")
    partitions = partitions[order]
    taken = pa.array(order)
    keys = None if rows.keys is None else rows.keys.take(taken)
    values = rows.values.take(taken)
    headers = None if rows.headers is None else _encode_headers(rows.headers.take(taken))
    key_lengths = np.full(len(values), -1, np.int64) if keys is None else lengths_of(keys)
    value_lengths = lengths_of(values)
    contents = np.maximum(key_lengths, 0) + np.maximum(value_lengths, 0)
    contents += 1 if headers is None else lengths_of(headers.encoded) + _varint_sizes(headers.counts)
    timestamps = None if rows.timestamps_ms is None else rows.timestamps_ms[order]
    overhead_bytes = _MOST_OVERHEAD_BYTES + (0 if timestamps is None else _MOST_TIMESTAMP_BYTES)
    largest = int(contents.max(initial=0)) + overhead_bytes + HEADER_BYTES
    if largest > most_bytes:
        raise UnsendableRow(f"a record of {largest} bytes is larger than {most_name} {most_bytes}")
    edges = _cut(partitions, contents + overhead_bytes, batch_bytes)
    counts = np.diff(edges)
    offset_deltas = np.arange(len(values)) - np.repeat(edges[:-1], counts)
    times = _ZERO if timestamps is None else _Varints(timestamps - np.repeat(timestamps[edges[:-1]], counts))
    spans = _spans(timestamps, edges)
    records = _join(keys, key_lengths, values, value_lengths, headers, contents, times, offset_deltas)
    _, positions_buffer, data = records.buffers()
    positions = np.frombuffer(positions_buffer, np.int64)[edges]
    view = memoryview(data)
    for low, high, first, count, span in zip(
        positions[:-1].tolist(), positions[1:].tolist(), edges[:-1].tolist(), counts.tolist(), spans, strict=True
    ):
        yield Body(int(partitions[first]), view[low:high], count, span)


def _spans(timestamps: Numbers | None, edges: Numbers) -> Sequence[tuple[int, int] | None]:
    """Return the first and the largest timestamp of each batch."""
    firsts = edges[:-1]
    if timestamps is None or not len(firsts):
        return [None] * len(firsts)
    largest = np.maximum.reduceat(timestamps, firsts)
    return list(zip(timestamps[firsts].tolist(), largest.tolist(), strict=True))


def lengths_of(column: pa.Array) -> Numbers:
    """Return the number of bytes of each value of a binary column, -1 for null."""
    return _numbers(pc.binary_length(column), -1)


def _numbers(column: pa.Array, null: int) -> Numbers:
    found: Numbers = pc.fill_null(pc.cast(column, pa.int64()), null).to_numpy(zero_copy_only=False)
    return found


def _cut(partitions: Numbers, sizes: Numbers, batch_bytes: int) -> Numbers:
    """Return the beginnings of batches, and the end of the last: never across partitions, never above `batch_bytes`.

    A larger record is a batch by itself.
    """
    ends = np.cumsum(sizes)
    runs = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(partitions)]
    edges = [0]
    for run_end in runs[1:]:
        while edges[-1] < run_end:
            first = edges[-1]
            before = int(ends[first] - sizes[first])
            fitting = int(np.searchsorted(ends, before + batch_bytes, side="right"))
            edges.append(min(run_end, max(fitting, first + 1)))
    return np.array(edges, np.int64)


def _join(
    keys: pa.Array | None,
    key_lengths: Numbers,
    values: pa.Array,
    value_lengths: Numbers,
    headers: _Headers | None,
    contents: Numbers,
    times: _Varints | _Zero,
    offset_deltas: Numbers,
) -> pa.Array:
    numbers = [offset_deltas, key_lengths, value_lengths]
    lengths = _ZERO.sizes + times.sizes + contents + sum(_varint_sizes(column) for column in numbers)
    front = _binary([_Varints(lengths), _ZERO, times, _Varints(offset_deltas), _Varints(key_lengths)])
    middle = _binary([_Varints(value_lengths)])
    pieces = [front, middle, values] if keys is None else [front, keys, middle, values]
    if headers is None:
        pieces.append(pa.scalar(b"\0", pa.large_binary()))
    else:
        pieces += [_binary([_Varints(headers.counts)]), headers.encoded]
    empty = pa.scalar(b"", pa.large_binary())
    return pc.binary_join_element_wise(*pieces, empty, null_handling="replace", null_replacement=b"")


def _encode_headers(lists: pa.Array) -> _Headers:
    counts = _numbers(pc.list_value_length(lists), 0)
    pairs = lists.flatten()  # leaves out elements that null lists may hide
    names, values = (as_binary(part) for part in pairs.flatten())
    if names.null_count:
        raise UnsendableRow("a header without a key; the key of a header must not be null")
    pieces = [_binary([_Varints(lengths_of(names))]), names, _binary([_Varints(lengths_of(values))]), values]
    empty = pa.scalar(b"", pa.large_binary())
    encoded = pc.binary_join_element_wise(*pieces, empty, null_handling="replace", null_replacement=b"")
    # The headers of a row follow each other, so a row's bytes are those from its first header to its last.
    _, positions_buffer, data = encoded.buffers()
    positions = np.frombuffer(positions_buffer, np.int64)[: len(encoded) + 1]
    edges = positions[np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))]
    whole = pa.Array.from_buffers(pa.large_binary(), len(counts), [None, pa.py_buffer(edges), data])
    return _Headers(counts, whole)


def as_binary(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column of strings or bytes as one `large_binary` array, without copying the bytes of an array."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return whole.cast(pa.large_binary())


class _Varints:
    """A column of numbers that is written as zigzag varints."""

    __slots__ = ("sizes", "zigzags")

    def __init__(self, numbers: Numbers) -> None:
        self.zigzags = _zigzag(numbers)
        self.sizes = _sizes(self.zigzags)

    def write(self, target: npt.NDArray[np.uint8], positions: Numbers) -> None:
        """Write the i-th number at `positions[i]`."""
        for place in range(int(self.sizes.max(initial=0))):
            lanes = slice(None) if place == 0 else np.flatnonzero(self.sizes > place)
            groups = (self.zigzags[lanes] >> (7 * place)) & 0x7F
            more = (self.sizes[lanes] > place + 1) * 0x80
            target[positions[lanes] + place] = groups | more


class _Zero:
    """A column of zeros, one byte each: the attributes of every record, and its timestamp delta if there is none."""

    sizes = 1

    def write(self, target: npt.NDArray[np.uint8], positions: Numbers) -> None:
        """Write a 0 at each of `positions`."""
        target[positions] = 0


_ZERO = _Zero()


def _binary(fields: list[_Varints | _Zero]) -> pa.Array:
    """Return a binary array whose i-th value holds the i-th number of each field, one after the other."""
    sizes = sum(field.sizes for field in fields)
    edges = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    target = np.empty(int(edges[-1]), np.uint8)
    positions = edges[:-1]
    for field in fields:
        field.write(target, positions)
        positions = positions + field.sizes
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(target)]
    return pa.Array.from_buffers(pa.large_binary(), len(edges) - 1, buffers)


def _zigzag(numbers: Numbers) -> Numbers:
    return (numbers << 1) ^ (numbers >> 63)


def _sizes(zigzags: Numbers) -> Numbers:
    sizes = np.ones(len(zigzags), np.int64)
    for bits in range(7, 63, 7):
        if int(zigzags.max(initial=0)) >> bits == 0:
            break
        sizes += zigzags >= (1 << bits)
    return sizes


def _varint_sizes(numbers: Numbers) -> Numbers:
    return _sizes(_zigzag(numbers))
