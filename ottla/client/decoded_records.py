"""Decoded records that the program has not taken yet.

They are plain tuples. `records` creates the ConsumerRecord of the next one when it is taken, so that waiting records
need no further object and no work of the garbage collector. There is no count of taken records: the iterator over the
tuples knows it. Both are iterators in C whose steps are atomic: readers in several threads get each record once, and
`stop` in the loop's thread ends `records` between two records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from operator import length_hint
from typing import Any

from ottla.client.structs import ConsumerRecord

Row = tuple[Any, ...]
"""The fields of a ConsumerRecord, without their names."""
OFFSET = ConsumerRecord._fields.index("offset")
"""The index of the offset in a row."""


class DecodedRecords:
    """See the module. `was_begun`: earlier records, decoded with these, were taken already."""

    __slots__ = ("_left", "_rows", "_types", "_was_begun", "records")

    def __init__(self, rows: Sequence[Row] = (), *, was_begun: bool = False) -> None:
        self._rows = rows
        self._left = iter(rows)
        self._types = [ConsumerRecord] * len(rows)
        self._was_begun = was_begun
        self.records: Iterator[ConsumerRecord[Any, Any]] = map(tuple.__new__, self._types, self._left)
        """The iterator that takes the next record."""

    def __len__(self) -> int:
        return length_hint(self._left)

    @property
    def is_begun(self) -> bool:
        """Whether any of them was taken."""
        return self._was_begun or length_hint(self._left) < len(self._rows)

    @property
    def next_offset(self) -> int:
        """The offset of the next record, -1 if there is none."""
        left = length_hint(self._left)
        offset: int = self._rows[-left][OFFSET] if left else -1
        return offset

    def take(self, limit: int) -> list[Row]:
        """Take up to `limit` records, as tuples."""
        return list(islice(self._left, limit))

    def stop(self) -> None:
        """End `records`; `rest` returns the records that are left."""
        self._types.clear()  # `map` advances this iterator first, and takes no record when it is exhausted

    def rest(self) -> DecodedRecords:
        """Return the records that are left, after `stop`."""
        return DecodedRecords(self._rows[len(self._rows) - len(self) :], was_begun=self.is_begun)
