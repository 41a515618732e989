"""What the audit's consume-transform-produce loops move: numbered records, and what each must become.

Partition p of the input topic holds p, p + 5, p + 10, ... at offsets 0, 1, 2, ...; what a number becomes goes into the
same partition of the output topic. So the output is right if a read_committed reader sees in each partition just what
follows from its place there: a lost record, one that comes twice, an aborted one and one that overtook another differ.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

INPUT = "numbers"
OUTPUT = "moved"
GROUP = "movers"
PARTITIONS = 5
MOST_BREACHES = 20


def number_at(partition: int, offset: int) -> int:
    """The number that the input has at an offset."""
    return offset * PARTITIONS + partition


def input_value(number: int) -> bytes:
    """The input's record of a number."""
    return b"%d" % number


def transformed(value: bytes) -> bytes:
    """The output's record for one of the input."""
    number = int(value)
    return b"%d -> %d" % (number, number * number % 1_000_003)


class Moved:
    """What a read_committed reader has seen of the output until now, and what was wrong with it."""

    def __init__(self) -> None:
        self.seen = [0] * PARTITIONS
        """Records of each partition."""
        self.transactions: set[bytes | None] = set()
        """Keys of the records that were seen: those of committed transactions."""
        self.breaches: list[str] = []
        self._lock = threading.Lock()

    @property
    def total(self) -> int:
        """Records of all partitions."""
        return sum(self.seen)

    def take(self, partition: int, offset: int, key: bytes | None, value: bytes | None) -> None:
        """One record more, in the order of the partition; `key` says which process wrote it in which transaction."""
        place = self.seen[partition]
        expected = transformed(input_value(number_at(partition, place)))
        if value != expected:
            where = f"{OUTPUT}-{partition}, offset {offset} (by {key!r})"
            self.breach(f"{where}: {value!r} is number {place} of the partition, where {expected!r} comes")
        self.transactions.add(key)
        self.seen[partition] += 1

    def compare(self, committed: Mapping[int, int], when: str) -> None:
        """Offsets and records must have moved together: `committed` has the group's offset of each partition."""
        for partition, seen in enumerate(self.seen):
            offset = committed.get(partition, 0)
            if offset != seen:
                self.breach(
                    f"{when}: {INPUT}-{partition} is committed up to {offset}, and {OUTPUT}-{partition} has {seen}"
                )

    def breach(self, text: str) -> None:
        """Keep what was wrong; after many of them only that there are more."""
        with self._lock:
            if len(self.breaches) < MOST_BREACHES:
                self.breaches.append(text)
