"""The result of `getmany` for a partition: a sequence whose records are created when the program takes them.

Until then a record is a plain tuple, with the bytes of its key and value copied from the fetched data: a record that
the program keeps holds nothing else in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Generic, overload

from ottla.client.decoded_records import Row
from ottla.client.structs import ConsumerRecord, K, V


class PolledRecords(Sequence[ConsumerRecord[K, V]], Generic[K, V]):
    """See the module. It is equal to a list of the same records; `list(records)` returns one that can be changed."""

    __slots__ = ("_rows",)
    __hash__ = None  # type: ignore[assignment]  # like a list, to which it can be equal

    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> ConsumerRecord[K, V]: ...
    @overload
    def __getitem__(self, index: slice) -> PolledRecords[K, V]: ...
    def __getitem__(self, index: int | slice) -> ConsumerRecord[K, V] | PolledRecords[K, V]:
        if isinstance(index, slice):
            return PolledRecords(self._rows[index])
        return tuple.__new__(ConsumerRecord, self._rows[index])

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        return map(tuple.__new__, repeat(ConsumerRecord), self._rows)

    def __reversed__(self) -> Iterator[ConsumerRecord[K, V]]:
        return map(tuple.__new__, repeat(ConsumerRecord), reversed(self._rows))

    def __contains__(self, record: object) -> bool:
        return record in self._rows  # a named tuple is equal to a plain one

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PolledRecords):
            return bool(self._rows == other._rows)
        return self._rows == other if isinstance(other, list) else NotImplemented

    def __add__(self, other: Iterable[ConsumerRecord[K, V]]) -> list[ConsumerRecord[K, V]]:
        return [*self, *other]

    def __radd__(self, other: Iterable[ConsumerRecord[K, V]]) -> list[ConsumerRecord[K, V]]:
        return [*other, *self]

    def __repr__(self) -> str:
        return repr(list(self))
