"""Replaying the redo log that a crash has left: each log gets its bytes before it is opened.

After a crash of the process, the logs' own files have all of their bytes. After a power cut, bytes that are missing or
torn in a log's own file are written again. The recovery of the log, which follows, checks them and syncs everything
after the recovery point. The redo log is voided only when all logs are open, so all of this may be interrupted and
repeated.

An entry is skipped if the directory has changed since the entry was written:

- the partition is of another topic with the same name, by the topic's id in the metadata log (`partition.metadata` may
  be blank after a crash);
- the segment does not exist: retention has deleted it;
- the log's recovery point is at or after the end of the entry, so its own file has it; and the cleaner, which changes
  only records below recovery points, may have moved it.

An entry, and all later ones of its segment, are skipped in these cases:

- the segment ends before the entry begins: it was truncated, and the missing part is not in the redo log; or cleaned;
- another valid batch is there: another program has written to the log since, for example an Apache Kafka. Or such a
  batch spans the place of the entry, or is before it and has later offsets: then the cleaner has rewritten the segment,
  and the recovery point does not show it, because its file was lost or is an older one.

Entries of later segments do not depend on that. If the recovery points are lost, most logs that are cleaned have stale
entries of earlier segments, and the acknowledged records that only the redo log has are in the last segment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from ottla.plain import Plain, field
from ottla.protocol.records.batch import HEADER_BYTES, BatchHeader, CorruptBatch, parse_header
from ottla.protocol.records.checksum import crc32c
from ottla.storage.files.files import File, Files, write_all
from ottla.storage.formats.checkpoint import BrokenFile
from ottla.storage.formats.layout import (
    LOG_SUFFIX,
    REDO_LOG_FILE,
    DirectoryKind,
    TopicPartition,
    log_file,
    parse_partition_directory,
)
from ottla.storage.formats.partition_metadata import read_partition_metadata
from ottla.storage.formats.redo_format import RedoEntry, records_of
from ottla.storage.segment.scan import SEQUENTIAL_CHUNK_BYTES, walk

logger = logging.getLogger(__name__)

CHECKED_FROM: Final = 21
"""The start of the part of a batch that its checksum covers."""
MOST_FILE_BYTES: Final = 64 << 20
"""More than any redo log has; bytes after that are not read."""


class RedoContents(Plain):
    """The content of a redo log.

    Attributes:
        generation: the generation of its records; 0 if none can be read.
        records: the number of records that have entries.
        entries: the entries by the name of a partition's directory.
    """

    generation: int = 0
    records: int = 0
    entries: dict[str, list[RedoEntry]] = field(factory=dict)

    def restore(self, files: Files, directory: Path, topic_id: bytes, synced_end: int) -> int:
        """Write the bytes of its entries that a partition's log lacks, without a sync; returns how many segments lacked
        any. To be called before the log is opened. `synced_end`: the offset below which its own file has its records.

        Raises OSError, also for a full disk: a log that lacks acknowledged records must not be opened.
        """
        wanted = [
            entry
            for entry in self.entries.get(directory.name, ())
            if entry.topic_id == topic_id and entry.end_offset > synced_end
        ]
        segments: dict[int, list[RedoEntry]] = {}
        for entry in wanted:
            segments.setdefault(entry.base_offset, []).append(entry)
        written = 0
        for base_offset, entries in segments.items():
            try:
                written += _restore_segment(files, log_file(directory, base_offset), entries, max(segments))
            except _LeftOut as reason:
                logger.warning("%s: entries in %s are skipped: %s", directory, REDO_LOG_FILE, reason)
        if written:
            logger.info("%s: missing records were restored from %s", directory, REDO_LOG_FILE)
        return written

    def end_of(self, name: str, topic_id: bytes) -> int:
        """The offset that a partition's log had reached, by its entries; 0 if it has none."""
        entries = self.entries.get(name, ())
        return max((entry.end_offset for entry in entries if entry.topic_id == topic_id), default=0)


def read_redo_log(files: Files, directory: Path) -> RedoContents:
    """The content of a log directory's redo log; empty if there is none. Raises OSError."""
    contents = RedoContents()
    path = directory / REDO_LOG_FILE
    if not files.exists(path):
        return contents
    file = files.open(path)
    try:
        data = file.pread(min(file.size(), MOST_FILE_BYTES), 0)
    finally:
        file.close()
    for record in records_of(data):
        contents.generation = record.generation
        contents.records += bool(record.entries)
        for entry in record.entries:
            contents.entries.setdefault(entry.name, []).append(entry)
    return contents


