"""What others see of a segment while a reader's thread builds its indexes again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kit.logs import NOW_MS, append, disk, open_test_log, sync

from ottla.protocol.records.batch import CorruptBatch, encode_batch
from ottla.protocol.records.record import Record
from ottla.storage.segment import segment_indexes

LONG_ENOUGH_S = 0.2
"""For a thread that waits for nothing."""


def test_the_age_of_a_segment_is_never_that_of_the_part_whose_indexes_are_built_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Retention would delete the segment as soon as its oldest records may go."""
    log = open_test_log(disk())
    for stamp_ms in (NOW_MS - 1_000_000, NOW_MS):
        append(log, encode_batch([Record(0, stamp_ms, b"k", b"v")]))
    log.roll(NOW_MS)
    sync(log)
    segment = log.segments[0]
    seen: list[tuple[int, int]] = []
    other = threading.Thread(target=lambda: seen.append(segment.largest_timestamp()))
    walk = segment_indexes.walk

    def slow(*given: Any) -> Iterator[Any]:
        batches = walk(*given)
        yield next(batches)
        other.start()
        other.join(LONG_ENOUGH_S)
        yield from batches

    monkeypatch.setattr(segment_indexes, "walk", slow)
    segment.rebuild_indexes(seal=True)
    other.join()
    assert seen == [(NOW_MS, 1)]


def test_a_segment_is_not_older_for_the_damage_at_which_the_building_of_its_indexes_ends() -> None:
    """The sound records after the damage can be read: retention must not delete them early."""
    files = disk()
    log = open_test_log(files, {"index.interval.bytes": "1"})
    for stamp_ms in (NOW_MS - 1_000_000, NOW_MS - 1_000_000, NOW_MS):
        append(log, encode_batch([Record(0, stamp_ms, b"k", b"v" * 50)]))
    log.roll(NOW_MS)
    sync(log)
    segment = log.segments[0]
    segment.file.pwritev([bytes(8)], segment.size_bytes // 3 + 8)  # in the second of three equal batches
    with pytest.raises(CorruptBatch):
        segment.rebuild_indexes(seal=True)
    assert segment.largest_timestamp()[0] == NOW_MS
