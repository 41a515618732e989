"""Background work driven by a manual clock: what is done, when, in how small steps, and what a failure does."""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Callable
from itertools import pairwise
from typing import TypeVar

import pytest
from kit.nodes import DATA, partition_of, pass_time, start_node, start_node_with
from kit.workers import HeldWorkers

from ottla.broker.catalog.catalog import NewTopic
from ottla.broker.chores import chores, sweep
from ottla.broker.chores.chores import FILES_PER_STEP, Chore
from ottla.broker.chores.sweep import Sweep
from ottla.broker.node import Node
from ottla.broker.runtime.timers import Timer
from ottla.broker.runtime.workers import InlineWorkers
from ottla.protocol.records.batch import encode_batch
from ottla.protocol.records.record import Record
from ottla.storage.formats import layout
from ottla.storage.formats.checkpoint import read_offsets
from ottla.storage.formats.layout import TopicPartition
from ottla.storage.log.append import AppendEntry
from ottla.storage.log.log import Log
from ottla.storage.log.log_retention import LogRetention
from ottla.storage.producers.producer_entry import ProducerEntry
from ottla.storage.producers.snapshot_format import parse_snapshot

T = TypeVar("T")


class Ignore:
    """Nobody waits for what is appended."""

    def appended(self, index: int, result: object) -> None:
        assert result.error_code == 0  # type: ignore[attr-defined]  # an AppendResult


class AsThreads(InlineWorkers):
    """Runs everything on the spot, and tells of every error as threads do."""

    def run(self, work: Callable[[], object], done: Callable[[object, BaseException | None], None]) -> None:
        try:
            result = work()
        except Exception as error:  # whatever it is belongs to `done`
            done(None, error)
        else:
            done(result, None)


def create(node: Node, name: str, partitions: int = 1, **configs: str) -> None:
    pairs = [(key.replace("_", "."), value) for key, value in configs.items()]
    node.services.catalog.create_topics([NewTopic(name, partitions=partitions, configs=pairs)], lambda _: None)
    node.settle()


def append(node: Node, topic: str, count: int, now_ms: int, index: int = 0) -> None:
    partition = node.services.catalog.partition(topic, index)
    assert partition is not None
    for _ in range(count):
        batch = encode_batch([Record(0, now_ms, None, b"x" * 500)])
        partition.gather(AppendEntry(memoryview(batch), 9), Ignore(), 0)
        node.settle()


def test_retention_deletes_old_segments_and_their_files_after_the_delay() -> None:
    node, files, clock = start_node(log_retention_check_interval_ms=10_000)
    create(node, "t", segment_bytes="1024", retention_bytes="2000", file_delete_delay_ms="5000")
    append(node, "t", 20, clock.wall_ms())
    partition = node.services.catalog.partition("t", 0)
    assert partition is not None
    assert partition.log.log_start_offset == 0
    pass_time(node, clock, 9_000)
    assert partition.log.log_start_offset == 0
    pass_time(node, clock, 2_000)
    assert partition.log.log_start_offset > 0
    names = files.list_directory(DATA / "t-0")
    assert [name for name in names if name.endswith(".deleted")]
    pass_time(node, clock, 7_000)
    assert not [name for name in files.list_directory(DATA / "t-0") if name.endswith(".deleted")]


def test_high_watermarks_recovery_points_and_log_starts_are_checkpointed() -> None:
    node, files, clock = start_node(
        log_flush_start_offset_checkpoint_interval_ms=3_000, replica_high_watermark_checkpoint_interval_ms=2_000
    )
    create(node, "t")
    append(node, "t", 3, clock.wall_ms())
    partition = node.services.catalog.partition("t", 0)
    assert partition is not None
    partition.log.delete_records(2)
    pass_time(node, clock, 16_000)  # after a checkpoint of the redo log the recovery point is there
    place = TopicPartition("t", 0)
    assert read_offsets(files, DATA / "replication-offset-checkpoint")[place] == 3
    assert read_offsets(files, DATA / "recovery-point-offset-checkpoint")[place] == 3
    assert read_offsets(files, DATA / "log-start-offset-checkpoint")[place] == 2


def test_a_full_directory_comes_back_by_itself() -> None:
    node, files, clock = start_node(ottla_disk_full_probe_interval_ms=4_000)
    create(node, "t")
    (directory,) = node.services.log_manager.directories
    full = files.fail("pwritev", "*", errno.ENOSPC, times=None)
    directory.mark_full(OSError(errno.ENOSPC, "no room"))
    pass_time(node, clock, 5_000)
    assert not directory.is_online
    files.heal(full)
    pass_time(node, clock, 5_000)
    assert directory.is_online


