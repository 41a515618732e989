"""Messages of formats v0 and v1, against kafka-python's and aiokafka's own code for them."""

from __future__ import annotations

import struct
import zlib

import lz4.frame
import pytest
from aiokafka.record.legacy_records import LegacyRecordBatch as AiokafkaReader
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AiokafkaBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.legacy_records import LegacyRecordBatch as KafkaPythonReader
from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonBuilder
from kit.examples import examples

from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.errors import CorruptBatch, DecompressedTooLarge
from ottla.protocol.records.formats import any_crc_matches, decode_any, header_of_whole, iter_any, parse_any_header
from ottla.protocol.records.legacy import (
    WrongChecksum,
    decode_message,
    encode_message,
    encode_message_set,
    iter_messages,
    parse_message_header,
)
from ottla.protocol.records.record import Record

BUILDERS = [KafkaPythonBuilder, AiokafkaBuilder]
READERS = [KafkaPythonReader, AiokafkaReader]
CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
MAGICS = [0, 1]


def codecs_of(theirs, magic):
    """aiokafka has no LZ4 for format v0."""
    lacks = magic == 0 and theirs in (AiokafkaBuilder, AiokafkaReader)
    return st.sampled_from([Compression.NONE, *(codec for codec in CODECS if not (lacks and codec is Compression.LZ4))])


def records_of(loose):
    return [Record(offset, *fields) for offset, fields in enumerate(loose)]


RECORDS = st.lists(
    st.tuples(st.integers(0, 2**41), st.none() | st.binary(max_size=300), st.none() | st.binary(max_size=300)),
    min_size=1,
    max_size=20,
).map(records_of)


def as_stored(records, magic):
    """v0 has no timestamps."""
    return [record._replace(timestamp=-1) for record in records] if magic == 0 else records


def written_by(builder, records, magic, codec):
    batch = builder(magic, int(codec), 10_000_000)
    for record in records:
        batch.append(record.offset, record.timestamp, record.key, record.value)
    return bytearray(batch.build())


def read_by(reader, message_set, magic):
    read = []
    for position, header in iter_messages(message_set):
        opened = reader(bytes(message_set[position : position + header.size_bytes]), magic)
        assert opened.validate_crc()
        read += [Record(r.offset, -1 if r.timestamp is None else r.timestamp, r.key, r.value) for r in opened]
    return read


def decode_set(message_set, **options):
    view = memoryview(message_set)
    return [record for position, _ in iter_messages(view) for record in decode_message(view[position:], **options)]


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize("magic", MAGICS)
@settings(max_examples=examples(40))
@given(records=RECORDS)
def test_uncompressed_messages_are_theirs_byte_for_byte(builder, magic, records):
    assert encode_message_set(records, magic) == written_by(builder, records, magic, Compression.NONE)


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize("magic", MAGICS)
@settings(max_examples=examples(40))
@given(records=RECORDS, data=st.data())
def test_we_read_what_they_write(builder, magic, records, data):
    codec = data.draw(codecs_of(builder, magic))
    theirs = written_by(builder, records, magic, codec)
    assert decode_set(theirs, is_from_producer=True) == as_stored(records, magic)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("magic", MAGICS)
@settings(max_examples=examples(40))
@given(records=RECORDS, data=st.data(), first=st.integers(0, 2**40))
def test_they_read_what_we_write(reader, magic, records, data, first):
    codec = data.draw(codecs_of(reader, magic))
    records = [record._replace(offset=first + 3 * record.offset) for record in records]
    ours = encode_message_set(records, magic, compression=codec)
    assert read_by(reader, ours, magic) == as_stored(records, magic)
    assert decode_set(ours) == as_stored(records, magic)


@pytest.mark.parametrize("magic", MAGICS)
def test_a_compressed_message_has_the_offset_of_the_last_one_inside_and_the_newest_timestamp(magic):
    records = [Record(40, 9, None, b"a"), Record(47, 5, None, b"b")]
    message = encode_message_set(records, magic, compression=Compression.GZIP)
    header = parse_any_header(message)
    assert header.last_offset == 47
    assert header.max_timestamp == (9 if magic else -1)
    whole = header_of_whole(message, header)
    assert (whole.base_offset, whole.last_offset, whole.record_count) == (40, 47, 2)


@pytest.mark.parametrize("magic", MAGICS)
@settings(max_examples=examples(30))
@given(records=RECORDS, codec=st.sampled_from(CODECS), first=st.integers(1, 2**40), stamp=st.none() | st.just(77))
def test_a_look_inside_finds_what_decoding_would(magic, records, codec, first, stamp):
    records = [record._replace(offset=first + 3 * record.offset) for record in records]
    message = encode_message_set(records, magic, compression=codec, log_append_time_ms=stamp)
    whole = header_of_whole(message, parse_any_header(message))
    decoded = decode_message(message)
    assert (whole.base_offset, whole.last_offset, whole.record_count, whole.base_timestamp) == (
        decoded[0].offset,
        decoded[-1].offset,
        len(decoded),
        decoded[0].timestamp,
    )


