"""Append: what is refused and how, what producers may do, when segments roll, and what a failing disk leaves."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable

import pytest
from kit.logs import (
    DIRECTORY,
    NOW_MS,
    append,
    append_values,
    batch,
    disk,
    entry,
    open_test_log,
    stored,
    sync,
    write_snapshot,
)

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import (
    Compression,
    compute_crc,
    decode_batch,
    encode_batch,
    iter_batches,
    parse_header,
)
from ottla.protocol.records.record import Record
from ottla.storage.files.health import IndependentDirectory
from ottla.storage.log.append_plan import SegmentRun
from ottla.storage.log.log import Log
from ottla.storage.producers.producer_state import ProducerStates
from ottla.storage.segment.segment import INDEX_ENTRIES_BEHIND


def patched(data: bytearray, position: int, form: str, value: int, *, seal: bool = True) -> bytearray:
    data = bytearray(data)
    struct.pack_into(form, data, position, value)
    if seal:
        struct.pack_into(">I", data, 17, compute_crc(data))
    return data


GOOD = batch(b"a", b"b")
REFUSED: dict[str, tuple[Callable[[], bytearray], ErrorCode]] = {
    "nothing": (bytearray, ErrorCode.INVALID_RECORD),
    "shorter than a header": (lambda: GOOD[:40], ErrorCode.CORRUPT_MESSAGE),
    "cut short": (lambda: GOOD[:-1], ErrorCode.CORRUPT_MESSAGE),
    "two batches": (lambda: GOOD + GOOD, ErrorCode.INVALID_RECORD),
    "a byte behind": (lambda: GOOD + b"x", ErrorCode.INVALID_RECORD),
    "length below the header": (lambda: patched(GOOD, 8, ">i", 48, seal=False), ErrorCode.CORRUPT_MESSAGE),
    "negative length": (lambda: patched(GOOD, 8, ">i", -1, seal=False), ErrorCode.CORRUPT_MESSAGE),
    "magic 0": (lambda: patched(GOOD, 16, ">b", 0, seal=False), ErrorCode.INVALID_RECORD),
    "magic 1": (lambda: patched(GOOD, 16, ">b", 1, seal=False), ErrorCode.INVALID_RECORD),
    "magic 3": (lambda: patched(GOOD, 16, ">b", 3, seal=False), ErrorCode.CORRUPT_MESSAGE),
    "wrong checksum": (lambda: patched(GOOD, 17, ">I", 1, seal=False), ErrorCode.CORRUPT_MESSAGE),
    "no records": (lambda: patched(GOOD, 57, ">i", 0), ErrorCode.INVALID_RECORD),
    "negative count": (lambda: patched(GOOD, 57, ">i", -2), ErrorCode.INVALID_RECORD),
    "count against delta": (lambda: patched(GOOD, 23, ">i", 5), ErrorCode.INVALID_RECORD),
    "base offset not 0": (lambda: patched(GOOD, 0, ">q", 3), ErrorCode.INVALID_RECORD),
    "codec 5": (lambda: patched(GOOD, 21, ">h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "control batch": (lambda: patched(GOOD, 21, ">h", 0x20), ErrorCode.INVALID_RECORD),
    "transactional batch": (lambda: patched(GOOD, 21, ">h", 0x10), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    "log append time": (lambda: patched(GOOD, 21, ">h", 0x08), ErrorCode.INVALID_TIMESTAMP),
    "producer without sequence": (lambda: patched(GOOD, 43, ">q", 5), ErrorCode.INVALID_RECORD),
    "too far ahead": (lambda: batch(b"a", stamps=[NOW_MS + 3_600_001]), ErrorCode.INVALID_TIMESTAMP),
    "first too far ahead": (
        lambda: patched(batch(b"a", stamps=[NOW_MS]), 27, ">q", NOW_MS + 3_600_001),
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "over max.message.bytes": (lambda: batch(b"x" * 5000), ErrorCode.MESSAGE_TOO_LARGE),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_batch_is_refused_with_kafkas_code_and_the_others_go_on(name: str) -> None:
    make, code = REFUSED[name]
    log = open_test_log(disk(), {"max.message.bytes": "4000"})
    first, refused, last = log.append([entry(GOOD), entry(make()), entry(GOOD)], NOW_MS)
    assert refused.error_code is code
    assert refused.error_message
    assert (refused.base_offset, refused.last_offset) == (-1, -1)
    assert (first.base_offset, last.base_offset) == (0, 2)
    assert stored(log) == {0: b"a", 1: b"b", 2: b"a", 3: b"b"}


def test_zstd_needs_produce_7() -> None:
    log = open_test_log(disk())
    data = batch(b"a", compression=Compression.ZSTD)
    old, new = log.append([entry(data, 6), entry(data, 7)], NOW_MS)
    assert old.error_code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert new.error_code is ErrorCode.NONE


def test_timestamps_at_both_bounds_are_taken_and_beyond_them_refused() -> None:
    log = open_test_log(disk(), {"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "500"})
    stamps = [NOW_MS - 1000, NOW_MS + 500, NOW_MS - 1001, NOW_MS + 501, -1]
    codes = [result.error_code for result in append(log, *[batch(b"a", stamps=[stamp]) for stamp in stamps])]
    refused = ErrorCode.INVALID_TIMESTAMP
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, refused, refused, ErrorCode.NONE]


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    log = open_test_log(disk(), {"segment.bytes": "1024"})
    (result,) = append(log, batch(b"x" * 2000))
    assert result.error_code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_base_offset_and_leader_epoch_are_patched_where_the_batch_lies() -> None:
    log = open_test_log(disk())
    append_values(log, b"a", b"b", b"c")
    log.start_leader_epoch(4)
    one = entry(GOOD)
    log.append([one], NOW_MS)
    header = parse_header(one.records)
    assert (header.base_offset, header.partition_leader_epoch) == (3, 4)
    assert bytes(one.records) == log.read(3, 9999, end_offset=5).read_blocking()
    assert log.end_offset_for_epoch(0) == (0, 3)
    assert log.end_offset_for_epoch(4) == (4, 5)
    assert log.end_offset_for_epoch(2) == (0, 3)
    assert log.end_offset_for_epoch(5) == (-1, -1)


def test_a_turns_batches_are_one_write() -> None:
    files = disk()
    log = open_test_log(files)
    before = len(files.history)
    append(log, *[batch(b"%d" % number) for number in range(20)])
    writes = [call for call, path in files.history[before:] if call == "pwritev" and path.suffix == ".log"]
    assert len(writes) == 1


def test_more_buffers_than_one_call_takes_are_split() -> None:
    files = disk()
    log = open_test_log(files)
    append(log, *[batch(b"%d" % number) for number in range(2500)])
    assert stored(log) == {number: b"%d" % number for number in range(2500)}


# -- what must look inside


def test_a_compacted_topic_names_each_record_without_a_key_and_stores_nothing() -> None:
    log = open_test_log(disk(), {"cleanup.policy": "compact"})
    records = [Record(0, NOW_MS, b"k", b"1", ()), Record(1, NOW_MS, None, b"2", ()), Record(2, NOW_MS, None, b"3", ())]
    refused, good = append(log, encode_batch(records, compression=Compression.GZIP), batch(b"ok"))
    assert refused.error_code is ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in refused.record_errors] == [1, 2]
    assert good.base_offset == 0
    assert stored(log) == {0: b"ok"}


@pytest.mark.parametrize("overrides", [{"cleanup.policy": "compact"}, {"ottla.validate.records": "true"}])
def test_records_that_do_not_decode_are_refused_where_they_are_looked_at(overrides: dict[str, str]) -> None:
    data = bytearray(GOOD)
    data[61] = 0x7F
    struct.pack_into(">I", data, 17, compute_crc(data))
    (refused,) = append(open_test_log(disk(), overrides), data)
    assert refused.error_code is ErrorCode.INVALID_RECORD
    (taken,) = append(open_test_log(disk()), data)
    assert taken.error_code is ErrorCode.NONE


def test_what_a_batch_decompresses_to_is_bounded() -> None:
    log = open_test_log(disk(), {"cleanup.policy": "compact", "ottla.batch.max.decompressed.bytes": "4096"})
    (refused,) = append(log, batch(b"x" * 10_000, compression=Compression.GZIP))
    assert refused.error_code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_wrong_largest_timestamp_is_set_right_where_records_are_looked_at() -> None:
    log = open_test_log(disk(), {"ottla.validate.records": "true"})
    (result,) = append(log, patched(batch(b"a", stamps=[NOW_MS - 9]), 35, ">q", NOW_MS + 7))
    assert result.error_code is ErrorCode.NONE
    data = log.read(0, 9999, end_offset=1).read_blocking()
    assert parse_header(data).max_timestamp == NOW_MS - 9
    assert [record.value for record in decode_batch(data)] == [b"a"]


def test_log_append_time_stamps_the_batch_and_keeps_its_checksum_true() -> None:
    log = open_test_log(disk(), {"message.timestamp.type": "LogAppendTime"})
    (result,) = append(log, batch(b"a", b"b", stamps=[5, 9_999_999_999_999]), now_ms=NOW_MS + 3)
    assert result.log_append_time_ms == NOW_MS + 3
    records = decode_batch(log.read(0, 9999, end_offset=2).read_blocking())
    assert [record.timestamp for record in records] == [NOW_MS + 3, NOW_MS + 3]


@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_another_compression_type_packs_batches_again(target: str) -> None:
    log = open_test_log(disk(), {"compression.type": target})
    sent = [
        batch(b"a" * 100, b"b" * 100, compression=codec, producer_id=3, producer_epoch=1, base_sequence=2 * number)
        for number, codec in enumerate(Compression)
    ]
    for result in append(log, *sent):
        assert result.error_code is ErrorCode.NONE
    wanted = Compression.NONE if target == "uncompressed" else Compression[target.upper()]
    position = 0
    while position < log.log_end_offset:
        data = log.read(position, 1 << 20, end_offset=log.log_end_offset).read_blocking()
        for at, header in iter_batches(data):
            assert header.compression is wanted
            assert (header.producer_id, header.producer_epoch) == (3, 1)
            assert [r.value for r in decode_batch(data[at:])] == [b"a" * 100, b"b" * 100]
            position = header.next_offset


# -- producers


def sequenced(sequence: int, *, epoch: int = 0, count: int = 1, value: bytes = b"v") -> bytearray:
    return batch(*[value] * count, producer_id=7, producer_epoch=epoch, base_sequence=sequence)


def test_a_repeat_gets_the_offsets_of_the_original_for_five_batches() -> None:
    log = open_test_log(disk())
    for sequence in range(6):
        append(log, sequenced(sequence))
    for sequence in range(1, 6):
        (repeat,) = append(log, sequenced(sequence))
        assert (repeat.error_code, repeat.is_duplicate, repeat.base_offset) == (ErrorCode.NONE, True, sequence)
    (forgotten,) = append(log, sequenced(0))
    assert forgotten.error_code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 6


def test_a_repeat_in_the_same_call_is_recognised_and_fails_with_its_original() -> None:
    files = disk()
    log = open_test_log(files)
    files.fail("pwritev", "*.log", errno.ENOSPC)
    results = append(log, sequenced(0, count=2), sequenced(0, count=2))
    assert [result.error_code for result in results] == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    original, repeat = append(log, sequenced(0, count=2), sequenced(0, count=2))
    assert (original.is_duplicate, repeat.is_duplicate) == (False, True)
    assert (repeat.base_offset, repeat.last_offset) == (original.base_offset, original.last_offset) == (0, 1)


def test_gaps_old_epochs_and_new_epochs_that_do_not_begin_at_0_are_refused() -> None:
    log = open_test_log(disk())
    append(log, sequenced(0, epoch=3))
    codes = [
        result.error_code
        for result in append(
            log, sequenced(2, epoch=3), sequenced(1, epoch=2), sequenced(1, epoch=4), sequenced(0, epoch=4)
        )
    ]
    gap = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert codes == [gap, ErrorCode.INVALID_PRODUCER_EPOCH, gap, ErrorCode.NONE]


def test_an_unknown_producer_may_begin_anywhere_and_sequences_wrap() -> None:
    log = open_test_log(disk())
    codes = [result.error_code for result in append(log, sequenced(2**31 - 2, count=3), sequenced(1), sequenced(2))]
    assert codes == [ErrorCode.NONE] * 3
    (repeat,) = append(log, sequenced(2**31 - 2, count=3))
    assert repeat.is_duplicate


# -- rolling


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_a_segment_rolls_before_the_batch_that_would_exceed_its_bytes() -> None:
    size = len(batch(b"x" * 400))
    log = open_test_log(disk(), {"segment.bytes": str(max(2 * size, 1024))})
    append(log, *[batch(b"x" * 400) for _ in range(5)])
    assert bases(log) == [0, 2, 4]


def test_a_segment_rolls_by_record_time() -> None:
    log = open_test_log(disk(), {"segment.ms": "1000"})
    stamps = [NOW_MS, NOW_MS + 1000, NOW_MS + 1001, NOW_MS - 5000, NOW_MS + 2001]
    for stamp in stamps:
        append(log, batch(b"a", stamps=[stamp]))
    assert bases(log) == [0, 2]
    append(log, batch(b"a", stamps=[NOW_MS + 2002]))
    assert bases(log) == [0, 2, 5]


def test_a_segment_without_timestamps_rolls_by_the_wall_clock() -> None:
    log = open_test_log(disk(), {"segment.ms": "1000"})
    for passed in (0, 1000, 1001):
        append(log, batch(b"a", stamps=[-1]), now_ms=NOW_MS + passed)
    assert bases(log) == [0, 2]


def test_a_full_index_rolls_the_segment() -> None:
    log = open_test_log(disk(), {"segment.index.bytes": "36", "index.interval.bytes": "0"})
    for number in range(12):
        append(log, batch(b"a", stamps=[NOW_MS + number]))
    # 36 bytes: three time index entries, one of them kept for the roll, which has nothing new to say here.
    assert bases(log) == [0, 3, 6, 9]
    assert [len(segment.time_index) for segment in log.segments[:-1]] == [2, 2, 2]


def test_jitter_takes_less_than_its_bound_and_stays_the_same() -> None:
    log = open_test_log(disk(), {"segment.ms": "1000", "segment.jitter.ms": "500"})
    jitter = log.segments[0].roll_jitter_ms(500)
    assert 0 <= jitter < 500
    append(log, batch(b"a"), batch(b"a", stamps=[NOW_MS + 1000 - jitter]))
    assert bases(log) == [0]
    append(log, batch(b"a", stamps=[NOW_MS + 1001 - jitter]))
    assert bases(log) == [0, 2]


def test_a_roll_leaves_the_last_time_index_entry_and_a_snapshot() -> None:
    files = disk()
    log = open_test_log(files)
    append(log, sequenced(0), batch(b"a", stamps=[NOW_MS + 9]), sequenced(1))
    log.roll(NOW_MS)
    log.roll(NOW_MS)
    assert bases(log) == [0, 3]
    sync(log)
    write_snapshot(log)
    state = files.synced_state()
    assert state[f"{DIRECTORY}/00000000000000000000.timeindex"] == struct.pack(">qi", NOW_MS + 9, 1)
    assert f"{DIRECTORY}/00000000000000000003.snapshot" in state
    assert log.recovery_point == 3


# -- failing disks


@pytest.mark.parametrize("call", ["pwritev", "open"])
def test_a_full_disk_in_the_middle_of_a_roll_changes_nothing(call: str) -> None:
    files = disk()
    health = IndependentDirectory()
    log = open_test_log(files, {"segment.bytes": "1024"}, health=health)
    append_values(log, b"kept" * 100)
    before = files.written_state()
    files.fail(call, "*.log" if call == "pwritev" else "*.timeindex", errno.ENOSPC, skip=1 if call == "pwritev" else 0)
    results = append(log, *[sequenced(number, value=b"x" * 400) for number in range(6)])
    assert {result.error_code for result in results} == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert files.written_state() == before
    assert (bases(log), log.log_end_offset, len(log.producers)) == ([0], 1, 0)
    assert health.full_error is not None
    assert health.offline_error is None
    append(log, *[sequenced(number, value=b"x" * 400) for number in range(6)])
    assert len(stored(log)) == 7


def test_an_error_of_the_disk_ends_writing_and_reading_goes_on() -> None:
    files = disk()
    health = IndependentDirectory()
    log = open_test_log(files, {"ottla.acks.all": "page-cache"}, health=health)
    append_values(log, b"kept")
    files.fail("pwritev", "*.log", errno.EIO)
    for _ in range(2):
        (result,) = append(log, batch(b"lost"))
        assert result.error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert health.is_offline
    assert stored(log) == {0: b"kept"}
    assert log.begin_sync() is None


def test_a_failed_cut_after_a_full_disk_ends_writing() -> None:
    files = disk()
    health = IndependentDirectory()
    log = open_test_log(files, health=health)
    append_values(log, b"kept")
    files.fail("pwritev", "*.log", errno.ENOSPC, after_bytes=10)
    files.fail("truncate", "*.log", errno.EIO)
    append(log, batch(b"lost"))
    assert health.is_offline


def test_lack_of_descriptors_is_no_fault_of_the_directory() -> None:
    files = disk()
    health = IndependentDirectory()
    log = open_test_log(files, {"segment.bytes": "1024"}, health=health)
    append_values(log, b"x" * 800)
    files.fail("open", "*.log", errno.EMFILE)
    (result,) = append(log, batch(b"x" * 800))
    assert result.error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (health.full_error, health.offline_error) == (None, None)
    append_values(log, b"x" * 800)
    assert bases(log) == [0, 1]


def test_an_append_to_a_file_that_cannot_be_opened_again_is_refused_and_the_next_one_taken() -> None:
    """A segment without unsynced records may have let its descriptor go. Nothing was written: nothing to take back."""
    files = disk()
    health = IndependentDirectory()
    log = open_test_log(files, health=health)
    append_values(log, b"a")
    lacking = files.fail("*", "*.log", errno.EMFILE, times=None)
    (result,) = append(log, batch(b"b"))
    assert result.error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.error, health.full_error, health.offline_error) == (None, None, None)
    files.heal(lacking)
    append_values(log, b"c")
    assert stored(log) == {0: b"a", 1: b"c"}


def test_an_index_that_cannot_be_written_does_not_hold_up_records() -> None:
    files, count = disk(), INDEX_ENTRIES_BEHIND + 5
    log = open_test_log(files, {"index.interval.bytes": "0"})
    files.fail("pwritev", "*.index", errno.ENOSPC, times=2)
    for number in range(count):
        append_values(log, b"%d" % number)
    log.close()
    log = open_test_log(files, {"index.interval.bytes": "0"})
    assert stored(log) == {number: b"%d" % number for number in range(count)}
    assert len(log.segments[0].offset_index) == count - 1


def test_nothing_is_taken_while_the_directory_is_offline() -> None:
    health = IndependentDirectory()
    log = open_test_log(disk(), health=health)
    health.mark_offline(OSError(errno.EIO, "another log said so"))
    (result,) = append(log, batch(b"a"))
    assert result.error_code is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError):
        append_values_and_roll(log)


def append_values_and_roll(log: Log) -> None:
    log.segments[-1].size_bytes = 1  # as if it held something
    log.roll(NOW_MS)


# -- the broker's own batches


def test_internal_batches_keep_their_offsets_and_epoch_and_may_be_control_batches() -> None:
    log = open_test_log(disk())
    control = encode_batch([Record(0, NOW_MS, b"\0\0\0\2", b"", ())], is_control=True, leader_epoch=3)
    assert log.append_internal(control, NOW_MS).base_offset == 0
    data = encode_batch([Record(1, NOW_MS, None, b"x", ()), Record(2, NOW_MS, None, b"y", ())], leader_epoch=3)
    assert log.append_internal(data, NOW_MS).last_offset == 2
    assert log.read(1, 9999, end_offset=3).read_blocking() == bytes(data)
    assert log.leader_epoch == 3
    with pytest.raises(ValueError, match="does not follow"):
        log.append_internal(data, NOW_MS)
    with pytest.raises(ValueError, match="sound"):
        log.append_internal(data + b"x", NOW_MS)


# No memory after the bytes are in the file --------------------------------------------------------------------------


def raising(*_: object) -> None:
    raise MemoryError


def numbered(sequence: int, value: bytes) -> bytearray:
    return batch(value, producer_id=7, producer_epoch=0, base_sequence=sequence)


@pytest.mark.parametrize("settings", [{}, {"ottla.acks.all": "page-cache"}, {"segment.bytes": "1024"}], ids=repr)
@pytest.mark.parametrize("noting", [ProducerStates, SegmentRun])
def test_what_found_no_memory_to_be_noted_is_not_a_repetition_when_it_is_sent_again(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], noting: type[ProducerStates] | type[SegmentRun]
) -> None:
    files = disk()
    log = open_test_log(files, settings)
    append(log, numbered(0, b"first"))
    data = numbered(1, b"x" * 900 if "segment.bytes" in settings else b"second")
    with monkeypatch.context() as without_memory:
        publish: Callable[..., object] = noting.publish
        without_memory.setattr(noting, "publish", lambda *some: (publish(*some), raising()))  # in the middle
        (result,) = append(log, data)
    assert result.error_code is ErrorCode.KAFKA_STORAGE_ERROR
    (again,) = append(log, data)
    assert again.error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.log_end_offset == 1
    log = open_test_log(files, settings)  # a restart finds the batch in the file
    (again,) = append(log, data)
    assert again.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert again.base_offset == 1
    assert len(stored(log)) == 2


@pytest.mark.parametrize("is_awaited", [False, True])
def test_without_memory_for_a_copy_of_what_was_appended_it_is_read_from_the_file(
    monkeypatch: pytest.MonkeyPatch, is_awaited: bool
) -> None:
    log = open_test_log(disk())
    append_values(log, b"first")
    sync(log)
    log.reader.is_awaited = is_awaited
    monkeypatch.setattr("ottla.storage.log.log_append.joined", raising)
    (result,) = append(log, batch(b"second"))
    assert result.base_offset == 1
    assert not log.unsynced.is_staged
    assert log.reader.newest is None
    sync(log)
    assert stored(log) == {0: b"first", 1: b"second"}
