"""Rounds that sync the whole volume: when, what its errors mean, and what becomes of one that takes long.

Without the redo log, which small rounds go to; its checkpoints, and large rounds, are as these.
"""

from __future__ import annotations

import errno
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest
from kit.clock import ManualClock
from kit.exchange import Exchange, batch, make_topic, produce_request
from kit.nodes import DATA, partition_of, start_node
from kit.simulated_files import SimulatedFiles

from ottla.broker.metadata.change_requests import NewTopic
from ottla.broker.node import Node
from ottla.broker.runtime.directory_queue import FIRST_REST_MS, MOST_REST_MS, DirectoryQueue
from ottla.broker.runtime.processor_wait import ProcessorWait
from ottla.broker.runtime.queued_syncer import QueuedSyncer
from ottla.broker.runtime.sync_threads import ThreadedSyncer
from ottla.broker.runtime.volume_syncs import OVERTAKEN_AFTER_MS, OVERTAKEN_AT_LAST_MS
from ottla.config.broker import BrokerConfig
from ottla.protocol.api.produce import ProduceResponse
from ottla.protocol.errors import ErrorCode
from ottla.storage.files.files import OsFiles, Volume

DEADLINE_S = 60
PARTITIONS = 4
REFUSED = ErrorCode.KAFKA_STORAGE_ERROR


class Broker:
    """A node without threads whose disk can sync the volume, with a topic of `PARTITIONS` logs that were all synced."""

    def __init__(self, files: SimulatedFiles | None = None, **keys: object) -> None:
        disk = SimulatedFiles() if files is None else files
        disk.has_volume_sync = True
        self.node, self.files, self.clock = start_node(disk, ottla_acks_all="sync", ottla_redo_log_enable=False, **keys)
        if files is None:
            make_topic(self.node, "t", PARTITIONS)
            self.produce(range(PARTITIONS))
            self.node.settle()
            self.answers()
        self.files.history.clear()

    def produce(self, partitions: range) -> None:
        self._clients = [Exchange(self.node) for _ in partitions]
        for client, partition in zip(self._clients, partitions, strict=True):
            client.send(produce_request("t", batch(), partition=partition), 9)
        self.node.services.turn.end()

    def answers(self) -> list[int]:
        self.node.services.turn.end()
        found = []
        for client in self._clients:
            for _, reply in client.replies():
                assert isinstance(reply, ProduceResponse)
                found.append(reply.responses[0].partition_responses[0].error_code)
        return found

    def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)
        self.node.run_due()

    @property
    def syncer(self) -> QueuedSyncer:
        assert isinstance(self.node.services.syncer, QueuedSyncer)
        return self.node.services.syncer

    @property
    def is_offline(self) -> bool:
        return self.node.services.log_manager.directories[0].is_offline

    def calls(self, kind: str) -> list[str]:
        return [str(path) for call, path in self.files.history if call == kind]


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_a_round_of_three_logs_is_one_sync_of_the_volume(broker: Broker) -> None:
    before = broker.node.services.metrics.syncs.count
    broker.produce(range(3))
    assert broker.answers() == []
    broker.node.settle()
    assert broker.answers() == [0] * 3
    assert (broker.calls("sync_volume"), broker.calls("fdatasync")) == ([f"{DATA}/meta.properties"], [])
    rounds = broker.node.services.metrics.sync_rounds["volume"]
    assert rounds.files >= 3
    assert broker.node.services.metrics.syncs.count == before + 3, "of each log, as ever"


def test_a_round_of_two_logs_is_two_fdatasyncs(broker: Broker) -> None:
    broker.produce(range(2))
    broker.node.settle()
    assert broker.answers() == [0] * 2
    assert (broker.calls("sync_volume"), len(broker.calls("fdatasync"))) == ([], 2)


def test_a_partition_on_another_disk_is_not_left_to_the_sync_of_the_volume() -> None:
    """Its directory may be a link, or a mount point."""
    broker = Broker()
    broker.files.mounts[DATA / "t-2"] = 2
    broker.produce(range(3))
    broker.node.settle()
    assert broker.answers() == [0] * 3
    assert (broker.calls("sync_volume"), len(broker.calls("fdatasync"))) == ([], 3)


