"""A run of batches behind a segment: all at once plans what one by one does, or steps aside."""

from __future__ import annotations

import copy

from hypothesis import given
from hypothesis import strategies as st
from kit.logs import topic_config

from ottla.storage.log.append_plan import PlannedBatch, RollLimits, SegmentRun

BASE = 1000
NOW_MS = 10_000
LIMITS = RollLimits(topic_config({"segment.bytes": "4000", "segment.ms": "500", "index.interval.bytes": "300"}))


def planned(sizes: list[tuple[int, int, int]]) -> list[PlannedBatch]:
    batches: list[PlannedBatch] = []
    offset = BASE
    for size_bytes, count, timestamp_ms in sizes:
        batches.append((bytes(size_bytes), size_bytes, offset, offset + count - 1, timestamp_ms))
        offset += count
    return batches


def state(run: SegmentRun) -> dict[str, object]:
    return {name: getattr(run, name) for name in SegmentRun.__slots__ if name != "limits"}


@given(
    st.lists(
        st.tuples(st.integers(61, 700), st.integers(1, 5), st.sampled_from([-1, 100, 300, 599, 601, 700])),
        min_size=2,
        max_size=12,
    ),
    st.integers(1, 11),
    st.integers(0, 12),
    st.sampled_from([NOW_MS, NOW_MS + 501]),
)
def test_all_at_once_plans_what_one_by_one_does_or_nothing(
    sizes: list[tuple[int, int, int]], together: int, free_slots: int, now_ms: int
) -> None:
    batches = planned(sizes)
    cut = max(len(batches) - together, 1)
    before, rest = batches[:cut], batches[cut:]
    at_once, one_by_one = (SegmentRun(LIMITS, BASE, None, NOW_MS) for _ in range(2))
    for run in (at_once, one_by_one):
        for batch in before:
            run.add(batch, NOW_MS)
        run.free_slots = free_slots
        for column in (run.index_offsets, run.index_positions, run.index_firsts):
            del column[:]  # as if published
    untouched = copy.deepcopy(state(at_once))
    added_bytes, newest_ms = sum(batch[1] for batch in rest), max(batch[4] for batch in rest)
    if at_once.add_all(rest, added_bytes, newest_ms, now_ms):
        assert all(one_by_one.add(batch, now_ms) for batch in rest)
        assert state(at_once) == state(one_by_one)
    else:
        assert state(at_once) == untouched


def test_a_run_has_room_for_all_at_once_but_at_its_beginning_and_its_end() -> None:
    batches = planned([(500, 2, 100)] * 8)
    run = SegmentRun(LIMITS, BASE, None, NOW_MS)
    assert not run.add_all(batches[:1], 500, 100, NOW_MS)  # the first batch says when the segment rolls
    assert run.add(batches[0], NOW_MS)
    assert run.add_all(batches[1:7], 3000, 100, NOW_MS)
    assert not run.add_all(batches[7:], 501, 100, NOW_MS)
    assert run.add_all(batches[7:], 500, 100, NOW_MS)
