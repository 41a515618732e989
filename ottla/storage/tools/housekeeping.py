"""Explains why each segment of a log still exists: what retention and the cleaner will do with it, and when.

The output of `ottla log explain --retention` and `--compaction`. It decides nothing: it calls `retention.py` and
`cleanable.py`, as the broker does, and describes the reasons for their results. Reads files for timestamps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ottla.storage.cleaner.cleanable import NEVER_MS, Assessment, LogToAssess
from ottla.storage.log import retention
from ottla.storage.segment.segment import Segment


@dataclass(frozen=True, slots=True)
class SegmentFate:
    """The status of one segment: whether it is kept, and why.

    Attributes:
        newest_ms: the timestamp of its newest record, or of its file if records have none.
        retention, compaction: a few words each.
        retained_until_ms: the time from which `retention.ms` allows to delete it; None if something else keeps it.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    is_active: bool
    newest_ms: int
    retention: str
    retained_until_ms: int | None
    compaction: str


def segment_status(
    log: LogToAssess,
    found: Assessment,
    high_watermark: int,
    now_ms: int,
    stamped_ms: Callable[[int], int] = int,
) -> list[SegmentFate]:
    """The status of every segment of a log, oldest first. `stamped_ms`: the time at which a record was made, by its
    timestamp (clock_trust.py). Raises OSError, CorruptBatch.
    """
    segments, ends = log.segments, [*(one.base_offset for one in log.segments[1:]), log.log_end_offset]
    leaving = retention.deletable(
        segments,
        log.config,
        log_start_offset=log.log_start_offset,
        high_watermark=high_watermark,
        log_end_offset=log.log_end_offset,
        now_ms=now_ms,
        stamped_ms=stamped_ms,
    )
    reported = []
    for slot, (segment, end_offset) in enumerate(zip(segments, ends, strict=True)):
        newest_ms = segment.retention_timestamp_ms()
        words, until_ms = _retention(log, slot, leaving, end_offset, high_watermark, stamped_ms(newest_ms), now_ms)
        reported.append(
            SegmentFate(
                base_offset=segment.base_offset,
                end_offset=end_offset,
                size_bytes=segment.size_bytes,
                is_active=segment is log.active,
                newest_ms=newest_ms,
                retention=words,
                retained_until_ms=until_ms,
                compaction=_compaction(log, found, segment, end_offset),
            )
        )
    return reported


def _retention(
    log: LogToAssess, slot: int, leaving: int, end_offset: int, high_watermark: int, newest_ms: int, now_ms: int
) -> tuple[str, int | None]:
    config, segments = log.config, log.segments
    retention_ms = config.retention_ms
    if slot < leaving:
        if end_offset <= log.log_start_offset and segments[slot] is not log.active:
            return f"deleted at the next check: all of it is before the log start, {log.log_start_offset}", None
        if 0 <= retention_ms < now_ms - newest_ms:
            return f"deleted at the next check: its newest record is older than retention.ms, {retention_ms}", None
        return f"deleted at the next check: without it retention.bytes, {config.retention_bytes}, are left", None
    if "delete" not in config.cleanup_policy:
        return "kept: cleanup.policy does not say delete", None
    if end_offset > high_watermark:
        return f"kept: it ends at {end_offset}, after the high watermark, {high_watermark}", None
    if not segments[slot].size_bytes and segments[slot] is log.active:
        return "kept: the active segment, which is empty", None
    if retention_ms < 0:
        if config.retention_bytes < 0:
            return "kept for ever: neither retention.ms nor retention.bytes is set", None
        return f"kept: without it fewer than retention.bytes, {config.retention_bytes}, would be left", None
    if now_ms - newest_ms > retention_ms:
        return "kept: older than retention.ms, but segments are deleted in order, and one before it stays", None
    return f"kept: its newest record is not older than retention.ms, {retention_ms}", newest_ms + retention_ms + 1


def _compaction(log: LogToAssess, found: Assessment, segment: Segment, end_offset: int) -> str:
    config = log.config
    if "compact" not in config.cleanup_policy:
        return "never: cleanup.policy does not say compact"
    if segment is log.active:
        return "not yet: the active segment is never cleaned; it ends at segment.bytes or segment.ms"
    if segment.base_offset >= found.first_uncleanable_offset:
        if found.lagging is not None and segment.base_offset >= found.lagging:
            lag_ms = config.min_compaction_lag_ms
            return f"not yet: it, or one before it, has a record younger than min.compaction.lag.ms, {lag_ms}"
        return f"not yet: it ends at {end_offset}, and only up to {log.stable_offset} all is synced and stable"
    if end_offset <= found.first_dirty_offset:
        return "clean: an earlier cleaning has gone through it"
    if found.is_due(config.min_cleanable_dirty_ratio):
        return "dirty: the cleaner cleans it when its turn comes"
    overdue = (
        f" or its first record older than max.compaction.lag.ms, {config.max_compaction_lag_ms}"
        if config.max_compaction_lag_ms < NEVER_MS
        else ""
    )
    return (
        f"dirty, not yet due: {found.dirty_ratio:.2f} of the log is dirty, it must be more than"
        f" min.cleanable.dirty.ratio, {config.min_cleanable_dirty_ratio:g}{overdue}"
    )
