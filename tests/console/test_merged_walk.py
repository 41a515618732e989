"""The order of records of several partitions, page by page."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.console.merged_walk import Seen, Walk

Logs = dict[int, list[tuple[int, int]]]
"""The offset and the timestamp of each record, by partition."""


@st.composite
def logs(draw: st.DrawFn) -> Logs:
    """Partitions with gaps between offsets, as compaction and markers leave them, and times in any order."""
    found: Logs = {}
    for partition in range(draw(st.integers(0, 4))):
        offsets = sorted(draw(st.sets(st.integers(0, 40), max_size=15)))
        found[partition] = [(offset, draw(st.integers(0, 30))) for offset in offsets]
    return found


def page(walk: Walk, records: Logs, limit: int) -> list[tuple[int, int]]:
    """Read as `reading.py` does, until a page is full or nothing is left."""
    found: list[tuple[int, int]] = []
    while True:
        found += [(one["partition"], one["offset"]) for one in walk.take(limit - len(found))]
        windows = walk.windows()
        if len(found) >= limit or not windows:
            return found
        for partition, (low, high) in windows.items():
            read = [one for one in records[partition] if low <= one[0] < high]
            shown = (Seen(offset, time, {"partition": partition, "offset": offset}) for offset, time in read)
            walk.add(partition, (low, high), shown)


def walk_over(records: Logs, *, is_backwards: bool, places: dict[int, int] | None = None) -> Walk:
    edges = dict.fromkeys(records, (0, 45))
    for partition, place in (places or {}).items():
        edges[partition] = (0, place) if is_backwards else (place, 45)
    return Walk(edges, is_backwards=is_backwards, first_window=2, most=8)


@given(logs(), st.booleans(), st.integers(1, 10))
def test_all_pages_together_have_each_record_once(records: Logs, is_backwards: bool, limit: int) -> None:
    seen: list[tuple[int, int]] = []
    places: dict[int, int] | None = None
    for _ in range(100):
        walk = walk_over(records, is_backwards=is_backwards, places=places)
        seen += page(walk, records, limit)
        places = walk.places()
        if walk.is_done:
            break
    assert sorted(seen) == sorted((partition, offset) for partition in records for offset, _ in records[partition])


@given(logs(), st.booleans())
def test_a_partition_is_in_the_order_of_its_offsets(records: Logs, is_backwards: bool) -> None:
    seen = page(walk_over(records, is_backwards=is_backwards), records, 1000)
    for partition in records:
        offsets = [offset for one, offset in seen if one == partition]
        assert offsets == sorted(offsets, reverse=is_backwards)


@given(logs(), st.booleans(), st.integers(1, 20))
def test_where_times_follow_offsets_the_page_is_in_the_order_of_time(
    records: Logs, is_backwards: bool, limit: int
) -> None:
    ordered = {one: [(offset, offset * 3 + one) for offset, _ in log] for one, log in records.items()}
    times = {(one, offset): time for one, log in ordered.items() for offset, time in log}
    seen = page(walk_over(ordered, is_backwards=is_backwards), ordered, limit)
    expected = sorted(times.values(), reverse=is_backwards)[:limit]
    assert [times[one] for one in seen] == expected


def test_a_search_counts_what_it_passes() -> None:
    walk = Walk({0: (0, 10)}, is_backwards=False, first_window=10, most=10)
    (window,) = walk.windows().items()
    walk.add(window[0], window[1], (Seen(n, n, {"offset": n} if n == 7 else None) for n in range(10)))
    assert walk.take(1) == [{"offset": 7}]
    assert (walk.scanned, walk.places(), walk.is_done) == (8, {0: 8}, False)