def test_where_the_volume_cannot_be_synced_each_file_is() -> None:
    files = SimulatedFiles()
    node, _, _ = start_node(files, ottla_acks_all="sync")
    make_topic(node, "t", PARTITIONS)
    files.history.clear()
    clients = [Exchange(node) for _ in range(3)]
    for partition, client in enumerate(clients):
        client.send(produce_request("t", batch(), partition=partition), 9)
    node.settle()
    assert sum(call == "fdatasync" and path.suffix == ".log" for call, path in files.history) == 3


def test_a_volume_that_cannot_be_opened_keeps_no_broker_from_its_start() -> None:
    files = SimulatedFiles()
    files.fail("open_volume", error=errno.EMFILE, times=None)
    broker = Broker(files)
    make_topic(broker.node, "t", PARTITIONS)
    broker.produce(range(3))
    broker.node.settle()
    assert broker.answers() == [0] * 3
    assert broker.calls("sync_volume") == []


def test_what_a_sync_of_the_volume_acknowledged_survives_a_power_cut(broker: Broker) -> None:
    broker.produce(range(PARTITIONS))
    broker.node.settle()
    assert broker.answers() == [0] * PARTITIONS
    for seed in range(10):
        after, _, _ = start_node(broker.files.crash(random.Random(seed)))
        assert [one.log.log_end_offset for one in after.services.catalog.topics["t"].partitions if one] == (
            [2] * PARTITIONS
        )


@pytest.mark.parametrize("partitions", [1, PARTITIONS])
def test_the_first_records_of_new_partitions_are_one_sync_of_the_volume(partitions: int) -> None:
    """It brings names and small files along: four syncs more for each, else."""
    broker = Broker()
    make_topic(broker.node, "u", partitions)
    broker.files.history.clear()
    clients = [Exchange(broker.node) for _ in range(partitions)]
    for partition, client in enumerate(clients):
        client.send(produce_request("u", batch(), partition=partition), 9)
    broker.node.settle()
    assert [len(client.replies()) for client in clients] == [1] * partitions
    assert [len(broker.calls(kind)) for kind in ("sync_volume", "fdatasync", "sync_directory")] == [1, 0, 0]
    for seed in range(10):
        after, _, _ = start_node(broker.files.crash(random.Random(seed)))
        assert [one.log.log_end_offset for one in after.services.catalog.topics["u"].partitions if one] == (
            [1] * partitions
        )


def test_a_name_whose_sync_has_failed_is_not_taken_for_durable_by_a_sync_of_the_volume() -> None:
    broker = Broker()
    make_topic(broker.node, "u", PARTITIONS)
    broker.files.fail("sync_directory", str(DATA / "u-1"))
    with pytest.raises(OSError, match=r"u-1"):
        partition_of(broker.node, "u", 1).log.unsynced.sync_names()
    clients = [Exchange(broker.node) for _ in range(PARTITIONS)]
    for partition, client in enumerate(clients):
        client.send(produce_request("u", batch(), partition=partition), 9)
    broker.node.settle()
    (_, reply), *_ = clients[1].replies()
    assert isinstance(reply, ProduceResponse)
    assert reply.responses[0].partition_responses[0].error_code == REFUSED


# -- errors


def test_a_failed_sync_of_the_volume_refuses_the_round_and_takes_the_directory_offline_for_good(
    broker: Broker,
) -> None:
    broker.files.fail("sync_volume", times=1)
    broker.produce(range(3))
    broker.node.settle()
    assert broker.answers() == [REFUSED] * 3
    assert broker.is_offline
    broker.files.history.clear()
    broker.produce(range(PARTITIONS))
    broker.node.settle()
    assert broker.answers() == [REFUSED] * PARTITIONS
    broker.pass_time(10 * MOST_REST_MS)
    broker.node.settle()
    assert broker.calls("sync_volume") == []


