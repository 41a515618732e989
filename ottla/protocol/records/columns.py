"""Many records encoded together, column by column: for producers that send lists of values.

A record is cheap if Python executes no step for it alone. Functions written in C (`map`, `accumulate`, slices) compute
lengths, sizes and varints for a whole column, each different number is encoded as a varint once, and one `b"".join`
puts the pieces of all records in order. The bytes are the same as those of `record.encode_record`.

Worked example: values `hi` and `you`, no keys and headers, one timestamp, in an empty batch. The pieces, record after
record, are `10 00 00` (length, attributes, timestamp delta), `00` (offset delta), `01 04` (no key, length of the
value), `hi`, `00` (no headers), then `12 00 00`, `02`, `01 06`, `you`, `00`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import add

from ottla.protocol.records.builder import BatchBuilder
from ottla.protocol.records.record import Headers, encode_headers, encode_varint

_PLACES = 8192
_PLACE = [encode_varint(place) for place in range(_PLACES)]
"""The varints of offset deltas."""
_PLACE_CLASSES = ((64, 1), (8192, 2), (1 << 20, 3), (1 << 27, 4), (1 << 31, 5))
"""The largest offset delta for each length of a varint."""
_MOST_FIXED_BYTES = 5 + 1 + 10 + 5
"""The maximum bytes of length, attributes, timestamp delta and offset delta together."""
MOST_OVERHEAD_BYTES = _MOST_FIXED_BYTES + 5 + 5 + 1
"""The maximum bytes of a record without headers in a batch, not counting its key and value."""


class RecordColumns:
    """Records as columns of equal length, prepared for `ColumnBatchBuilder.extend`.

    `keys` None: no record has a key; `headers` None: no record has any. `timestamps` is one for all, or one for each,
    in ms since 1970. Raises the errors of `encode_headers` for headers that are not pairs of text and bytes.
    """

    __slots__ = ("_keys", "_tails", "_value_heads", "_values", "count", "largest_bytes", "mean_bytes", "sizes", "times")

    def __init__(
        self,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None,
        headers: Sequence[Headers] | None,
        timestamps: int | Sequence[int],
    ) -> None:
        self.count = len(values)
        self.times = timestamps
        value_lengths = _lengths(values)
        if keys is None:
            heads = {length: b"\x01" + encode_varint(length) for length in set(value_lengths)}
            sizes = _added({length: len(head) + max(0, length) for length, head in heads.items()}, value_lengths)
            self._keys: tuple[Sequence[bytes], Sequence[bytes]] | None = None
        else:
            heads = {length: encode_varint(length) for length in set(value_lengths)}
            sizes = _added({length: len(head) + max(0, length) for length, head in heads.items()}, value_lengths)
            key_lengths = _lengths(keys)
            key_heads = {length: encode_varint(length) for length in set(key_lengths)}
            key_sizes = {length: len(head) + max(0, length) for length, head in key_heads.items()}
            sizes = list(map(add, sizes, map(key_sizes.__getitem__, key_lengths)))
            self._keys = ([key_heads[length] for length in key_lengths], _without_none(keys, key_heads))
        self._values = _without_none(values, heads)
        self._value_heads: list[bytes] = list(map(heads.__getitem__, value_lengths))
        self._tails: list[bytes] | None = None
        if headers is not None:
            self._tails = [encode_headers(each) if each else b"\x00" for each in headers]
            sizes = list(map(add, sizes, map(len, self._tails)))
        else:
            sizes = [size + 1 for size in sizes]
        self.sizes = sizes
        """The number of bytes of each record after its offset delta."""
        self.largest_bytes = max(sizes, default=0) + _MOST_FIXED_BYTES
        """The most bytes that any of the records can take in a batch."""
        self.mean_bytes = sum(sizes) // max(1, self.count) + 4
        """The approximate mean size of a record."""

    def bound(self, place: int) -> int:
        """Return the most bytes that a record can take in a batch."""
        return self.sizes[place] + _MOST_FIXED_BYTES

    def pieces(
        self, first: int, last: int, fronts: Sequence[bytes], times: Sequence[bytes] | None, places: Sequence[bytes]
    ) -> bytes:
        """Return the records from `first` to before `last`, with the fields that depend on their batch: length, time
        and place.
        """
        columns: list[Sequence[bytes]] = [fronts, places] if times is None else [fronts, times, places]
        if self._keys is not None:
            columns += [column[first:last] for column in self._keys]
        count = last - first
        columns += [self._value_heads[first:last], self._values[first:last]]
        columns.append([b"\x00"] * count if self._tails is None else self._tails[first:last])
        width = len(columns)
        joined: list[bytes] = [b""] * (width * count)
        for number, column in enumerate(columns):
            joined[number::width] = column
        return b"".join(joined)


class ColumnBatchBuilder(BatchBuilder):
    """A batch to which many records can be added in one call."""

    __slots__ = ()

    def extend(self, columns: RecordColumns, first: int, most_bytes: int) -> int:
        """Add records from place `first` of `columns` while the batch stays within `most_bytes`; return how many.

        An empty batch accepts the first one in any case: no other batch would fit it better.
        """
        added = 0
        while first + added < columns.count:
            taken, looked = self._extend_some(columns, first + added, most_bytes - self.size_bytes)
            added += taken
            if taken < looked:
                break
        return added

    def _extend_some(self, columns: RecordColumns, first: int, room_bytes: int) -> tuple[int, int]:
        """Add records with offset deltas of the same length; return how many, and how many were considered."""
        place = self.record_count
        class_end, place_bytes = next(one for one in _PLACE_CLASSES if place < one[0])
        likely = max(1, room_bytes // columns.mean_bytes + 8)
        last = min(columns.count, first + min(likely, class_end - place))
        times = columns.times
        if isinstance(times, int):
            newest = times
            base = times if not place else self.base_timestamp
            front = b"\x00" + encode_varint(times - base)
            fixed_bytes = len(front) + place_bytes
            totals = [size + fixed_bytes for size in columns.sizes[first:last]]
            deltas: list[bytes] | None = None
        else:
            own = times[first:last]
            base = own[0] if not place else self.base_timestamp
            front = b"\x00"
            numbers = [time - base for time in own]
            varints = {delta: encode_varint(delta) for delta in set(numbers)}
            deltas = list(map(varints.__getitem__, numbers))
            sized = map(add, columns.sizes[first:last], map(len, deltas))
            totals = [size + 1 + place_bytes for size in sized]
        lengths = {total: encode_varint(total) for total in set(totals)}
        ends = list(accumulate(_added({total: total + len(length) for total, length in lengths.items()}, totals)))
        taken = bisect_right(ends, room_bytes)
        if not taken:
            if place:
                return 0, last - first
            taken = 1
        if taken < len(totals):
            del totals[taken:]
        fronts = {total: length + front for total, length in lengths.items()}
        if not isinstance(times, int):
            newest = max(times[first : first + taken])
            deltas = deltas[:taken] if deltas is not None else None
        self.body += columns.pieces(
            first, first + taken, list(map(fronts.__getitem__, totals)), deltas, _places(place, taken)
        )
        if not place:
            self.base_timestamp = base
        self.max_timestamp = max(self.max_timestamp, newest)
        self.record_count = place + taken
        return taken, last - first


def _lengths(column: Sequence[bytes | None]) -> list[int]:
    """Return the length of each, -1 for None."""
    try:
        return list(map(len, column))  # type: ignore[arg-type]  # None is what the except is for
    except TypeError:
        return [-1 if one is None else len(one) for one in column]


def _without_none(column: Sequence[bytes | None], lengths: Iterable[int]) -> Sequence[bytes]:
    if -1 not in lengths:
        return column  # type: ignore[return-value]  # no length of -1: no None
    return [b"" if one is None else one for one in column]


def _added(sizes: dict[int, int], lengths: list[int]) -> list[int]:
    return list(map(sizes.__getitem__, lengths))


def _places(first: int, count: int) -> list[bytes]:
    if first + count <= _PLACES:
        return _PLACE[first : first + count]
    return [encode_varint(place) for place in range(first, first + count)]
