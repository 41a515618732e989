"""Bytes that no honest producer writes: each must be refused in words, and none may lead outside of its buffer."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples

from ottla.arrow import batches, decoder, record_bounds
from ottla.arrow.batches import Chunk, survey
from ottla.arrow.decoder import RecordDecoder
from ottla.arrow.varints import PADDING_BYTES
from ottla.protocol.records.batch import HEADER_BYTES, compute_crc, encode_batch
from ottla.protocol.records.compression import Compression, compress
from ottla.protocol.records.errors import CorruptBatch, DecompressedTooLarge
from ottla.protocol.records.record import Record, encode_varint

HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", HEADERS),
    ]
)


def decode(data: bytes, *, check_crcs: bool = True, first: int = 0, end: int = 2**62) -> pa.Table:
    found = survey(Chunk(np.frombuffer(data + b"\xff" * PADDING_BYTES, np.uint8), 0, len(data)))
    decoder = RecordDecoder(SCHEMA, "t", 0, check_crcs=check_crcs)
    table = pa.Table.from_batches(decoder.decode(found, first, end), SCHEMA)
    table.validate(full=True)
    return table


def with_records(body: bytes, count: int, codec: Compression = Compression.NONE, last_offset_delta: int = 9) -> bytes:
    """A batch with a right checksum around records of any bytes."""
    batch = bytearray(encode_batch([Record(0, 0, None, None)]))[:HEADER_BYTES] + body
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">hi", batch, 21, codec, last_offset_delta)
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">I", batch, 17, compute_crc(batch))
    return bytes(batch)


def record(
    *, length: int | None = None, offset: int = 0, key: bytes = b"\x01", value: bytes = b"\x01", rest: bytes = b"\x00"
) -> bytes:
    body = b"\x00" + encode_varint(0) + encode_varint(offset) + key + value + rest
    return encode_varint(len(body) if length is None else length) + body


CASES = {
    "no record where one is claimed": (b"", 1),
    "a count far above the bytes": (record(), 2**31 - 1),
    "a count below the records": (record() + record(offset=1), 1),
    "a count above the records": (record() + b"\x00" * 8, 2),
    "a record longer than the batch": (record(length=500) + bytes(8), 1),
    "a record of negative length": (record(length=-3) + bytes(8), 1),
    "a record shorter than its fields": (record(length=2), 1),
    "a record length of six bytes": (b"\x80\x80\x80\x80\x80\x01" + record(), 1),
    "a key longer than the record": (record(key=encode_varint(1000)), 1),
    "a key of length -2": (record(key=encode_varint(-2)), 1),
    "a value that ends behind the record": (record(value=encode_varint(3)), 1),
    "a value of two gigabytes": (record(value=encode_varint(2**31 - 1)), 1),
    "headers without bytes": (record(rest=encode_varint(50)), 1),
    "a negative count of headers": (record(rest=encode_varint(-1)), 1),
    "a header without a key": (record(rest=encode_varint(1) + encode_varint(-1) + encode_varint(-1)), 1),
    "a header value behind the record": (record(rest=encode_varint(1) + b"\x00" + encode_varint(9)), 1),
    "an offset above the batch's last": (record(offset=10), 1),
    "an offset below the batch's first": (record(offset=-1), 1),
    "offsets that go back": (record(offset=3) + record(offset=2), 2),
}


@pytest.mark.parametrize("lanes", [1, 100], ids=["one batch", "hundred batches"])
@pytest.mark.parametrize("case", CASES)
def test_is_refused(case: str, lanes: int) -> None:
    body, count = CASES[case]
    bad = bytearray(with_records(body, count))
    data = b""
    for lane in range(lanes):
        struct.pack_into(">q", bad, 0, 10 * lane)
        data += bytes(bad)
    with pytest.raises(CorruptBatch):
        decode(data)


@pytest.mark.parametrize("fewest_lanes", [1, 1000], ids=["together", "apart"])
def test_a_length_below_0_is_distinguished_from_one_that_is_too_large(
    fewest_lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_bounds, "FEWEST_LANES", fewest_lanes)
    with pytest.raises(CorruptBatch, match="length below 0"):
        decode(with_records(record(length=-3) + bytes(8), 1))
    with pytest.raises(CorruptBatch, match="longer than its batch"):
        decode(with_records(record(length=300) + bytes(8), 1))


def test_fields_are_bounded_by_their_record_even_when_no_value_is_read() -> None:
    """The timestamp's varint goes on into the next record, which alone would be sound."""
    first = encode_varint(6) + b"\x00" + b"\x80" * 5
    bad = with_records(first + record(offset=1), 2)
    found = survey(Chunk(np.frombuffer(bad + bytes(PADDING_BYTES), np.uint8), 0, len(bad)))
    with pytest.raises(CorruptBatch, match="past the end of its record"):
        list(RecordDecoder(pa.schema([("offset", pa.int64())]), "t", 0).decode(found, 0, 2**62))


