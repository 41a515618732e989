"""Cutting the end of a log: segments behind the offset go, the one that contains it is cut before that offset's batch.

Only for what nobody was promised. Called by `Log.truncate_to`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.storage.producer_recovery import load_producers
from ottla.storage.scan import with_inner_offsets
from ottla.storage.segment import Segment

if TYPE_CHECKING:
    from ottla.storage.log import Log


def truncate(log: Log, offset: int, now_ms: int) -> None:
    """Make the batch that contains `offset` and all behind it go. Raises OSError: then the log must not write again."""
    segments = log.segment_list
    while len(segments) > 1 and segments.active.base_offset >= offset:
        _remove_active(log)
    active = segments.active
    if active.base_offset > offset:
        _remove_active(log)
        segments.append(log.create_segment(offset, now_ms))
        end_offset = offset
    else:
        end_offset = _cut(active, offset)
    log.epochs.truncate_from_end(end_offset)
    log.replace_end(end_offset)
    log.producers, _ = load_producers(
        log.files,
        log.directory,
        segments.to_list(),
        log_end_offset=end_offset,
        expiration_ms=log.producers.expiration_ms,
        now_ms=now_ms,
    )
    log.files.sync_directory(log.directory)


def _remove_active(log: Log) -> None:
    segment = log.segment_list.active
    log.segment_list.remove(segment)
    log.forget_segment(segment)
    paths = segment.paths()
    segment.is_deleted = True
    segment.abandon()
    for path in paths:
        log.files.unlink(path)


def _cut(segment: Segment, offset: int) -> int:
    """The new log end offset."""
    found = segment.find(offset, segment.size_bytes, segment.file.pread)
    if found is None:
        position, end_offset = segment.size_bytes, offset
    else:
        position, end_offset = found[0], with_inner_offsets(segment.file.pread, *found).base_offset
    segment.truncate(position, end_offset)
    return end_offset
