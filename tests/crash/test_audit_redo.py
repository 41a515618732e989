"""What the crash audit expects of the redo log the real process does: what is given back, and what is not."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kit.audit.damage import PowerCut, base_offset, batches, lose_end, segments
from kit.audit.reading import read_with_confluent
from kit.audit.redo_entries import REDO_LOG, RedoEntry, redo_entries
from kit.broker import BrokerProcess

from ottla.storage.files.files import OsFiles
from ottla.storage.formats.redo_format import head_of, pack_entry

WAIT_S = 30.0
ROUNDS = 5
ATTEMPTS = 10
"""A checkpoint may come right before the kill, each 10 s: then nothing is in the redo log alone."""
PLACE = ("kept", 0)
NAME = "kept-0"
SETTINGS = {"ottla.http.listener": "127.0.0.1:0"}
WAYS = {
    "cut",
    "cut, and given back by the redo log",
    "cut, and the redo log removed",
    "removed",
    "removed, and the redo log removed",
}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose broker was killed: five records of one log, the later ones in the redo log, too."""
    directory = tmp_path_factory.mktemp("killed") / "data"
    if OsFiles().lives_in_memory(directory.parent):
        pytest.skip("a directory in memory has no redo log")
    with BrokerProcess(directory, SETTINGS) as broker:
        for _ in range(ATTEMPTS):
            broker.kill()
            shutil.rmtree(directory)
            broker.start()
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            admin.create_topics([NewTopic("kept", 1)])["kept"].result(WAIT_S)
            producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
            for number in range(ROUNDS):
                producer.produce("kept", value=b"%d" % number, partition=0)
                assert producer.flush(WAIT_S) == 0
            broker.kill()
            if redo_entries(directory, NAME):
                return directory
    raise AssertionError("no round was synced by the redo log")


def copy_of(directory: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(directory, to)
    return to


def read(directory: Path) -> tuple[int, list[tuple[int, bytes | None]]]:
    """Start on a directory; the log's end, and its offsets and values."""
    with BrokerProcess(directory, SETTINGS) as broker:
        _, end, rows = read_with_confluent(broker.bootstrap, [PLACE])[PLACE]
    return end, [(offset, value) for offset, _, value in rows]


def expected(count: int) -> list[tuple[int, bytes]]:
    return [(number, b"%d" % number) for number in range(count)]


def test_a_power_cut_takes_acknowledged_records_that_the_redo_log_holds_and_they_are_there_again(
    killed: Path, tmp_path: Path
) -> None:
    directory = copy_of(killed, tmp_path / "data")
    log = directory / NAME / segments(killed / NAME)[0].name
    before = log.read_bytes()
    cut_at = PowerCut(directory, random.Random(1)).cut(directory / NAME, must_reach=ROUNDS)
    assert cut_at is not None
    assert 0 < cut_at < ROUNDS
    assert log.read_bytes() != before
    assert read(directory) == (ROUNDS, expected(ROUNDS))


def test_a_power_cut_takes_nothing_that_is_acknowledged_where_the_redo_log_holds_nothing_of_it(
    killed: Path, tmp_path: Path
) -> None:
    directory = copy_of(killed, tmp_path / "data")
    (directory / REDO_LOG).unlink()
    assert PowerCut(directory, random.Random(1)).cut(directory / NAME, must_reach=ROUNDS) is None


def test_a_power_cut_takes_nothing_in_front_of_an_entry_without_bytes(killed: Path, tmp_path: Path) -> None:
    """The log's own sync has covered all of its file, and a round that came behind it had nothing to add."""
    directory = copy_of(killed, tmp_path / "data")
    (log,) = segments(directory / NAME)
    size = log.stat().st_size
    (directory / REDO_LOG).write_bytes(redo_record(1, 0, (NAME, RedoEntry(base_offset(log), size, size, ROUNDS))))
    assert PowerCut(directory, random.Random(1)).cut(directory / NAME, must_reach=ROUNDS) is None


def test_of_an_end_that_was_taken_away_the_start_gives_back_what_the_audit_expects(
    killed: Path, tmp_path: Path
) -> None:
    seen = set()
    for seed in range(200):
        directory = copy_of(killed, tmp_path / "data")
        lost = lose_end(directory / NAME, random.Random(seed))
        assert lost is not None
        if lost.how not in seen:
            seen.add(lost.how)
            assert read(directory) == (lost.reached, expected(lost.first_lost)), f"{lost}, seed {seed}"
        if seen == WAYS:
            return
    raise AssertionError(f"ways not seen: {WAYS - seen}")


def redo_record(generation: int, sequence: int, *entries: tuple[str, RedoEntry]) -> bytes:
    body = b""
    for name, entry in entries:
        data = bytes(entry.end - entry.position)
        body += pack_entry(bytes(16), entry.segment, entry.position, entry.end_offset, len(data), len(name))
        body += name.encode() + data
    return head_of(generation, sequence, body) + body


def test_entries_of_one_partition_and_the_newest_generation_are_read_up_to_a_torn_record(tmp_path: Path) -> None:
    first, second, third = RedoEntry(0, 100, 170, 3), RedoEntry(0, 170, 250, 5), RedoEntry(7, 0, 90, 9)
    whole = redo_record(5, 0) + redo_record(5, 1, (NAME, first), ("other-0", third)) + redo_record(5, 2, (NAME, second))
    (tmp_path / REDO_LOG).write_bytes(whole + redo_record(4, 3, (NAME, third)))
    assert redo_entries(tmp_path, NAME) == [first, second]
    (tmp_path / REDO_LOG).write_bytes(whole[:-1] + b"\1" + bytes(100))
    assert redo_entries(tmp_path, NAME) == [first]
    (tmp_path / REDO_LOG).unlink()
    assert redo_entries(tmp_path, NAME) == []


def test_the_directory_holds_what_the_tests_here_are_about(killed: Path) -> None:
    (segment,) = segments(killed / NAME)
    found = redo_entries(killed, NAME)
    assert base_offset(segment) == found[0].segment
    assert 0 < found[0].position < found[-1].end == segment.stat().st_size
    assert len(list(batches(segment))) == ROUNDS
