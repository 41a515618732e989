"""The vectorised decoder against two others: the broker's own record reader, and kafka-python's."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record import MemoryRecords
from kit.examples import examples
from kit.old_segments import old_messages

from ottla.arrow import batches, decoder, record_bounds
from ottla.arrow.batches import AbortedTransaction, Chunk, survey
from ottla.arrow.decoder import RecordDecoder
from ottla.arrow.varints import PADDING_BYTES
from ottla.protocol.records.batch import decode_batch, encode_batch, iter_batches, parse_header, set_log_append_time
from ottla.protocol.records.compression import Compression
from ottla.protocol.records.control import ControlType, encode_control_key
from ottla.protocol.records.errors import CorruptBatch
from ottla.protocol.records.record import Record
from ottla.storage.cleaner.batch_cleaning import BatchCleaning
from ottla.storage.cleaner.offset_map import OffsetMap

HEADERS = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),
    ]
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
END = 2**62

OLD_CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]

codecs = st.sampled_from(Compression)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
payloads = st.none() | st.binary(max_size=300)
record_contents = st.tuples(
    st.integers(-1, 2**41), payloads, payloads, st.lists(st.tuples(texts, payloads), max_size=3).map(tuple)
)


def decode(data: bytes, *, schema: pa.Schema = SCHEMA, first: int = 0, end: int = END, aborted: Any = ()) -> pa.Table:
    padded = np.frombuffer(data + b"\xff" * PADDING_BYTES, np.uint8)
    found = survey(Chunk(padded, 0, len(data)))
    table = pa.Table.from_batches(RecordDecoder(schema, "flights", 3).decode(found, first, end, aborted), schema)
    table.validate(full=True)
    return table


def rows_of(records: Sequence[Record], timestamp_type: int = 0) -> list[dict[str, Any]]:
    """What Spark's source would show for these records."""
    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": "flights",
            "partition": 3,
            "offset": record.offset,
            "timestamp": EPOCH + timedelta(milliseconds=record.timestamp),
            "timestampType": timestamp_type,
            "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
        }
        for record in records
    ]


def simple(first: int, count: int, size: int = 10) -> list[Record]:
    return [Record(first + i, 1000 + i, b"k%d" % i, bytes([i % 251]) * size) for i in range(count)]


@given(st.lists(st.tuples(codecs, st.lists(record_contents, min_size=1, max_size=8)), min_size=1, max_size=6))
@settings(max_examples=examples(80))
def test_any_batches_decode_as_the_brokers_own_reader_decodes_them(contents: list[Any]) -> None:
    data, expected, offset = b"", [], 5
    for codec, items in contents:
        records = [Record(offset + i, *item) for i, item in enumerate(items)]
        batch = bytes(encode_batch(records, compression=codec))
        assert decode_batch(batch) == records
        offset += len(records)
        data += batch
        expected += rows_of(records)
    assert decode(data).to_pylist() == expected


@pytest.mark.parametrize("codec", Compression)
def test_batches_decode_as_kafka_python_decodes_them(codec: Compression) -> None:
    records = [
        Record(
            i, 1_600_000_000_000 + 7 * i, None if i % 5 == 0 else b"key-%d" % i, b"v" * (i % 90), (("h", b"%d" % i),)
        )
        for i in range(500)
    ]
    data = b"".join(
        bytes(encode_batch(part, compression=codec)) for part in (records[:3], records[3:300], records[300:])
    )
    reader = MemoryRecords(data)
    expected = []
    while (batch := reader.next_batch()) is not None:
        expected += [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in batch]
    found = [
        (
            row["offset"],
            round((row["timestamp"] - EPOCH).total_seconds() * 1000),
            row["key"],
            row["value"],
            [(header["key"], header["value"]) for header in row["headers"]],
        )
        for row in decode(data).to_pylist()
    ]
    assert len(expected) == 500
    assert found == expected


@pytest.mark.parametrize("lanes", [1, 63, 64, 65, 200], ids="{} batches".format)
def test_many_and_few_batches_of_uneven_lengths_decode_alike(lanes: int) -> None:
    data, expected, offset = b"", [], 0
    for lane in range(lanes):
        records = simple(offset, 1 + lane * 7 % 40, size=lane % 3 * 50)
        offset += len(records)
        data += bytes(encode_batch(records))
        expected += rows_of(records)
    assert decode(data).to_pylist() == expected


def test_walking_lanes_together_and_apart_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"".join(bytes(encode_batch(simple(100 * i, 1 + i, size=3 * i))) for i in range(80))
    together = decode(data)
    monkeypatch.setattr(record_bounds, "FEWEST_LANES", 10**9)
    assert decode(data).equals(together)


