"""Any log, cleaned: of each key exactly the newest record, everything at its offset, every read and index right."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings
from kit.cleaning import clean, records_of
from kit.examples import examples
from kit.logs import NOW_MS, append, disk, open_test_log, sync

from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import Compression, decode_batch, encode_batch, iter_batches
from ottla.protocol.records.record import Record
from ottla.storage.log.log import Log
from ottla.storage.tools.explain import explain_offset
from ottla.storage.tools.verify_findings import Counts, Promises
from ottla.storage.tools.verify_log import PartitionVerification

RETENTION_MS = 10_000
COMPACT = {
    "cleanup.policy": "compact",
    "segment.bytes": "1500",
    "index.interval.bytes": "120",
    "delete.retention.ms": str(RETENTION_MS),
}

RECORDS = st.lists(
    st.tuples(
        st.integers(0, 6).map(lambda number: b"key-%d" % number),
        st.one_of(st.none(), st.integers(0, 90).map(lambda size: b"v" * size)),
        st.integers(-50, 50_000),
        st.sampled_from([(), (("h", b"1"),), (("h", None), ("", b"x" * 20))]),
    ),
    min_size=1,
    max_size=5,
)
BATCHES = st.lists(
    st.tuples(
        RECORDS, st.sampled_from([Compression.NONE, Compression.ZSTD, Compression.GZIP]), st.sampled_from([-1, 1, 2])
    ),
    min_size=1,
    max_size=25,
)
ROLLS = st.sets(st.integers(0, 25), max_size=8)


def write(
    log: Log, batches: list[tuple[list[tuple[bytes, bytes | None, int, tuple]], Compression, int]], rolls
) -> None:
    sequences = {entry.producer_id: entry.last_sequence + 1 for entry in log.producers}
    for slot, (records, compression, producer_id) in enumerate(batches):
        made = [
            Record(number, NOW_MS + stamp, key, value, headers)
            for number, (key, value, stamp, headers) in enumerate(records)
        ]
        sequence = sequences.get(producer_id, 0)
        idempotent = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        data = encode_batch(made, compression=compression, **(idempotent if producer_id > 0 else {}))
        (result,) = append(log, data)
        assert result.error_code is ErrorCode.NONE
        sequences[producer_id] = sequence + len(made)
        if slot in rolls:
            log.roll(NOW_MS)
    sync(log)


def survivors(records: list[Record], end_offset: int, *, tombstones: bool = True) -> list[Record]:
    """What a cleaning up to `end_offset` must keep."""
    newest = {record.key: record.offset for record in records if record.offset < end_offset}
    return [
        record
        for record in records
        if record.offset >= end_offset
        or (newest[record.key] == record.offset and (tombstones or record.value is not None))
    ]


def newest_of(records: list[Record]) -> list[Record]:
    """The last record of each key."""
    return survivors(records, records[-1].offset + 1)


def check_indexes(log: Log) -> None:
    """What the indexes say is what they would say if they were rebuilt."""
    for segment in log.segments[:-1]:
        said = list(segment.offset_index), list(segment.time_index), segment.largest_timestamp()
        segment.rebuild_indexes(seal=True)
        assert said == (list(segment.offset_index), list(segment.time_index), segment.largest_timestamp())


def check_reads(log: Log, expected: list[Record]) -> None:
    """A read from any offset begins with the first batch that has it or ends behind it."""
    for offset in range(log.log_start_offset, log.log_end_offset):
        found = [record for record in expected if record.offset >= offset]
        position, first = offset, None
        while position < log.log_end_offset and first is None:
            data = log.read(position, 200, end_offset=log.log_end_offset).read_blocking()
            if not data:
                break
            for start, header in iter_batches(data):
                assert header.last_offset >= position
                inside = decode_batch(data[start : start + header.size_bytes])
                first = first or next((record for record in inside if record.offset >= offset), None)
                position = header.next_offset
        assert first == (found[0] if found else None)


def check_times(log: Log, expected: list[Record]) -> None:
    """A look-up by time finds the first record that is there and young enough; the largest timestamp is a record's."""
    for stamp_ms in sorted({record.timestamp for record in expected})[:12]:
        for asked_ms in (stamp_ms, stamp_ms + 1):
            found = log.offset_for_timestamp(asked_ms, end_offset=log.log_end_offset)
            first = next((record for record in expected if record.timestamp >= asked_ms), None)
            assert (found and found[:2]) == (first and (first.offset, first.timestamp))
    newest = max(expected, key=lambda record: (record.timestamp, -record.offset), default=None)
    found = log.offset_of_max_timestamp(end_offset=log.log_end_offset)
    assert (found and found[:2]) == (newest and (newest.offset, newest.timestamp))


