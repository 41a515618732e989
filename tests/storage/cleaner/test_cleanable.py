"""How dirty a log is, up to where it may be cleaned, and which segments become one."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from kit.logs import NOW_MS, topic_config

from ottla.storage.cleaner.cleanable import Assessment, LogToAssess, assess, group_segments
from ottla.storage.index.sparse_index import MAX_RELATIVE_OFFSET


@dataclass
class Index:
    size_bytes: int = 8


@dataclass
class FakeSegment:
    """A segment as the assessment sees it; its records are stamped `stamp_ms`."""

    base_offset: int
    size_bytes: int = 100
    stamp_ms: int = NOW_MS
    offset_index: Index = field(default_factory=Index)
    time_index: Index = field(default_factory=Index)

    def largest_timestamp(self) -> tuple[int, int]:
        return self.stamp_ms, self.base_offset

    def first_timestamp(self) -> int:
        return self.stamp_ms


def assessed(
    segments: list[FakeSegment],
    *,
    clean_offset: int | None = None,
    stable_offset: int = 1000,
    log_start_offset: int = 0,
    now_ms: int = NOW_MS,
    **overrides: str,
) -> Assessment:
    config = topic_config({"cleanup.policy": "compact"} | {k.replace("_", "."): v for k, v in overrides.items()})
    log = LogToAssess("t-0", config, segments, log_start_offset, 1000, stable_offset, clean_offset)  # type: ignore[arg-type]  # fakes
    return assess(log, now_ms)


FOUR = [0, 10, 20, 30]


def four(**fields: int) -> list[FakeSegment]:
    return [FakeSegment(base_offset, **fields) for base_offset in FOUR]


@pytest.mark.parametrize(
    ("clean_offset", "stable_offset", "expected"),
    [
        (None, 1000, (0, 30, 0, 300)),  # all that is sealed
        (0, 1000, (0, 30, 0, 300)),
        (10, 1000, (10, 30, 100, 200)),
        (15, 1000, (15, 30, 200, 200)),  # within a segment: it counts as both, as in Kafka
        (30, 1000, (30, 30, 300, 0)),
        (35, 1000, (35, 30, 400, 0)),
        (2000, 1000, (0, 30, 0, 300)),  # beyond the end of a log that was cut: from the start
        (10, 25, (10, 20, 100, 100)),  # not stable in the middle of a segment: before it
        (10, 20, (10, 20, 100, 100)),
        (10, 5, (10, 10, 100, 0)),
        (10, 0, (10, 10, 100, 0)),
    ],
)
def test_the_dirty_part_ends_where_something_is_active_or_not_stable(
    clean_offset: int | None, stable_offset: int, expected: tuple[int, int, int, int]
) -> None:
    found = assessed(four(), clean_offset=clean_offset, stable_offset=stable_offset)
    assert (
        found.first_dirty_offset,
        found.first_uncleanable_offset,
        found.clean_bytes,
        found.cleanable_bytes,
    ) == expected


def test_what_lies_before_the_log_start_is_not_dirty() -> None:
    assert assessed(four(), clean_offset=5, log_start_offset=12).first_dirty_offset == 12


def test_the_ratio_is_of_what_a_cleaning_goes_through() -> None:
    assert assessed(four(), clean_offset=10).dirty_ratio == pytest.approx(2 / 3)
    assert assessed(four(), clean_offset=30).dirty_ratio == 0.0
    assert assessed([FakeSegment(0)]).dirty_ratio == 0.0
    assert assessed(four(size_bytes=0)).dirty_ratio == 0.0


@pytest.mark.parametrize(("ratio", "due"), [(0.0, True), (0.66, True), (0.67, False), (1.0, False)])
def test_a_log_is_due_above_the_ratio(ratio: float, due: bool) -> None:
    assert assessed(four(), clean_offset=10).is_due(ratio) is due


def test_a_segment_with_a_young_record_ends_what_may_be_cleaned() -> None:
    segments = four(stamp_ms=NOW_MS - 5000)
    segments[1].stamp_ms = NOW_MS - 999
    found = assessed(segments, min_compaction_lag_ms="1000")
    assert (found.lagging, found.first_uncleanable_offset, found.cleanable_bytes) == (10, 10, 100)
    segments[1].stamp_ms = NOW_MS - 1000
    assert assessed(segments, min_compaction_lag_ms="1000").lagging is None


def test_an_old_dirty_record_makes_a_log_due_whatever_its_ratio() -> None:
    segments = four(stamp_ms=NOW_MS - 5000)
    segments[0].stamp_ms = NOW_MS - 9000
    found = assessed(segments, clean_offset=10, max_compaction_lag_ms="4000")
    assert (found.overdue_ms, found.is_due(1.0)) == (1000, True)
    assert assessed(segments, clean_offset=10, max_compaction_lag_ms="5000").overdue_ms == 0
    assert assessed(segments, clean_offset=30, max_compaction_lag_ms="1").is_due(1.0) is False


def grouped(segments: list[FakeSegment], *, max_bytes: int = 250, max_index_bytes: int = 100) -> list[list[int]]:
    groups = group_segments(segments, max_bytes=max_bytes, max_index_bytes=max_index_bytes, end_offset=40)  # type: ignore[arg-type]  # fakes
    return [[segment.base_offset for segment in group] for group in groups]


def test_neighbours_are_joined_up_to_the_size_of_a_segment() -> None:
    assert grouped(four()) == [[0, 10], [20, 30]]
    assert grouped(four(), max_bytes=400) == [FOUR]
    assert grouped(four(), max_bytes=10) == [[0], [10], [20], [30]]
    assert grouped([]) == []


def test_neighbours_are_joined_up_to_the_size_of_an_index() -> None:
    assert grouped(four(), max_bytes=400, max_index_bytes=24) == [[0, 10, 20], [30]]


def test_offsets_of_one_segment_fit_an_index_entry() -> None:
    far = [FakeSegment(0), FakeSegment(MAX_RELATIVE_OFFSET), FakeSegment(MAX_RELATIVE_OFFSET + 1)]
    groups = group_segments(far, max_bytes=400, max_index_bytes=100, end_offset=MAX_RELATIVE_OFFSET + 2)  # type: ignore[arg-type]  # fakes
    assert [len(group) for group in groups] == [2, 1]
    empty = [*far[:2], FakeSegment(MAX_RELATIVE_OFFSET + 1, size_bytes=0)]
    groups = group_segments(empty, max_bytes=400, max_index_bytes=100, end_offset=MAX_RELATIVE_OFFSET + 2)  # type: ignore[arg-type]  # fakes
    assert [len(group) for group in groups] == [3]