def test_every_chore_has_figures() -> None:
    node, _, clock = start_node()
    pass_time(node, clock, 5_000)
    figures = node.services.metrics.chores
    assert figures["segment unlink"].steps >= 4
    assert figures["high watermarks"].steps == 1
    assert figures["segment unlink"].last_wall_ms == clock.wall_ms()
    assert {name: counters.failures for name, counters in figures.items() if counters.failures} == {}


def test_a_step_that_fails_is_said_and_comes_again(caplog: pytest.LogCaptureFixture) -> None:
    node, _, clock = start_node()
    calls: list[int] = []

    def step() -> bool:
        calls.append(1)
        raise OSError(errno.EIO, "broken")

    chore = Chore(node.services, "test chore", 1_000, step)
    chore.start()
    with caplog.at_level(logging.ERROR):
        pass_time(node, clock, 3_000)
    assert len(calls) == 3
    assert node.services.metrics.chore("test chore").failures == 3
    assert "test chore" in caplog.text
    chore.stop()
    pass_time(node, clock, 3_000)
    assert len(calls) == 3


def test_a_step_that_left_work_over_goes_on_in_the_next_turn() -> None:
    node, _, clock = start_node()
    left = [True, True, False, False]
    chore = Chore(node.services, "test chore", 10_000, lambda: left.pop(0))
    chore.start()
    clock.advance(10_000)
    turns = 0
    while len(left) > 1:
        node.run_due()
        turns += 1
    assert turns == 3
    node.run_due()
    assert left == [False]
    chore.stop()


def test_a_chore_whose_work_is_at_the_disk_does_not_start_again_before_it_is_done() -> None:
    workers = HeldWorkers()
    node, _, clock = start_node_with(workers)
    workers.holds = True
    chore = Chore(node.services, "test chore", 1_000, lambda: chore.in_worker(lambda: None))
    chore.start()
    pass_time(node, clock, 900, step_ms=100)
    assert not workers.jobs
    clock.advance(200)
    chore.run()
    chore.run()
    chore.run()
    assert len(workers.jobs) == 1
    workers.run_next()
    chore.run()
    assert len(workers.jobs) == 1


def test_a_sweep_visits_every_log_once_in_bounded_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    node, _, _ = start_node()
    create(node, "t", partitions=7)
    monkeypatch.setattr(sweep, "LOGS_PER_STEP", 3)
    visited: list[str] = []
    way = Sweep(lambda: list(node.services.log_manager.logs.values()), lambda log: visited.append(log.name))
    steps = [way.step() for _ in range(3)]
    assert steps == [True, True, False]
    assert len(visited) == len(set(visited)) == 8
    way.step()
    assert len(visited) == 11


def test_a_sweep_visits_a_log_again_that_has_more_to_do() -> None:
    node, _, _ = start_node()
    create(node, "t", partitions=3)
    visited: list[str] = []

    def visit(log: Log) -> bool:
        visited.append(log.name)
        if visited.count("t-1") in (1, 2):
            way.visit_again(log)
            return True
        return False

    way = Sweep(lambda: [partition_of(node, "t", index).log for index in range(3)], visit)
    while way.step() or len(visited) < 5:
        pass
    assert visited == ["t-0", "t-1", "t-1", "t-1", "t-2"]


def test_the_files_of_many_deleted_segments_are_closed_and_unlinked_some_at_a_time() -> None:
    workers = HeldWorkers()
    node, files, clock = start_node_with(workers, log_retention_check_interval_ms=1_000)
    create(node, "t", segment_bytes="1024", retention_bytes="0", file_delete_delay_ms="60000")
    append(node, "t", 3 * FILES_PER_STEP, clock.wall_ms())
    log = partition_of(node, "t").log
    clock.advance(1_000)
    while len(log.segments) > 1:
        node.run_due()
    waiting = [len(log.retention.due_unlinks)]
    assert waiting[0] > FILES_PER_STEP
    workers.holds = True
    clock.advance(60_000)
    while waiting[-1]:  # without waiting for the interval
        node.run_due()
        waiting.append(len(log.retention.due_unlinks))
        while workers.jobs:
            workers.run_next()
    assert max(before - after for before, after in pairwise(waiting)) <= FILES_PER_STEP // 3 + 1
    assert not [name for name in files.list_directory(DATA / "t-0") if name.endswith(".deleted")]