def redo(
    files: Files,
    directory: Path,
    synced_end_of: Callable[[TopicPartition], int],
    only: TopicPartition | None = None,
) -> int:
    """Restore all logs of a log directory, or one, for tools, which have no metadata log: if the `partition.metadata`
    of a partition is blank or broken, it counts as of the topic in its newest entry. Returns how many segments lacked
    any bytes. Raises OSError.
    """
    written = 0
    contents = read_redo_log(files, directory)
    for name, entries in contents.entries.items():
        parsed = parse_partition_directory(name)
        path = directory / name
        if parsed is None or parsed.kind is not DirectoryKind.PARTITION or not files.is_directory(path):
            continue
        if only not in (None, parsed.topic_partition):
            continue
        try:
            known = read_partition_metadata(files, path)
        except BrokenFile:
            known = None
        topic_id = entries[-1].topic_id if known is None else known.bytes
        written += contents.restore(files, path, topic_id, synced_end_of(parsed.topic_partition))
    return written


class _LeftOut(Exception):
    """The reason why entries are skipped."""


def _restore_segment(files: Files, path: Path, entries: Sequence[RedoEntry], last_base_offset: int) -> bool:
    """Write the entries of one segment; returns whether any bytes were missing. `last_base_offset`: the highest one of
    a segment that has entries. Raises _LeftOut, OSError.
    """
    if not files.exists(path):
        return False  # retention has deleted the segment
    file = files.open(path, writable=True)
    try:
        is_rolled = partial(_is_rolled, files, path, log_file(path.parent, last_base_offset).name)
        return sum(_write(file, position, data, is_rolled) for position, data in _runs_of(entries)) > 0
    finally:
        file.close()


def _runs_of(entries: Sequence[RedoEntry]) -> Iterator[tuple[int, bytes]]:
    """Entries that follow each other in the file joined into one: position and bytes."""
    first, end = entries[0].position, entries[0].position
    parts: list[memoryview] = []
    for entry in entries:
        if entry.position != end:
            yield first, b"".join(parts)
            first, end, parts = entry.position, entry.position, []
        parts.append(entry.data)
        end += len(entry.data)
    yield first, b"".join(parts)


def _write(file: File, position: int, data: bytes, is_rolled: Callable[[], bool]) -> bool:
    """Write the bytes if they are missing; returns whether they were. `is_rolled` returns whether the segment is not
    the log's last one, which the cleaner never changes. Raises _LeftOut, OSError.
    """
    if position > file.size():
        raise _LeftOut(f"{file.path.name} ends before {position}")
    found = file.pread(len(data), position)
    if found == data:
        return False
    if _is_another_batch(file, position, found, data) or (is_rolled() and not _leads_to(file, position, data)):
        raise _LeftOut(f"{file.path.name} has another batch from {position} on")
    write_all(file, [data], position)
    return True


def _is_rolled(files: Files, path: Path, last_name: str) -> bool:
    """Whether the log has a later segment, or had one: the power cut may have taken the last one, `last_name`."""
    names = [last_name, *files.list_directory(path.parent)]
    return any(name.endswith(LOG_SUFFIX) and name > path.name for name in names)


def _leads_to(file: File, position: int, wanted: bytes) -> bool:
    """Whether the valid batches of the file lead up to the wanted ones at `position`."""
    try:
        for at, header in walk(file.pread, 0, file.size(), SEQUENTIAL_CHUNK_BYTES):
            if at >= position:
                break
            if at + header.size_bytes > position:
                return not _is_sound(file, at, header)
            if header.next_offset > parse_header(wanted).base_offset:
                return False
    except CorruptBatch:
        pass  # torn: the wanted bytes repair it, or the recovery ends the log there
    return True


def _is_another_batch(file: File, position: int, found: bytes, wanted: bytes) -> bool:
    """Whether the file has another whole and valid batch there. A torn batch does not count: if only the first bytes
    are torn, which the checksum does not cover, all other bytes show that it is the wanted one.
    """
    left, at = memoryview(found), 0
    while len(left) - at >= HEADER_BYTES:
        try:
            header = parse_header(left[at:])
        except CorruptBatch:
            return False
        end = at + header.size_bytes
        if end > len(left):
            return _is_sound(file, position + at, header)
        if crc32c(left[at + CHECKED_FROM : end]) != header.crc:
            return False
        if left[at + CHECKED_FROM : end] != wanted[at + CHECKED_FROM : end]:
            return True
        at = end
    return False


def _is_sound(file: File, position: int, header: BatchHeader) -> bool:
    """Whether a batch that reaches beyond the wanted bytes, and so is no part of them, is complete."""
    if position + header.size_bytes > file.size():
        return False
    batch = memoryview(file.pread(header.size_bytes, position))
    return len(batch) == header.size_bytes and crc32c(batch[CHECKED_FROM:]) == header.crc
