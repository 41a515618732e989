from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples

from ottla.arrow.encoder import Body, Rows, encode_rows
from ottla.protocol.records.batch import HEADER_BYTES
from ottla.protocol.records.record import decode_records
from ottla.spark.splitting import smaller_batch_bytes, split


def body_of(sizes: list[int], *, has_times: bool) -> Body:
    values = pa.array([bytes(size) for size in sizes], pa.large_binary())
    times = np.arange(len(sizes))[::-1] * 1000 if has_times else None
    rows = Rows(None, values, None, times)
    (body,) = encode_rows(rows, np.full(len(sizes), 7), batch_bytes=10**9, most_bytes=10**9)
    return body


def records_of(body: Body) -> list[tuple[object, ...]]:
    base = 0 if body.timestamps_ms is None else body.timestamps_ms[0]
    count = body.record_count
    rows = decode_records(
        bytes(body.records), count, base_offset=0, base_timestamp=base, last_offset_delta=body.record_count - 1
    )
    assert [row[0] for row in rows] == list(range(count))
    return [row[1:] for row in rows]


@settings(max_examples=examples(100))
@given(st.lists(st.integers(0, 300), min_size=2, max_size=40), st.integers(1, 1000), st.booleans())
def test_pieces_hold_all_records_in_order_and_none_is_larger_than_asked_but_for_a_single_record(
    sizes: list[int], most: int, has_times: bool
) -> None:
    body = body_of(sizes, has_times=has_times)
    limit = min(most, smaller_batch_bytes(body))
    pieces = split(body, limit)
    assert len(pieces) > 1
    assert [record for piece in pieces for record in records_of(piece)] == records_of(body)
    assert all(piece.record_count == 1 or HEADER_BYTES + len(piece.records) <= limit for piece in pieces)
    assert {piece.partition for piece in pieces} == {7}
    if not has_times:
        assert {piece.timestamps_ms for piece in pieces} == {None}


def test_a_single_record_is_not_split() -> None:
    assert split(body_of([100], has_times=False), 10) == []