def test_producers_that_are_forgotten_go_some_at_a_time() -> None:
    node, _, clock = start_node(producer_id_expiration_ms=1_000, producer_id_expiration_check_interval_ms=10_000)
    create(node, "many")
    create(node, "few", partitions=60)
    producers = partition_of(node, "many").log.producers
    for number in range(2 * chores.PRODUCERS_PER_STEP + 1):
        producers.publish(ProducerEntry.of(number, 0, ((0, number, 0, 5),), clock.wall_ms()))
    counts = [len(producers)]
    clock.advance(10_000)
    node.run_due()
    counts.append(len(producers))
    turns = 1
    while producers:
        node.run_due()
        counts.append(len(producers))
        turns += 1
    assert max(before - after for before, after in pairwise(counts)) <= chores.PRODUCERS_PER_STEP
    assert turns >= 3
    assert node.services.metrics.chore("producer expiry").steps >= turns


def test_expiry_begins_again_after_its_interval() -> None:
    node, _, clock = start_node(producer_id_expiration_ms=1_000, producer_id_expiration_check_interval_ms=10_000)
    create(node, "t", partitions=60)
    for index in (0, 59):
        producers = partition_of(node, "t", index).log.producers
        for _ in range(2):
            producers.publish(ProducerEntry.of(7, 0, ((0, 0, 0, 5),), clock.wall_ms()))
            pass_time(node, clock, 10_500)
            assert len(producers) == 0


def rolled(node: Node, topic: str) -> Log:
    """A topic whose only log has been rolled behind a producer's batch."""
    create(node, topic)
    partition = partition_of(node, topic)
    batch = encode_batch([Record(0, 5, None, b"x")], producer_id=7, producer_epoch=0, base_sequence=0)
    partition.gather(AppendEntry(memoryview(batch), 9), Ignore(), 0)
    node.settle()
    partition.log.roll(node.services.clock.wall_ms())
    return partition.log


def test_what_a_roll_takes_of_producers_is_written_within_the_next_seconds_in_every_log() -> None:
    node, files, clock = start_node()
    for topic in ("a", "b", "c"):
        rolled(node, topic)
    pass_time(node, clock, 2_000)
    for topic in ("a", "b", "c"):
        (known,) = parse_snapshot(files.read_bytes(layout.snapshot_file(DATA / f"{topic}-0", 1)))
        assert known.producer_id == 7
    assert node.services.metrics.chore("producer snapshots").failures == 0


