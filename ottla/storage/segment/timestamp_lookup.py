"""From a time to a record: floor in the time index, floor in the offset index, scan of headers, and one decoded batch.

The result is the first *record* with the requested timestamp or a later one, at any place in its batch, compressed or
not; timestamps may be out of order. Kafka's LogSegment.findOffsetByTimestamp and UnifiedLog.fetchOffsetByTimestamp.
Reads may wait for the disk.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import BatchHeader, CorruptBatch
from ottla.protocol.records.formats import decode_any, hides_offsets
from ottla.storage.segment.scan import SEQUENTIAL_CHUNK_BYTES, walk
from ottla.storage.segment.segment import Segment


class FoundRecord(NamedTuple):
    """The result of a look-up by time."""

    offset: int
    timestamp_ms: int


def first_at_or_after(
    segments: Iterable[Segment], timestamp_ms: int, *, start_offset: int, end_offset: int, max_decompressed_bytes: int
) -> FoundRecord | None:
    """The first record from `start_offset` on, below `end_offset`, with `timestamp_ms` or later.

    Raises:
        KafkaError: CORRUPT_MESSAGE, a batch that was read cannot be decoded.
        OSError: the disk failed.
    """
    try:
        for segment in segments:
            if segment.base_offset >= end_offset:
                return None
            if segment.largest_timestamp()[0] < timestamp_ms:
                continue
            found = _first_in(segment, timestamp_ms, start_offset, end_offset, max_decompressed_bytes)
            if found is not None:
                return found if found.offset < end_offset else None
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    return None


def newest(
    segments: Iterable[Segment], *, start_offset: int, end_offset: int, max_decompressed_bytes: int
) -> FoundRecord | None:
    """The first record with the largest timestamp between the offsets; None without records or timestamps."""
    largest_ms = -1
    try:
        for segment in segments:
            if segment.base_offset >= end_offset:
                break
            largest_ms = max(largest_ms, _largest_between(segment, start_offset, end_offset, max_decompressed_bytes))
    except CorruptBatch as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    found = None
    while found is None and largest_ms >= 0:
        found = first_at_or_after(
            segments,
            largest_ms,
            start_offset=start_offset,
            end_offset=end_offset,
            max_decompressed_bytes=max_decompressed_bytes,
        )
        if found is None:
            try:
                largest_ms = _largest_below(segments, largest_ms, start_offset, end_offset)
            except CorruptBatch as error:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    return found


def _largest_below(segments: Iterable[Segment], below_ms: int, start_offset: int, end_offset: int) -> int:
    """The largest timestamp of batches with records, below a timestamp that only an empty batch has (the cleaner keeps
    the header of some).
    """
    largest_ms = -1
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        for _, header in walk(segment.file.pread, 0, segment.size_bytes, SEQUENTIAL_CHUNK_BYTES):
            is_between = start_offset <= header.last_offset and header.base_offset < end_offset
            if is_between and header.record_count and header.max_timestamp < below_ms:
                largest_ms = max(largest_ms, header.max_timestamp)
    return largest_ms


def _largest_between(segment: Segment, start_offset: int, end_offset: int, max_decompressed_bytes: int) -> int:
    """The largest timestamp of the segment's batches between the offsets, from the index unless the index names a batch
    outside.
    """
    largest_ms, last_offset = segment.largest_timestamp()
    if start_offset <= segment.base_offset and last_offset < end_offset:
        return largest_ms
    largest_ms = -1
    position = segment.floor(start_offset)
    for at, header in walk(segment.file.pread, position, segment.size_bytes, SEQUENTIAL_CHUNK_BYTES):
        if header.base_offset >= end_offset:
            break
        if header.last_offset < start_offset:
            continue
        is_partly_outside = (
            header.base_offset < start_offset or header.last_offset >= end_offset or hides_offsets(header)
        )
        if is_partly_outside and not header.is_log_append_time:
            data = segment.file.pread(header.size_bytes, at)
            records = decode_any(data, max_decompressed_bytes=max_decompressed_bytes)
            stamps = [record.timestamp for record in records if start_offset <= record.offset < end_offset]
            largest_ms = max([largest_ms, *stamps])
        else:
            largest_ms = max(largest_ms, header.max_timestamp)
    return largest_ms


def _first_in(
    segment: Segment, timestamp_ms: int, start_offset: int, end_offset: int, max_decompressed_bytes: int
) -> FoundRecord | None:
    floor_offset = max(segment.floor_by_timestamp(timestamp_ms), start_offset)
    read = segment.file.pread
    for position, header in walk(read, segment.floor(floor_offset), segment.size_bytes):
        if header.base_offset >= end_offset:
            return None
        if header.max_timestamp >= timestamp_ms and header.last_offset >= start_offset:
            found = _first_in_batch(
                segment, position, header, timestamp_ms, start_offset, max_decompressed_bytes=max_decompressed_bytes
            )
            if found is not None:
                return found
    return None


def _first_in_batch(
    segment: Segment,
    position: int,
    header: BatchHeader,
    timestamp_ms: int,
    start_offset: int,
    *,
    max_decompressed_bytes: int,
) -> FoundRecord | None:
    # The header of a cleaned batch may have lost its first record, or have a delete horizon instead of its time.
    is_whole = header.record_count == header.last_offset_delta + 1 and not hides_offsets(header)
    is_whole = is_whole and not header.has_delete_horizon
    if is_whole and header.is_log_append_time:
        return FoundRecord(max(header.base_offset, start_offset), header.max_timestamp)
    if is_whole and header.base_timestamp >= timestamp_ms and header.base_offset >= start_offset:
        return FoundRecord(header.base_offset, header.base_timestamp)
    data = segment.file.pread(header.size_bytes, position)
    for record in decode_any(data, max_decompressed_bytes=max_decompressed_bytes):
        if record.timestamp >= timestamp_ms and record.offset >= start_offset:
            return FoundRecord(record.offset, record.timestamp)
    return None
