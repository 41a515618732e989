"""Log start offsets after the end of their log: such a row is refused before anything is changed.

A broker that accepted one would hide every record of the log, and retention would remove them. After a clean stop the
recovery point is the end of the log, and no log start is after it. So the log itself is read only for a row that is,
and its end decides. After a crash the recovery finds the end, and decides then (`recovery.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ottla.protocol.records.batch import CorruptBatch
from ottla.storage.errors import StorageError
from ottla.storage.files.files import Files
from ottla.storage.formats import layout
from ottla.storage.formats.layout import TopicPartition
from ottla.storage.segment.scan import SEQUENTIAL_CHUNK_BYTES, walk

_REACHED = (layout.RECOVERY_POINT_CHECKPOINT_FILE, layout.REPLICATION_OFFSET_CHECKPOINT_FILE)


def refuse_wrong_log_starts(files: Files, directory: Path, rows: Mapping[str, Mapping[TopicPartition, int]]) -> None:
    """Raise StorageError for the first log start beyond its log's end, in a directory that was stopped cleanly.

    Args:
        rows: the rows of the directory's checkpoints, by file name.

    Raises OSError, too.
    """
    for one, start in rows[layout.LOG_START_OFFSET_CHECKPOINT_FILE].items():
        if start <= max(rows[name].get(one, 0) for name in _REACHED):
            continue
        path = directory / layout.partition_directory_name(*one)
        end_offset = _end_offset(files, path) if files.is_directory(path) else start
        if start > end_offset:
            raise StorageError(
                f"{directory / layout.LOG_START_OFFSET_CHECKPOINT_FILE}: {one} is said to begin at offset {start}, and"
                f" its log ends at {end_offset}: all its records would be hidden;"
                f" `ottla log verify --repair {directory}` says and does what can be done"
            )


def _end_offset(files: Files, path: Path) -> int:
    """The end offset of the log, by the headers of its last segment."""
    parsed = (layout.parse_offset_file(name) for name in files.list_directory(path))
    bases = [found.offset for found in parsed if found is not None and found.suffix == layout.LOG_SUFFIX]
    if not bases:
        return 0
    end_offset = max(bases)
    file = files.open(layout.log_file(path, end_offset))
    try:
        for _, header in walk(file.pread, 0, file.size(), SEQUENTIAL_CHUNK_BYTES):
            end_offset = header.next_offset
    except CorruptBatch:
        pass  # the opening of the log raises it again
    finally:
        file.close()
    return end_offset