def test_columns_are_those_of_the_schema_in_its_order() -> None:
    data = bytes(encode_batch(simple(0, 3)))
    schema = pa.schema([SCHEMA.field(name) for name in ("offset", "value")])
    assert decode(data, schema=schema).schema == schema
    assert decode(data, schema=schema).to_pydict() == {
        "offset": [0, 1, 2],
        "value": [bytes([i]) * 10 for i in range(3)],
    }


@pytest.mark.parametrize("name", SCHEMA.names)
def test_each_column_can_be_read_alone(name: str) -> None:
    data = bytes(encode_batch([Record(0, 5, b"k", None, (("a", None),)), Record(1, 6, None, b"v")]))
    alone = decode(data, schema=pa.schema([SCHEMA.field(name)]))
    assert alone.column(0).to_pylist() == decode(data).column(name).to_pylist()


@pytest.mark.parametrize(("first", "end"), [(0, 9), (4, 5), (5, 7), (0, 10), (9, 10), (10, 10), (12, 20)])
def test_only_offsets_of_the_range_come_out(first: int, end: int) -> None:
    data = bytes(encode_batch(simple(0, 5))) + bytes(encode_batch(simple(5, 5), compression=Compression.LZ4))
    offsets = decode(data, first=first, end=end).column("offset").to_pylist()
    assert offsets == list(range(first, min(end, 10)))


def test_gaps_of_compaction_are_kept() -> None:
    records = [Record(3, 0, b"a", b""), Record(7, 0, b"b", b""), Record(8, 0, b"c", b"")]
    assert decode(bytes(encode_batch(records, base_offset=2))).column("offset").to_pylist() == [3, 7, 8]


def test_log_append_time_gives_every_record_the_brokers_time() -> None:
    batch = encode_batch(simple(0, 2))
    set_log_append_time(batch, 77_000)
    records = [record._replace(timestamp=77_000) for record in simple(0, 2)]
    assert decode(bytes(batch)).to_pylist() == rows_of(records, timestamp_type=1)


def test_header_keys_that_are_no_utf8_are_shown_with_replacement_characters() -> None:
    record = Record(0, 0, None, None, (("\udcff", b"x"), ("ö", None)))
    (row,) = decode(bytes(encode_batch([record]))).to_pylist()
    assert row["headers"] == [{"key": "\ufffd", "value": b"x"}, {"key": "ö", "value": None}]


def test_control_batches_are_left_out() -> None:
    marker = encode_batch([Record(2, 0, encode_control_key(ControlType.COMMIT), bytes(6))], is_control=True)
    data = bytes(encode_batch(simple(0, 2))) + bytes(marker) + bytes(encode_batch(simple(3, 1)))
    assert decode(data).column("offset").to_pylist() == [0, 1, 3]


def test_aborted_transactions_are_left_out_up_to_their_marker() -> None:
    def batch(offset: int, producer_id: int, **extra: Any) -> bytes:
        records = extra.pop("records", simple(offset, 1))
        return bytes(encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0, **extra))

    def marker(offset: int, producer_id: int, kind: ControlType) -> bytes:
        record = Record(offset, 0, encode_control_key(kind), bytes(6))
        return batch(offset, producer_id, records=[record], is_control=True, is_transactional=True)

    data = b"".join(
        [
            batch(0, 7, is_transactional=True),
            batch(1, 8, is_transactional=True),
            batch(2, 7),
            marker(3, 7, ControlType.ABORT),
            batch(4, 7, is_transactional=True),
            marker(5, 7, ControlType.COMMIT),
            marker(6, 8, ControlType.COMMIT),
        ]
    )
    assert decode(data, aborted=[AbortedTransaction(7, 0)]).column("offset").to_pylist() == [1, 2, 4]


def test_a_batch_cut_off_at_the_end_of_the_chunk_is_left_for_the_next() -> None:
    whole = bytes(encode_batch(simple(0, 4)))
    for cut in (1, 60, 61, len(whole) - 1):
        data = whole + bytes(encode_batch(simple(4, 4)))[:cut]
        found = survey(Chunk(np.frombuffer(data + bytes(PADDING_BYTES), np.uint8), 0, len(data)))
        assert found.next_offset == 4
        assert decode(data).num_rows == 4


