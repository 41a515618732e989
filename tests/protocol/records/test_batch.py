"""Batches go out and come back whole, and what is not whole is refused as CorruptBatch and as nothing else."""

from __future__ import annotations

import contextlib
import random
import struct

import crcmod.predefined
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples

from ottla.protocol.records.batch import (
    HEADER_BYTES,
    CorruptBatch,
    DecompressedTooLarge,
    Record,
    compute_crc,
    crc_matches,
    decode_batch,
    encode_batch,
    increment_sequence,
    iter_batches,
    parse_header,
    parse_only,
    seal_batch,
    set_log_append_time,
    set_offset_and_epoch,
)
from ottla.protocol.records.builder import BatchBuilder
from ottla.protocol.records.checksum import crc32c
from ottla.protocol.records.compression import Compression

TIMESTAMPS = st.integers(-1, 2**62)
BYTES = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=70)), max_size=4).map(tuple)
LOOSE_RECORDS = st.lists(st.tuples(TIMESTAMPS, BYTES, BYTES, HEADERS, st.integers(1, 20_000)), min_size=1, max_size=30)
ALL = list(Compression)


def spread(loose: list[tuple], first: int) -> list[Record]:
    records, offset = [], first
    for timestamp, key, value, headers, gap in loose:
        records.append(Record(offset, timestamp, key, value, headers))
        offset += gap
    return records


def sample(count: int = 20) -> list[Record]:
    return [
        Record(index, 1_700_000_000_000 + index * 50, b"key-%d" % index, b"value " * index, (("h", b"x"), ("n", None)))
        for index in range(count)
    ]


@pytest.mark.parametrize("count", [1, 3])
def test_the_header_of_the_only_batch_is_that_of_the_batch(count):
    batch = bytes(encode_batch(sample(count)))
    assert parse_only(batch) == parse_only(memoryview(batch)) == parse_header(batch)
    for other in (b"", batch[:60], batch[:-1], batch + b"0", batch + batch):
        assert parse_only(other) is None


@given(st.binary(min_size=61, max_size=70), st.integers(-1, 70), st.integers(1, 3), st.integers(-1, 3))
def test_a_header_that_is_parsed_alone_is_one_that_is_parsed(data, length, magic, count):
    batch = data[:8] + struct.pack(">i", length) + data[12:16] + struct.pack(">b", magic) + data[17:57]
    batch += struct.pack(">i", count) + data[61:]
    found = parse_only(batch)
    try:
        header = parse_header(batch)
    except CorruptBatch:
        header = None
    assert found == (header if header is not None and header.size_bytes == len(batch) else None)


@given(st.binary(min_size=57, max_size=57), st.integers(-2, 3), st.integers(-2, 5))
def test_an_impossible_count_is_not_parsed_alone(data, last_offset_delta, count):
    batch = data[:8] + struct.pack(">i", 49) + data[12:16] + b"\2" + data[17:23]
    batch += struct.pack(">i", last_offset_delta) + data[27:57] + struct.pack(">i", count)
    assert (parse_only(batch) is not None) == (last_offset_delta >= 0 and 0 <= count <= last_offset_delta + 1)


@given(loose=LOOSE_RECORDS, first=st.integers(0, 2**62), codec=st.sampled_from(ALL), transactional=st.booleans())
def test_records_come_back_as_they_went(loose, first, codec, transactional):
    records = spread(loose, first)
    batch = encode_batch(records, compression=codec, is_transactional=transactional, producer_id=7, producer_epoch=1)
    header = parse_header(batch)
    assert decode_batch(batch) == records
    assert (header.base_offset, header.last_offset) == (first, records[-1].offset)
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert (header.compression, header.is_transactional, header.is_control) == (codec, transactional, False)
    assert (header.size_bytes, header.record_count) == (len(batch), len(records))


@given(loose=LOOSE_RECORDS)
def test_a_builder_makes_the_same_bytes_as_encode_batch(loose):
    records = [record._replace(offset=index) for index, record in enumerate(spread(loose, 0))]
    builder = BatchBuilder()
    for record in records:
        before = builder.size_bytes
        builder.append(record.timestamp, record.key, record.value, record.headers)
        assert builder.size_bytes - before <= builder.upper_bound(record.key, record.value, record.headers)
    assert builder.seal(producer_id=3, producer_epoch=2, base_sequence=9) == encode_batch(
        records, producer_id=3, producer_epoch=2, base_sequence=9
    )


