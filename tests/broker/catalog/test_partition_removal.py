"""Deleted partitions: nothing of theirs is synced any more, and names are synced once for many."""

from __future__ import annotations

import errno
import logging
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from queue import SimpleQueue

import pytest
from kit.clock import ManualClock
from kit.exchange import Exchange, batch, make_topic, produce_request
from kit.nodes import DATA, partition_of, pass_time, start_node, start_node_with
from kit.simulated_files import SimulatedFiles
from kit.workers import HeldSteps

from ottla.broker.catalog.catalog import NewTopic, TopicResult
from ottla.broker.catalog.partition_removal import PartitionRemoval
from ottla.broker.node import Node
from ottla.broker.partitions.partition import Partition
from ottla.broker.runtime.queued_syncer import QueuedSyncer
from ottla.config.broker import BrokerConfig
from ottla.protocol.errors import ErrorCode
from ottla.storage.log import log as log_module
from ottla.storage.segment.segment import Segment


def renamed(files: SimulatedFiles) -> int:
    return sum(name.endswith("-delete") for name in files.list_directory(DATA))


def count_calls(files: SimulatedFiles, kind: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the calls of a kind from now on."""
    paths: list[str] = []
    original = files.call

    def counting(called: str, path: Path) -> AbstractContextManager[object]:
        if called == kind:
            paths.append(str(path))
        return original(called, path)

    monkeypatch.setattr(files, "call", counting)
    return paths


def delete(node: Node, topic: str) -> list[list[TopicResult]]:
    answers: list[list[TopicResult]] = []
    node.services.catalog.delete_topics([topic], answers.append)
    return answers


def test_what_is_deleted_is_not_synced_first_and_one_sync_covers_all_names(monkeypatch: pytest.MonkeyPatch) -> None:
    node, files, _ = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t", 20)
    client = Exchange(node)
    for index in range(20):
        client.send(produce_request("t", batch(1), partition=index), 9)
    node.services.turn.end()
    data_syncs = count_calls(files, "fdatasync", monkeypatch)
    name_syncs = count_calls(files, "sync_directory", monkeypatch)
    answers = delete(node, "t")
    node.settle()
    assert [outcome.error_code for outcome in answers[0]] == [ErrorCode.NONE]
    assert renamed(files) == 20
    assert not [path for path in data_syncs if "/t-" in path]
    assert name_syncs.count(str(DATA)) == 1
    assert not any(path.startswith(f"{DATA}/t-0/") for path in files.synced_state())


def test_a_log_that_a_thread_syncs_is_closed_when_that_has_ended() -> None:
    node, files, _ = start_node(ottla_acks_all="sync")
    make_topic(node, "t", 2)
    partition = node.services.catalog.topics["t"].partitions[0]
    assert partition is not None
    client = Exchange(node)
    client.send(produce_request("t", batch(1)), 9)
    node.services.turn.end()
    assert isinstance(node.services.syncer, QueuedSyncer)
    assert len(node.services.syncer.rounds) == 1, "the round with t-0 has begun"
    gone: list[Partition] = []
    removal = PartitionRemoval(node.services.log_manager, node.services.syncer, node.services.workers, None)
    removal.remove([one for one in node.services.catalog.topics["t"].partitions if one is not None], gone.append)
    assert [one.index for one in gone] == [1]
    assert renamed(files) == 1
    node.settle()
    assert [one.index for one in gone] == [1, 0]
    assert renamed(files) == 2


def test_requests_that_wait_for_a_sync_of_a_deleted_log_are_answered() -> None:
    node, _, _ = start_node(ottla_acks_all="sync")
    make_topic(node, "t")
    partition = node.services.catalog.topics["t"].partitions[0]
    assert partition is not None
    client = Exchange(node)
    client.send(produce_request("t", batch(1)), 9)
    node.services.turn.flush()  # the append has asked for a sync, which waits for the end of the turn
    reported: list[BaseException | None] = []
    node.services.syncer.request(partition.log, reported.append)
    quiet: list[str] = []
    node.services.syncer.retire(partition.log, lambda: quiet.append("quiet"))
    assert quiet == ["quiet"]
    assert isinstance(reported[0], OSError)


def test_a_failed_sync_of_names_takes_the_directory_offline_and_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node, files, _ = start_node()
    make_topic(node, "t", 3)
    name_syncs = count_calls(files, "sync_directory", monkeypatch)
    files.fail("sync_directory", str(DATA), errno.EIO)
    answers = delete(node, "t")
    with caplog.at_level(logging.WARNING):
        node.settle()
    assert len(answers) == 1
    assert node.services.log_manager.directories[0].is_offline
    assert name_syncs.count(str(DATA)) == 1
    assert [text for text in caplog.messages if "its files are removed by the next start" in text]


def test_a_name_that_cannot_be_synced_for_want_of_a_descriptor_is_not_free_before_it_is() -> None:
    """Else a power cut could bring the directory back under the name of a topic that is created meanwhile."""
    node, files, clock = start_node()
    make_topic(node, "t", 2)
    shortage = files.fail("sync_directory", str(DATA), errno.EMFILE, times=None)
    answers = delete(node, "t")
    node.services.catalog.create_topics([NewTopic("t")], answers.append)
    node.settle()
    assert (renamed(files), answers, "t" in node.services.catalog.image.topics) == (2, [], False)
    files.heal(shortage)
    pass_time(node, clock, 2 * node.services.config.ottla_disk_full_probe_interval_ms)
    assert [[outcome.error_code for outcome in answer] for answer in answers] == [[ErrorCode.NONE]] * 2
    assert not node.services.log_manager.directories[0].is_offline


def test_a_stop_syncs_the_names_for_which_there_was_no_descriptor() -> None:
    node, files, clock = start_node()
    make_topic(node, "t", 2)
    files.fail("sync_directory", str(DATA), errno.EMFILE)
    delete(node, "t")
    node.settle()
    node.stop()
    node, _, _ = start_node(files.crash(random.Random(1)), clock)
    assert node.services.catalog.topics == {}


def test_a_sync_that_begins_while_a_log_waits_for_its_turn_is_waited_for() -> None:
    """Retention that had the partition in hand rolls it; to close files that a thread syncs would be to sync others."""
    later = HeldSteps(holds=False)
    node, files, clock = start_node_with(None, later, ottla_acks_all="page-cache")
    make_topic(node, "t")
    partition = node.services.catalog.topics["t"].partitions[0]
    assert partition is not None
    client = Exchange(node)
    client.send(produce_request("t", batch(1)), 9)
    node.services.turn.end()
    later.holds = True
    answers = delete(node, "t")
    node.settle()
    assert (len(later), partition.log.error) == (1, None)
    partition.log.roll(clock.wall_ms())
    node.services.turn.end()
    assert partition.log.unsynced.ticket is not None
    later.popleft()()
    assert (renamed(files), partition.log.error, answers) == (0, None, [])
    node.settle()
    while later:
        later.popleft()()
        node.settle()
    assert renamed(files) == 1
    assert [outcome.error_code for outcome in answers[0]] == [ErrorCode.NONE]


class ManySegments:
    """A topic whose one log has several segments, three of which are closed in a step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.later = HeldSteps(holds=False)
        self.node, self.files, self.clock = start_node_with(None, self.later, ottla_acks_all="page-cache")
        make_topic(self.node, "t")
        self.log = partition_of(self.node, "t").log
        client = Exchange(self.node)
        for _ in range(7):
            client.send(produce_request("t", batch(1)), 9)
            self.node.settle()
            self.log.roll(self.clock.wall_ms())
        self.closed = 0
        abandon = Segment.abandon

        def counting(segment: Segment) -> None:
            self.closed += segment.file.path.parent.name == "t-0"
            abandon(segment)

        monkeypatch.setattr(Segment, "abandon", counting)
        monkeypatch.setattr(log_module, "SEGMENTS_PER_STEP", 3)
        self.later.holds = True
        self.answers = delete(self.node, "t")
        self.node.settle()

    def step(self) -> tuple[int, int]:
        """Run a step: how many segments it has closed, and how many directories are renamed."""
        before = self.closed
        self.later.popleft()()
        self.node.settle()
        return self.closed - before, renamed(self.files)


def test_the_segments_of_a_deleted_log_are_closed_some_in_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    many = ManySegments(monkeypatch)
    assert [many.step() for _ in range(2)] == [(3, 0), (3, 0)]
    assert many.log.error is not None, "it takes nothing more"
    assert many.answers == []
    assert many.step() == (2, 1)
    assert [outcome.error_code for outcome in many.answers[0]] == [ErrorCode.NONE]
    assert not many.later


def test_a_stop_closes_the_segments_that_are_left_and_renames(monkeypatch: pytest.MonkeyPatch) -> None:
    many = ManySegments(monkeypatch)
    many.step()
    many.node.stop()
    assert (many.closed, renamed(many.files)) == (8, 1)


def test_a_stop_finishes_what_waits_for_its_turn() -> None:
    later = HeldSteps(holds=False)
    node, files, clock = start_node_with(None, later)
    make_topic(node, "t", 5)
    later.holds = True
    delete(node, "t")
    node.settle()
    assert (renamed(files), len(later)) == (0, 1)
    node.stop()
    assert renamed(files) == 5
    again, _, _ = start_node(files, clock)
    assert not [name for name in files.list_directory(DATA) if name.startswith("t-")]
    again.stop()


def test_what_a_worker_reports_after_a_stop_changes_nothing() -> None:
    """The directories belong to the next broker then: a topic that waited for its name would be made in them."""
    posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
    files = SimulatedFiles()
    node = Node(BrokerConfig.of({"log.dirs": str(DATA)}), clock=ManualClock(), files=files, post=posted.put)
    node.start()
    answers: list[list[TopicResult]] = []
    node.services.catalog.create_topics([NewTopic("t")], answers.append)
    node.services.turn.end()
    posted.get(timeout=60)()
    node.run_due()
    assert len(answers) == 1
    node.services.catalog.delete_topics(["t"], answers.append)
    node.services.turn.end()
    posted.get(timeout=60)()
    node.run_due()
    settled = posted.get(timeout=60)
    node.services.catalog.create_topics([NewTopic("t")], answers.append)
    node.services.turn.end()
    assert posted.empty(), "it waits until the directory of the deleted one is out of the way"
    node.stop()
    stopped = len(files.history)
    settled()
    assert files.history[stopped:] == []


def test_a_name_is_free_when_retention_that_was_under_way_has_let_go_of_the_directory() -> None:
    """What a worker writes for it under the old path would be the new topic's: a snapshot of others' producers."""
    node, files, _ = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t", retention_bytes="0", segment_bytes="1024")
    partition = node.services.catalog.topics["t"].partitions[0]
    assert partition is not None
    client = Exchange(node)
    for sequence in range(3):
        value = batch(1, value=b"v" * 900, producer_id=7, producer_epoch=0, base_sequence=sequence)
        client.send(produce_request("t", value), 9)
        node.services.turn.end()
        node.settle()
    partition.log.producer_snapshots.synced_offset = -1
    steps = partition.log.retention.steps(node.services.clock.wall_ms())
    write_snapshot = next(steps)
    answers = delete(node, "t")
    node.settle()
    node.services.catalog.create_topics([NewTopic("t")], answers.append)
    node.settle()
    assert (node.services.catalog.topics, answers) == ({}, [])
    write_snapshot()
    with pytest.raises(StopIteration):
        next(steps)
    node.settle()
    assert [outcome.error_code for reported in answers for outcome in reported] == [ErrorCode.NONE] * 2
    assert node.services.catalog.topics["t"].partitions[0] is not None
    assert not [name for name in files.list_directory(DATA / "t-0") if name.endswith(".snapshot")]


def test_a_name_is_free_when_no_worker_writes_a_snapshot_for_the_log_that_had_it() -> None:
    node, files, _ = start_node()
    make_topic(node, "t")
    log = partition_of(node, "t").log
    client = Exchange(node)
    client.send(produce_request("t", batch(1, producer_id=7, producer_epoch=0, base_sequence=0)), 9)
    node.services.turn.end()
    node.settle()
    log.roll(node.services.clock.wall_ms())
    write = log.begin_snapshot()
    assert write is not None
    answers = delete(node, "t")
    node.settle()
    node.services.catalog.create_topics([NewTopic("t")], answers.append)
    node.settle()
    assert (node.services.catalog.topics, answers) == ({}, [])
    write.run()
    log.end_snapshot(write)
    node.settle()
    assert [outcome.error_code for reported in answers for outcome in reported] == [ErrorCode.NONE] * 2
    assert not [name for name in files.list_directory(DATA / "t-0") if "snapshot" in name]
    assert not node.services.log_manager.directories[0].is_offline


def test_a_directory_that_no_descriptor_could_remove_is_removed_after_a_stop() -> None:
    """It is the broker's own, and no stray of somebody else: the stop is not a clean one."""
    node, files, clock = start_node()
    files.has_descriptor = lambda: not files.exists(DATA / "t-0" / "partition.metadata")
    assert make_unusable_topic(node, "t") is not ErrorCode.NONE
    assert files.exists(DATA / "t-0" / "partition.metadata")
    delete(node, "t")
    node.settle()
    assert files.is_directory(DATA / "t-0"), "its topic id could not be read"
    files.has_descriptor = lambda: True
    node.stop()
    _, files, _ = start_node(files.successor(), clock)
    assert not [name for name in files.list_directory(DATA) if name.startswith("t-0") and "-delete" not in name]


def make_unusable_topic(node: Node, name: str) -> ErrorCode:
    answers: list[list[TopicResult]] = []
    node.services.catalog.create_topics([NewTopic(name, partitions=1, replication_factor=1)], answers.append)
    node.settle()
    return answers[0][0].error_code
