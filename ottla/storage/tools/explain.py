"""Explains step by step how a record is found: a look-up that returns everything it has read.

`explain_offset` and `explain_timestamp` take the same steps through a partition's directory as the broker (floor in the
list of segments, floor in the sparse index, scan of batch headers, the record) and return them as plain data; the
command line prints them. They read only the files on disk, without changes and without the directory's lock. So they
work beside a running broker (the newest batches may be half written then, and the file of the active index may lag
behind its memory) and on a directory that Apache Kafka has written. Broken files are not repaired, but explained.

A remark on names: a segment's file is named by the **first** offset that it may contain. Some old articles say "the
last offset of the segment before"; that is off by one.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from ottla.protocol.records.batch import BatchHeader, CorruptBatch, Record
from ottla.protocol.records.formats import HEADER_BYTES_BY_MAGIC, any_crc_matches, decode_any
from ottla.storage.directories.directory_shapes import segment_of_0_7, words_of_0_7
from ottla.storage.files.files import File, Files
from ottla.storage.formats import layout
from ottla.storage.formats.checkpoint import BrokenFile, read_offsets
from ottla.storage.index.index_reading import OFFSET_ENTRY, TIME_ENTRY, IndexStep, floor_entry
from ottla.storage.segment.scan import SEQUENTIAL_CHUNK_BYTES, walk, with_inner_offsets

MAX_SCANNED_KEPT: Final = 100
"""The batches of a scan that are kept for display; further ones are only counted."""
MAX_BATCH_BYTES: Final = 256 * 1024 * 1024
"""The largest batch that is decoded here."""


class Ending(enum.StrEnum):
    """The results of a look-up."""

    FOUND = "found"
    FOUND_LATER = "found later"
    """The offset itself is gone (compaction, a control record); the next one is what a consumer gets."""
    OUT_OF_RANGE = "out of range"
    AT_LOG_END = "at log end"
    NOTHING_SO_LATE = "nothing so late"
    BROKEN = "broken"


class SegmentStep(NamedTuple):
    """The chosen segment: the one with the greatest base offset at or below the wanted offset."""

    base_offsets: tuple[int, ...]
    slot: int
    path: Path
    size_bytes: int

    @property
    def base_offset(self) -> int:
        """The base offset of the chosen segment."""
        return self.base_offsets[self.slot]


class SegmentTimestamp(NamedTuple):
    """A segment whose largest timestamp (ms, -1 for none) a look-up by time has read."""

    base_offset: int
    largest_timestamp: int
    is_late_enough: bool


class ScannedBatch(NamedTuple):
    """A batch header that a scan has read."""

    position: int
    header: BatchHeader
    is_wanted: bool


class ScanStep(NamedTuple):
    """Batch headers from `start_position` on, up to the wanted one.

    `batches` are the first `MAX_SCANNED_KEPT` of `headers_read`; the one that ended the scan is always the last.
    """

    start_position: int
    end_position: int
    headers_read: int
    batches: tuple[ScannedBatch, ...]


class BatchStep(NamedTuple):
    """The batch with the record: its position, its header as bytes and as numbers, whether its checksum is right."""

    position: int
    raw_header: bytes
    header: BatchHeader
    is_crc_right: bool


class RecordStep(NamedTuple):
    """The record, the `number`-th of its batch (from 0)."""

    number: int
    record: Record


class Explanation(NamedTuple):
    """A look-up, step by step. Steps that were not reached are None; `reason` explains the result, in one line."""

    topic: str
    partition: int
    directory: Path
    offset: int | None
    timestamp: int | None
    log_start_offset: int | None
    timestamps: tuple[SegmentTimestamp, ...]
    segment: SegmentStep | None
    time_index: IndexStep | None
    offset_index: IndexStep | None
    scan: ScanStep | None
    batch: BatchStep | None
    record: RecordStep | None
    ending: Ending
    reason: str


class NoSuchPartition(ValueError):
    """There is no directory of that partition, or it has no segment. The message is one line."""


def explain_offset(files: Files, log_directory: Path, topic: str, partition: int, offset: int) -> Explanation:
    """The look-up of an offset in `log_directory`/`topic`-`partition`. Raises NoSuchPartition, OSError."""
    looking = _Looking(files, log_directory, topic, partition)
    first, log_start = looking.base_offsets[0], looking.log_start_offset or 0
    explanation = looking.start(offset=offset)
    if offset < max(first, log_start):
        why = (
            f"the first segment begins at {first}"
            if first >= log_start
            else f"the log starts at {log_start} (log-start-offset-checkpoint)"
        )
        return explanation._replace(ending=Ending.OUT_OF_RANGE, reason=f"offset {offset} is gone: {why}")
    slot = bisect_right(looking.base_offsets, offset) - 1
    while True:
        explanation = looking.with_position(explanation, slot, offset)
        explanation = looking.with_search(
            explanation, lambda header: header.last_offset >= offset, lambda record: record.offset >= offset
        )
        # Only after compaction can a segment end before the next one begins.
        if explanation.ending is not Ending.AT_LOG_END or slot + 1 == len(looking.base_offsets):
            break
        slot += 1
    return _beyond_the_end(explanation, offset) if explanation.ending is Ending.AT_LOG_END else explanation


def explain_timestamp(files: Files, log_directory: Path, topic: str, partition: int, timestamp: int) -> Explanation:
    """The look-up of the first record with `timestamp` (ms) or later. Raises NoSuchPartition, OSError."""
    looking = _Looking(files, log_directory, topic, partition)
    explanation = looking.start(timestamp=timestamp)
    start = looking.log_start_offset or 0
    asked: list[SegmentTimestamp] = []
    for slot, base_offset in enumerate(looking.base_offsets):
        if slot + 1 < len(looking.base_offsets) and looking.base_offsets[slot + 1] <= start:
            continue
        largest = looking.largest_timestamp(slot)
        asked.append(SegmentTimestamp(base_offset, largest, largest >= timestamp))
        explanation = explanation._replace(timestamps=tuple(asked))
        if largest < timestamp:
            continue
        time_index = looking.floor_by_timestamp(slot, timestamp)
        found = base_offset + time_index.value if time_index.slot is not None else base_offset
        explanation = looking.with_position(explanation._replace(time_index=time_index), slot, max(found, start))
        explanation = looking.with_search(
            explanation,
            lambda header: header.max_timestamp >= timestamp and header.last_offset >= start,
            lambda record: record.timestamp >= timestamp and record.offset >= start,
        )
        if explanation.ending is not Ending.AT_LOG_END:
            return explanation
    return explanation._replace(ending=Ending.NOTHING_SO_LATE, reason="no record is stamped so late")


class _Looking:
    """The partition's files during one look-up."""

    def __init__(self, files: Files, log_directory: Path, topic: str, partition: int) -> None:
        self.files = files
        self.topic = topic
        self.partition = partition
        self.directory = log_directory / layout.partition_directory_name(topic, partition)
        if not files.is_directory(self.directory):
            raise NoSuchPartition(f"{self.directory} is not there")
        names = map(layout.parse_offset_file, files.list_directory(self.directory))
        self.base_offsets = sorted(name.offset for name in names if name and name.suffix == layout.LOG_SUFFIX)
        if not self.base_offsets:
            segment = segment_of_0_7(files, self.directory)
            if segment is not None:
                raise NoSuchPartition(words_of_0_7(self.directory / segment))
            raise NoSuchPartition(f"{self.directory} holds no segment (no .log file)")
        self.log_start_offset = self._log_start_offset(log_directory)

    def _log_start_offset(self, log_directory: Path) -> int | None:
        try:
            offsets = read_offsets(self.files, log_directory / layout.LOG_START_OFFSET_CHECKPOINT_FILE)
        except BrokenFile:
            return None
        return offsets.get(layout.TopicPartition(self.topic, self.partition))

    def start(self, *, offset: int | None = None, timestamp: int | None = None) -> Explanation:
        return Explanation(
            topic=self.topic,
            partition=self.partition,
            directory=self.directory,
            offset=offset,
            timestamp=timestamp,
            log_start_offset=self.log_start_offset,
            timestamps=(),
            segment=None,
            time_index=None,
            offset_index=None,
            scan=None,
            batch=None,
            record=None,
            ending=Ending.BROKEN,
            reason="",
        )

    # --- steps -------------------------------------------------------------------------------------------------------

    def with_position(self, explanation: Explanation, slot: int, offset: int) -> Explanation:
        """Add the segment, and the entry of its index."""
        base_offset = self.base_offsets[slot]
        path = layout.log_file(self.directory, base_offset)
        size = self.files.size(path)
        index = floor_entry(
            self.files,
            layout.offset_index_file(self.directory, base_offset),
            base_offset,
            OFFSET_ENTRY,
            offset - base_offset,
        )
        if index.slot is not None and index.value >= size:
            problem = f"entry {index.slot} points to byte {index.value}, the .log has {size}"
            index = index._replace(slot=None, value=0, problem=problem)
        segment = SegmentStep(tuple(self.base_offsets), slot, path, size)
        return explanation._replace(segment=segment, offset_index=index)

    def with_search(
        self,
        explanation: Explanation,
        wants_batch: Callable[[BatchHeader], bool],
        wants_record: Callable[[Record], bool],
    ) -> Explanation:
        """Add the scan from the index's position on; the first batch that still has a wanted record ends it."""
        segment = explanation.segment
        assert segment is not None
        assert explanation.offset_index is not None
        start = end = explanation.offset_index.value if explanation.offset_index.slot is not None else 0
        kept: list[ScannedBatch] = []
        headers_read = 0
        explanation = explanation._replace(ending=Ending.AT_LOG_END, reason="the segment ends")
        file = self.files.open(segment.path)
        try:
            for position, outer in walk(file.pread, start, segment.size_bytes):
                header = with_inner_offsets(file.pread, position, outer)
                headers_read, end = headers_read + 1, position + header.size_bytes
                if wants_batch(header):
                    explanation = _with_record(explanation, file, position, header, wants_record)
                if len(kept) == MAX_SCANNED_KEPT:
                    kept.pop()
                kept.append(ScannedBatch(position, header, explanation.ending is not Ending.AT_LOG_END))
                if kept[-1].is_wanted:
                    break
        except CorruptBatch as error:
            explanation = explanation._replace(ending=Ending.BROKEN, reason=f"{segment.path.name}: {error}")
        finally:
            file.close()
        return explanation._replace(scan=ScanStep(start, end, headers_read, tuple(kept)))

    def floor_by_timestamp(self, slot: int, timestamp: int) -> IndexStep:
        base_offset = self.base_offsets[slot]
        path = layout.time_index_file(self.directory, base_offset)
        return floor_entry(self.files, path, base_offset, TIME_ENTRY, timestamp)

    def largest_timestamp(self, slot: int) -> int:
        """The last entry of the time index, or a later timestamp in the batches after the last indexed position."""
        base_offset = self.base_offsets[slot]
        path = layout.log_file(self.directory, base_offset)
        size = self.files.size(path)
        times = self.floor_by_timestamp(slot, layout.MAX_OFFSET)
        largest = times.key if times.slot is not None else -1
        offsets = floor_entry(
            self.files, layout.offset_index_file(self.directory, base_offset), base_offset, OFFSET_ENTRY, (1 << 31) - 1
        )
        start = offsets.value if offsets.slot is not None and times.slot is not None and offsets.value < size else 0
        file = self.files.open(path)
        try:
            for _, header in walk(file.pread, start, size, SEQUENTIAL_CHUNK_BYTES):
                largest = max(largest, header.max_timestamp)
        except CorruptBatch:
            pass  # explained by the scan, if the look-up reaches this segment
        finally:
            file.close()
        return largest


