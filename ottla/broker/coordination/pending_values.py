"""Values that open transactions have written, by producer id and key, until a marker makes them valid or drops them.

A value becomes valid with its transaction's COMMIT marker, but never replaces a value that was written after it in the
log: a plain record of its key, or a record of a transaction that ended earlier, may be newer. Kafka compares the
offsets of the two records. Here the older one is marked as superseded when the newer one becomes valid, which gives the
same result without an offset for each value that is kept. For example:

    transaction 7 writes k=1 · a plain record sets k=2 · transaction 7 commits: k is 2
    transaction 7 writes k=1 · 8 writes k=2 · 8 commits, then 7: k is 2 · 7 commits, then 8: k is 2

Compaction follows the same rule: it keeps the last record of a key whatever the order of the markers. A superseded
value never becomes valid, but its key is open all the same until its transaction ends. A tombstone is valid
immediately, in a transaction or not, and drops all earlier values of its key.

Source: Kafka's `OffsetMetadataManager`: `pendingTransactionalOffsets`, and its replay methods.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from math import inf
from typing import Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Written(NamedTuple, Generic[V]):
    """A value in an open transaction. `order` grows with each value that is written."""

    value: V
    order: int
    is_superseded: bool


class PendingValues(Generic[K, V]):
    """All open transactions of one log that have written something."""

    __slots__ = ("_next_order", "_producers_of", "_written")

    def __init__(self) -> None:
        self._written: dict[int, dict[K, Written[V]]] = {}
        self._producers_of: dict[K, set[int]] = {}
        self._next_order = 0

    def __bool__(self) -> bool:
        return bool(self._written)

    @property
    def producer_ids(self) -> Collection[int]:
        """The producers whose transactions have written something."""
        return self._written.keys()

    def is_open(self, key: K) -> bool:
        """Whether some transaction has written the key."""
        return key in self._producers_of

    def keys_of(self, producer_id: int) -> Collection[K]:
        """The keys that the producer's transaction has written."""
        return self._written.get(producer_id, {}).keys()

    def newest(self, key: K) -> V:
        """The value of an open key that was written last."""
        return max((self._written[producer_id][key] for producer_id in self._producers_of[key]), key=_order).value

    def in_order(self) -> Iterator[tuple[int, K, Written[V]]]:
        """All values, in the order in which they were written: producer id, key, and the value."""
        everything = [
            (producer_id, key, one) for producer_id, written in self._written.items() for key, one in written.items()
        ]
        return iter(sorted(everything, key=lambda entry: entry[2].order))

    def write(self, producer_id: int, key: K, value: V) -> None:
        """The producer's transaction writes a value, which replaces an earlier one of the same transaction."""
        self._next_order += 1
        self._written.setdefault(producer_id, {})[key] = Written(value, self._next_order, is_superseded=False)
        self._producers_of.setdefault(key, set()).add(producer_id)

    def supersede(self, key: K, before: float = inf) -> None:
        """A newer value of the key is valid: values whose order is less than `before` are superseded."""
        for producer_id in self._producers_of.get(key, ()):
            written = self._written[producer_id]
            if written[key].order < before:
                written[key] = written[key]._replace(is_superseded=True)

    def forget(self, key: K) -> None:
        """A tombstone: forget all values of the key."""
        for producer_id in self._producers_of.pop(key, ()):
            self._forget(producer_id, key)

    def _forget(self, producer_id: int, key: K) -> None:
        written = self._written[producer_id]
        del written[key]
        if not written:
            del self._written[producer_id]

    def end(self, producer_id: int, *, is_commit: bool) -> list[tuple[K, V]]:
        """A marker ends the producer's transaction. Return the values that are valid from now on."""
        written = self._written.pop(producer_id, {})
        count_now: list[tuple[K, V]] = []
        for key, one in written.items():
            producers = self._producers_of[key]
            producers.discard(producer_id)
            if not producers:
                del self._producers_of[key]
            if is_commit and not one.is_superseded:
                self.supersede(key, before=one.order)
                count_now.append((key, one.value))
        return count_now


def _order(written: Written[V]) -> int:
    return written.order
