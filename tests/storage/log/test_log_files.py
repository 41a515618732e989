"""The bytes that a log leaves: indexes as Kafka's rule says, and the same life on a real file system."""

from __future__ import annotations

import struct
from pathlib import Path
from uuid import UUID

import hypothesis.strategies as st
from hypothesis import given, settings
from kit.examples import examples
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
    topic_config,
)

from ottla.protocol.records.batch import iter_batches, parse_header
from ottla.storage.files.files import OsFiles
from ottla.storage.recovery.recovery import open_log


def kafkas_indexes(data: bytes, interval_bytes: int) -> tuple[bytes, bytes]:
    """Both index files of a segment at base 0, by the counter that Kafka's LogSegment.append keeps."""
    offsets = times = b""
    since_last_entry = 0
    largest, largest_offset, last_time = -1, 0, -1
    for position, header in iter_batches(data):
        if header.max_timestamp > largest:
            largest, largest_offset = header.max_timestamp, header.last_offset
        if since_last_entry > interval_bytes:
            offsets += struct.pack(">ii", header.last_offset, position)
            if largest > last_time:
                times += struct.pack(">qi", largest, largest_offset)
                last_time = largest
            since_last_entry = 0
        since_last_entry += header.size_bytes
    if largest > last_time:
        times += struct.pack(">qi", largest, largest_offset)
    return offsets, times


@settings(max_examples=examples(50))
@given(
    turns=st.lists(st.lists(st.tuples(st.integers(0, 300), st.integers(-50, 50)), max_size=8), min_size=1, max_size=10),
    interval_bytes=st.integers(0, 600),
)
def test_index_files_are_those_that_kafka_would_write(turns: list[list[tuple[int, int]]], interval_bytes: int) -> None:
    files = disk()
    log = open_test_log(files, {"index.interval.bytes": str(interval_bytes)})
    for turn in turns:
        append(log, *[batch(b"v" * size, stamps=[NOW_MS + step]) for size, step in turn])
    log.roll(NOW_MS)
    written = files.written_state()
    stem = f"{DIRECTORY}/{0:020d}"
    assert (written[f"{stem}.index"], written[f"{stem}.timeindex"]) == kafkas_indexes(
        written[f"{stem}.log"], interval_bytes
    )
    # Recovery makes the same ones again.
    sync(log)
    log.abandon()
    files.unlink(Path(f"{stem}.index"))
    log = open_test_log(files, {"index.interval.bytes": str(interval_bytes)}, was_clean=False)
    assert files.written_state()[f"{stem}.index"] == written[f"{stem}.index"]


def test_batches_lie_in_the_file_as_they_came_but_for_offset_and_epoch() -> None:
    files = disk()
    log = open_test_log(files)
    append_values(log, b"first")
    sent = batch(b"a", b"b")
    one = entry(sent)
    log.append([one], NOW_MS)
    data = files.written_state()[f"{DIRECTORY}/{0:020d}.log"][-len(sent) :]
    assert data[12:16] == b"\0\0\0\0"
    assert parse_header(data).base_offset == 1
    assert data[8:12] + data[16:] == bytes(sent[8:12] + sent[16:])


def test_a_whole_life_on_a_real_file_system(tmp_path: Path) -> None:
    files, config = OsFiles(), topic_config({"segment.bytes": "4096", "index.interval.bytes": "500"})

    def start(was_clean: bool):
        return open_log(
            files,
            tmp_path,
            topic="orders",
            partition=0,
            topic_id=UUID(int=1),
            config=config,
            now_ms=NOW_MS,
            was_clean=was_clean,
        )

    log = start(True)
    for number in range(50):
        append_values(log, b"%d" % number * 100)
    sync(log)
    assert log.high_watermark == log.recovery_point == 50
    expected = stored(log)
    log.close()
    log = start(True)
    assert stored(log) == expected
    append_values(log, b"more")
    log.abandon()
    log = start(False)
    assert stored(log) == expected | {50: b"more"}
    log.delete_records(30)
    assert log.retention.apply(NOW_MS)
    assert stored(log) == {offset: value for offset, value in (expected | {50: b"more"}).items() if offset >= 30}
    assert log.retention.unlink_due(NOW_MS + 10**6) > 0
    log.close()
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".deleted")]
