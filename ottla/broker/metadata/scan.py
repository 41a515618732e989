"""A reader of the metadata log's own files, which distinguishes a torn end from damage.

At most one batch of this log is ever unsynced (see `ottla.broker.catalog.catalog`). A crash can leave one bad batch at
the very end: it was never acknowledged, so it is ignored here and truncated when the log is opened. A bad batch with a
valid one anywhere after it is damage to acknowledged data: MetadataError, and the broker does not start.

Reads only; memory is bounded by the largest batch.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.metadata.batches import describe
from ottla.broker.metadata.image import MetadataError
from ottla.protocol.records.batch import HEADER_BYTES, BatchHeader, CorruptBatch, crc_matches, parse_header
from ottla.storage.formats.layout import LOG_SUFFIX, log_file, parse_offset_file

if TYPE_CHECKING:
    from ottla.storage.files.files import File, Files

MAX_BATCH_BYTES = 256 * 1024 * 1024
"""A length field above it is damage: Kafka's controller writes at most 8 MiB, Ottla far less."""
_SEARCH_STEP_BYTES = 4 * 1024 * 1024
_PLAUSIBLE = re.compile(rb"(?=\x00\x00.{14}\x02)", re.DOTALL)
"""A base offset below 2^48 and, 16 bytes on, magic 2."""


class ScannedBatch(NamedTuple):
    """A valid batch: its header and its bytes."""

    header: BatchHeader
    batch: memoryview


def segment_offsets(files: Files, directory: Path) -> list[int]:
    """Base offsets of the log's segments in order."""
    parsed = (parse_offset_file(name) for name in files.list_directory(directory))
    return sorted(file.offset for file in parsed if file is not None and file.suffix == LOG_SUFFIX)


def scan_log(files: Files, directory: Path, from_offset: int) -> Generator[ScannedBatch, None, str | None]:
    """Every valid batch that ends after `from_offset`, in order; stops at a torn end, and returns a text about it.

    Raises MetadataError for damage: a bad batch with valid ones after it, a gap between batches, or a log that begins
    after `from_offset`. Raises OSError if a file cannot be read.
    """
    offsets = segment_offsets(files, directory)
    first = max((index for index, offset in enumerate(offsets) if offset <= from_offset), default=None)
    if offsets and first is None:
        raise MetadataError(f"the log begins at offset {offsets[0]}, but offsets from {from_offset} on are needed")
    expected: int | None = None
    torn: str | None = None
    for base_offset in offsets[first or 0 :]:
        file = files.open(log_file(directory, base_offset))
        try:
            for batch in _scan_segment(file, base_offset):
                if isinstance(batch, str):
                    torn = torn or batch
                    continue
                if torn is not None:
                    raise MetadataError(f"{torn}, and {describe(batch.header)} is after it")
                if expected is not None and batch.header.base_offset != expected:
                    raise MetadataError(f"{describe(batch.header)} is where offset {expected} belongs")
                expected = batch.header.next_offset
                if expected > from_offset:
                    yield batch
        finally:
            file.close()
    return torn


def _scan_segment(file: File, base_offset: int) -> Iterator[ScannedBatch | str]:
    """Valid batches, and a text for each place where reading failed; the search continues after it."""
    size = file.size()
    position = 0
    lowest_offset = base_offset
    while position < size:
        try:
            scanned = _read_batch(file, position, size, lowest_offset)
        except CorruptBatch as error:
            yield f"{file.path.name} is damaged at byte {position} ({error})"
            found = _search(file, position + 1, size, lowest_offset)
            if found is None:
                return
            position = found
            continue
        yield scanned
        position += scanned.header.size_bytes
        lowest_offset = scanned.header.next_offset


def _read_batch(file: File, position: int, size: int, lowest_offset: int) -> ScannedBatch:
    """The batch at `position`. Raises CorruptBatch if it is incomplete or damaged."""
    if size - position < HEADER_BYTES:
        raise CorruptBatch(f"{size - position} bytes remain and a batch begins with {HEADER_BYTES}")
    header = parse_header(file.pread(HEADER_BYTES, position))
    if header.size_bytes > min(size - position, MAX_BATCH_BYTES):
        raise CorruptBatch(f"{describe(header)} has {header.size_bytes} bytes and {size - position} remain")
    if header.base_offset < lowest_offset or header.last_offset_delta < 0:
        raise CorruptBatch(f"{describe(header)} is where offset {lowest_offset} belongs")
    batch = memoryview(file.pread(header.size_bytes, position))
    if len(batch) < header.size_bytes or not crc_matches(batch, header):
        raise CorruptBatch(f"the checksum of {describe(header)} does not match its bytes")
    return ScannedBatch(header, batch)


def _search(file: File, start: int, size: int, lowest_offset: int) -> int | None:
    """The next position from `start` on at which a valid batch begins, or None."""
    overlap = HEADER_BYTES - 1
    while start < size:
        window = file.pread(_SEARCH_STEP_BYTES + overlap, start)
        for match in _PLAUSIBLE.finditer(window):
            if match.start() >= _SEARCH_STEP_BYTES:
                break
            try:
                _read_batch(file, start + match.start(), size, lowest_offset)
            except CorruptBatch:
                continue
            return start + match.start()
        start += _SEARCH_STEP_BYTES
    return None