def test_those_who_wait_for_the_next_round_are_refused_with_it(broker: Broker) -> None:
    broker.files.fail("sync_volume", times=1)
    broker.produce(range(3))
    waiting = Exchange(broker.node)
    waiting.send(produce_request("t", batch(), partition=3), 9)
    broker.node.services.turn.end()
    broker.syncer.run_one()
    broker.node.services.turn.end()
    reply = waiting.reply()
    assert isinstance(reply, ProduceResponse)
    assert reply.responses[0].partition_responses[0].error_code == REFUSED


def test_of_two_directories_one_that_fails_leaves_the_other_as_it_was() -> None:
    broker = Broker(SimulatedFiles(), log_dirs="/data,/more")
    make_topic(broker.node, "t", 8)
    manager = broker.node.services.log_manager
    homes = {partition: manager.directory_of("t", partition).path for partition in range(8)}  # type: ignore[union-attr]
    broker.files.fail("sync_volume", "/more/*", times=1)
    broker.produce(range(8))
    broker.node.settle()
    assert broker.answers() == [REFUSED if homes[each] == Path("/more") else 0 for each in range(8)]
    assert [directory.is_offline for directory in manager.directories] == [False, True]
    assert sorted(broker.calls("sync_volume")) == ["/data/meta.properties", "/more/meta.properties"]


# -- one that takes long


def overtake(broker: Broker) -> None:
    """A round of three logs, whose sync of the volume still runs when the files have been synced beside it."""
    broker.produce(range(3))
    broker.pass_time(OVERTAKEN_AFTER_MS)
    assert broker.answers() == []
    assert broker.syncer.run_one()


def test_one_that_is_not_late_is_not_overtaken(broker: Broker) -> None:
    broker.produce(range(3))
    broker.pass_time(OVERTAKEN_AFTER_MS - 1)
    broker.syncer.run_one()
    assert broker.answers() == [0] * 3
    assert (len(broker.calls("sync_volume")), broker.calls("fdatasync")) == (1, [])


def test_a_watch_that_began_with_an_earlier_round_gives_the_later_one_its_time(broker: Broker) -> None:
    broker.produce(range(3))
    broker.pass_time(OVERTAKEN_AFTER_MS - 1)
    broker.syncer.run_one()
    broker.produce(range(3))
    broker.pass_time(OVERTAKEN_AFTER_MS - 1)
    assert not broker.syncer.late
    broker.pass_time(1)
    assert len(broker.syncer.late) == 1


def test_one_that_runs_for_20_ms_is_overtaken_by_fdatasync_of_the_files(broker: Broker) -> None:
    overtake(broker)
    assert broker.answers() == [0] * 3
    assert (broker.calls("sync_volume"), len(broker.calls("fdatasync"))) == ([], 3)
    assert broker.node.services.metrics.sync_overtaken == 1
    assert broker.syncer.run_late()
    assert not broker.is_offline


class Wait(ProcessorWait):
    """What a thread has waited for a processor, as a test says."""

    def __init__(self) -> None:
        self.waited_ms = 0

    def mark(self) -> bytes:
        return b"%d" % self.waited_ms

    def since_ms(self, mark: bytes) -> int:
        return self.waited_ms - int(mark)


def test_time_without_a_processor_is_not_counted_against_a_sync_of_the_volume(broker: Broker) -> None:
    wait = broker.syncer.processor_wait = Wait()
    wait.waited_ms = 5_000  # before this round
    broker.produce(range(3))
    wait.waited_ms += 15
    broker.pass_time(OVERTAKEN_AFTER_MS)
    broker.pass_time(14)
    assert broker.node.services.metrics.sync_overtaken == 0
    broker.pass_time(1)
    assert broker.node.services.metrics.sync_overtaken == 1


def test_a_sync_of_the_volume_that_has_not_begun_for_want_of_a_processor_is_not_overtaken(broker: Broker) -> None:
    broker.syncer.begins_at_once = False
    broker.produce(range(3))
    for _ in range(OVERTAKEN_AT_LAST_MS - 1):
        broker.pass_time(1)
    assert broker.node.services.metrics.sync_overtaken == 0
    broker.syncer.rounds[0][1].note_begin(broker.clock.monotonic_ms(), None)
    broker.syncer.run_one()
    assert broker.answers() == [0] * 3
    assert len(broker.calls("sync_volume")) == 1


