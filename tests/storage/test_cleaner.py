"""What a cleaning keeps and drops, batch by batch."""

from __future__ import annotations

import pytest
from kit.cleaning import clean, records_of
from kit.logs import NOW_MS, append, disk, open_test_log, sync

from ottla.protocol.records.batch import Compression, encode_batch
from ottla.protocol.records.record import Record
from ottla.storage.log import Log
from kit.simulated_files import SimulatedFiles

COMPACT = {"cleanup.policy": "compact", "delete.retention.ms": "1000"}


def put(log: Log, *pairs: tuple[bytes, bytes | None], **batch: object) -> None:
    records = [Record(number, NOW_MS + number, key, value, ()) for number, (key, value) in enumerate(pairs)]
    (result,) = append(log, encode_batch(records, **batch))
    assert result.base_offset >= 0


def compacted(*batches: list[tuple[bytes, bytes | None]], **overrides: str) -> tuple[Log, SimulatedFiles]:
    files = disk()
    log = open_test_log(files, COMPACT | overrides)
    for pairs in batches:
        put(log, *pairs)
    log.roll(NOW_MS)
    sync(log)
    return log, files


def held(log: Log) -> dict[int, tuple[bytes | None, bytes | None]]:
    return {record.offset: (record.key, record.value) for record in records_of(log)}


def test_only_the_newest_record_of_a_key_stays_at_its_offset() -> None:
    log, _ = compacted([(b"a", b"1"), (b"b", b"1")], [(b"a", b"2")], [(b"c", b"1"), (b"b", b"2")])
    cleaning = clean(log)
    assert held(log) == {2: (b"a", b"2"), 3: (b"c", b"1"), 4: (b"b", b"2")}
    assert cleaning.end_offset == 5
    assert log.size_bytes == cleaning.bytes_after < cleaning.bytes_before
