"""The summary of records says what decoding them would say, or nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.records.errors import CorruptBatch
from ottla.protocol.records.record import Headers, decode_records, encode_record, encode_varint
from ottla.protocol.records.summary import MOST_RECORDS, RecordsSummary, summarize_records

Drawn = tuple[int, bytes | None, bytes | None, Headers]

WIDTHS = [0, 1, 63, 64, 200, 8_191, 8_192]
"""Lengths around those at which a varint gets another byte."""
DELTAS = [*WIDTHS, 1_048_575, 1_048_576, 2**40, 2**63 - 1]
SOME_BYTES = st.one_of(st.none(), st.binary(max_size=3), st.sampled_from(WIDTHS).map(bytes))
HEADERS = st.lists(
    st.tuples(st.one_of(st.text(max_size=3), st.sampled_from([63, 64]).map(lambda size: "h" * size)), SOME_BYTES),
    max_size=2,
)
RECORDS = st.lists(
    st.tuples(st.sampled_from([*DELTAS, *(~delta for delta in DELTAS)]), SOME_BYTES, SOME_BYTES, HEADERS),
    min_size=1,
    max_size=5,
)


def encode(drawn: list[Drawn]) -> bytes:
    return b"".join(encode_record(delta, number, *rest) for number, (delta, *rest) in enumerate(drawn))


def summary_by_decoding(data: bytes, count: int) -> RecordsSummary:
    """Raises CorruptBatch for unsound records, and for deltas other than 0, 1, 2, ..."""
    rows = decode_records(data, count, base_offset=0, base_timestamp=0, last_offset_delta=count - 1)
    times = [timestamp for _, timestamp, *_ in rows]
    if [offset for offset, *_ in rows] != list(range(count)):
        raise CorruptBatch("a gap")
    return RecordsSummary(min(times), max(times), None not in [key for _, _, key, _, _ in rows])


def assert_says_nothing_wrong(data: bytes, count: int) -> None:
    summary = summarize_records(data, count)
    if summary is not None:
        assert summary == summary_by_decoding(data, count)


@given(RECORDS)
def test_sound_records_are_summarized_as_decoding_does(drawn):
    data = encode(drawn)
    assert summarize_records(data, len(drawn)) == summary_by_decoding(data, len(drawn))


def test_the_times_are_those_of_the_oldest_and_the_newest_record():
    deltas = [5, 6, -1, -2, 0]
    data = encode([(delta, b"k", b"v", ()) for delta in deltas])
    assert summarize_records(data, len(deltas)) == RecordsSummary(-2, 6, has_all_keys=True)


@pytest.mark.parametrize("count", [63, 64, 65, 8_191, 8_192, 8_193])
def test_records_are_summarized_around_each_edge_of_the_width_of_an_offset(count):
    assert summarize_records(encode([(7, b"k", b"v", ())] * count), count) == RecordsSummary(7, 7, has_all_keys=True)


@given(RECORDS, st.data())
def test_changed_bytes_are_summarized_as_decoding_does_or_not_at_all(drawn, data):
    records = bytearray(encode(drawn))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, min(len(records), 80) - 1))
        records[place] = data.draw(st.sampled_from([0, 1, 2, 3, 4, 0x7F, 0x80, 0x81, 0xFF]))
    assert_says_nothing_wrong(bytes(records), len(drawn))


@given(RECORDS, st.data())
def test_records_cut_short_or_with_bytes_after_them_are_summarized_as_decoding_does_or_not_at_all(drawn, data):
    records = encode(drawn)
    assert_says_nothing_wrong(records[: data.draw(st.integers(0, len(records)))], len(drawn))
    assert_says_nothing_wrong(records + b"\0", len(drawn))
    assert_says_nothing_wrong(records, len(drawn) + data.draw(st.sampled_from([-1, 1])))


@given(st.binary(max_size=60), st.integers(-1, 8))
def test_any_bytes_are_summarized_as_decoding_does_or_not_at_all(data, count):
    assert_says_nothing_wrong(data, count)


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("offset delta 1 in the first record", "00 00 02 02 6b 02 76 00"),
        ("offset delta -1", "00 00 01 02 6b 02 76 00"),
        ("key of -2 bytes", "00 00 00 03 02 76 00"),
        ("key of -2 bytes in two", "00 00 00 83 00 02 76 00"),
        ("value of -2 bytes", "00 00 00 02 6b 03 00"),
        ("header count -1", "00 00 00 02 6b 02 76 01"),
        ("header's key null", "00 00 00 02 6b 02 76 02 01 00"),
        ("header's key null, and no value", "00 00 00 02 6b 02 76 02 01"),
        ("header's value of -2 bytes", "00 00 00 02 6b 02 76 02 00 03"),
        ("timestamp delta of eleven bytes", "00 ff ff ff ff ff ff ff ff ff ff 00 00 02 6b 02 76 00"),
    ],
)
def test_records_that_may_not_be_are_left_to_decoding(name, fields):
    body = bytes.fromhex(fields)
    assert summarize_records(encode_varint(len(body)) + body, 1) is None


def test_a_record_whose_length_is_not_its_own_is_left_to_decoding():
    body = bytes.fromhex("00 00 00 02 6b 02 76 00")
    for length in (len(body) - 1, len(body) + 1, -len(body), 64 + len(body)):
        assert summarize_records(encode_varint(length) + body, 1) is None
        with pytest.raises(CorruptBatch):
            summary_by_decoding(encode_varint(length) + body, 1)


def test_more_records_than_the_widths_of_offsets_that_it_knows_are_left_to_decoding():
    count = MOST_RECORDS + 1
    assert summarize_records(bytes(7 * count), count) is None