def test_a_look_inside_what_is_broken_is_refused():
    for value in (None, b"", b"no gzip", zlib.compress(b"", wbits=31), zlib.compress(bytes(40), wbits=31)):
        message = encode_message(1, 9, 1, None, value, attributes=1)
        with pytest.raises(CorruptBatch):
            header_of_whole(message, parse_any_header(message))


def test_the_offsets_inside_are_relative_in_v1_and_absolute_in_v0():
    records = [Record(40, 9, None, b"a"), Record(47, 5, None, b"b")]
    for magic, expected in ((0, [40, 47]), (1, [0, 7])):
        message = encode_message_set(records, magic, compression=Compression.GZIP)
        value = bytes(message[26 + 8 if magic else 18 + 8 :])
        inside = zlib.decompress(value, wbits=31)
        assert [header.base_offset for _, header in iter_messages(inside)] == expected


def test_librdkafka_wrote_an_outer_offset_of_0_and_meant_nothing_by_it():
    message = encode_message_set(records_of([(5, None, b"a"), (6, None, b"b")]), 1, compression=Compression.GZIP)
    struct.pack_into(">q", message, 0, 0)
    assert [record.offset for record in decode_message(message)] == [0, 1]


def test_an_outer_offset_below_the_last_one_inside_is_corrupt():
    message = encode_message_set(records_of([(5, None, b"a")] * 5), 1, compression=Compression.GZIP)
    struct.pack_into(">q", message, 0, 3)
    with pytest.raises(CorruptBatch, match="the last message inside has offset 4, and the outer one 3"):
        decode_message(message)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.SNAPPY])
def test_log_append_time_of_the_outer_message_is_everybodys(codec):
    records = records_of([(5, None, b"a"), (6, None, b"b")])
    stamped = encode_message_set(records, 1, compression=codec, log_append_time_ms=77)
    assert [record.timestamp for record in decode_set(stamped)] == [77, 77]
    assert all(header.is_log_append_time for _, header in iter_messages(stamped))
    assert read_by(KafkaPythonReader, stamped, 1) == decode_set(stamped)


@pytest.mark.parametrize("magic", MAGICS)
def test_the_header_of_an_lz4_frame_has_the_wrong_checksum_in_v0_and_the_right_one_in_v1(magic):
    message = encode_message_set([Record(0, 1, None, b"x" * 90)], magic, compression=Compression.LZ4)
    frame = bytes(message[34 if magic else 26 :])
    assert frame[:7].hex() == ("04224d18604082" if magic else "04224d1860401a")


def test_an_lz4_frame_of_v0_is_read_with_the_right_header_checksum_too():
    right = lz4.frame.compress(bytes(encode_message(0, 0, -1, None, b"hi")), block_linked=False, store_size=True)
    message = encode_message(0, 0, -1, None, right, attributes=int(Compression.LZ4))
    assert decode_message(message) == [Record(0, -1, None, b"hi")]


# Bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", MAGICS)
def test_one_flipped_bit_anywhere_behind_the_checksum_is_noticed(magic):
    message = encode_message(magic, 3, 1000, b"key", b"value")
    for position in range(12, len(message)):
        broken = bytearray(message)
        broken[position] ^= 0x10
        with pytest.raises(CorruptBatch):
            decode_message(broken)


@pytest.mark.parametrize("magic", MAGICS)
def test_every_cut_of_a_message_is_noticed(magic):
    message = encode_message(magic, 3, 1000, b"key", b"value")
    for length in range(len(message)):
        with pytest.raises(CorruptBatch):
            decode_message(message[:length])


def resealed(message):
    struct.pack_into(">I", message, 12, zlib.crc32(message[16:]))
    return message


@pytest.mark.parametrize(("at", "length"), [(26, -2), (26, 900), (33, -7), (33, 5), (33, 7), (33, 2**31 - 1)])
def test_a_key_or_value_length_that_cannot_be_is_corrupt(at, length):
    message = encode_message(1, 0, 1, b"key", b"values")
    struct.pack_into(">i", message, at, length)
    with pytest.raises(CorruptBatch):
        decode_message(resealed(message))


@pytest.mark.parametrize("magic", MAGICS)
def test_zstd_is_refused_in_old_formats(magic):
    message = encode_message(magic, 0, 1, None, b"whatever", attributes=4)
    with pytest.raises(CorruptBatch, match="no zstd"):
        decode_message(message)
    with pytest.raises(ValueError, match="no zstd"):
        encode_message_set([Record(0, 1, None, b"")], magic, compression=Compression.ZSTD)


