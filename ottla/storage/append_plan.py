"""What one append call is going to write: a run of batches per segment, worked out in memory before anything is
touched.

A plan starts from the active segment and rolls as it goes, by Kafka's rule (LogSegment.shouldRoll). Until the log
has written all of it, nothing of it is visible anywhere; a failed write just drops the plan. Called by `log.py` only.
"""

from __future__ import annotations

from typing import Final

from ottla.config.topic import TopicConfig
from ottla.storage.producer_state import ProducerEntry
from ottla.storage.segment import Segment
from ottla.storage.sparse_index import MAX_RELATIVE_OFFSET

NO_TIMESTAMP: Final = -1


class RollLimits:
    """When a segment is full, as plain attributes for the hot path."""

    __slots__ = ("index_interval_bytes", "jitter_ms", "max_index_bytes", "segment_bytes", "segment_ms")

    def __init__(self, config: TopicConfig) -> None:
        self.segment_bytes = config.segment_bytes
        self.segment_ms = config.segment_ms
        self.jitter_ms = min(config.segment_jitter_ms, config.segment_ms)
        # Room for one entry of either kind at least; Kafka takes 4 bytes for none and would roll with every batch.
        self.max_index_bytes = max(config.segment_index_bytes, 12)
        self.index_interval_bytes = config.index_interval_bytes


class SegmentRun:
    """Batches that go behind one another into one segment.

    Attributes:
        segment: None until the log has made it (a run behind a roll).
        start: position of the first byte that the run writes; `size_bytes` is where it ends.
        index_entries: (last offset, position, largest timestamp, its offset) for both indexes.
        producers: what the run makes of the producers, to be published with it.
    """

    __slots__ = (
        "base_offset",
        "buffers",
        "first_timestamp_ms",
        "index_entries",
        "indexed_position",
        "largest_timestamp_ms",
        "limits",
        "offset_of_largest_timestamp",
        "offset_slots",
        "producers",
        "roll_after_ms",
        "segment",
        "since_ms",
        "size_bytes",
        "start",
        "time_slots",
    )

    def __init__(self, limits: RollLimits, base_offset: int, segment: Segment | None, now_ms: int) -> None:
        self.limits = limits
        self.base_offset = base_offset
        self.segment = segment
        self.buffers: list[memoryview | bytearray | bytes] = []
        self.index_entries: list[tuple[int, int, int, int]] = []
        self.producers: dict[int, ProducerEntry] = {}
        if segment is None:
            self.start = self.size_bytes = self.indexed_position = 0
            self.largest_timestamp_ms, self.offset_of_largest_timestamp = NO_TIMESTAMP, base_offset
            self.first_timestamp_ms = NO_TIMESTAMP
            self.since_ms = now_ms
            self.offset_slots = limits.max_index_bytes // 8
            self.time_slots = limits.max_index_bytes // 12 - 1
            self.roll_after_ms = limits.segment_ms
        else:
            self.start = self.size_bytes = segment.size_bytes
            self.indexed_position = segment.indexed_position
            self.largest_timestamp_ms, self.offset_of_largest_timestamp = segment.largest_timestamp()
            self.first_timestamp_ms = segment.first_timestamp()
            self.since_ms = segment.created_ms
            self.offset_slots, self.time_slots = segment.free_slots
            self.roll_after_ms = limits.segment_ms
            if limits.jitter_ms:
                self.roll_after_ms -= segment.roll_jitter_ms(limits.jitter_ms)

    def must_roll(self, size_bytes: int, max_timestamp_ms: int, last_offset: int, now_ms: int) -> bool:
        """Whether a batch belongs into a new segment. The first batch of a segment always fits."""
        size = self.size_bytes
        if not size:
            return False
        if size + size_bytes > self.limits.segment_bytes or last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return True
        if self.offset_slots <= 0 or self.time_slots <= 0:
            return True
        if self.first_timestamp_ms >= 0:
            return max_timestamp_ms - self.first_timestamp_ms > self.roll_after_ms
        return now_ms - self.since_ms > self.roll_after_ms

    def add(
        self, batch: memoryview | bytearray | bytes, size_bytes: int, last_offset: int, max_timestamp_ms: int
    ) -> None:
        """Put a batch behind the others."""
        position = self.size_bytes
        if max_timestamp_ms > self.largest_timestamp_ms:
            self.largest_timestamp_ms, self.offset_of_largest_timestamp = max_timestamp_ms, last_offset
        if not position:
            self.first_timestamp_ms = max_timestamp_ms
        elif position - self.indexed_position > self.limits.index_interval_bytes and self.offset_slots > 0:
            self.index_entries.append(
                (last_offset, position, self.largest_timestamp_ms, self.offset_of_largest_timestamp)
            )
            self.indexed_position = position
            self.offset_slots -= 1
            self.time_slots -= 1
        self.buffers.append(batch)
        self.size_bytes = position + size_bytes

    def publish(self, segment: Segment) -> None:
        """Let the segment show what was written. Raises OSError when an index file takes no more; the segment shows
        it all the same.
        """
        segment.size_bytes = self.size_bytes
        segment.first_timestamp_ms = self.first_timestamp_ms
        segment.set_largest_timestamp(self.largest_timestamp_ms, self.offset_of_largest_timestamp)
        if self.index_entries:
            segment.indexed_position = self.indexed_position
            for last_offset, position, timestamp_ms, timestamp_offset in self.index_entries:
                segment.offset_index.append(last_offset, position)
                segment.time_index.maybe_append(timestamp_ms, timestamp_offset)
            segment.count_free_slots()
            segment.flush_indexes_behind()
