"""What stays of one batch: its header's fields, its tombstones, and batches without records."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples

from ottla.protocol.records.batch import (
    HEADER_BYTES,
    Compression,
    CorruptBatch,
    crc_matches,
    decode_batch,
    encode_batch,
    parse_header,
    set_log_append_time,
    set_offset_and_epoch,
)
from ottla.protocol.records.control import ControlType, encode_control_key
from ottla.protocol.records.record import Record
from ottla.storage.cleaner.batch_cleaning import BatchCleaning, put_keys
from ottla.storage.cleaner.offset_map import OffsetMap

NOW_MS = 1_700_000_000_000
RETENTION_MS = 5_000


def batch_of(*records: tuple[bytes | None, bytes | None], stamp_ms: int = NOW_MS, **fields: object) -> bytearray:
    made = [Record(number, stamp_ms + 10 * number, key, value) for number, (key, value) in enumerate(records)]
    batch = encode_batch(made, **fields)
    set_offset_and_epoch(batch, 100, 3)
    return batch


def newest(**offsets: int) -> OffsetMap:
    reported = OffsetMap(1 << 16, 0.9, 100)
    for key, offset in offsets.items():
        reported.put(key.encode(), offset)
    reported.latest_offset = 1000
    return reported


def apply(
    batch: bytes | bytearray, offsets: OffsetMap, *, now_ms: int = NOW_MS, end_offset: int = -1, last: int | None = None
) -> bytes | bytearray | None:
    cleaning = BatchCleaning(
        offsets,
        now_ms=now_ms,
        delete_retention_ms=RETENTION_MS,
        end_offset=end_offset,
        last_offset_of=lambda _: last,
        max_decompressed_bytes=1 << 20,
        pause=lambda: None,
    )
    return cleaning.apply(bytes(batch), parse_header(batch))


@pytest.mark.parametrize("compression", list(Compression))
def test_what_a_batch_says_of_itself_stays_whatever_goes_out_of_it(compression: Compression) -> None:
    batch = batch_of(
        (b"a", b"1"),
        (b"b", b"2"),
        (b"a", b"3"),
        compression=compression,
        producer_id=9,
        producer_epoch=2,
        base_sequence=5,
    )
    kept = apply(batch, newest(a=102, b=500))
    assert kept is not None
    header, old = parse_header(kept), parse_header(batch)
    assert header._replace(batch_length=0, crc=0, record_count=0, base_timestamp=0) == old._replace(
        batch_length=0, crc=0, record_count=0, base_timestamp=0
    )
    assert crc_matches(kept, header)
    assert decode_batch(kept) == [Record(102, NOW_MS + 20, b"a", b"3")]
    assert header.base_timestamp == NOW_MS + 20


def test_the_largest_timestamp_is_that_of_the_records_that_stay() -> None:
    kept = apply(batch_of((b"a", b"1"), (b"b", b"2")), newest(a=100, b=500))
    assert kept is not None
    assert parse_header(kept).max_timestamp == NOW_MS


def test_a_batch_of_which_everything_stays_is_the_same_object() -> None:
    batch = bytes(batch_of((b"a", b"1"), (b"b", b"2")))
    assert apply(batch, newest(a=100, b=101)) == batch


def test_a_batch_of_which_nothing_stays_goes() -> None:
    assert apply(batch_of((b"a", b"1")), newest(a=500)) is None


def test_records_behind_the_map_stay_whatever_it_says() -> None:
    offsets = newest(a=500)
    offsets.latest_offset = 99
    assert apply(batch_of((b"a", b"1")), offsets) is not None


def test_a_record_without_a_key_goes() -> None:
    kept = apply(batch_of((None, b"1"), (b"b", b"2")), newest(b=101))
    assert kept is not None
    assert [record.key for record in decode_batch(kept)] == [b"b"]


def test_a_tombstone_gets_its_horizon_first_and_goes_behind_it() -> None:
    offsets = newest(a=100, b=101)
    marked = apply(batch_of((b"a", None), (b"b", b"2")), offsets)
    assert marked is not None
    header = parse_header(marked)
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW_MS + RETENTION_MS
    assert header.max_timestamp == NOW_MS + 10
    assert [(record.timestamp, record.value) for record in decode_batch(marked)] == [
        (NOW_MS, None),
        (NOW_MS + 10, b"2"),
    ]
    assert apply(marked, offsets, now_ms=NOW_MS + RETENTION_MS - 1) == bytes(marked)
    later = apply(marked, offsets, now_ms=NOW_MS + RETENTION_MS)
    assert later is not None
    assert decode_batch(later) == [Record(101, NOW_MS + 10, b"b", b"2")]
    assert parse_header(later).has_delete_horizon  # as Kafka leaves it
    assert parse_header(later).base_timestamp == NOW_MS + RETENTION_MS


LEAST = NOW_MS - (2**63 - 1)
"""The oldest timestamp that a topic takes by default (`message.timestamp.before.max.ms`)."""


@pytest.mark.parametrize("stamps", [(LEAST,) * 3, (LEAST, NOW_MS, NOW_MS), (NOW_MS, LEAST, NOW_MS)])
def test_a_tombstone_stays_where_its_horizon_would_make_a_timestamp_unreadable(stamps: tuple[int, int, int]) -> None:
    """Deltas to the horizon have 64 bits; a batch with a longer one could not be read by anyone."""
    values = [b"1", None, b"2"]
    records = [Record(n, stamp_ms, b"abc"[n : n + 1], values[n]) for n, stamp_ms in enumerate(stamps)]
    batch = encode_batch(records)
    kept = apply(batch, newest(a=0, b=1, c=2))
    assert kept is not None
    assert [(record.timestamp, record.value) for record in decode_batch(kept)] == [*zip(stamps, values, strict=True)]


def test_the_first_record_that_stays_is_no_base_from_which_another_cannot_be_reached() -> None:
    stamps = [0, LEAST, NOW_MS + 10]
    batch = encode_batch([Record(n, stamp_ms, b"%d" % n, b"v") for n, stamp_ms in enumerate(stamps)])
    kept = apply(batch, newest(**{"0": 9, "1": 1, "2": 2}))
    assert kept is not None
    assert [record.timestamp for record in decode_batch(kept)] == stamps[1:]


def test_a_retention_of_tombstones_for_ever_is_one() -> None:
    batch = batch_of((b"a", b"1"), (b"b", None))
    for _ in range(2):
        cleaning = BatchCleaning(
            newest(a=100, b=101),
            now_ms=NOW_MS,
            deletion_ms=2**62,
            delete_retention_ms=2**63 - 1,
            end_offset=-1,
            last_offset_of=lambda _: None,
            max_decompressed_bytes=1 << 20,
            pause=lambda: None,
        )
        kept = cleaning.apply(bytes(batch), parse_header(batch))
        assert kept is not None
        batch = bytearray(kept)
        assert [record.timestamp for record in decode_batch(batch)] == [NOW_MS, NOW_MS + 10]


def test_log_append_time_stays_the_time_of_every_record() -> None:
    batch = batch_of((b"a", b"1"), (b"b", None), (b"c", b"3"))
    set_log_append_time(batch, NOW_MS + 77)
    kept = apply(batch, newest(a=500, b=101, c=102))
    assert kept is not None
    header = parse_header(kept)
    assert (header.is_log_append_time, header.max_timestamp) == (True, NOW_MS + 77)
    assert [record.timestamp for record in decode_batch(kept)] == [NOW_MS + 77] * 2


@pytest.mark.parametrize(("last", "end_offset", "stays"), [(101, -1, True), (500, -1, False), (None, 102, True)])
def test_the_last_batch_of_a_producer_and_of_a_cleaning_outlive_their_records(
    last: int | None, end_offset: int, stays: bool
) -> None:
    batch = batch_of((b"a", b"1"), (b"b", b"2"), producer_id=9, producer_epoch=2, base_sequence=5)
    kept = apply(batch, newest(a=500, b=500), last=last, end_offset=end_offset)
    assert (kept is not None) is stays
    if kept is not None:
        header = parse_header(kept)
        assert len(kept) == HEADER_BYTES
        assert crc_matches(kept, header)
        assert (header.base_offset, header.last_offset, header.last_sequence) == (100, 101, 6)
        assert (header.record_count, header.base_timestamp, header.max_timestamp) == (0, -1, NOW_MS + 10)
        again = bytes(kept)
        assert apply(again, newest(), last=last, end_offset=end_offset) == again
        assert apply(again, newest(), last=500) is None


def test_keys_of_aborted_batches_and_of_control_batches_supersede_nothing() -> None:
    for bits, is_aborted in (({"is_transactional": True}, True), ({"is_control": True}, False)):
        batch = bytes(batch_of((b"a", b"1"), **bits))
        offsets = newest()
        assert put_keys(offsets, batch, parse_header(batch), 0, 1 << 20, lambda: None, is_aborted)
        assert len(offsets) == 0


def test_committed_records_are_cleaned_as_others_are() -> None:
    batch = bytes(batch_of((b"a", b"1"), is_transactional=True))
    assert apply(batch, newest(a=100)) == batch
    assert apply(batch, newest(a=500)) is None


def test_a_control_batch_of_another_kind_stays() -> None:
    control = Record(0, NOW_MS, encode_control_key(ControlType.LEADER_CHANGE), b"", ())
    batch = bytes(encode_batch([control], is_control=True))
    assert apply(batch, newest()) == batch


@pytest.mark.parametrize("bits", [{}, {"is_control": True}])
def test_damage_is_not_packed_again(bits: dict[str, bool]) -> None:
    batch = batch_of((b"a", b"1"), **bits)
    batch[-3] ^= 1
    with pytest.raises(CorruptBatch):
        apply(batch, newest(a=500))
    with pytest.raises(CorruptBatch):
        put_keys(newest(), bytes(batch), parse_header(batch), 0, 1 << 20, lambda: None)


def test_only_keys_from_the_first_dirty_offset_on_are_put() -> None:
    offsets = newest()
    offsets.latest_offset = -1
    batch = bytes(batch_of((b"a", b"1"), (b"b", b"2")))
    assert put_keys(offsets, batch, parse_header(batch), 101, 1 << 20, lambda: None)
    assert (offsets.get(b"a"), offsets.get(b"b"), offsets.latest_offset) == (-1, 101, 101)


@pytest.mark.parametrize("length", range(1, 14))
def test_records_that_do_not_fit_their_batch_are_damage(length: int) -> None:
    from ottla.storage.cleaner.raw_records import raw_records

    data = bytes(batch_of((b"key", b"value!")))[HEADER_BYTES:]
    assert len(list(raw_records(data, 1))) == 1
    with pytest.raises(CorruptBatch):
        list(raw_records(data[:length], 1))
    with pytest.raises(CorruptBatch):
        list(raw_records(data, 2))
    with pytest.raises(CorruptBatch):
        list(raw_records(data + b"\0", 1))


MOST = 2**63 - 1
ANY_TIME = st.sampled_from([-1, 0, NOW_MS, MOST, -MOST, LEAST]) | st.integers(-MOST, MOST)
PAIRS = st.tuples(ANY_TIME, st.sampled_from([b"a", b"b", b""]), st.sampled_from([None, b"", b"v"]))


def can_be_encoded(pairs: list[tuple[int, bytes, bytes | None]]) -> bool:
    """Whether the times are so close to each other that a batch can have them."""
    times = [time_ms for time_ms, _, _ in pairs]
    return max(times) - min(times) <= MOST


@settings(max_examples=examples(300))
@given(
    st.lists(PAIRS, min_size=1, max_size=6).filter(can_be_encoded),
    st.dictionaries(st.sampled_from([b"a", b"b", b""]), st.integers(100, 106)),
    st.sampled_from(list(Compression)),
    st.one_of(st.none(), st.integers(0, MOST)),
    st.tuples(*[st.sampled_from([0, NOW_MS, MOST])] * 3),
)
def test_records_that_stay_are_what_they_were_whatever_the_times(
    pairs: list[tuple[int, bytes, bytes | None]],
    newest_offsets: dict[bytes, int],
    compression: Compression,
    log_append_time_ms: int | None,
    times: tuple[int, int, int],
) -> None:
    batch = encode_batch([Record(n, *pair) for n, pair in enumerate(pairs)], compression=compression)
    set_offset_and_epoch(batch, 100, 3)
    if log_append_time_ms is not None:
        set_log_append_time(batch, log_append_time_ms)
    before = {record.offset: record for record in decode_batch(batch)}
    offsets = OffsetMap(1 << 16, 0.9, 100)
    for key, offset in newest_offsets.items():
        offsets.put(key, offset)
    offsets.latest_offset = 1000
    now_ms, deletion_ms, retention_ms = times
    for _ in range(2):
        cleaning = BatchCleaning(
            offsets,
            now_ms=now_ms,
            deletion_ms=deletion_ms,
            delete_retention_ms=retention_ms,
            end_offset=-1,
            last_offset_of=lambda _: None,
            max_decompressed_bytes=1 << 20,
            pause=lambda: None,
        )
        kept = cleaning.apply(bytes(batch), parse_header(batch))
        if kept is None:
            return
        batch = bytearray(kept)
        assert all(before[record.offset] == record for record in decode_batch(batch))