@pytest.mark.parametrize("begins", [True, False])
def test_after_200_ms_it_is_overtaken_whatever_it_waits_for(broker: Broker, begins: bool) -> None:
    broker.syncer.begins_at_once = begins
    wait = broker.syncer.processor_wait = Wait()
    broker.produce(range(3))
    for _ in range(OVERTAKEN_AT_LAST_MS - 1):
        wait.waited_ms += 1
        broker.pass_time(1)
    assert broker.node.services.metrics.sync_overtaken == 0
    wait.waited_ms += 1
    broker.pass_time(1)
    assert broker.node.services.metrics.sync_overtaken == 1


@pytest.mark.parametrize("ended", [True, False])
def test_none_is_tried_for_half_a_second_after_that_nor_while_it_runs(broker: Broker, ended: bool) -> None:
    overtake(broker)
    if ended:
        broker.syncer.run_late()
    broker.files.history.clear()
    broker.pass_time(FIRST_REST_MS - 1)
    broker.produce(range(3))
    broker.syncer.run_one()
    assert broker.answers() == [0] * 3
    assert broker.calls("sync_volume") == []
    broker.pass_time(1)
    broker.produce(range(3))
    broker.syncer.run_one()
    assert broker.answers() == [0] * 3
    assert len(broker.calls("sync_volume")) == (1 if ended else 0)


def test_the_rest_doubles_up_to_10_s_while_each_one_is_overtaken() -> None:
    queue, now_ms, rests = DirectoryQueue(DATA), 5.0, []
    for _ in range(7):
        queue.rest(now_ms)
        rests.append(queue.volume_again_ms - now_ms)
        now_ms = queue.volume_again_ms + OVERTAKEN_AFTER_MS
    assert rests == [500, 1000, 2000, 4000, 8000, 10_000, 10_000]


@pytest.mark.parametrize(("passed_ms", "rest_ms"), [(MOST_REST_MS - 1, 1000), (MOST_REST_MS, FIRST_REST_MS)])
def test_after_10_s_in_which_none_was_overtaken_the_rest_is_short_again(passed_ms: int, rest_ms: int) -> None:
    queue = DirectoryQueue(DATA)
    queue.rest(5.0)
    now_ms = queue.volume_again_ms + passed_ms
    queue.rest(now_ms)
    assert queue.volume_again_ms - now_ms == rest_ms


@pytest.mark.parametrize("is_slower", [False, True])
def test_one_that_was_overtaken_and_ends_before_the_files_of_its_round_is_followed_by_the_next(
    broker: Broker, is_slower: bool
) -> None:
    broker.produce(range(3))
    broker.pass_time(OVERTAKEN_AFTER_MS)
    first, second = broker.syncer.run_late, broker.syncer.run_one
    if is_slower:
        first, second = second, first
    assert first()
    assert second()
    assert broker.answers() == [0] * 3
    earlier = len(broker.calls("sync_volume"))
    broker.produce(range(3))
    assert broker.syncer.run_one()
    assert broker.answers() == [0] * 3
    assert len(broker.calls("sync_volume")) - earlier == (0 if is_slower else 1)


@pytest.mark.parametrize(
    ("file_ms", "waited_ms"), [(OVERTAKEN_AFTER_MS / 4, OVERTAKEN_AFTER_MS), (25, 75), (1_000, OVERTAKEN_AT_LAST_MS)]
)
def test_a_sync_of_the_volume_has_the_time_that_its_files_would_take(
    broker: Broker, file_ms: float, waited_ms: int
) -> None:
    broker.produce(range(3))
    queue, _ = broker.syncer.rounds[0]
    queue.note_shared(2, 2 * file_ms)
    for _ in range(waited_ms - 1):
        broker.pass_time(1)
    assert broker.node.services.metrics.sync_overtaken == 0
    broker.pass_time(1)
    assert broker.node.services.metrics.sync_overtaken == 1


def test_what_a_file_takes_is_a_mean_of_which_the_newest_round_is_a_quarter() -> None:
    queue = DirectoryQueue(DATA)
    queue.note_shared(10, 40.0)
    assert queue.file_ms == 4.0
    queue.note_shared(2, 16.0)
    assert queue.file_ms == 5.0