def test_the_bytes_of_the_smallest_batch_are_those_of_the_layout():
    batch = encode_batch([Record(0, 1000, b"k", b"hi")], producer_id=5, producer_epoch=6, base_sequence=7)
    assert batch[HEADER_BYTES:].hex() == "12000000026b04686900"
    assert batch[:17].hex() == "0000000000000000" + "0000003b" + "ffffffff" + "02"
    assert batch[21:HEADER_BYTES].hex() == (
        "0000" + "00000000" + "00000000000003e8" * 2 + "0000000000000005" + "0006" + "00000007" + "00000001"
    )


@pytest.mark.parametrize("codec", ALL)
def test_a_batch_cut_at_any_byte_is_corrupt(codec):
    batch = encode_batch(sample(8), compression=codec)
    for size in range(len(batch)):
        with pytest.raises(CorruptBatch):
            decode_batch(batch[:size])


@pytest.mark.parametrize("codec", ALL)
def test_records_cut_at_any_byte_are_corrupt_even_when_header_and_checksum_agree(codec):
    whole = encode_batch(sample(8), compression=codec)
    for size in range(HEADER_BYTES, len(whole)):
        cut = bytearray(whole[:size])
        struct.pack_into(">i", cut, 8, size - 12)
        struct.pack_into(">I", cut, 17, compute_crc(cut))
        with pytest.raises(CorruptBatch):
            decode_batch(cut)


@settings(max_examples=examples(300))
@given(data=st.data(), codec=st.sampled_from(ALL))
def test_damaged_records_with_a_true_checksum_decode_or_are_corrupt_and_nothing_else(data, codec):
    batch = encode_batch(sample(6), compression=codec)
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(HEADER_BYTES, len(batch) - 1))] = data.draw(st.integers(0, 255))
    struct.pack_into(">I", batch, 17, compute_crc(batch))
    try:
        records = decode_batch(batch, max_decompressed_bytes=1 << 20)
    except CorruptBatch:
        return
    assert len(records) == 6


@given(noise=st.binary(max_size=200))
def test_noise_where_records_should_be_is_corrupt_or_records(noise):
    batch = seal_batch(
        noise,
        base_offset=0,
        leader_epoch=0,
        attributes=0,
        last_offset_delta=4,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=5,
    )
    with contextlib.suppress(CorruptBatch):
        assert len(decode_batch(batch)) == 5


def test_any_flipped_bit_behind_the_checksum_is_noticed():
    batch = encode_batch(sample(3))
    chance = random.Random(1)
    for position in range(21, len(batch)):
        damaged = bytearray(batch)
        damaged[position] ^= 1 << chance.randrange(8)
        with pytest.raises(CorruptBatch):
            decode_batch(damaged)


def test_the_checksum_is_crcmods_and_continues():
    second_opinion = crcmod.predefined.mkCrcFun("crc-32c")
    data = random.Random(2).randbytes(5000)
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(memoryview(data)) == second_opinion(data)
    assert crc32c(data[1000:], crc32c(data[:1000])) == crc32c(data)
    batch = encode_batch(sample())
    assert compute_crc(batch) == second_opinion(bytes(batch[21:])) == parse_header(batch).crc


def test_the_brokers_patch_leaves_the_checksum_true():
    batch = encode_batch(sample(4))
    set_offset_and_epoch(memoryview(batch), 1_000_000_007, 12)
    header = parse_header(batch)
    assert (header.base_offset, header.partition_leader_epoch, header.next_offset) == (1_000_000_007, 12, 1_000_000_011)
    assert crc_matches(batch, header)
    assert [record.offset for record in decode_batch(batch)] == [1_000_000_007 + index for index in range(4)]