def test_a_producer_snapshot_is_a_workers_and_one_log_is_written_after_the_other() -> None:
    logs: list[Log] = []
    held: list[Callable[[], None]] = []

    def written_now() -> list[Log]:
        return [log for log in logs if log.producer_snapshots.writing is not None]

    class Later(InlineWorkers):
        """Holds the snapshots back, and nothing else."""

        def run(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
            if len(written_now()) > len(held):
                held.append(lambda: done(work(), None))
            else:
                super().run(work, done)

    node, files, clock = start_node_with(Later())
    logs += [rolled(node, "a"), rolled(node, "b")]
    for log in logs:
        pass_time(node, clock, 3_000)
        assert written_now() == [log]
        assert [path for _, path in files.history if path.parent == log.directory and "snapshot" in path.name] == []
        held.pop()()
        assert log.producer_snapshots.synced_offset == 1


def test_after_the_stop_nothing_is_planned() -> None:
    node, _, _ = start_node()
    node.chores.stop()
    assert node.services.timers.next_deadline_ms() is None


def test_retention_deletes_one_segment_at_a_time_and_others_run_in_between() -> None:
    node, _, clock = start_node(log_retention_check_interval_ms=10_000)
    create(node, "t", segment_bytes="1024", retention_bytes="0")
    append(node, "t", 20, clock.wall_ms())
    partition = node.services.catalog.partition("t", 0)
    assert partition is not None
    counts = [len(partition.log.segments)]
    assert counts[0] > 5
    clock.advance(10_000)
    while counts[-1] > 1:
        node.run_due()
        counts.append(len(partition.log.segments))
    assert max(before - after for before, after in pairwise(counts)) == 1
    assert partition.log.high_watermark == 20
    pass_time(node, clock, 100)
    counters = node.services.metrics.chores["retention"]
    assert (counters.bytes > 5000, counters.failures) == (True, 0)


def test_a_sync_that_fails_ends_retention_and_the_chore_goes_on_to_other_logs() -> None:
    node, files, clock = start_node(log_retention_check_interval_ms=10_000)
    for name in ("a", "b"):
        create(node, name, segment_bytes="1024", retention_bytes="0")
        append(node, name, 10, clock.wall_ms())
    files.fail("sync_directory", "*/a-0")
    steps = node.services.metrics.chores["retention"].steps
    pass_time(node, clock, 30_000)
    partition = node.services.catalog.partition("a", 0)
    assert partition is not None
    assert partition.log.error is not None
    assert not partition.log.retention.is_running
    assert node.services.metrics.chores["retention"].steps > steps + 2


def test_what_a_worker_does_for_a_chore_is_counted_apart() -> None:
    node, _, clock = start_node()
    pass_time(node, clock, 10_000)
    counters = node.services.metrics.chores["recovery points"]
    assert counters.steps > 0
    assert counters.worker_us > 0
    assert counters.last_wall_ms > 0


def test_a_bug_in_a_step_of_retention_is_said_and_retention_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A step that was not done is not taken for done, and no log waits for it for ever."""
    node, _, clock = start_node_with(AsThreads(), log_retention_check_interval_ms=10_000)
    for name in ("a", "b"):
        create(node, name, segment_bytes="1024", retention_bytes="2000")
        append(node, name, 20, clock.wall_ms())
    first, second = (node.services.catalog.partition(name, 0) for name in ("a", "b"))
    assert first is not None
    assert second is not None

    def bug(retention: LogRetention) -> None:
        if retention is first.log.retention:
            raise ValueError("a file that was closed")

    monkeypatch.setattr(LogRetention, "_sync_names", bug)
    pass_time(node, clock, 30_000)
    assert first.log.log_start_offset == 0
    assert "a file that was closed" in caplog.text
    assert second.log.log_start_offset > 0


def test_chores_write_nothing_more_into_a_directory_that_is_offline() -> None:
    """Everything that they do at some time is due: nothing of it is worth another write on a disk that failed."""
    node, files, clock = start_node(
        log_retention_check_interval_ms=10_000,
        metadata_log_max_snapshot_interval_ms=10_000,
    )
    create(node, "old", segment_bytes="1024", retention_bytes="2000", file_delete_delay_ms="30000")
    create(node, "gone", file_delete_delay_ms="30000")
    append(node, "old", 20, clock.wall_ms())
    pass_time(node, clock, 11_000)
    append(node, "old", 20, clock.wall_ms())
    append(node, "gone", 1, clock.wall_ms())
    node.services.catalog.delete_topics(["gone"], lambda _: None)
    node.settle()
    node.services.log_manager.directories[0].mark_offline(OSError(errno.EIO, "Input/output error"))
    files.history.clear()
    pass_time(node, clock, 7_200_000, step_ms=10_000)
    changing = {"pwritev", "rename", "truncate", "unlink", "make_directory", "remove_directory", "sync_directory"}
    assert [(kind, str(path)) for kind, path in files.history if kind in changing] == []


def test_a_chore_continues_after_a_step_for_whose_error_there_was_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    node, _, clock = start_node()
    steps: list[str] = []

    def step() -> bool:
        steps.append("step")
        raise MemoryError

    def fails(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(chores.logger, "exception", fails)
    chore = Chore(node.services, "a chore", 1_000, step)
    chore.start()
    clock.advance(1_000)
    with pytest.raises(MemoryError):
        node.services.timers.run_due(clock.monotonic_ms())
    clock.advance(1_000)
    with pytest.raises(MemoryError):
        node.services.timers.run_due(clock.monotonic_ms())
    assert len(steps) == 2
    chore.stop()


def test_chores_whose_next_step_could_not_be_planned_are_planned_after_the_shortage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node, _, clock = start_node(offsets_retention_check_interval_ms=1_000)
    chore = node.chores.chores["group expiry"]
    at = node.services.timers.at

    def fails(deadline_ms: float, callback: object) -> Timer:
        raise MemoryError

    monkeypatch.setattr(node.services.timers, "at", fails)
    clock.advance(chore.interval_ms)
    steps = node.services.metrics.chore("group expiry").steps
    while node.services.metrics.chore("group expiry").steps == steps:
        with contextlib.suppress(MemoryError):
            node.services.timers.run_due(clock.monotonic_ms())
    assert not node.services.memory_reserve.recover()
    monkeypatch.setattr(node.services.timers, "at", at)
    assert node.services.memory_reserve.recover()
    runs = node.services.metrics.chore("group expiry").steps
    pass_time(node, clock, chore.interval_ms + 1_000)
    assert node.services.metrics.chore("group expiry").steps > runs


def test_work_of_a_chore_that_could_not_begin_is_begun_by_a_later_step() -> None:
    class Scant(InlineWorkers):
        fails = True

        def run(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
            if self.fails:
                raise MemoryError
            super().run(work, done)

    workers = Scant()
    node, _, _ = start_node_with(workers)
    done: list[str] = []
    chore = Chore(node.services, "a chore", 1_000, lambda: chore.in_worker(lambda: done.append("work")))
    chore.run()
    workers.fails = False
    chore.run()
    assert done == ["work"]
    chore.stop()
