"""The part of a compacted log that may be cleaned now, its dirty ratio, and the groups in which segments are joined.

    segments   |  clean  |    dirty, cleanable    |   not cleanable   | active |
               0         first_dirty_offset       first_uncleanable_offset

The *clean* part was processed by an earlier cleaning (`cleaner-offset-checkpoint`). Cleaning ends before the active
segment, before records that are not stable, visible and synced yet, and before the first segment with a record younger
than `min.compaction.lag.ms`; always at the base of a segment. A log is cleaned when its dirty ratio (dirty bytes
of clean and dirty ones) exceeds `min.cleanable.dirty.ratio`, or when its oldest dirty record is older than
`max.compaction.lag.ms`. Kafka's LogCleanerManager, LogToClean and Cleaner.groupSegmentsBySize.

Reads files for the timestamps of segments: for a worker thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from ottla.config.topic import TopicConfig
from ottla.storage.index.sparse_index import MAX_RELATIVE_OFFSET, CorruptIndex
from ottla.storage.segment.segment import Segment

if TYPE_CHECKING:
    from ottla.storage.log.log import Log

NEVER_MS: Final = (1 << 63) - 1


class LogToAssess(NamedTuple):
    """The state of a compacted log at one moment, taken on its owner's thread.

    Attributes:
        segments: all of them, the last one is active.
        stable_offset: nothing at or above it is cleaned: the minimum of last stable offset, high watermark and recovery
            point (up to which the log is synced, and may be recorded as synced).
        clean_offset: its row in `cleaner-offset-checkpoint`, None without one.
    """

    name: str
    config: TopicConfig
    segments: Sequence[Segment]
    log_start_offset: int
    log_end_offset: int
    stable_offset: int
    clean_offset: int | None

    @classmethod
    def of(cls, log: Log, stable_offset: int, clean_offset: int | None) -> Self:
        """`stable_offset` is the end of the committed records that the broker shows; the log may limit it further."""
        return cls(
            name=log.name,
            config=log.config,
            segments=log.segments,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            stable_offset=min(stable_offset, log.high_watermark, log.recovery_point),
            clean_offset=clean_offset,
        )

    @property
    def active(self) -> Segment:
        """The segment that gets new records."""
        return self.segments[-1]


class Assessment(NamedTuple):
    """The dirtiness of a log; see the module.

    Attributes:
        clean_bytes, cleanable_bytes: the bytes before and after the first dirty offset.
        overdue_ms: for how long a record has been dirty beyond `max.compaction.lag.ms`; 0 when none has.
        lagging: base offset of the first segment that `min.compaction.lag.ms` protects, None without one.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int
    lagging: int | None

    @property
    def dirty_ratio(self) -> float:
        """The share of dirty bytes in all clean and cleanable ones; 0.0 if there are none."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, min_dirty_ratio: float) -> bool:
        """Whether the cleaner is to clean the log."""
        return self.cleanable_bytes > 0 and (self.overdue_ms > 0 or self.dirty_ratio > min_dirty_ratio)


def assess(log: LogToAssess, now_ms: int) -> Assessment:
    """See the module. Raises OSError, CorruptBatch: a segment's timestamps cannot be read."""
    first_dirty_offset = log.log_start_offset
    if log.clean_offset is not None and log.log_start_offset <= log.clean_offset <= log.log_end_offset:
        first_dirty_offset = log.clean_offset
    dirty = _sealed_from(log.segments, first_dirty_offset)
    lagging = _first_lagging(dirty, log.config.min_compaction_lag_ms, now_ms)
    end_offset = min(log.stable_offset, log.active.base_offset)
    if lagging is not None:
        end_offset = min(end_offset, lagging)
    end_offset = max(end_offset, first_dirty_offset)
    behind = _sealed_from(log.segments, end_offset)
    first_uncleanable_offset = behind[0].base_offset if behind else log.active.base_offset
    before = [one for one in log.segments[:-1] if one.base_offset < first_uncleanable_offset]
    least = len(before) if first_dirty_offset >= first_uncleanable_offset else _floor(before, first_dirty_offset)
    return Assessment(
        first_dirty_offset=first_dirty_offset,
        first_uncleanable_offset=first_uncleanable_offset,
        clean_bytes=sum(one.size_bytes for one in log.segments if one.base_offset < first_dirty_offset),
        cleanable_bytes=sum(one.size_bytes for one in before[least:]),
        overdue_ms=_overdue_ms(dirty, log.config.max_compaction_lag_ms, now_ms),
        lagging=lagging,
    )


def _sealed_from(segments: Sequence[Segment], offset: int) -> Sequence[Segment]:
    """The sealed segments from the one that contains `offset` on; none when only the active one does."""
    sealed = segments[:-1]
    if segments[-1].base_offset <= offset:
        return []
    return sealed[_floor(sealed, offset) :]


def _floor(segments: Sequence[Segment], offset: int) -> int:
    return max(sum(one.base_offset <= offset for one in segments) - 1, 0)


def _first_lagging(dirty: Sequence[Segment], lag_ms: int, now_ms: int) -> int | None:
    if lag_ms <= 0:
        return None
    return next((one.base_offset for one in dirty if one.largest_timestamp()[0] > now_ms - lag_ms), None)


def _overdue_ms(dirty: Sequence[Segment], lag_ms: int, now_ms: int) -> int:
    if lag_ms >= NEVER_MS:
        return 0
    stamps = [stamp_ms for stamp_ms in (one.first_timestamp() for one in dirty) if stamp_ms > 0]
    return max(0, now_ms - max(lag_ms, 0) - min(stamps)) if stamps else 0


def group_segments(
    segments: Sequence[Segment], *, max_bytes: int, max_index_bytes: int, end_offset: int
) -> list[list[Segment]]:
    """Join neighbours, so that shrinking segments do not become more and more small ones.

    Each group becomes one segment: it has at most `max_bytes`, each of its indexes at most `max_index_bytes`, and its
    last offset fits an index entry. `end_offset` follows the last of `segments`. Raises CorruptBatch, OSError.
    """
    groups: list[list[Segment]] = []
    size_bytes = index_bytes = time_index_bytes = 0
    for slot, segment in enumerate(segments):
        following = segments[slot + 1].base_offset if slot + 1 < len(segments) else end_offset
        own_bytes, (own_index, own_time_index) = segment.size_bytes, _index_bytes(segment)
        if (
            groups
            and size_bytes + own_bytes <= max_bytes
            and index_bytes + own_index <= max_index_bytes
            and time_index_bytes + own_time_index <= max_index_bytes
            and (not own_bytes or following - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET)
        ):
            groups[-1].append(segment)
            size_bytes, index_bytes = size_bytes + own_bytes, index_bytes + own_index
            time_index_bytes += own_time_index
        else:
            groups.append([segment])
            size_bytes, index_bytes, time_index_bytes = own_bytes, own_index, own_time_index
    return groups


def _index_bytes(segment: Segment) -> tuple[int, int]:
    try:
        return segment.offset_index.size_bytes, segment.time_index.size_bytes
    except CorruptIndex:
        segment.rebuild_indexes(seal=True)
        return segment.offset_index.size_bytes, segment.time_index.size_bytes
