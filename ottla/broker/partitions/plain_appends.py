"""A template's memory about many partitions: that the next appends to them only write. So it need not check each
partition for every request.

The next append to a log may also open its file, or begin a segment (`first_appends.py`). For the same partitions the
answer stays valid for a while: until the first of their segments is too old, while the sent bytes fit into the fullest
of them, and for a second at most. Other clients may fill a segment in that second, or its file may be closed: then a
turn takes longer than it should, and nothing else is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.broker.partitions.first_appends import have_too_many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.broker.partitions.appending import PartitionAppend

REMEMBERED_MS: Final = 1_000


class PlainAppends:
    """See the module. Each template has one."""

    __slots__ = ("_partitions", "_room_bytes", "_until_ms")

    def __init__(self) -> None:
        self._partitions: Sequence[PartitionAppend] = ()
        self._room_bytes = 0
        self._until_ms = 0.0

    def are_expected(
        self, partitions: Sequence[PartitionAppend], batches: Sequence[memoryview], size_bytes: int, now_ms: int
    ) -> bool:
        """Whether a turn may take all of these appends, of `size_bytes` together. Both sequences are kept."""
        self._room_bytes -= size_bytes
        if self._room_bytes >= 0 and now_ms <= self._until_ms and partitions == self._partitions:
            return True
        if have_too_many(partitions, batches, now_ms):
            return False
        limits = [partition.log.next_segment() for partition in partitions]
        self._partitions = partitions
        self._room_bytes = min(room_bytes for _, room_bytes in limits) - size_bytes
        self._until_ms = min(now_ms + REMEMBERED_MS, *(roll_at_ms for roll_at_ms, _ in limits))
        return True
