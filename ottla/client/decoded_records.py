"""Decoded records that the program has not taken yet.

They are plain tuples. `records` makes a ConsumerRecord of the next one when it is taken, so that those at hand cost no
object of their own, and the garbage collector nothing. Nothing counts how many were taken: the iterator over the tuples
knows. Both are iterators in C, and each step is one step for all threads: readers in several threads get each record
once, and `stop` in the loop's thread ends `records` between two of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from operator import length_hint
from typing import Any

from ottla.client.structs import ConsumerRecord

Row = tuple[Any, ...]
"""What a ConsumerRecord holds, without its names."""
OFFSET = ConsumerRecord._fields.index("offset")
"""Where in a row its offset is."""


class DecodedRecords:
    """See the module. `was_begun`: others before these, decoded with them, were taken already."""

    __slots__ = ("_left", "_rows", "_types", "_was_begun", "records")

    def __init__(self, rows: Sequence[Row] = (), *, was_begun: bool = False) -> None:
        self._rows = rows
        self._left = iter(rows)
        self._types = [ConsumerRecord] * len(rows)
        self._was_begun = was_begun
        self.records: Iterator[ConsumerRecord[Any, Any]] = map(tuple.__new__, self._types, self._left)
        """Takes the next record."""

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
        """End `records`; what is left has others (`rest`)."""
        self._types.clear()  # `map` asks them first, and takes no record once they are used up

    def rest(self) -> DecodedRecords:
        """Return the records that are left, after `stop`."""
        return DecodedRecords(self._rows[len(self._rows) - len(self) :], was_begun=self.is_begun)
