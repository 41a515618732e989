"""Our indexes of a log are Apache Kafka's, byte for byte: made as the log is appended to, and rebuilt of it."""

from __future__ import annotations

import pytest
from kit.kafka_indexes import BATCHES, START_MS, TOPICS, Segment, batches, kept_segments
from kit.logs import DIRECTORY, append, disk, open_test_log, sync
from kit.simulated_files import SimulatedFiles

from ottla.protocol.records.batch import iter_batches, parse_header
from ottla.storage.formats import layout
from ottla.storage.log.log import Log
from ottla.storage.tools.verify import Verification

REBUILT_AFTER = {"after a crash": False, "after a clean stop": True}
"""Starts on a directory whose index files are missing, and whether a clean stop came before."""


def files_of(files: SimulatedFiles) -> list[Segment]:
    """The segments that lie on a disk, whole files."""
    bases = [
        int(name.removesuffix(layout.LOG_SUFFIX))
        for name in files.list_directory(DIRECTORY)
        if name.endswith(layout.LOG_SUFFIX)
    ]
    return [
        Segment(
            base_offset,
            files.read_bytes(layout.log_file(DIRECTORY, base_offset)),
            files.read_bytes(layout.offset_index_file(DIRECTORY, base_offset)),
            files.read_bytes(layout.time_index_file(DIRECTORY, base_offset)),
        )
        for base_offset in bases
    ]


def end_offset(topic: str) -> int:
    """Where the log of a topic ends that Kafka wrote, and so what a clean stop writes as its recovery point."""
    last = _whole_batches(kept_segments(topic)[-1].log)[-1]
    return parse_header(last).next_offset


def appended(topic: str, at_once: int) -> SimulatedFiles:
    """What a log leaves that gets the batches of a topic, so many in each call."""
    log = open_test_log(disk(), TOPICS[topic])
    log.start_leader_epoch(0)
    waiting = [bytearray(one) for one in batches(topic)]
    while waiting:
        results = append(log, *waiting[:at_once], now_ms=START_MS)
        assert not any(result.error_code for result in results)
        del waiting[:at_once]
    sync(log)
    log.close()
    return log.files


def test_kafka_s_files_are_of_these_batches() -> None:
    for topic in TOPICS:
        found = [data for segment in kept_segments(topic) for data in _whole_batches(segment.log)]
        assert len(found) == BATCHES
        # All but what the broker writes: base offset and leader epoch.
        assert [(one[8:12], one[16:]) for one in found] == [(one[8:12], one[16:]) for one in batches(topic)]


def _whole_batches(log: bytes) -> list[bytes]:
    return [log[position : position + header.size_bytes] for position, header in iter_batches(log)]


@pytest.mark.parametrize("topic", TOPICS)
def test_kafka_s_files_say_something(topic: str) -> None:
    segments = kept_segments(topic)
    assert len(segments) == (1 if topic == "timeless" else 3)
    assert all(segment.time_index for segment in segments)
    assert segments[0].index


@pytest.mark.parametrize("at_once", [1, 5, BATCHES])
@pytest.mark.parametrize("topic", TOPICS)
def test_what_appends_leave_is_what_kafka_leaves(topic: str, at_once: int) -> None:
    assert files_of(appended(topic, at_once)) == kept_segments(topic)


@pytest.mark.parametrize("start", REBUILT_AFTER)
@pytest.mark.parametrize("topic", TOPICS)
def test_indexes_that_are_rebuilt_are_those_that_kafka_makes(topic: str, start: str) -> None:
    files = disk()
    for segment in kept_segments(topic):
        files.write_atomically(layout.log_file(DIRECTORY, segment.base_offset), segment.log)
    recovery_point = end_offset(topic) if REBUILT_AFTER[start] else 0
    log: Log = open_test_log(files, TOPICS[topic], was_clean=REBUILT_AFTER[start], recovery_point=recovery_point)
    for sealed in log.segments:
        sealed.floor(log.log_end_offset)  # a sealed one's index is made when it is used
    sync(log)
    log.close()
    assert files_of(files) == kept_segments(topic)


@pytest.mark.parametrize("topic", TOPICS)
def test_kafka_s_directory_is_sound_and_a_clean_start_and_stop_change_nothing(topic: str) -> None:
    files = disk()
    for segment in kept_segments(topic):
        for path, data in (
            (layout.log_file(DIRECTORY, segment.base_offset), segment.log),
            (layout.offset_index_file(DIRECTORY, segment.base_offset), segment.index),
            (layout.time_index_file(DIRECTORY, segment.base_offset), segment.time_index),
        ):
            files.write_atomically(path, data)
    findings = [found for found in Verification(files, DIRECTORY.parent).run() if str(DIRECTORY) in str(found)]
    assert not [found for found in findings if "index" in str(found)], findings
    log = open_test_log(files, TOPICS[topic], recovery_point=end_offset(topic))
    log.close()
    assert files_of(files) == kept_segments(topic)