def test_a_rest_that_ends_early_was_none() -> None:
    queue = DirectoryQueue(DATA)
    for now_ms in (5.0, 30.0, 60.0):
        queue.rest(now_ms)
        queue.end_rest(now_ms + 10)
        assert queue.volume_again_ms == now_ms + 10
    queue.rest(90.0)
    assert queue.volume_again_ms - 90.0 == FIRST_REST_MS


def test_where_the_key_says_so_no_volume_is_synced() -> None:
    broker = Broker(SimulatedFiles(), ottla_syncfs_enable=False)
    make_topic(broker.node, "t", PARTITIONS)
    broker.files.history.clear()
    broker.produce(range(3))
    broker.node.settle()
    assert broker.answers() == [0] * 3
    assert (broker.calls("open_volume"), broker.calls("sync_volume")) == ([], [])
    assert sum(path.endswith(".log") for path in broker.calls("fdatasync")) == 3


@pytest.mark.parametrize(("in_memory", "way"), [(True, "files"), (False, "threads")])
def test_in_memory_no_other_thread_is_woken_for_the_files_of_a_round(in_memory: bool, way: str) -> None:
    files = SimulatedFiles()
    files.is_in_memory = in_memory
    node, _, _ = start_node(files, ottla_acks_all="sync")
    make_topic(node, "t", PARTITIONS)
    rounds = node.services.metrics.sync_rounds
    before = {each: rounds[each].files for each in rounds}
    clients = [Exchange(node) for _ in range(3)]
    for partition, client in enumerate(clients):
        client.send(produce_request("t", batch(), partition=partition), 9)
    node.settle()
    assert [len(client.replies()) for client in clients] == [1] * 3
    assert rounds[way].files == before[way] + 3


def test_when_an_fdatasync_fails_that_overtakes_the_round_is_refused_whatever_the_volume_says(broker: Broker) -> None:
    broker.files.fail("fdatasync", "*/t-1/*", times=1)
    overtake(broker)
    assert broker.answers()[1:] == [REFUSED] * 2
    assert broker.is_offline
    broker.syncer.run_late()
    assert broker.is_offline


def test_an_error_that_comes_late_takes_the_directory_offline_and_what_was_acknowledged_is_there(
    broker: Broker,
) -> None:
    overtake(broker)
    assert broker.answers() == [0] * 3
    broker.files.fail("sync_volume", times=1)
    broker.syncer.run_late()
    assert broker.is_offline
    assert broker.node.services.metrics.sync_failures == 1
    broker.produce(range(PARTITIONS))
    broker.node.settle()
    assert broker.answers() == [REFUSED] * PARTITIONS
    after, _, _ = start_node(broker.files.crash(random.Random(1)))
    ends = [one.log.log_end_offset for one in after.services.catalog.topics["t"].partitions if one]
    assert ends[:3] == [2] * 3


def test_an_error_that_comes_before_the_fdatasyncs_have_ended_refuses_their_round(broker: Broker) -> None:
    broker.produce(range(3))
    broker.pass_time(OVERTAKEN_AFTER_MS)
    broker.files.fail("sync_volume", times=1)
    broker.syncer.run_late()
    assert broker.is_offline
    broker.syncer.run_one()
    assert broker.answers() == [REFUSED] * 3


def test_without_a_thread_that_could_overtake_no_volume_is_synced(broker: Broker) -> None:
    broker.syncer.has_threads = False
    broker.produce(range(3))
    broker.node.settle()
    assert broker.answers() == [0] * 3
    assert (broker.calls("sync_volume"), len(broker.calls("fdatasync"))) == ([], 3)


def test_a_topic_that_is_deleted_while_the_volume_is_synced_is_answered_and_removed(broker: Broker) -> None:
    broker.produce(range(PARTITIONS))
    done: list[object] = []
    broker.node.services.catalog.delete_topics(["t"], done.append)
    broker.node.settle()
    assert done
    assert not broker.is_offline
    assert len(broker.answers()) == PARTITIONS


# -- with threads


