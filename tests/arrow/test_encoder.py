from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples

from ottla.arrow.encoder import Body, Rows, as_binary, encode_rows
from ottla.arrow.errors import UnsendableRow
from ottla.arrow.murmur2 import hash_keys, partitions_of
from ottla.client.partitioner import murmur2
from ottla.protocol.records.batch import HEADER_BYTES, decode_batch, encode_batch, parse_header, seal_batch
from ottla.protocol.records.record import Record

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
Header = tuple[str, bytes | None]
Row = tuple[int, bytes | None, bytes | None, list[Header] | None]


def sealed(body: Body) -> bytes:
    return bytes(
        seal_batch(
            body.records,
            base_offset=0,
            leader_epoch=-1,
            attributes=0,
            last_offset_delta=body.record_count - 1,
            base_timestamp=body.timestamps_ms[0] if body.timestamps_ms else 9,
            max_timestamp=body.timestamps_ms[1] if body.timestamps_ms else 9,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=body.record_count,
        )
    )


def encoded(
    rows: list[Row], batch_bytes: int = 1000, most_bytes: int = 1 << 20, times: list[int] | None = None
) -> list[Body]:
    headers = [None if row[3] is None else [{"key": key, "value": value} for key, value in row[3]] for row in rows]
    columns = Rows(
        pa.array([row[1] for row in rows], pa.large_binary()),
        pa.array([row[2] for row in rows], pa.large_binary()),
        pa.array(headers, HEADERS),
        None if times is None else np.array(times, np.int64),
    )
    partitions = np.array([row[0] for row in rows], np.int64)
    return list(encode_rows(columns, partitions, batch_bytes=batch_bytes, most_bytes=most_bytes))


some_bytes = st.none() | st.binary(max_size=30) | st.integers(60, 300).map(lambda size: b"x" * size)
some_headers = st.none() | st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=3)
some_rows = st.lists(st.tuples(st.integers(0, 3), some_bytes, some_bytes, some_headers), min_size=1, max_size=60)


@settings(max_examples=examples(60))
@given(some_rows)
def test_batches_hold_the_rows_of_their_partition_in_order(rows: list[Row]) -> None:
    found: dict[int, list[Any]] = {}
    for body in encoded(rows):
        found.setdefault(body.partition, []).extend(record[2:] for record in decode_batch(sealed(body)))
    expected: dict[int, list[Any]] = {}
    for partition, key, value, headers in rows:
        expected.setdefault(partition, []).append((key, value, tuple(headers or ())))
    assert found == expected


@settings(max_examples=examples(30))
@given(some_rows)
def test_a_batch_is_byte_for_byte_that_of_the_other_encoder(rows: list[Row]) -> None:
    for body in encoded(rows):
        batch = sealed(body)
        assert batch == bytes(encode_batch(decode_batch(batch), base_offset=0))


some_times = st.integers(0, 2**63 // 1000) | st.integers(1_700_000_000_000, 1_700_000_100_000)


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(some_times, some_rows.map(lambda rows: rows[0])), min_size=1, max_size=60))
def test_records_carry_the_times_of_their_rows(timed: list[tuple[int, Row]]) -> None:
    times = [time for time, _ in timed]
    found: dict[int, list[Any]] = {}
    for body in encoded([row for _, row in timed], times=times):
        batch = sealed(body)
        records = decode_batch(batch)
        assert parse_header(batch).max_timestamp == max(record.timestamp for record in records)
        assert batch == bytes(encode_batch(records, base_offset=0))
        assert len(body.records) <= 1000 or body.record_count == 1
        found.setdefault(body.partition, []).extend((record.timestamp, record.value) for record in records)
    expected: dict[int, list[Any]] = {}
    for time, row in timed:
        expected.setdefault(row[0], []).append((time, row[2]))
    assert found == expected