def test_the_sound_record_that_the_cases_vary_is_read() -> None:
    assert decode(with_records(record() + record(offset=9), 2)).column("offset").to_pylist() == [0, 9]


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_compressed_bytes_that_are_broken_are_refused(codec: Compression) -> None:
    sound = compress(codec, record() * 1)
    assert decode(with_records(sound, 1, codec)).num_rows == 1
    for broken in (b"", b"\x00garbage", sound[: len(sound) // 2]):
        with pytest.raises(CorruptBatch):
            decode(with_records(broken, 1, codec))


def test_an_unknown_codec_is_refused() -> None:
    batch = bytearray(with_records(record(), 1))
    struct.pack_into(">h", batch, 21, 7)
    struct.pack_into(">I", batch, 17, compute_crc(batch))
    with pytest.raises(CorruptBatch, match="unknown codec 7"):
        decode(bytes(batch))


MANY = [record(offset=i, value=encode_varint(1) + b"%d" % i) for i in range(10)]


def test_of_a_batch_of_very_many_records_only_so_many_are_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = with_records(b"".join(MANY), 10)
    rows = decode(whole).to_pylist()
    monkeypatch.setattr(decoder, "MAX_RECORDS_AT_ONCE", 4)
    found = survey(Chunk(np.frombuffer(whole + bytes(PADDING_BYTES), np.uint8), 0, len(whole)))
    parts = list(RecordDecoder(SCHEMA, "t", 0).decode(found, 1, 9))
    assert [part.num_rows for part in parts] == [3, 4, 1]
    assert pa.Table.from_batches(parts).to_pylist() == rows[1:9]


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (b"".join([*MANY[:4], MANY[3], *MANY[5:]]), 10),
        (b"".join([*MANY[:4], *MANY[:6]]), 10),
        (b"".join(MANY), 9),
        (b"".join(MANY) + bytes(8), 11),
        (b"".join(MANY), 2**31 - 1),
    ],
    ids=[
        "an offset twice, at the seam",
        "offsets that go back, at the seam",
        "a count below",
        "a count above",
        "far above",
    ],
)
def test_a_batch_that_is_read_in_pieces_is_checked_as_a_whole(
    body: bytes, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoder, "MAX_RECORDS_AT_ONCE", 4)
    with pytest.raises(CorruptBatch):
        decode(with_records(body, count))


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec])
def test_what_a_batch_expands_to_is_bounded(codec: Compression, monkeypatch: pytest.MonkeyPatch) -> None:
    body = record(value=encode_varint(20_000) + bytes(20_000))
    bomb = with_records(compress(codec, body), 1, codec)
    monkeypatch.setattr(batches, "MAX_UNPACKED_BATCH_BYTES", len(body))
    assert decode(bomb).num_rows == 1
    monkeypatch.setattr(batches, "MAX_UNPACKED_BATCH_BYTES", len(body) - 1)
    with pytest.raises(DecompressedTooLarge):
        decode(bomb)


def test_a_wrong_checksum_is_refused_with_the_batchs_offset_and_may_be_ignored() -> None:
    batch = bytearray(encode_batch([Record(41, 0, b"k", b"value")]))
    batch[-2] ^= 1
    with pytest.raises(CorruptBatch, match="offset 41 does not match its checksum"):
        decode(bytes(batch))
    assert decode(bytes(batch), check_crcs=False).num_rows == 1


@pytest.mark.parametrize(
    ("position", "bit"), [(22, 5), (60, 1), (26, 1)], ids=["control bit", "count of 2 to 0", "last offset of 43 to 41"]
)
def test_damage_that_makes_a_batch_look_unwanted_is_refused_and_its_records_are_not_left_out(
    position: int, bit: int
) -> None:
    batch = bytearray(encode_batch([Record(40, 0, b"k", b"v"), Record(43, 0, b"k", b"v")]))
    assert len(decode(bytes(batch), first=41)) == 1
    batch[position] ^= 1 << bit
    with pytest.raises(CorruptBatch, match="offset 40 does not match its checksum"):
        decode(bytes(batch), first=42)


def test_batches_behind_the_range_are_not_looked_at() -> None:
    batch = bytearray(encode_batch([Record(41, 0, b"k", b"value")]))
    batch[-2] ^= 1
    sound = bytes(encode_batch([Record(40, 0, b"k", b"v")]))
    assert len(decode(sound + bytes(batch), end=41)) == 1


@pytest.mark.parametrize(
    ("position", "form", "value"),
    [(8, ">i", 48), (8, ">i", -1), (16, ">b", 1), (0, ">q", -1), (0, ">q", 2**63 - 1), (23, ">i", -1), (57, ">i", -1)],
    ids=["length", "negative length", "magic", "negative offset", "huge offset", "offset delta", "count"],
)
def test_an_impossible_header_is_refused(position: int, form: str, value: int) -> None:
    batch = bytearray(encode_batch([Record(0, 0, b"k", b"v")]))
    struct.pack_into(form, batch, position, value)
    with pytest.raises(CorruptBatch):
        decode(bytes(batch), check_crcs=False)


def test_batches_whose_offsets_do_not_grow_are_refused() -> None:
    batch = bytes(encode_batch([Record(0, 0, b"k", b"v"), Record(1, 0, b"k", b"v")]))
    again = bytes(encode_batch([Record(1, 0, b"k", b"v")]))
    with pytest.raises(CorruptBatch, match="batches whose offsets do not grow"):
        decode(batch + again)


def test_a_timestamp_beyond_microseconds_is_refused() -> None:
    with pytest.raises(CorruptBatch, match="timestamp"):
        decode(bytes(encode_batch([Record(0, 2**62, None, None)])))


@given(data=st.data(), apart=st.booleans())
@settings(max_examples=examples(150))
def test_flipped_bytes_are_refused_or_read_but_never_lead_astray(data: st.DataObject, apart: bool) -> None:
    records = [Record(i, 10 * i, b"key", b"value" * i, (("h", b"x"),)) for i in range(12)]
    chunk = bytearray(b"".join(bytes(encode_batch(records[i : i + 3])) for i in (0, 3, 6, 9)))
    for position in data.draw(st.lists(st.integers(0, len(chunk) - 1), min_size=1, max_size=6)):
        chunk[position] = data.draw(st.integers(0, 255))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_bounds, "FEWEST_LANES", 1000 if apart else 1)
        try:
            table = decode(bytes(chunk), check_crcs=False)
        except CorruptBatch:
            return
    assert all(len(value or b"") <= len(chunk) for value in table.column("value").to_pylist())
