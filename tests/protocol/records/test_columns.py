"""Records encoded column by column are, byte for byte, those that are encoded one by one."""

from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given
from hypothesis import strategies as st

from ottla.protocol.records.batch import decode_batch
from ottla.protocol.records.builder import BatchBuilder
from ottla.protocol.records.columns import ColumnBatchBuilder, RecordColumns
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.record import Record

NO_LIMIT = 1 << 40
TIMES = st.integers(0, 2**62)
DATA = st.one_of(st.none(), st.binary(max_size=70), st.integers(100, 20_000).map(bytes))
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=200))), max_size=3)
RECORDS = st.lists(st.tuples(TIMES, DATA, DATA, HEADERS), min_size=1, max_size=150)


def columns_of(records, *, has_keys=True, has_headers=True, times=None):
    own_times, keys, values, headers = (list(column) for column in zip(*records, strict=True))
    return RecordColumns(
        values, keys if has_keys else None, headers if has_headers else None, own_times if times is None else times
    )


def one_by_one(records, builder=None):
    builder = builder or BatchBuilder()
    for time, key, value, headers in records:
        builder.append(time, key, value, headers)
    return builder


def facts(builder):
    return bytes(builder.body), builder.record_count, builder.base_timestamp, builder.max_timestamp


@given(RECORDS, RECORDS)
def test_many_records_are_the_bytes_of_each(first, more):
    builder = one_by_one(first, ColumnBatchBuilder())
    assert builder.extend(columns_of(more), 0, NO_LIMIT) == len(more)
    assert facts(builder) == facts(one_by_one([*first, *more]))


@given(RECORDS, TIMES)
def test_so_are_records_of_one_time_without_keys_and_headers(records, time):
    builder = ColumnBatchBuilder()
    builder.extend(columns_of(records, has_keys=False, has_headers=False, times=time), 0, NO_LIMIT)
    assert facts(builder) == facts(one_by_one([(time, None, value, ()) for _, _, value, _ in records]))


@pytest.mark.parametrize("count", [63, 64, 65, 8191, 8192, 8193, 20_000])
def test_offset_deltas_of_every_size(count):
    records = [(5, None, b"%d" % n, ()) for n in range(count)]
    builder = ColumnBatchBuilder()
    assert builder.extend(columns_of(records), 0, NO_LIMIT) == count
    assert facts(builder) == facts(one_by_one(records))


@given(RECORDS, st.integers(0, 60_000))
def test_a_batch_takes_as_many_as_it_has_room_for(records, most_bytes):
    columns = columns_of(records)
    done = 0
    while done < len(records):
        builder = ColumnBatchBuilder()
        added = builder.extend(columns, done, most_bytes)
        assert added >= 1
        assert facts(builder) == facts(one_by_one(records[done : done + added]))
        if added > 1:
            assert builder.size_bytes <= most_bytes
        done += added
        if done < len(records):
            assert one_by_one(records[done - added : done + 1]).size_bytes > most_bytes
            assert builder.extend(columns, done, most_bytes) == 0


@given(RECORDS)
def test_no_record_is_larger_than_its_bound(records):
    columns = columns_of(records)
    for place, record in enumerate(records):
        assert len(one_by_one([record]).body) <= columns.bound(place) <= columns.largest_bytes


@pytest.mark.parametrize("codec", list(Compression))
@given(RECORDS)
def test_they_are_sealed_with_every_codec_for_an_idempotent_producer(codec, records):
    builder = ColumnBatchBuilder()
    builder.extend(columns_of(records), 0, NO_LIMIT)
    sealing = {"compression": codec, "producer_id": 7, "producer_epoch": 1, "base_sequence": 2**31 - 5}
    sealed = builder.seal(**sealing)
    assert sealed == one_by_one(records).seal(**sealing)
    assert decode_batch(sealed) == [
        Record(place, time, key, value, tuple(headers)) for place, (time, key, value, headers) in enumerate(records)
    ]


@given(st.lists(st.tuples(st.integers(10**12, 10**12 + 10**6), DATA, DATA, HEADERS), min_size=1, max_size=80))
def test_aiokafka_makes_the_same_batch(records):
    theirs = AiokafkaBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=7,
        producer_epoch=1,
        base_sequence=3,
        batch_size=1 << 28,
    )
    for place, (time, key, value, headers) in enumerate(records):
        theirs.append(place, timestamp=time, key=key, value=value, headers=headers)
    builder = ColumnBatchBuilder()
    builder.extend(columns_of(records), 0, NO_LIMIT)
    ours = builder.seal(producer_id=7, producer_epoch=1, base_sequence=3)
    expected = bytearray(theirs.build())
    expected[12:16] = ours[12:16]  # the leader epoch, which is the broker's to write and outside the checksum
    assert bytes(ours) == bytes(expected)


def test_headers_that_are_no_text_are_refused_before_anything_is_encoded():
    with pytest.raises((TypeError, AttributeError)):
        RecordColumns([b"x"], None, [[(b"bytes", b"")]], 0)