@pytest.mark.parametrize("magic", MAGICS)
def test_a_compressed_message_inside_a_compressed_message_is_refused(magic):
    inner = encode_message_set([Record(0, 1, None, b"deep")], magic, compression=Compression.GZIP)
    outer = encode_message(magic, 0, 1, None, zlib.compress(bytes(inner), wbits=31), attributes=1)
    with pytest.raises(CorruptBatch, match="a compressed message inside a compressed message"):
        decode_message(outer)


@pytest.mark.parametrize(("value", "why"), [(None, "without a value"), (zlib.compress(b"", wbits=31), "none inside")])
def test_a_compressed_message_of_nothing_is_refused(value, why):
    with pytest.raises(CorruptBatch, match=why):
        decode_message(encode_message(1, 0, 1, None, value, attributes=1))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", MAGICS)
def test_what_a_compressed_message_may_expand_to_is_bounded(magic, codec):
    message = encode_message_set([Record(0, 1, None, bytes(100_000))], magic, compression=codec)
    with pytest.raises(DecompressedTooLarge):
        decode_message(message, max_decompressed_bytes=99_999)
    assert len(decode_message(message, max_decompressed_bytes=110_000)) == 1


def gzip_message(magic, inside):
    return encode_message(magic, 0, 1, None, zlib.compress(bytes(inside), wbits=31), attributes=1)


def test_from_a_producer_the_messages_inside_are_checked_too():
    inside = encode_message(1, 0, 1, None, b"value")
    inside[-1] ^= 1
    with pytest.raises(WrongChecksum):
        decode_message(gzip_message(1, inside), is_from_producer=True)
    assert decode_message(gzip_message(1, inside))[0].value == b"valud"


def test_from_a_producer_all_messages_have_one_format():
    message = gzip_message(1, encode_message(0, 0, 1, None, b"value"))
    with pytest.raises(CorruptBatch, match="a message of magic 0 inside one of magic 1"):
        decode_message(message, is_from_producer=True)
    assert decode_message(message) == [Record(0, -1, None, b"value")]


def test_a_last_message_inside_that_is_cut_short_is_skipped_on_disk_and_refused_from_a_producer():
    inside = encode_message(1, 0, 1, None, b"whole") + encode_message(1, 1, 1, None, b"cut")[:-1]
    message = gzip_message(1, inside)
    assert [record.value for record in decode_message(message)] == [b"whole"]
    with pytest.raises(CorruptBatch, match="remain"):
        decode_message(message, is_from_producer=True)


@pytest.mark.parametrize("magic", [-1, 2, 3, 127])
def test_another_magic_is_no_message(magic):
    message = encode_message(1, 0, 1, None, b"value")
    struct.pack_into(">b", message, 16, magic)
    with pytest.raises(CorruptBatch):
        parse_message_header(message)


@settings(max_examples=examples(200))
@given(data=st.binary(max_size=120), magic=st.sampled_from(MAGICS))
def test_noise_is_corrupt_and_nothing_worse(data, magic):
    noise = bytearray(data)
    if len(noise) > 16:
        noise[16] = magic
    try:
        decode_any(noise, check_crc=False, max_decompressed_bytes=10_000)
    except CorruptBatch:
        return


# All formats behind one face ----------------------------------------------------------------------------------------


def test_a_log_of_all_three_formats_is_walked_in_order():
    pieces = [
        encode_message_set(records_of([(5, b"k", b"a"), (6, None, b"b")]), 0),
        encode_message_set([Record(2, 7, None, b"c"), Record(3, 8, None, b"d")], 1, compression=Compression.LZ4),
        encode_batch([Record(4, 9, None, b"e")]),
        encode_message(1, 5, 10, None, None),
    ]
    data = b"".join(pieces)
    walked = list(iter_any(data))
    assert [header.last_offset for _, header in walked] == [0, 1, 3, 4, 5]
    assert all(any_crc_matches(data[position:], header) for position, header in walked)
    records = [record for position, _ in walked for record in decode_any(memoryview(data)[position:])]
    assert [(record.offset, record.timestamp, record.value) for record in records] == [
        (0, -1, b"a"),
        (1, -1, b"b"),
        (2, 7, b"c"),
        (3, 8, b"d"),
        (4, 9, b"e"),
        (5, 10, None),
    ]


def test_a_partial_tail_ends_the_walk_where_it_is_allowed():
    message = encode_message(0, 0, -1, None, b"whole")
    for tail in range(1, len(message)):
        data = message + message[:tail]
        assert [position for position, _ in iter_any(data, allow_partial_tail=True)] == [0]
        assert [position for position, _ in iter_messages(data, allow_partial_tail=True)] == [0]
        with pytest.raises(CorruptBatch):
            list(iter_any(data))