def log_bytes(log: Log) -> bytes:
    """Without the empty batches at the ends of segments that are joined to the next ones."""
    data = b"".join(segment.file.pread(segment.size_bytes, 0) for segment in log.segments)
    return b"".join(
        data[start : start + header.size_bytes] for start, header in iter_batches(data) if header.record_count
    )


@settings(max_examples=examples(60))
@given(batches=BATCHES, rolls=ROLLS, later=BATCHES)
def test_cleaning_keeps_the_newest_record_of_each_key_and_nothing_else(batches, rolls, later) -> None:
    files = disk()
    log = open_test_log(files, COMPACT)
    write(log, batches, rolls)
    before = records_of(log)
    end_offset = log.segments[-1].base_offset
    first = clean(log)
    expected = survivors(before, end_offset)
    assert records_of(log) == expected
    assert first.end_offset == end_offset
    check_indexes(log)
    check_reads(log, expected)
    check_times(log, expected)

    # once more, nothing new: not a byte changes
    held = log_bytes(log)
    clean(log, now_ms=NOW_MS + RETENTION_MS - 1)
    assert log_bytes(log) == held

    # the producers' sequences are still known after a start that has to read them off the batches
    reported = {entry.producer_id: entry.last_sequence for entry in log.producers}
    for name in files.list_directory(log.directory):
        if name.endswith(".snapshot"):
            files.unlink(log.directory / name)
    log.abandon()
    log = open_test_log(files, COMPACT, was_clean=False, recovery_point=log.log_end_offset)
    assert {entry.producer_id: entry.last_sequence for entry in log.producers} == reported
    assert records_of(log) == expected

    # more of the same keys, from where it was clean; tombstones that were met are due, new ones are not
    write(log, later, set())
    log.roll(NOW_MS)
    sync(log)
    before = records_of(log)
    clean(log, clean_offset=end_offset, now_ms=NOW_MS + RETENTION_MS + 1)
    newest = survivors(before, log.log_end_offset)
    expected = [one for one in newest if one.value is not None or one.offset >= end_offset]
    assert records_of(log) == expected
    check_indexes(log)
    check_times(log, expected)

    # and all are gone when their time is over
    clean(log, now_ms=NOW_MS + 3 * RETENTION_MS)
    assert records_of(log) == survivors(before, log.log_end_offset, tombstones=False)

    # whoever verifies what is on disk finds nothing
    end_offset = log.log_end_offset
    log.close()
    promises = Promises(recovery_point=end_offset, log_start_offset=0, was_clean=True, allows_gaps=True)
    looked = PartitionVerification(files, log.directory, promises, Counts(), lambda _: None)
    assert list(looked.run()) == []
    assert looked.log_end_offset == end_offset
    held = [one for one in newest_of(before) if one.value is not None]
    for offset in range(end_offset):
        reported = explain_offset(files, log.directory.parent, "orders", 0, offset)
        assert (reported.record and reported.record.record) == next((one for one in held if one.offset >= offset), None)


@settings(max_examples=examples(30))
@given(batches=BATCHES, rolls=ROLLS, keys_at_a_time=st.integers(1, 4))
def test_a_map_that_takes_few_keys_ends_at_the_same_log(batches, rolls, keys_at_a_time: int) -> None:
    batches = [(records[:1], compression, producer_id) for records, compression, producer_id in batches]
    log = open_test_log(disk(), COMPACT)
    write(log, batches, rolls)
    before = records_of(log)
    end_offset = log.segments[-1].base_offset
    clean_offset = 0
    while clean_offset < end_offset:
        cleaning = clean(log, clean_offset=clean_offset, dedupe_buffer_bytes=24 * 4, load_factor=keys_at_a_time / 4)
        assert cleaning.end_offset > clean_offset
        clean_offset = cleaning.end_offset
    assert records_of(log) == survivors(before, end_offset)