def test_a_chunk_may_lie_anywhere_in_its_buffer() -> None:
    batch = bytes(encode_batch(simple(0, 4)))
    buffer = np.frombuffer(b"\xff" * 13 + batch + b"\xff" * PADDING_BYTES, np.uint8)
    found = survey(Chunk(buffer, 13, 13 + len(batch)))
    (decoded,) = RecordDecoder(SCHEMA, "flights", 3).decode(found, 0, END)
    assert decoded.to_pylist() == rows_of(simple(0, 4))


def test_much_data_is_split_into_blocks_and_arrow_batches_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BLOCK_BYTES", 4000)
    monkeypatch.setattr(decoder, "MAX_ARROW_BATCH_BYTES", 1500)
    for codec in (Compression.NONE, Compression.ZSTD):
        data = b"".join(bytes(encode_batch(simple(20 * i, 20, size=100), compression=codec)) for i in range(12))
        table = decode(data)
        assert table.column("offset").to_pylist() == list(range(240))
        assert table.column("value").to_pylist() == [bytes([i % 20]) * 100 for i in range(240)]
        assert table.column(0).num_chunks > 10


def test_an_empty_chunk_has_no_batches() -> None:
    found = survey(Chunk(np.zeros(PADDING_BYTES, np.uint8), 0, 0))
    assert len(found.headers) == 0
    assert list(itertools.chain(RecordDecoder(SCHEMA, "t", 0).decode(found, 0, END))) == []


@pytest.mark.parametrize("codec", list(Compression))
def test_batches_that_were_compacted_show_what_is_left_of_them(codec: Compression) -> None:
    """Offsets that are missing, a delete horizon in the place of the base timestamp, batches of a header alone."""
    stamp_ms = 1_700_000_000_000
    newest = OffsetMap(1000, 0.9, 10)
    newest.latest_offset = 100
    for key, offset in ((b"a", 2), (b"b", 4), (b"c", 99), (b"d", 9)):
        newest.put(key, offset)
    cleaning = BatchCleaning(
        newest,
        now_ms=stamp_ms,
        delete_retention_ms=60_000,
        end_offset=8,
        last_offset_of=lambda _: None,
        max_decompressed_bytes=1 << 20,
        pause=lambda: None,
    )
    keys = [b"a", b"c", b"a", b"c", b"b", b"c", b"c", b"c", b"c", b"d"]
    values = [None if offset == 4 else b"value %d" % offset for offset in range(10)]
    records = [Record(offset, stamp_ms + offset, keys[offset], values[offset], ()) for offset in range(10)]
    data = b""
    for first, last in ((0, 3), (3, 6), (6, 8), (8, 10)):
        batch = bytes(encode_batch(records[first:last], compression=codec))
        data += cleaning.apply(batch, parse_header(batch)) or b""
    assert [header.record_count for _, header in iter_batches(data)] == [1, 1, 0, 1]
    assert decode(data).to_pylist() == rows_of([records[2], records[4], records[9]])
    assert decode(data, first=3, end=9).to_pylist() == rows_of([records[4]])


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_before_kafka_0_11_are_read_and_batches_behind_them(magic: int, codec: Compression) -> None:
    old = [old_messages(first, 5, magic, codec) for first in (0, 5)]
    new = [Record(10 + i, 1000 + i, None, b"new") for i in range(3)]
    data = b"".join(part.data for part in old) + bytes(encode_batch(new))
    records = [record for part in old for record in part.records] + new
    assert decode(data).to_pylist() == rows_of(records)
    assert decode(data, first=3, end=11).to_pylist() == rows_of(records[3:11])
    for cut in (1, 70, len(data) // 2):  # what a broker cuts off is asked for again
        whole = decode(data[:-cut]).to_pylist()
        assert whole == rows_of(records)[: len(whole)]
        assert len(whole) < len(records)


def test_a_short_old_message_at_the_end_of_what_was_fetched_is_seen() -> None:
    new = [Record(0, 7, None, b"new")]
    old = old_messages(1, 1, 1)
    assert len(old.data) < batches.HEADER_BYTES
    assert decode(old.data).to_pylist() == rows_of(old.records)
    assert decode(bytes(encode_batch(new)) + old.data).to_pylist() == rows_of(new + old.records)


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
def test_a_flipped_bit_behind_the_offset_of_an_old_message_gives_no_row(magic: int, codec: Compression) -> None:
    data = old_messages(0, 2 if codec else 1, magic, codec).data
    for position in range(8, len(data)):
        for bit in range(8):
            broken = bytearray(data)
            broken[position] ^= 1 << bit
            try:
                table = decode(bytes(broken))
            except CorruptBatch:
                continue
            assert not table.num_rows, (position, bit)
