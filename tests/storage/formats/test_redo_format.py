"""`ottla-redo.log`: its bytes, and that what is torn, flipped or left of an earlier generation counts for nothing."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.records.checksum import crc32c
from ottla.storage.formats.redo_format import (
    ENTRY_HEAD_BYTES,
    HEAD_BYTES,
    MAGIC,
    RedoEntry,
    RedoRecord,
    head_of,
    pack_entry,
    records_of,
)

TOPIC_ID = bytes(range(16))
LARGEST = 2**63 - 1


def entry(
    data: bytes = b"batch",
    *,
    name: str = "orders-0",
    topic_id: bytes = TOPIC_ID,
    base_offset: int = 4711,
    position: int = 100,
    end_offset: int = 4720,
) -> RedoEntry:
    return RedoEntry(topic_id, name, base_offset, position, end_offset, memoryview(data))


def body_of(entries: Sequence[RedoEntry]) -> bytes:
    parts = []
    for topic_id, name, base_offset, position, end_offset, data in entries:
        head = pack_entry(topic_id, base_offset, position, end_offset, len(data), len(name))
        parts += [head, name.encode("ascii"), bytes(data)]
    return b"".join(parts)


def record(generation: int, sequence: int, *entries: RedoEntry) -> bytes:
    body = body_of(entries)
    return head_of(generation, sequence, body) + body


FIRST = [entry(b"first"), entry(b"another one", name="orders-1", position=0)]
SECOND = [entry(b"second", position=105)]
THIRD = [entry(b"3", name="a" * 249 + "-7")]
FILE = record(9, 0) + record(9, 1, *FIRST) + record(9, 2, *SECOND) + record(9, 3, *THIRD)
RECORDS = [RedoRecord(9, 0, []), RedoRecord(9, 1, FIRST), RedoRecord(9, 2, SECOND), RedoRecord(9, 3, THIRD)]
ENDS = [sum(HEAD_BYTES + len(body_of(one.entries)) for one in RECORDS[:count]) for count in range(1, 5)]
"""Where each record of `FILE` ends."""


def test_a_record_has_these_bytes() -> None:
    body = bytes.fromhex(
        "000102030405060708090a0b0c0d0e0f"  # topic id
        "0000000000001267"  # base offset 4711
        "0000000000000064"  # position 100
        "0000000000001270"  # end offset 4720
        "00000005"  # length of the bytes
        "0008"  # length of the name
        "6f72646572732d30"  # orders-0
        "6261746368"  # batch
    )
    head = bytes.fromhex(
        "4f545244"  # OTRD
        "0000000000000009"  # generation
        "00000002"  # sequence
        "0000003b"  # length of the body
        "80577a84"  # CRC-32C
    )
    assert record(9, 2, entry()) == head + body
    assert (HEAD_BYTES, ENTRY_HEAD_BYTES) == (24, 46)


def test_the_records_of_a_file_are_read_in_their_order() -> None:
    assert list(records_of(FILE)) == RECORDS


def test_an_empty_file_has_no_records() -> None:
    assert list(records_of(b"")) == []
    assert list(records_of(bytes(4096))) == []


names = st.builds("{}-{}".format, st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True), st.integers(0, 2**31 - 1))
entries_of_any_kind = st.builds(
    RedoEntry,
    st.binary(min_size=16, max_size=16),
    names,
    st.integers(0, LARGEST),
    st.integers(0, LARGEST),
    st.integers(-1, LARGEST),
    st.binary(max_size=300).map(memoryview),
)


@given(st.integers(0, LARGEST), st.lists(st.lists(entries_of_any_kind, max_size=4), max_size=4))
def test_what_is_written_is_read(generation: int, rounds: list[list[RedoEntry]]) -> None:
    data = b"".join(record(generation, sequence, *entries) for sequence, entries in enumerate(rounds))
    assert list(records_of(data)) == [RedoRecord(generation, *each) for each in enumerate(rounds)]


def test_a_file_that_is_torn_anywhere_has_the_records_before_the_tear() -> None:
    for size in range(len(FILE)):
        whole = sum(end <= size for end in ENDS)
        assert list(records_of(FILE[:size])) == RECORDS[:whole]
        assert list(records_of(FILE[:size] + bytes(len(FILE) - size))) == RECORDS[:whole]


def test_a_flipped_bit_ends_the_file_before_its_record() -> None:
    for bit in range(len(FILE) * 8):
        bent = bytearray(FILE)
        bent[bit // 8] ^= 1 << bit % 8
        whole = sum(end <= bit // 8 for end in ENDS)
        assert list(records_of(bent)) == RECORDS[:whole], bit


@given(st.binary(max_size=400), st.integers(0, len(FILE)), st.integers(0, len(FILE)))
def test_whatever_is_in_the_file_no_entry_is_read_that_was_not_written(garbage: bytes, first: int, second: int) -> None:
    found = list(records_of(FILE[:first] + garbage + FILE[second:]))
    assert found == RECORDS[: len(found)]


def test_records_of_an_earlier_generation_behind_those_of_a_later_one_are_not_read() -> None:
    earlier = b"".join(record(4, sequence, entry(b"12345")) for sequence in range(4))
    later = record(5, 0) + record(5, 1, entry(b"123"))
    for size in range(len(earlier)):
        found = list(records_of(later + earlier[size:]))
        assert found == [RedoRecord(5, 0, []), RedoRecord(5, 1, [entry(b"123")])]


def test_an_earlier_generation_is_not_read_though_its_next_record_begins_where_the_later_one_ends() -> None:
    earlier = record(4, 0, entry(b"12345")) + record(4, 1, entry(b"23456"))
    later = record(5, 0, entry(b"54321"))
    assert list(records_of(later + earlier[len(later) :])) == [RedoRecord(5, 0, [entry(b"54321")])]


@pytest.mark.parametrize("sequence", [1, 2, -1, 2**31 - 1])
def test_a_file_that_does_not_begin_with_the_first_record_of_a_generation_has_none(sequence: int) -> None:
    assert list(records_of(record(4, sequence, entry()))) == []


def test_a_record_that_is_not_the_next_one_ends_the_file() -> None:
    assert list(records_of(record(4, 0) + record(4, 2, entry()))) == [RedoRecord(4, 0, [])]
    assert list(records_of(record(4, 0) + record(4, 0, entry()))) == [RedoRecord(4, 0, [])]


def with_right_checksum(generation: int, sequence: int, length: int, body: bytes) -> bytes:
    """A record whose head names any length, as no Ottla writes it."""
    checked = struct.pack(">qii", generation, sequence, length)
    return MAGIC + checked + struct.pack(">I", crc32c(checked + body)) + body


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 60])
def test_a_length_beyond_the_file_or_below_zero_is_no_record(length: int) -> None:
    body = body_of([entry()])
    assert len(body) == 59
    assert list(records_of(with_right_checksum(1, 0, length, body))) == []


@pytest.mark.parametrize(
    ("length", "name_length"), [(-1, 8), (-(2**31), 8), (2**31 - 1, 8), (6, 8), (5, 9), (5, 2**16 - 1), (-8, 16)]
)
def test_an_entry_that_is_longer_than_its_record_or_shorter_than_nothing_voids_it(
    length: int, name_length: int
) -> None:
    """Its checksum is right, so a bug or an enemy has written it."""
    body = pack_entry(TOPIC_ID, 0, 0, 1, length, name_length) + b"orders-0" + b"batch"
    assert list(records_of(head_of(1, 0, body) + body)) == []


@pytest.mark.parametrize(("base_offset", "position"), [(-1, 0), (0, -1)])
def test_an_entry_with_a_negative_place_voids_its_record(base_offset: int, position: int) -> None:
    body = body_of([entry(base_offset=base_offset, position=position)])
    assert list(records_of(head_of(1, 0, body) + body)) == []


def test_an_entry_whose_name_is_not_ascii_voids_its_record() -> None:
    name = "ü-0".encode()
    body = pack_entry(TOPIC_ID, 0, 0, 1, 0, len(name)) + name
    assert list(records_of(head_of(1, 0, body) + body)) == []


@pytest.mark.parametrize("rest", range(1, ENTRY_HEAD_BYTES))
def test_a_record_with_the_beginning_of_an_entry_at_its_end_is_void(rest: int) -> None:
    body = body_of([entry()]) + bytes(rest)
    assert list(records_of(head_of(1, 0, body) + body)) == []
