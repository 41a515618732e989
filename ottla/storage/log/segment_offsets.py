"""Offsets by time for ListOffsets 0: the base offsets of segments, by the time of their last write.

Before Kafka 0.10.1 there was no time index. The candidates are each segment's base offset, with the time of the last
write to its file, and the log end, with the current time. The response has those not later than the requested time,
newest first. Kafka's UnifiedLog.legacyFetchOffsetsBefore.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.storage.log.log import Log

LATEST: Final = -1
EARLIEST: Final = -2


def offsets_before(log: Log, timestamp_ms: int, most: int, *, end_offset: int, now_ms: int) -> list[int]:
    """At most `most` offsets, newest first, of segments last written at `timestamp_ms` or before; the log's end is one.

    Args:
        timestamp_ms: or LATEST for all of them, EARLIEST for the first one.
        end_offset: the end of what readers may see; offsets after it become this one.

    Raises:
        OSError: the disk failed.
    """
    segments = log.segments
    begins = [(max(segment.base_offset, log.log_start_offset), segment) for segment in segments]
    if timestamp_ms == EARLIEST:
        offsets = [begins[0][0]]
    else:
        offsets = [
            offset
            for offset, segment in begins
            if timestamp_ms == LATEST or log.files.modified_ms(segment.path) <= timestamp_ms
        ]
        if segments[-1].size_bytes and (timestamp_ms == LATEST or now_ms <= timestamp_ms):
            offsets.append(log.log_end_offset)
    descending = sorted(offsets, reverse=True)[: max(most, 0)]
    if descending and descending[0] > end_offset:
        return [end_offset, *(offset for offset in descending if offset <= end_offset)]
    return descending
