"""What `Log.append` tells of its entries: the same whether all were stored or some were not."""

from __future__ import annotations

from kit.logs import NOW_MS, batch, disk, entry, open_test_log

from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.compression import Compression
from ottla.storage.log.append import AppendEntry, AppendResult

STAMPED = {"message.timestamp.type": "LogAppendTime"}


def views(*batches: bytearray) -> list[memoryview]:
    return list(map(memoryview, batches))


def test_results_of_a_call_that_stored_all_are_those_of_its_batches() -> None:
    log = open_test_log(disk(), STAMPED)
    log.append([entry(batch(b"before"))], NOW_MS)
    results = log.append_batches(views(batch(b"a", b"b"), batch(b"c"), batch(b"d", b"e", b"f")), NOW_MS)
    expected = [
        AppendResult(ErrorCode.NONE, 1, 2, NOW_MS, 0),
        AppendResult(ErrorCode.NONE, 3, 3, NOW_MS, 0),
        AppendResult(ErrorCode.NONE, 4, 6, NOW_MS, 0),
    ]
    assert results.refused is None
    assert list(results) == expected
    assert [results[number] for number in range(-3, 3)] == expected * 2
    assert (results.base_offsets, results.offsets_of_all()) == ([1, 3, 4], [2, 3, 6])
    assert log.log_end_offset == 7


def test_a_part_of_the_results_is_like_the_whole() -> None:
    results = open_test_log(disk()).append_batches(views(*(batch(b"%d" % number) for number in range(5))), NOW_MS)
    part = results[1:4]
    assert part.refused is None
    assert list(part) == list(results)[1:4]
    assert (part.base_offsets, part.offsets_of_all()) == ([1, 2, 3], [1, 2, 3])


def test_a_part_of_results_of_which_some_are_refused_is_like_the_whole() -> None:
    spoilt = batch(b"spoilt")
    spoilt[-1] ^= 1
    results = open_test_log(disk()).append_batches(views(batch(b"a"), spoilt, batch(b"b")), NOW_MS)
    part = results[1:]
    assert list(part) == list(results)[1:]
    assert part.offsets_of_all() == [-1, 1]


def test_zstd_is_refused_to_requests_of_versions_that_may_not_bring_it() -> None:
    zstd = batch(b"a", compression=Compression.ZSTD)
    results = open_test_log(disk()).append([AppendEntry(memoryview(zstd), 6), AppendEntry(memoryview(zstd), 7)], NOW_MS)
    assert [one.error_code for one in results] == [ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.NONE]


def test_what_is_not_stored_is_reported_at_its_place() -> None:
    log = open_test_log(disk())
    first = batch(b"first", producer_id=7, producer_epoch=0, base_sequence=0)
    spoilt = batch(b"spoilt")
    spoilt[-1] ^= 1
    again = batch(b"first", producer_id=7, producer_epoch=0, base_sequence=0)
    entries = [bytearray(spoilt), first, batch(b"second"), bytearray(spoilt), again, batch(b"third")]
    results = log.append([entry(one) for one in entries], NOW_MS)
    assert [(one.error_code, one.base_offset, one.is_duplicate) for one in results] == [
        (ErrorCode.CORRUPT_MESSAGE, -1, False),
        (ErrorCode.NONE, 0, False),
        (ErrorCode.NONE, 1, False),
        (ErrorCode.CORRUPT_MESSAGE, -1, False),
        (ErrorCode.NONE, 0, True),
        (ErrorCode.NONE, 2, False),
    ]
