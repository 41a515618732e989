"""The time index: Kafka's bytes, and the same answers as looking at every entry."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.simulated_files import SimulatedFiles

from ottla.storage.index.sparse_index import CorruptIndex
from ottla.storage.index.time_index import TimeIndex, TimestampOffset

PATH = Path("/00000000000000368769.timeindex")
BASE = 368769

CANDIDATES = st.lists(st.tuples(st.integers(-3, 60), st.integers(0, 9)), max_size=40).map(
    lambda steps: [(timestamp, BASE + sum(o for _, o in steps[: n + 1])) for n, (timestamp, _) in enumerate(steps)]
)


def growing(candidates: list[tuple[int, int]]) -> list[TimestampOffset]:
    kept: list[TimestampOffset] = []
    for timestamp, offset in candidates:
        if timestamp > (kept[-1].timestamp if kept else -1):
            kept.append(TimestampOffset(timestamp, offset))
    return kept


def test_an_entry_has_kafkas_bytes() -> None:
    files = SimulatedFiles()
    index = TimeIndex.create(files, PATH, BASE)
    assert index.maybe_append(1_700_000_000_000, 368776)
    index.flush()
    assert files.read_bytes(PATH).hex(" ", 4) == "0000018b cfe56800 00000007"


@given(CANDIDATES, st.integers(-5, 70))
def test_a_look_up_answers_as_a_linear_scan(candidates: list[tuple[int, int]], timestamp: int) -> None:
    files = SimulatedFiles()
    index = TimeIndex.create(files, PATH, BASE)
    for candidate in candidates:
        index.maybe_append(*candidate)
    expected = TimestampOffset(-1, BASE)
    for entry in growing(candidates):
        if entry.timestamp <= timestamp:
            expected = entry
    assert index.lookup(timestamp) == expected
    index.close()
    again = TimeIndex.open(files, PATH, BASE, sealed=True)
    assert list(again) == growing(candidates)
    assert again.lookup(timestamp) == expected


@given(CANDIDATES, st.integers(0, 400))
def test_truncation_drops_exactly_what_lies_at_and_behind_the_offset(
    candidates: list[tuple[int, int]], relative: int
) -> None:
    files = SimulatedFiles()
    index = TimeIndex.create(files, PATH, BASE)
    for candidate in candidates:
        index.maybe_append(*candidate)
    index.flush()
    index.truncate_to(BASE + relative)
    kept = [entry for entry in growing(candidates) if entry.offset < BASE + relative]
    assert list(index) == kept
    assert len(files.read_bytes(PATH)) == 12 * len(kept)


def test_a_timestamp_that_is_not_larger_says_nothing_new() -> None:
    index = TimeIndex.create(SimulatedFiles(), PATH, BASE)
    assert index.maybe_append(100, BASE + 1)
    assert not index.maybe_append(100, BASE + 2)
    assert not index.maybe_append(-1, BASE + 3)
    assert list(index) == [(100, BASE + 1)]


def test_an_offset_that_goes_back_is_refused() -> None:
    index = TimeIndex.create(SimulatedFiles(), PATH, BASE)
    index.maybe_append(100, BASE + 5)
    with pytest.raises(ValueError, match="does not come after"):
        index.maybe_append(101, BASE + 4)


def test_the_last_place_is_kept_for_the_roll() -> None:
    index = TimeIndex.create(SimulatedFiles(), PATH, BASE, max_bytes=36)
    index.maybe_append(1, BASE)
    index.maybe_append(2, BASE + 1)
    assert index.is_full
    with pytest.raises(ValueError, match="full"):
        index.maybe_append(3, BASE + 2)
    assert index.maybe_append(3, BASE + 2, at_roll=True)
    with pytest.raises(ValueError, match="full"):
        index.maybe_append(4, BASE + 3, at_roll=True)


def test_a_record_of_1970_at_the_base_offset_keeps_its_entry() -> None:
    files = SimulatedFiles()
    index = TimeIndex.create(files, PATH, BASE)
    index.maybe_append(0, BASE)
    index.close()
    assert list(TimeIndex.open(files, PATH, BASE, sealed=False)) == [(0, BASE)]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (bytes(13), "not a multiple of the 12 bytes"),
        (bytes.fromhex("0000000000000001 00000001 0000000000000001 00000002"), "entry 1"),
        (bytes.fromhex("0000000000000001 00000002 0000000000000002 00000001"), "entry 1"),
        (bytes.fromhex("0000000000000001 ffffffff"), "entry 0: negative"),
        (bytes.fromhex("ffffffffffffffff 00000001"), "entry 0"),
    ],
)
def test_a_file_that_makes_no_sense_is_corrupt(content: bytes, reason: str) -> None:
    files = SimulatedFiles()
    files.write_atomically(PATH, content)
    with pytest.raises(CorruptIndex, match=reason):
        TimeIndex.open(files, PATH, BASE, sealed=False)
