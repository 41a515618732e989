"""Planted bugs that show where offsets are looked up by time (`time_worlds.py`)."""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest import mock

from kit.simulator import planting
from kit.simulator.planting import before, nothing

from ottla.broker.api import list_offsets
from ottla.broker.partitions.partition import Partition
from ottla.storage.index.time_index import TimeIndex, TimestampOffset
from ottla.storage.segment import timestamp_lookup
from ottla.storage.segment.segment import Segment

bug = partial(planting.bug, times=True)


@bug("a look-up begins one entry too late", "the time index is searched for the entry after the time, not before it")
def _too_late() -> Any:
    def lookup(self: TimeIndex, timestamp: int) -> TimestampOffset:
        later = (entry for entry in self if entry.timestamp >= timestamp)
        return next(later, TimestampOffset(timestamp, self.base_offset))

    return mock.patch.object(TimeIndex, "lookup", lookup)


@bug("a look-up finds what was deleted", "it begins at the start of the segment, not at that of the log")
def _finds_deleted() -> Any:
    def replace(first: Any) -> Any:
        return lambda segments, timestamp_ms, **given: first(segments, timestamp_ms, **given | {"start_offset": 0})

    return before(timestamp_lookup, "first_at_or_after", replace)


@bug("a look-up waits for no sync", "what was just acknowledged by acks=1 is not below the latest offset")
def _waits_for_nothing() -> Any:
    def replace(look_up: Any) -> Any:
        def patched(partition: Partition, *given: Any, **more: Any) -> None:
            partition.settle()  # what others have sent waits as it has to
            with mock.patch.object(Partition, "when_visible", lambda self, offset, callback, *_: callback(None)):
                look_up(partition, *given, **more)

        return patched

    return before(list_offsets, "_look_up", replace)


@bug("a look-up believes the header of a cleaned batch", "a record that was compacted away is answered")
def _believes_headers() -> Any:
    def replace(first: Any) -> Any:
        def patched(segment: Any, position: Any, header: Any, timestamp_ms: int, *given: Any, **more: Any) -> Any:
            if header.base_timestamp >= timestamp_ms:
                return timestamp_lookup.FoundRecord(header.base_offset, header.base_timestamp)
            return first(segment, position, header, timestamp_ms, *given, **more)

        return patched

    return before(timestamp_lookup, "_first_in_batch", replace)


@bug(
    "a look-up goes beyond the last stable offset",
    "a reader of committed records is answered an offset that it may not read yet",
    transactions=True,
)
def _beyond_stable() -> Any:
    def replace(answer: Any) -> Any:
        return lambda *given, committed_only: answer(*given, committed_only=False)

    return before(list_offsets, "_answer_visible", replace)


@bug("a roll leaves the time index open", "the entry of a segment's largest timestamp is missing, for the next start")
def _time_index_left_open() -> Any:
    return mock.patch.object(Segment, "complete_time_index", nothing)


@bug("the largest timestamp is looked up in one segment", "that of the log is in the newest segment, or so it seems")
def _newest_segment_only() -> Any:
    def replace(newest: Any) -> Any:
        return lambda segments, **given: newest(segments[-1:], **given)

    return before(timestamp_lookup, "newest", replace)