def test_log_append_time_stamps_every_record_and_the_checksum_follows():
    batch = encode_batch(sample(4))
    set_log_append_time(memoryview(batch), 123_456)
    header = parse_header(batch)
    assert header.is_log_append_time
    assert header.max_timestamp == 123_456
    assert crc_matches(batch, header)
    assert {record.timestamp for record in decode_batch(batch)} == {123_456}
    assert batch == encode_batch(sample(4), log_append_time_ms=123_456)


def test_batches_are_walked_one_after_the_other_without_looking_inside():
    batches = [
        encode_batch(sample(count), base_offset=0, compression=codec)
        for count, codec in zip((1, 5, 9), ALL[:3], strict=True)
    ]
    joined = b"".join(batches)
    walked = list(iter_batches(joined))
    assert [position for position, _ in walked] == [0, len(batches[0]), len(batches[0]) + len(batches[1])]
    assert [header.record_count for _, header in walked] == [1, 5, 9]
    assert list(iter_batches(b"")) == []


def test_a_walk_over_a_cut_tail_raises_or_ends_as_asked():
    batch = bytes(encode_batch(sample(2)))
    for cut in (1, 20, HEADER_BYTES - 1, HEADER_BYTES, len(batch) - 1):
        with pytest.raises(CorruptBatch):
            list(iter_batches(batch + batch[:cut]))
        assert [position for position, _ in iter_batches(batch + batch[:cut], allow_partial_tail=True)] == [0]


@pytest.mark.parametrize(
    ("position", "form", "value"),
    [
        (8, ">i", 48),
        (8, ">i", -1),
        (8, ">i", -(2**31)),
        (16, ">b", 1),
        (16, ">b", 3),
        (23, ">i", -1),
        (57, ">i", -1),
        (57, ">i", 6),
    ],
    ids=str,
)
def test_an_impossible_header_is_corrupt(position, form, value):
    batch = encode_batch(sample(5))
    struct.pack_into(form, batch, position, value)
    with pytest.raises(CorruptBatch):
        parse_header(batch)


@pytest.mark.parametrize("count", [0, 4, 2**31 - 1])
def test_a_count_that_is_not_the_records_own_is_corrupt(count):
    batch = encode_batch(sample(5))
    struct.pack_into(">i", batch, 23, 2**31 - 1)
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">I", batch, 17, compute_crc(batch))
    with pytest.raises(CorruptBatch):
        decode_batch(batch)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_codec_that_does_not_exist_is_corrupt(codec):
    batch = encode_batch(sample(1))
    struct.pack_into(">h", batch, 21, codec)
    struct.pack_into(">I", batch, 17, compute_crc(batch))
    with pytest.raises(CorruptBatch, match=f"codec {codec}"):
        decode_batch(batch)


@pytest.mark.parametrize("codec", ALL[1:])
def test_a_bomb_is_refused_at_the_limit(codec):
    bomb = encode_batch([Record(0, 0, None, bytes(50_000_000))], compression=codec)
    with pytest.raises(DecompressedTooLarge):
        decode_batch(bomb, max_decompressed_bytes=1_000_000)


def test_sequences_wrap_after_the_largest():
    assert increment_sequence(2**31 - 1, 0) == 2**31 - 1
    assert increment_sequence(2**31 - 1, 1) == 0
    assert increment_sequence(2**31 - 3, 5) == 2
    batch = encode_batch(sample(5), producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert parse_header(batch).last_sequence == 2
    assert parse_header(encode_batch(sample(5))).last_sequence == -1


def test_offsets_that_do_not_ascend_are_not_encoded():
    with pytest.raises(ValueError, match="does not follow"):
        encode_batch([Record(5, 0, None, b""), Record(5, 0, None, b"")])
    with pytest.raises(ValueError, match="does not follow"):
        encode_batch([Record(5, 0, None, b"")], base_offset=6)
    with pytest.raises(ValueError, match="at least one"):
        encode_batch([])
    with pytest.raises(ValueError, match="at least one"):
        BatchBuilder().seal()


def test_a_header_name_that_is_not_utf8_survives():
    batch = encode_batch([Record(0, 0, None, None, (("a\udcff", b"v"),))])
    assert b"a\xff" in batch
    assert encode_batch(decode_batch(batch)) == batch