def _with_record(
    explanation: Explanation, file: File, position: int, header: BatchHeader, wants_record: Callable[[Record], bool]
) -> Explanation:
    """Add the decoded batch and its first wanted record; unchanged if compaction has removed all of them."""
    if header.size_bytes > MAX_BATCH_BYTES:
        reason = f"the batch has {header.size_bytes} bytes, more than is decoded here ({MAX_BATCH_BYTES})"
        return explanation._replace(ending=Ending.BROKEN, reason=reason)
    data = file.pread(header.size_bytes, position)
    batch = BatchStep(position, data[: HEADER_BYTES_BY_MAGIC[header.magic]], header, any_crc_matches(data, header))
    try:
        records = decode_any(data)
    except CorruptBatch as error:
        return explanation._replace(batch=batch, ending=Ending.BROKEN, reason=f"the batch at byte {position}: {error}")
    for number, record in enumerate(records):
        if wants_record(record):
            ending, reason = _ending(explanation, header, record)
            return explanation._replace(batch=batch, record=RecordStep(number, record), ending=ending, reason=reason)
    return explanation


def _ending(explanation: Explanation, header: BatchHeader, record: Record) -> tuple[Ending, str]:
    if explanation.offset is not None and record.offset != explanation.offset:
        return Ending.FOUND_LATER, (
            f"no record has offset {explanation.offset} (any more); a consumer gets the next one, {record.offset}"
        )
    return Ending.FOUND, "a control record: consumers do not see it" if header.is_control else ""


def _beyond_the_end(explanation: Explanation, offset: int) -> Explanation:
    assert explanation.segment is not None
    assert explanation.scan is not None
    batches = explanation.scan.batches
    end = batches[-1].header.next_offset if batches else explanation.segment.base_offset
    if offset == end:
        return explanation._replace(reason=f"{offset} is the log end offset: the next record will get it")
    reason = f"offset {offset} is past the log end offset {end}"
    return explanation._replace(ending=Ending.OUT_OF_RANGE, reason=reason)
