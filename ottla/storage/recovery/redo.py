"""What a start does with the redo log that a crash has left: each log gets its bytes before it is opened.

A crash of the process has taken nothing from the logs' files, and their bytes are found as they should be. After a
power cut what a log's own file lacks, or has torn, is written. The recovery of the log, which follows, checks it and
syncs it with all that is past the recovery point; only when all logs are open is the redo log made void, so all of this
may be interrupted and done again.

An entry is left out, and with it all later ones of its log, where the directory does not look as it did when the entry
was written:

- the partition is of another topic of the same name, by the topic's id in the metadata log (`partition.metadata` may be
  blank after a crash);
- the segment is not there: retention took it;
- the log's recovery point is at or behind the end of the entry, so its own file has it; and the cleaner, which takes
  only what is below recovery points, may have moved it;
- the segment ends before the entry begins: somebody has shortened it, and the missing part is not in the redo log;
- another sound batch is there: somebody else has written to the log since, an Apache Kafka say; or it is around the
  place of the entry, or before it and has later offsets. The cleaner has rewritten the segment then, and the recovery
  point says otherwise, because its file was lost or is an older one.
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
"""Where the part of a batch begins that its checksum covers."""
MOST_FILE_BYTES: Final = 64 << 20
"""More than any redo log has; what is behind is not looked at."""


class RedoContents(Plain):
    """What a redo log holds.

    Attributes:
        generation: of its records; 0 where none can be read.
        records: how many have entries.
        entries: by the name of a partition's directory.
    """

    generation: int = 0
    records: int = 0
    entries: dict[str, list[RedoEntry]] = field(factory=dict)

    def restore(self, files: Files, directory: Path, topic_id: bytes, recovery_point: int) -> int:
        """Write into a partition's log what it lacks of its entries, and sync nothing; how many segments lacked any.
        To be called before the log is opened.

        Raises OSError, also where there is no room: a log that lacks what was promised must not be opened.
        """
        wanted = [
            entry
            for entry in self.entries.get(directory.name, ())
            if entry.topic_id == topic_id and entry.end_offset > recovery_point
        ]
        segments: dict[int, list[RedoEntry]] = {}
        for entry in wanted:
            segments.setdefault(entry.base_offset, []).append(entry)
        written = 0
        for base_offset, entries in segments.items():
            try:
                written += _restore_segment(files, log_file(directory, base_offset), entries)
            except _LeftOut as reason:
                logger.warning("%s: what %s holds of it is left out: %s", directory, REDO_LOG_FILE, reason)
                break
        if written:
            logger.info("%s lacked what %s holds of it, and has it now", directory, REDO_LOG_FILE)
        return written

    def end_of(self, name: str, topic_id: bytes) -> int:
        """The offset that a partition's log had come to, by its entries; 0 where there are none."""
        entries = self.entries.get(name, ())
        return max((entry.end_offset for entry in entries if entry.topic_id == topic_id), default=0)


def read_redo_log(files: Files, directory: Path) -> RedoContents:
    """What the redo log of a log directory holds; nothing where there is none. Raises OSError."""
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
    recovery_point_of: Callable[[TopicPartition], int],
    only: TopicPartition | None = None,
) -> int:
    """Restore all logs of a log directory, or one, for tools, which have no metadata log: a partition whose
    `partition.metadata` is blank or broken counts as that of the topic that its newest entry names. How many segments
    lacked any bytes. Raises OSError.
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
        written += contents.restore(files, path, topic_id, recovery_point_of(parsed.topic_partition))
    return written


class _LeftOut(Exception):
    """Why entries are left out."""


def _restore_segment(files: Files, path: Path, entries: Sequence[RedoEntry]) -> bool:
    """Write the entries of one segment; whether any bytes were missing. Raises _LeftOut, OSError."""
    if not files.exists(path):
        return False  # retention took the segment
    file = files.open(path, writable=True)
    try:
        is_rolled = partial(_is_rolled, files, path)
        return sum(_write(file, position, data, is_rolled) for position, data in _runs_of(entries)) > 0
    finally:
        file.close()


def _runs_of(entries: Sequence[RedoEntry]) -> Iterator[tuple[int, bytes]]:
    """Entries that follow each other in the file as one: position and bytes."""
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
    """Write the bytes if they are not there; whether they were not. `is_rolled`: whether the segment is not the log's
    last one, which no cleaner touches. Raises _LeftOut, OSError.
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


def _is_rolled(files: Files, path: Path) -> bool:
    """Whether a later segment of the log is there."""
    return any(name.endswith(LOG_SUFFIX) and name > path.name for name in files.list_directory(path.parent))


def _leads_to(file: File, position: int, wanted: bytes) -> bool:
    """Whether the batches of the file continue with what is wanted at `position`, as far as they are sound."""
    try:
        for at, header in walk(file.pread, 0, file.size(), SEQUENTIAL_CHUNK_BYTES):
            if at >= position:
                break
            if at + header.size_bytes > position:
                return not _is_sound(file, at, header)
            if header.next_offset > parse_header(wanted).base_offset:
                return False
    except CorruptBatch:
        pass  # torn: what is wanted mends it, or the recovery of the log ends it there
    return True


def _is_another_batch(file: File, position: int, found: bytes, wanted: bytes) -> bool:
    """Whether the file has a whole sound batch there that is not the one that is wanted. What is torn is none: a batch
    whose first bytes are torn, which its checksum does not cover, is the wanted one by all others.
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
    """Whether a batch is whole that reaches beyond what is wanted, and so is no part of that."""
    if position + header.size_bytes > file.size():
        return False
    batch = memoryview(file.pread(header.size_bytes, position))
    return len(batch) == header.size_bytes and crc32c(batch[CHECKED_FROM:]) == header.crc
