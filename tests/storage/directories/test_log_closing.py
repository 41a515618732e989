"""A stop closes many logs at once, says how far it is, and ends in time; what it leaves is recovered."""

from __future__ import annotations

import logging
import random
import threading
from collections import Counter
from pathlib import Path

import pytest
from kit.clock import ManualClock
from kit.exchange import Exchange, batch, make_topic, produce_request
from kit.nodes import DATA, partition_of, start_node
from kit.simulated_files import CrashPoint, SimulatedFiles, SimulatedVolume

from ottla.broker.node import Node
from ottla.storage.directories.log_closing import LOGS_FOR_A_THREAD, MOST_THREADS, CloseProgress, close_all
from ottla.storage.formats.layout import TopicPartition
from ottla.storage.log.log import Log

DEADLINE_S = 60


class FakeLog:
    """A log whose closing takes a second of the clock."""

    def __init__(self, clock: ManualClock, error: BaseException | None = None) -> None:
        self._clock = clock
        self._error = error
        self.became = ""

    def close(self) -> None:
        self._clock.advance(1000)
        self.became = "closed"
        if self._error is not None:
            raise self._error

    def abandon(self) -> None:
        self.became = "abandoned"


def logs_of(*logs: FakeLog) -> dict[TopicPartition, Log]:
    return {TopicPartition("t", index): log for index, log in enumerate(logs)}  # type: ignore[misc]  # they are as good


def test_each_log_is_closed_with_what_went_wrong_and_the_others_go_on() -> None:
    clock, error = ManualClock(), OSError("broken")
    progress = CloseProgress(clock)
    progress.begin(3, 10_000)
    closed = close_all(logs_of(FakeLog(clock), FakeLog(clock, error), FakeLog(clock)), progress)
    assert [(one.partition, failure) for one, _, failure in closed] == [(0, None), (1, error), (2, None)]


def test_a_bug_in_one_is_raised() -> None:
    clock = ManualClock()
    with pytest.raises(RuntimeError, match="a bug"):
        close_all(logs_of(FakeLog(clock, RuntimeError("a bug"))), CloseProgress(clock))


def test_what_is_left_when_the_time_is_over_is_abandoned() -> None:
    clock = ManualClock()
    logs = [FakeLog(clock) for _ in range(5)]
    progress = CloseProgress(clock)
    progress.begin(5, 2_000)
    assert len(close_all(logs_of(*logs), progress)) == 2
    assert [log.became for log in logs] == ["closed"] * 2 + ["abandoned"] * 3