def test_a_record_with_a_time_of_its_own_is_measured_with_it() -> None:
    row: Row = (0, b"k", b"v" * ((1 << 20) - 100), None)
    (body,) = encoded([row], times=[5])
    assert HEADER_BYTES + len(body.records) <= 1 << 20
    with pytest.raises(UnsendableRow, match="is larger than"):
        encoded([(0, b"k", b"v" * ((1 << 20) - 84), None)], times=[5])


def test_the_example_of_the_module_is_true() -> None:
    (body,) = encoded([(0, None, b"", None), (0, b"k1", b"abc", None)])
    assert bytes(body.records).endswith(bytes.fromhex("16000002 04") + b"k1" + b"\x06" + b"abc" + b"\0")


def test_batches_stay_below_their_size_but_for_a_record_that_is_larger() -> None:
    rows: list[Row] = [(i % 2, b"k", b"v" * 90, None) for i in range(200)]
    rows.append((1, None, b"v" * 5000, None))
    sizes = [(len(body.records), body.record_count) for body in encoded(rows, batch_bytes=1000)]
    assert max(size for size, count in sizes if count > 1) <= 1000
    assert sizes[0][1] >= 8
    assert sizes[-1][1] == 1
    assert sizes[-1][0] > 5000


def test_offsets_deltas_and_counts_start_again_in_each_batch() -> None:
    bodies = encoded([(0, None, b"v" * 300, None)] * 10)
    assert [body.record_count for body in bodies] == [3, 3, 3, 1]
    for body in bodies:
        batch = sealed(body)
        assert parse_header(batch).record_count == body.record_count
        assert [record.offset for record in decode_batch(batch)] == list(range(body.record_count))


def test_a_record_larger_than_a_request_is_refused() -> None:
    with pytest.raises(UnsendableRow, match=r"a record of \d+ bytes is larger than max.request.size 100"):
        encoded([(0, None, b"v" * 101, None)], most_bytes=100)
    # What is let through fits, as a batch of its own, into what a broker takes by default.
    (body,) = encoded([(0, b"k", b"v" * ((1 << 20) - 90), None)])
    assert HEADER_BYTES + len(body.records) <= 1 << 20
    with pytest.raises(UnsendableRow, match="is larger than"):
        encoded([(0, b"k", b"v" * ((1 << 20) - 70), None)])


def test_a_header_without_a_key_is_refused() -> None:
    headers = pa.array([[{"key": None, "value": b"v"}]], HEADERS)
    rows = Rows(None, pa.array([b"v"], pa.large_binary()), headers)
    with pytest.raises(UnsendableRow, match="a header without a key"):
        list(encode_rows(rows, np.zeros(1, np.int64), batch_bytes=100, most_bytes=1000))


def test_rows_without_key_and_headers_columns() -> None:
    rows = Rows(None, as_binary(pa.chunked_array([["ä"], ["b", None]])), None)
    (body,) = encode_rows(rows, np.zeros(3, np.int64), batch_bytes=100, most_bytes=1000)
    assert [(r.key, r.value) for r in decode_batch(sealed(body))] == [(None, "ä".encode()), (None, b"b"), (None, None)]
    assert decode_batch(sealed(body))[0] == Record(0, 9, None, "ä".encode(), ())


@pytest.mark.parametrize(
    ("key", "java"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_hash_as_in_java(key: bytes, java: int) -> None:
    """The vectors of Kafka's own UtilsTest.testMurmur2."""
    (found,) = hash_keys(pa.array([key], pa.large_binary())).astype(np.int32)
    assert found == java


@settings(max_examples=examples(60))
@given(st.lists(st.binary(max_size=40), max_size=40), st.integers(0, 3))
def test_many_keys_at_once_hash_as_one_by_one(keys: list[bytes], skipped: int) -> None:
    array = pa.array(keys, pa.large_binary())[skipped:]
    assert hash_keys(array).tolist() == [murmur2(key) for key in keys[skipped:]]
    assert partitions_of(array, 6).tolist() == [(murmur2(key) & 0x7FFFFFFF) % 6 for key in keys[skipped:]]
