"""The segments that retention may delete: whole ones at the log's start, by time, size, and the log start offset.

Kafka's rules (UnifiedLog.deleteOldSegments): segments are deleted in order, oldest first, up to the first that must
stay; none with records at or above the high watermark; the active one too, after a roll, when it is too old or the log
too large. A segment's age is that of its newest record, or of the file if there are no timestamps. Deleted segments are
renamed to `.deleted` immediately and unlinked `file.delete.delay.ms` later, so that running reads can finish. Called by
the log.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from ottla.config.topic import TopicConfig
from ottla.protocol.records.batch import MAGIC, CorruptBatch
from ottla.storage.files.files import Files
from ottla.storage.formats import layout
from ottla.storage.segment.scan import walk
from ottla.storage.segment.segment import Segment

logger = logging.getLogger(__name__)


class DueUnlink(NamedTuple):
    """Files that may be unlinked from `due_ms` on."""

    due_ms: int
    paths: list[Path]
    segment: Segment | None


def rename_deleted(files: Files, directory: Path, segment: Segment) -> list[Path]:
    """Rename a segment's files, and the producer snapshot at its base, to `.deleted`; returns the paths to unlink
    later.

    Raises:
        OSError: the `.log` could not be renamed, and nothing was.
    """
    log_path, *paths = segment.paths()
    for path in (
        layout.txn_index_file(directory, segment.base_offset),
        layout.snapshot_file(directory, segment.base_offset),
    ):
        if files.exists(path):
            paths.append(path)
    renamed = [rename_away(files, log_path)]
    for path in paths:
        try:
            renamed.append(rename_away(files, path))
        except OSError as error:
            # Without its `.log` it is useless, and a start would remove it.
            logger.warning("%s keeps its name until it is unlinked: %s", path, error)
            renamed.append(path)
    return renamed


def rename_away(files: Files, path: Path) -> Path:
    """Rename a file to `.deleted`; returns its new path. Raises OSError."""
    target = path.with_name(path.name + layout.DELETED_SUFFIX)
    number = 1
    while files.exists(target):
        # A file of the same name still waits: cleaned, cleaned again or deleted, all within `file.delete.delay.ms`.
        target = path.with_name(f"{path.name}.x{number}{layout.DELETED_SUFFIX}")
        number += 1
    files.rename(path, target)
    return target


def unlink_files(files: Files, paths: Iterable[Path]) -> int:
    """Unlink those that still exist; returns their number. In any thread. Raises OSError after trying all of them."""
    count = 0
    failure: OSError | None = None
    for path in paths:
        try:
            files.unlink(path)
            count += 1
        except FileNotFoundError:
            continue  # its partition was deleted meanwhile
        except OSError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return count


def deletable(
    segments: Sequence[Segment],
    config: TopicConfig,
    *,
    log_start_offset: int,
    high_watermark: int,
    log_end_offset: int,
    now_ms: int,
    stamped_ms: Callable[[int], int] = int,
    most: int = sys.maxsize,
) -> int:
    """The number of segments, from the oldest on, that may be deleted now; if all of them, the log must roll first.

    `stamped_ms`: the time of a record by its timestamp (clock_trust.py). At most `most` are counted.
    """
    candidates = min(_below_high_watermark(segments, high_watermark, log_end_offset), most)
    count = _below_log_start(segments, log_start_offset)
    if "delete" in config.cleanup_policy:
        count = max(
            count,
            _too_old(segments[:candidates], config.retention_ms, now_ms, stamped_ms),
            _too_much(segments, candidates, config.retention_bytes),
        )
    return min(count, candidates)


def _below_high_watermark(segments: Sequence[Segment], high_watermark: int, log_end_offset: int) -> int:
    """The number of segments below the high watermark; an empty active segment always stays."""
    count = 0
    for slot, segment in enumerate(segments):
        is_active = slot + 1 == len(segments)
        end_offset = log_end_offset if is_active else segments[slot + 1].base_offset
        if end_offset > high_watermark or (is_active and not segment.size_bytes):
            break
        count += 1
    return count


def _below_log_start(segments: Sequence[Segment], log_start_offset: int) -> int:
    count = 0
    for following in segments[1:]:
        if following.base_offset > log_start_offset:
            break
        count += 1
    return count


def _too_old(segments: Sequence[Segment], retention_ms: int, now_ms: int, stamped_ms: Callable[[int], int]) -> int:
    if retention_ms < 0:
        return 0
    count = 0
    for segment in segments:
        if now_ms - stamped_ms(segment.retention_timestamp_ms()) <= retention_ms:
            break
        if now_ms - _proven_timestamp_ms(segment) <= retention_ms:
            break
        count += 1
    return count


def _proven_timestamp_ms(segment: Segment) -> int:
    """`retention_timestamp_ms`, confirmed by a batch: a flipped bit in the time index must not make a segment old.
    Raises OSError.

    If the batch that the index names has another timestamp, both indexes are rebuilt.
    """
    newest_ms, offset = segment.largest_timestamp()
    if newest_ms < 0:
        return segment.retention_timestamp_ms()
    try:
        for _, header in walk(segment.file.pread, segment.floor(offset), segment.size_bytes):
            if header.last_offset >= offset:
                if header.magic != MAGIC or (header.base_offset <= offset and header.max_timestamp == newest_ms):
                    return newest_ms
                break
        logger.warning("%s has %d as the newest timestamp, and no batch has that", segment.time_index.path, newest_ms)
        segment.rebuild_indexes(seal=segment.is_sealed)
    except CorruptBatch as error:
        logger.warning("%s: %s: its age is taken from its index", segment.path, error)
    return segment.retention_timestamp_ms()


def _too_much(segments: Sequence[Segment], candidates: int, retention_bytes: int) -> int:
    if retention_bytes < 0:
        return 0
    surplus = sum(segment.size_bytes for segment in segments) - retention_bytes
    count = 0
    for segment in segments[:candidates]:
        surplus -= segment.size_bytes
        if surplus < 0:
            break
        count += 1
    return count