def test_it_says_how_far_it_is(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    progress = CloseProgress(clock)
    progress.begin(11, 60_000)
    with caplog.at_level(logging.INFO):
        close_all(logs_of(*(FakeLog(clock) for _ in range(11))), progress)
    assert [record.getMessage() for record in caplog.records] == [
        "stopping: 5 of 11 logs are synced and closed, about 6 s left",
        "stopping: 10 of 11 logs are synced and closed, about 1 s left",
    ]


class Waiting:
    """Logs that close once as many are being closed as there may be threads, this one among them."""

    def __init__(self, count: int) -> None:
        self.barrier = threading.Barrier(count)

    def close(self) -> None:
        self.barrier.wait(DEADLINE_S)

    def abandon(self) -> None:
        raise AssertionError("it had all the time")


def test_many_are_closed_at_once() -> None:
    together = MOST_THREADS + 1
    log = Waiting(together)
    count = together * LOGS_FOR_A_THREAD
    logs: dict[TopicPartition, Log] = {TopicPartition("t", n): log for n in range(count)}  # type: ignore[misc]  # as above
    assert len(close_all(logs, CloseProgress(ManualClock()))) == count


def test_many_are_closed_without_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    clock = ManualClock()
    logs = logs_of(*(FakeLog(clock) for _ in range(2 * LOGS_FOR_A_THREAD)))
    assert len(close_all(logs, CloseProgress(clock))) == 2 * LOGS_FOR_A_THREAD


@pytest.mark.parametrize("is_forced", [False, True])
def test_a_stop_that_is_given_up_loses_nothing_acknowledged_and_is_not_clean(
    is_forced: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node, files, clock = start_node(ottla_acks_all="sync", ottla_shutdown_close_timeout_ms=0 if not is_forced else 9)
    make_topic(node, "t", 3)
    client = Exchange(node)
    for index in range(3):
        client.ask(produce_request("t", batch(2), partition=index), 9)
    if is_forced:
        node.services.log_manager.closing.stop()
    with caplog.at_level(logging.WARNING):
        node.stop()
    (line,) = [record.getMessage() for record in caplog.records]
    reason = "an operator waits" if is_forced else "ottla.shutdown.close.timeout.ms=0"
    assert line.startswith(f"4 of 4 logs are closed without a sync: that took longer than {reason}; nothing ackn")
    again, _, _ = start_node(files.crash(random.Random(1)), clock)
    assert not again.services.log_manager.was_clean
    assert [partition_of(again, "t", index).log.log_end_offset for index in range(3)] == [2, 2, 2]


def test_only_the_directory_of_what_is_left_is_unclean(monkeypatch: pytest.MonkeyPatch) -> None:
    node, files, clock = start_node(log_dirs="/data,/more")
    make_topic(node, "t", 2)
    first = partition_of(node, "t", 0).log
    assert first.directory.parent != partition_of(node, "t", 1).log.directory.parent
    close = Log.close

    def closing(log: Log) -> None:
        close(log)
        if len(closed := [one for one in node.services.log_manager.logs.values() if one.error is not None]) == 2:
            assert closed
            node.services.log_manager.closing.stop()

    monkeypatch.setattr(Log, "close", closing)
    node.stop()
    again, _, _ = start_node(files, clock, log_dirs="/data,/more")
    clean = {str(one.path): one.was_clean for one in again.services.log_manager.directories}
    assert sorted(clean.values()) == [False, True]


# -- by the volume


def written_node(files: SimulatedFiles | None = None) -> tuple[Node, SimulatedFiles, ManualClock]:
    """A node on a disk whose volume can be synced, with records of an idempotent producer in three partitions."""
    files = SimulatedFiles() if files is None else files
    files.has_volume_sync = True
    node, files, clock = start_node(files, ottla_acks_all="sync")
    make_topic(node, "t", 3)
    client = Exchange(node)
    for index in range(3):
        client.ask(produce_request("t", batch(2, producer_id=7, producer_epoch=0, base_sequence=0), partition=index), 9)
    files.history.clear()
    return node, files, clock


def require_records(files: SimulatedFiles, clock: ManualClock, *, is_clean: bool | None) -> None:
    """A start finds all records, and what their producer has sent."""
    node, _, _ = start_node(files, clock, ottla_acks_all="sync")
    if is_clean is not None:
        assert node.services.log_manager.was_clean is is_clean
    for index in range(3):
        log = partition_of(node, "t", index).log
        assert log.log_end_offset == 2
        producer = log.producers.get(7)
        assert producer is not None
        assert producer.last_sequence == 1
    assert not [name for name in files.written_state() if name.endswith(".tmp")]


def test_many_logs_are_closed_by_two_syncs_of_their_volume() -> None:
    node, files, clock = written_node()
    node.stop()
    calls = Counter(call for call, path in files.history if call == "sync_volume" or "/t-" in path.as_posix())
    assert [calls[kind] for kind in ("sync_volume", "fdatasync", "sync_directory")] == [2, 0, 0]
    assert files.synced_state() == files.written_state()
    require_records(files.crash(random.Random(1)), clock, is_clean=True)


def test_logs_on_another_disk_are_closed_alone() -> None:
    node, files, clock = written_node()
    files.mounts[DATA / "t-1"] = 2
    node.stop()
    assert {path.parent.name for call, path in files.history if call == "fdatasync"} >= {"t-1"}
    assert files.synced_state() == files.written_state()
    require_records(files, clock, is_clean=True)


@pytest.mark.parametrize("which", [0, 1])
def test_a_sync_of_the_volume_that_fails_is_no_clean_stop(which: int) -> None:
    node, files, clock = written_node()
    files.fail("sync_volume", skip=which)
    node.stop()
    assert node.services.log_manager.directories[0].is_offline
    require_records(files.crash(random.Random(which)), clock, is_clean=False)


def test_what_the_kernel_lost_since_the_start_is_met_by_a_stop() -> None:
    node, files, clock = written_node()
    files.fail_elsewhere()
    node.stop()
    require_records(files.crash(random.Random(1)), clock, is_clean=False)


@pytest.mark.parametrize("syncs", [1, 2])
def test_a_stop_that_is_given_up_between_two_syncs_of_the_volume(syncs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    node, files, clock = written_node()
    sync = SimulatedVolume.sync
    done: list[Path] = []

    def stopping(volume: SimulatedVolume) -> None:
        sync(volume)
        done.append(DATA)
        if len(done) == syncs:
            node.services.log_manager.closing.stop()

    monkeypatch.setattr(SimulatedVolume, "sync", stopping)
    node.stop()
    assert len(done) == syncs
    require_records(files.crash(random.Random(syncs)), clock, is_clean=syncs == 2)


def test_a_power_cut_at_any_change_of_a_stop_by_the_volume_loses_nothing() -> None:
    node, files, _ = written_node()
    before = files.changes
    node.stop()
    changes = files.changes - before
    assert changes > 20
    for number in range(changes):
        node, files, clock = written_node()
        last = files.changes + number
        files.crash_when = lambda kind, path, files=files, last=last: files.changes > last  # type: ignore[misc]  # defaults
        with pytest.raises(CrashPoint):
            node.stop()
        require_records(files.crash(random.Random(number)), clock, is_clean=None)
