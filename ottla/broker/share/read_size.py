"""How many bytes of a share partition a ShareFetch has to read for the records that it may acquire: an estimate.

A request names its limits in records (`max.poll.records`, 500) and in bytes (`fetch.max.bytes`, 50 MB), and the second
is often thousands of times what the first needs. An estimate that is too small gives fewer records than the request
allows, which is always right; one that is too large reads bytes that are not sent. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.broker.share.deliveries import Span

FIRST_BYTES: Final = 64 * 1024
"""Read of a share partition of which nothing is known yet, and at least."""
GUESSED_RECORD_BYTES: Final = 1024
"""Of a record of which nothing is known yet."""


class ReadSize:
    """The sizes of the batches that were read last. A new one knows nothing."""

    __slots__ = ("_batch_bytes", "_record_bytes")

    def __init__(self) -> None:
        self._record_bytes = 0.0
        self._batch_bytes = 0

    def note(self, batches: Iterable[tuple[Span, int, int]]) -> None:
        """Remember batches that were read: the offsets of each, and where its bytes begin and end."""
        records = total_bytes = largest_bytes = 0
        for span, begin, end in batches:
            records += span.last_offset - span.first_offset + 1
            total_bytes += end - begin
            largest_bytes = max(largest_bytes, end - begin)
        if records:
            self._record_bytes, self._batch_bytes = total_bytes / records, largest_bytes

    def bytes_for(self, records: int) -> int:
        """So many bytes have this number of records, and the rest of the batch of the last one."""
        return max(int(records * self._record_bytes) + self._batch_bytes, FIRST_BYTES)

    def records_in(self, size_bytes: int) -> int:
        """About so many records are in a number of bytes."""
        return int(size_bytes / (self._record_bytes or GUESSED_RECORD_BYTES))
