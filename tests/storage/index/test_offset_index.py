"""The offset index: Kafka's bytes, and the same answers as looking at every entry."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.simulated_files import SimulatedFiles

from ottla.storage.index.offset_index import OffsetIndex, OffsetPosition
from ottla.storage.index.sparse_index import CorruptIndex

PATH = Path("/00000000000000368769.index")
BASE = 368769

ENTRIES = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), max_size=40).map(
    lambda steps: [
        OffsetPosition(BASE + sum(o for o, _ in steps[: n + 1]), sum(p for _, p in steps[: n + 1]))
        for n in range(len(steps))
    ]
)


def filled(files: SimulatedFiles, entries: list[OffsetPosition]) -> OffsetIndex:
    index = OffsetIndex.create(files, PATH, BASE)
    for entry in entries:
        index.append(*entry)
    return index


def linear(entries: list[OffsetPosition], offset: int) -> OffsetPosition:
    found = OffsetPosition(BASE, 0)
    for entry in entries:
        if entry.offset <= offset:
            found = entry
    return found


def test_an_entry_has_kafkas_bytes() -> None:
    files = SimulatedFiles()
    index = filled(files, [OffsetPosition(368776, 1407), OffsetPosition(368780, 0x01020304)])
    index.flush()
    assert files.read_bytes(PATH).hex(" ", 4) == "00000007 0000057f 0000000b 01020304"


@given(ENTRIES, st.integers(-10, 2100))
def test_a_look_up_answers_as_a_linear_scan(entries: list[OffsetPosition], relative: int) -> None:
    index = filled(SimulatedFiles(), entries)
    assert index.lookup(BASE + relative) == linear(entries, BASE + relative)


@given(ENTRIES, st.integers(0, 40), st.integers(-10, 2100))
def test_a_reopened_index_answers_the_same(entries: list[OffsetPosition], flush_after: int, relative: int) -> None:
    files = SimulatedFiles()
    index = OffsetIndex.create(files, PATH, BASE)
    for number, entry in enumerate(entries):
        if number == flush_after:
            index.flush()
        index.append(*entry)
    index.close()
    for sealed in (True, False):
        again = OffsetIndex.open(files, PATH, BASE, sealed=sealed)
        assert list(again) == entries
        assert again.lookup(BASE + relative) == linear(entries, BASE + relative)


@given(ENTRIES, st.integers(0, 40), st.integers(0, 2100))
def test_truncation_drops_exactly_what_lies_at_and_behind_the_offset(
    entries: list[OffsetPosition], flushed: int, relative: int
) -> None:
    files = SimulatedFiles()
    index = OffsetIndex.create(files, PATH, BASE)
    for number, entry in enumerate(entries):
        index.append(*entry)
        if number < flushed:
            index.flush()
    index.truncate_to(BASE + relative)
    kept = [entry for entry in entries if entry.offset < BASE + relative]
    assert list(index) == kept
    index.close()
    assert list(OffsetIndex.open(files, PATH, BASE, sealed=True)) == kept


def test_an_empty_index_begins_at_the_start() -> None:
    index = filled(SimulatedFiles(), [])
    assert index.lookup(BASE + 5) == (BASE, 0)
    assert index.last_entry == (BASE, 0)


@pytest.mark.parametrize("entry", [(BASE + 7, 2000), (BASE + 6, 2000), (BASE + 9, 1407), (BASE - 1, 2000)])
def test_an_entry_that_goes_back_is_refused(entry: tuple[int, int]) -> None:
    index = filled(SimulatedFiles(), [OffsetPosition(BASE + 7, 1407)])
    with pytest.raises(ValueError, match=r"\.index"):
        index.append(*entry)


def test_the_offset_must_fit_31_bits() -> None:
    index = filled(SimulatedFiles(), [])
    index.append(BASE + 2**31 - 1, 1)
    assert index.last_entry == (BASE + 2**31 - 1, 1)
    with pytest.raises(ValueError, match="cannot be in the segment"):
        index.append(BASE + 2**31, 2)


def test_a_full_index_says_so_and_takes_no_more() -> None:
    index = OffsetIndex.create(SimulatedFiles(), PATH, BASE, max_bytes=23)
    index.append(BASE + 1, 1)
    assert not index.is_full
    index.append(BASE + 2, 2)
    assert index.is_full
    with pytest.raises(ValueError, match="full"):
        index.append(BASE + 3, 3)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (bytes(7), "not a multiple of the 8 bytes"),
        (bytes.fromhex("00000007 00000010 00000007 00000020"), r"entry 1: \(7, 32\) after \(7, 16\)"),
        (bytes.fromhex("00000007 00000010 00000008 00000010"), "entry 1"),
        (bytes.fromhex("ffffffff 00000010"), "entry 0: negative"),
        (bytes.fromhex("00000001 80000000"), "entry 0: negative"),
    ],
)
def test_a_file_that_makes_no_sense_is_corrupt(content: bytes, reason: str) -> None:
    files = SimulatedFiles()
    files.write_atomically(PATH, content)
    with pytest.raises(CorruptIndex, match=reason):
        OffsetIndex.open(files, PATH, BASE, sealed=False)


def test_a_missing_file_is_not_found() -> None:
    with pytest.raises(FileNotFoundError):
        OffsetIndex.open(SimulatedFiles(), PATH, BASE, sealed=True)


def columns(places: list[tuple[int, int, int]]) -> tuple[list[int], list[int], list[int]]:
    """(last offset, position, first offset) of each batch as `append_run` takes them."""
    return (
        [last - BASE for last, _, _ in places],
        [position for _, position, _ in places],
        [first - BASE for _, _, first in places],
    )


@given(ENTRIES.filter(len), st.data())
def test_a_run_of_entries_is_the_same_as_one_by_one(entries: list[OffsetPosition], data: st.DataObject) -> None:
    split = data.draw(st.integers(0, len(entries) - 1))
    index = filled(SimulatedFiles(), entries[:split])
    index.append_run(*columns([(offset, position, offset) for offset, position in entries[split:]]))
    assert list(index) == entries


@pytest.mark.parametrize("run", [[(BASE + 5, 900)], [(BASE + 6, 500)], [(BASE - 1, 900)]])
def test_a_run_takes_only_what_comes_after_the_others_and_fits(run: list[tuple[int, int]]) -> None:
    index = filled(SimulatedFiles(), [OffsetPosition(BASE + 5, 500)])
    with pytest.raises(ValueError, match=r"\.index"):
        index.append_run(*columns([(*place, place[0]) for place in run]))
    assert list(index) == [(BASE + 5, 500)]


def test_a_run_longer_than_the_room_adds_nothing() -> None:
    index = OffsetIndex.create(SimulatedFiles(), PATH, BASE, max_bytes=16)
    with pytest.raises(ValueError, match="full"):
        index.append_run(*columns([(BASE + number, number * 100, BASE) for number in range(1, 4)]))
    assert not list(index)


def test_first_offsets_are_known_of_what_was_written_and_stay_with_their_entries() -> None:
    files = SimulatedFiles()
    index = filled(files, [OffsetPosition(BASE + 5, 500)])
    index.append_run(*columns([(BASE + 9, 900, BASE + 8), (BASE + 12, 1200, BASE + 11)]))

    def known() -> dict[int, int]:
        entries = index.entries()
        return {entries.values[entries.firsts_from + number]: first for number, first in enumerate(entries.firsts)}

    assert known() == {900: 8, 1200: 11}
    index.truncate_to(BASE + 10)
    assert known() == {900: 8}
    index.append(BASE + 20, 2000)
    index.append_run(*columns([(BASE + 25, 2500, BASE + 21)]))
    assert known() == {2500: 21}
    index.truncate_to(BASE + 6)
    index.append_run(*columns([(BASE + 7, 700, BASE + 6)]))
    assert known() == {700: 6}
    index.seal()
    index.unload()
    assert known() == {}
    assert list(index) == [(BASE + 5, 500), (BASE + 7, 700)]
