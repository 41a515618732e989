"""kafka-python and aiokafka read what we write, and we read what they write."""

from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaReader
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonReader
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from ottla.protocol.records.batch import Record, decode_batch, encode_batch
from ottla.protocol.records.compression import Compression

BUILDERS = [KafkaPythonBuilder, AiokafkaBuilder]
READERS = [KafkaPythonReader, AiokafkaReader]
RECORDS = st.lists(
    st.tuples(
        st.integers(0, 2**41),
        st.none() | st.binary(max_size=300),
        st.none() | st.binary(max_size=300),
        st.lists(st.tuples(st.text(max_size=12), st.none() | st.binary(max_size=20)), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=25,
).map(lambda loose: [Record(offset, *fields) for offset, fields in enumerate(loose)])


def written_by(builder, records, codec):
    batch = builder(2, int(codec), False, 21, 3, 40, 10_000_000)
    for record in records:
        batch.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    return bytes(batch.build())


def read_by(reader, batch):
    opened = reader(bytes(batch))
    assert opened.validate_crc()
    return [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in opened]


@pytest.mark.parametrize("builder", BUILDERS)
@settings(max_examples=60)
@given(records=RECORDS)
def test_uncompressed_batches_are_theirs_byte_for_byte(builder, records):
    ours = encode_batch(records, producer_id=21, producer_epoch=3, base_sequence=40)
    theirs = bytearray(written_by(builder, records, Compression.NONE))
    # Clients differ in the leader epoch they leave for the broker to write; it is outside the checksum.
    theirs[12:16] = ours[12:16]
    assert ours == theirs


@pytest.mark.parametrize("builder", BUILDERS)
@settings(max_examples=40)
@given(records=RECORDS, codec=st.sampled_from(Compression))
def test_we_read_what_they_write(builder, records, codec):
    assert decode_batch(written_by(builder, records, codec)) == records


@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=40)
@given(records=RECORDS, codec=st.sampled_from(Compression))
def test_they_read_what_we_write(reader, records, codec):
    assert read_by(reader, encode_batch(records, compression=codec)) == records


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("size", [1_000, 200_000])
def test_batches_of_many_blocks_cross_both_ways(codec, size):
    records = [Record(0, 1, b"k", (b"0123456789abcdef" * size)[:size]), Record(1, 2, None, bytes(size))]
    ours = encode_batch(records, compression=codec)
    for reader in READERS:
        assert read_by(reader, ours) == records
    for builder in BUILDERS:
        assert decode_batch(written_by(builder, records, codec)) == records