class HeldVolume(Volume):
    """A volume whose sync takes as long as a test wants, and gives `error`."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.begun = threading.Event()
        self.error: OSError | None = None

    @property
    def device(self) -> int:
        return 1  # as all simulated files have it

    def sync(self) -> None:
        self.begun.set()
        assert self.gate.wait(DEADLINE_S)
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        pass


class Threaded:
    """A node whose syncs are threads, and whose loop is this test."""

    def __init__(
        self,
        volume: Volume | None,
        files: SimulatedFiles | OsFiles,
        path: Path,
        count_waits: Callable[[], ProcessorWait] | None = None,
    ) -> None:
        self.posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.clock = ManualClock()
        keys = {"log.dirs": str(path), "ottla.acks.all": "sync", "ottla.redo.log.enable": False}
        config = BrokerConfig.of(keys)
        self.node = Node(config, clock=self.clock, files=files, post=self.posted.put, count_waits=count_waits)
        self.node.start()
        done: list[object] = []
        self.node.services.catalog.create_topics([NewTopic("t", PARTITIONS)], done.append)
        self.wait_for(lambda: done)
        assert self.produce() == [0] * PARTITIONS
        if volume is not None:
            for queue in self.syncer._queues.values():
                queue.volume = volume

    @property
    def syncer(self) -> ThreadedSyncer:
        assert isinstance(self.node.services.syncer, ThreadedSyncer)
        return self.node.services.syncer

    @property
    def is_offline(self) -> bool:
        return self.node.services.log_manager.directories[0].is_offline

    def wait_for(self, is_done: Callable[[], object]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not is_done():
            self.node.run_due()
            with suppress(Empty):
                self.posted.get(timeout=0.01)()
                self.node.services.turn.end()
            assert time.monotonic() < deadline, "somebody waits and nothing runs for it"

    def send(self) -> Callable[[], list[int]]:
        """Produce to all partitions; what gives the answers that are there."""
        clients = [Exchange(self.node) for _ in range(PARTITIONS)]
        for partition, client in enumerate(clients):
            client.send(produce_request("t", batch(), partition=partition), 9)
        self.node.services.turn.end()
        found: list[int] = []

        def answers() -> list[int]:
            for client in clients:
                for _, reply in client.replies():
                    assert isinstance(reply, ProduceResponse)
                    found.append(reply.responses[0].partition_responses[0].error_code)
            return found

        return answers

    def produce(self) -> list[int]:
        answers = self.send()
        self.wait_for(lambda: len(answers()) == PARTITIONS)
        return answers()


@pytest.fixture
def held() -> HeldVolume:
    return HeldVolume()


@pytest.fixture
def threaded(held: HeldVolume) -> Iterator[Threaded]:
    threaded = Threaded(held, SimulatedFiles(), DATA)
    yield threaded
    held.gate.set()
    threaded.node.stop()


def overtaken(threaded: Threaded, held: HeldVolume) -> list[int]:
    answers = threaded.send()
    assert held.begun.wait(DEADLINE_S)
    threaded.clock.advance(OVERTAKEN_AFTER_MS)
    threaded.wait_for(lambda: len(answers()) == PARTITIONS)
    return answers()


def test_threads_overtake_a_volume_that_holds_the_directorys_own(threaded: Threaded, held: HeldVolume) -> None:
    assert overtaken(threaded, held) == [0] * PARTITIONS
    assert threaded.produce() == [0] * PARTITIONS, "the next rounds do not wait for it either"
    held.gate.set()
    threaded.wait_for(lambda: all(queue.overtaken is None for queue in threaded.syncer._queues.values()))
    assert not threaded.is_offline
    assert threaded.produce() == [0] * PARTITIONS


def test_a_thread_that_had_no_processor_is_given_that_time(held: HeldVolume) -> None:
    wait = Wait()
    threaded = Threaded(held, SimulatedFiles(), DATA, lambda: wait)
    answers = threaded.send()
    assert held.begun.wait(DEADLINE_S)
    wait.waited_ms = 15
    threaded.clock.advance(OVERTAKEN_AFTER_MS)
    threaded.node.run_due()
    assert threaded.node.services.metrics.sync_overtaken == 0
    threaded.clock.advance(15)
    threaded.node.run_due()
    assert threaded.node.services.metrics.sync_overtaken == 1
    threaded.wait_for(lambda: len(answers()) == PARTITIONS)
    held.gate.set()
    threaded.node.stop()


def test_where_the_system_does_not_say_what_a_thread_waits_it_syncs_all_the_same() -> None:
    def count_waits() -> ProcessorWait:
        raise OSError(errno.ENOENT, "there is no /proc")

    threaded = Threaded(None, SimulatedFiles(), DATA, count_waits)
    assert threaded.produce() == [0] * PARTITIONS
    threaded.node.stop()


def test_threads_bring_an_error_that_comes_late(
    threaded: Threaded, held: HeldVolume, caplog: pytest.LogCaptureFixture
) -> None:
    assert overtaken(threaded, held) == [0] * PARTITIONS
    held.error = OSError(errno.EIO, "lost")
    held.gate.set()
    threaded.wait_for(lambda: threaded.is_offline)
    assert threaded.produce() == [REFUSED] * PARTITIONS


def test_the_files_that_fail_too_are_named_in_the_log_after_the_refusal(
    threaded: Threaded, held: HeldVolume, caplog: pytest.LogCaptureFixture
) -> None:
    files = threaded.node.services.files
    assert isinstance(files, SimulatedFiles)
    files.fail("fdatasync", "*/t-2/*", times=None)
    held.error = OSError(errno.EIO, "lost")
    held.gate.set()
    assert threaded.produce() == [REFUSED] * PARTITIONS
    threaded.node.stop()
    lines = [record.getMessage() for record in caplog.records if "file system failed" in record.getMessage()]
    assert len(lines) == 1
    assert "t-2/00000000000000000000.log" in lines[0]
    assert "t-1" not in lines[0]
    assert threaded.is_offline


@pytest.mark.parametrize("is_overtaken", [False, True])
def test_a_stop_waits_for_no_volume_that_takes_long_and_leaves_no_round_without_an_end(
    held: HeldVolume, is_overtaken: bool
) -> None:
    files = SimulatedFiles()
    threaded = Threaded(held, files, DATA)
    answers = threaded.send()
    assert held.begun.wait(DEADLINE_S)
    if is_overtaken:
        threaded.clock.advance(OVERTAKEN_AFTER_MS)
        threaded.node.run_due()
    threaded.node.stop()
    threaded.node.services.turn.end()
    assert answers() == [0] * PARTITIONS
    held.gate.set()
    again, _, _ = start_node(files.crash(random.Random(2)))
    assert again.services.log_manager.was_clean
    assert [one.log.log_end_offset for one in again.services.catalog.topics["t"].partitions if one] == [2] * PARTITIONS


def test_an_error_that_came_before_the_stop_and_that_the_loop_has_not_met_leaves_no_mark_of_a_clean_stop(
    held: HeldVolume,
) -> None:
    files = SimulatedFiles()
    threaded = Threaded(held, files, DATA)
    assert overtaken(threaded, held) == [0] * PARTITIONS
    held.error = OSError(errno.EIO, "lost")
    held.gate.set()
    posted = threaded.posted.get(timeout=DEADLINE_S)
    threaded.node.stop()
    posted()
    assert threaded.is_offline
    assert threaded.node.services.metrics.sync_failures == 1
    again, _, _ = start_node(files.kill())
    assert not again.services.log_manager.was_clean


def test_on_the_real_disk_a_round_is_one_syncfs_where_that_is_sure_and_shared_fdatasyncs_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threaded = Threaded(None, OsFiles(), tmp_path)
    [has_volume] = [queue.volume is not None for queue in threaded.syncer._queues.values()]
    rounds = threaded.node.services.metrics.sync_rounds
    before = {way: counters.rounds for way, counters in rounds.items()}
    assert threaded.produce() == [0] * PARTITIONS
    way = "volume" if has_volume else "threads"
    assert rounds[way].rounds == before[way] + 1
    threaded.node.stop()
    assert threaded.node.services.log_manager.directories[0].is_online
