"""Rounds that sync the redo log in place of the logs' files: when, what is answered after them, checkpoints."""

from __future__ import annotations

import errno
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest
from kit.clock import ManualClock
from kit.exchange import Exchange, batch, fetch_request, make_topic, produce_request
from kit.nodes import DATA, partition_of, start_node
from kit.simulated_files import CrashPoint, SimulatedFiles

from ottla.broker.metadata.change_requests import NewTopic
from ottla.broker.node import Node
from ottla.broker.runtime import redo_syncs
from ottla.broker.runtime.directory_queue import DirectoryQueue
from ottla.broker.runtime.disk import POSTPONED_MS
from ottla.broker.runtime.queued_syncer import QueuedSyncer
from ottla.broker.runtime.redo_round import RedoRound
from ottla.broker.runtime.sync_threads import ThreadedSyncer
from ottla.broker.runtime.turn import Turn
from ottla.broker.telemetry.exposition import Exposition
from ottla.config.broker import BrokerConfig
from ottla.protocol.api.fetch import FetchResponse
from ottla.protocol.api.produce import ProduceResponse
from ottla.protocol.errors import ErrorCode
from ottla.storage.directories import redo_log as redo_log_module
from ottla.storage.directories.redo_log import DUE_AFTER_MS, MOST_ALONE_BYTES, MOST_LOGS, MOST_LOGS_ALONE, RedoLog
from ottla.storage.files.files import OsFiles
from ottla.storage.formats.layout import RECOVERY_POINT_CHECKPOINT_FILE, REDO_LOG_FILE
from ottla.storage.formats.redo_format import records_of
from ottla.storage.log.log import Log

DEADLINE_S = 60
PARTITIONS = 4
REFUSED = ErrorCode.KAFKA_STORAGE_ERROR
REDO_LOG = DATA / REDO_LOG_FILE


class Broker:
    """A node without threads, with a topic of `PARTITIONS` logs that were all synced with one record each."""

    def __init__(self, files: SimulatedFiles | None = None, *, has_volume: bool = False, **keys: object) -> None:
        disk = SimulatedFiles() if files is None else files
        disk.has_volume_sync = has_volume
        self._keys = {"ottla_acks_all": "sync", **keys}
        self.node, self.files, self.clock = start_node(disk, **self._keys)
        make_topic(self.node, "t", PARTITIONS)
        self.produce(range(PARTITIONS))
        self.node.settle()
        assert self.answers() == [0] * PARTITIONS
        self.files.history.clear()

    def produce(self, partitions: range, *, value: bytes = b"v") -> None:
        """Records to these partitions, each by a client of its own, in one turn."""
        self._clients = [Exchange(self.node) for _ in partitions]
        for client, partition in zip(self._clients, partitions, strict=True):
            client.send(produce_request("t", batch(value=value), partition=partition), 9)
        self.node.services.turn.end()

    def answers(self) -> list[int]:
        """The error codes that came since the last call."""
        self.node.services.turn.end()
        found = []
        for client in self._clients:
            for _, reply in client.replies():
                assert isinstance(reply, ProduceResponse)
                found.append(reply.responses[0].partition_responses[0].error_code)
        return found

    def produced(self, partitions: range) -> list[int]:
        self.produce(partitions)
        self.node.settle()
        return self.answers()

    def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)
        self.node.run_due()

    @property
    def syncer(self) -> QueuedSyncer:
        assert isinstance(self.node.services.syncer, QueuedSyncer)
        return self.node.services.syncer

    @property
    def queue(self) -> DirectoryQueue:
        return self.syncer._queues[DATA]

    @property
    def redo_log(self) -> RedoLog:
        assert self.queue.redo_log is not None
        return self.queue.redo_log

    @property
    def is_offline(self) -> bool:
        return self.node.services.log_manager.directories[0].is_offline

    def log(self, partition: int) -> Log:
        return partition_of(self.node, "t", partition).log

    def seen(self, partition: int) -> int:
        """The high watermark that a consumer sees."""
        reply = Exchange(self.node).ask(fetch_request("t", 0, partitions=PARTITIONS), 12)
        assert isinstance(reply, FetchResponse)
        return reply.responses[0].partitions[partition].high_watermark

    def syncs(self) -> list[Path]:
        """The volumes, logs and redo logs that were synced since the last call."""
        found = [
            path
            for call, path in self.files.history
            if call == "sync_volume" or (call == "fdatasync" and path.suffix == ".log")
        ]
        self.files.history.clear()
        return found

    def ends_after(self, files: SimulatedFiles) -> list[int]:
        """The log ends that a start finds on this disk."""
        node, _, _ = start_node(files, **self._keys)
        return [partition_of(node, "t", partition).log.log_end_offset for partition in range(PARTITIONS)]


@pytest.fixture
def broker() -> Broker:
    return Broker()


def log_file(partition: int) -> Path:
    return DATA / f"t-{partition}" / f"{'0' * 20}.log"


def test_acks_all_of_several_partitions_is_answered_after_the_sync_of_the_redo_log_and_nothing_else_is_synced(
    broker: Broker,
) -> None:
    broker.produce(range(3))
    assert broker.answers() == []
    assert broker.syncer.run_one()
    assert broker.answers() == [0] * 3
    assert [path for call, path in broker.files.history if "sync" in call] == [REDO_LOG]
    assert broker.log(0).synced_offset == 2


def test_consumers_see_a_record_after_the_sync_of_the_redo_log_and_not_before(broker: Broker) -> None:
    broker.produce(range(2))
    reader = Exchange(broker.node)
    reader.send(fetch_request("t", 0, partitions=2), 12)
    broker.node.services.turn.end()
    before = reader.reply()
    assert isinstance(before, FetchResponse)
    assert [one.high_watermark for one in before.responses[0].partitions] == [1, 1]
    broker.node.settle()
    assert broker.seen(1) == 2


def test_a_record_of_one_partition_is_synced_by_the_redo_log_too(broker: Broker) -> None:
    assert broker.produced(range(1)) == [0]
    assert broker.syncs() == [REDO_LOG]


def test_a_large_record_of_one_partition_is_synced_with_its_file(broker: Broker) -> None:
    broker.produce(range(1), value=bytes(MOST_ALONE_BYTES))
    broker.node.settle()
    assert broker.answers() == [0]
    assert broker.syncs() == [log_file(0)]


def test_a_large_round_is_synced_with_its_files(broker: Broker) -> None:
    broker.produce(range(2), value=bytes(300_000))
    broker.node.settle()
    assert broker.answers() == [0] * 2
    assert broker.syncs() == [log_file(0), log_file(1)]


def test_a_change_of_the_metadata_is_synced_with_its_file(broker: Broker) -> None:
    make_topic(broker.node, "u")
    assert REDO_LOG not in broker.syncs()


def test_what_rounds_of_the_redo_log_acknowledged_survives_every_power_cut() -> None:
    for seed in range(20):
        broker = Broker()
        for _ in range(3):
            assert broker.produced(range(PARTITIONS)) == [0] * PARTITIONS
        assert broker.ends_after(broker.files.crash(random.Random(seed))) == [4] * PARTITIONS


def test_records_that_come_while_a_round_runs_are_in_the_next_one(broker: Broker) -> None:
    broker.produce(range(2))
    first = broker._clients
    broker.produce(range(2))
    assert len(broker.syncer.rounds) == 1
    assert broker.syncer.run_one()
    assert broker.answers() == []
    assert [len(client.replies()) for client in first] == [1, 1]
    assert broker.syncer.run_one()
    assert broker.answers() == [0, 0]
    assert broker.syncs() == [REDO_LOG] * 2


def test_where_the_key_says_so_the_files_are_synced() -> None:
    broker = Broker(ottla_redo_log_enable=False)
    assert broker.produced(range(3)) == [0] * 3
    assert sorted(broker.syncs()) == [log_file(partition) for partition in range(3)]
    assert not broker.files.exists(REDO_LOG)


def test_in_memory_the_files_are_synced() -> None:
    files = SimulatedFiles()
    files.is_in_memory = True
    broker = Broker(files)
    assert broker.produced(range(3)) == [0] * 3
    assert sorted(broker.syncs()) == [log_file(partition) for partition in range(3)]


def test_each_directory_has_its_own() -> None:
    broker = Broker(log_dirs="/data,/more")
    assert broker.produced(range(PARTITIONS)) == [0] * PARTITIONS
    assert sorted(broker.syncs()) == [REDO_LOG, Path("/more") / REDO_LOG_FILE]


def test_rounds_of_it_are_counted(broker: Broker) -> None:
    counters = broker.node.services.metrics.sync_rounds["redo"]
    before = counters.rounds, counters.files
    synced = broker.node.services.metrics.syncs.count
    assert broker.produced(range(3)) == [0] * 3
    assert (counters.rounds - before[0], counters.files - before[1]) == (1, 1)
    assert broker.node.services.metrics.syncs.count == synced + 3, "of each log, as of the other ways"
    text = Exposition(broker.node.services, broker.node.cleaner).render().decode()
    assert f'ottla_sync_rounds_total{{way="redo"}} {counters.rounds}.0' in text


# -- checkpoints


def checkpoint_of(broker: Broker) -> list[Path]:
    """What a checkpoint that is due now syncs."""
    broker.files.history.clear()
    broker.node.settle()
    return broker.syncs()


def test_ten_seconds_after_the_first_round_the_files_are_synced_and_the_redo_log_is_void(broker: Broker) -> None:
    broker.pass_time(DUE_AFTER_MS)  # of the rounds before
    broker.node.settle()
    broker.syncs()
    broker.produced(range(2))
    broker.pass_time(DUE_AFTER_MS - 1)
    broker.produced(range(1, 3))
    broker.node.settle()
    assert set(broker.syncs()) == {REDO_LOG}
    broker.pass_time(1)
    assert checkpoint_of(broker) == [log_file(0), log_file(1), log_file(2), REDO_LOG]
    assert not broker.redo_log.logs
    assert [record.entries for record in records_of(broker.files.read_bytes(REDO_LOG))] == [[]]
    assert [broker.log(partition).recovery_point for partition in range(4)] == [2, 3, 2, 1]


def test_without_further_rounds_there_is_no_further_checkpoint(broker: Broker) -> None:
    broker.produced(range(2))
    broker.pass_time(DUE_AFTER_MS)
    broker.node.settle()
    broker.syncs()
    for _ in range(5):
        broker.pass_time(DUE_AFTER_MS)
        broker.node.settle()
    assert REDO_LOG not in broker.syncs()
    broker.produced(range(2))
    assert broker.syncs() == [REDO_LOG]
    broker.pass_time(DUE_AFTER_MS)
    assert checkpoint_of(broker) == [log_file(0), log_file(1), REDO_LOG]


def test_the_recovery_point_moves_by_checkpoints_alone(broker: Broker) -> None:
    broker.produced(range(2))
    broker.node.services.log_manager.checkpoints.write_recovery_points()
    assert [broker.log(partition).recovery_point for partition in range(2)] == [1, 1]
    rows = broker.files.read_bytes(DATA / RECOVERY_POINT_CHECKPOINT_FILE)
    assert b"t 0 1\n" in rows
    broker.pass_time(DUE_AFTER_MS)
    broker.node.settle()
    assert [broker.log(partition).recovery_point for partition in range(2)] == [2, 2]


def test_a_full_redo_log_makes_the_next_round_a_checkpoint_of_all_logs_in_it(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redo_log_module, "MOST_BYTES", redo_log_module.MOST_ROUND_BYTES)
    broker.produced(range(3))
    assert broker.syncs() == [REDO_LOG]
    assert broker.redo_log.is_due
    monkeypatch.undo()
    assert broker.produced(range(3, 4)) == [0]
    assert broker.syncs() == [log_file(3), log_file(0), log_file(1), log_file(2), REDO_LOG]
    broker.produced(range(2))
    assert broker.syncs() == [REDO_LOG]


@pytest.mark.parametrize(("has_volume", "most_logs"), [(True, MOST_LOGS), (False, MOST_LOGS_ALONE)])
def test_many_logs_make_the_next_round_a_checkpoint(has_volume: bool, most_logs: int) -> None:
    broker = Broker(has_volume=has_volume)
    assert broker.redo_log.most_logs == most_logs
    broker.redo_log.most_logs = 3
    broker.produced(range(2))
    assert not broker.redo_log.is_due
    broker.produced(range(1, 3))
    assert broker.redo_log.is_due
    broker.syncs()
    assert broker.produced(range(3, 4)) == [0]
    files = [DATA / "meta.properties"] if has_volume else [log_file(partition) for partition in (3, 0, 1, 2)]
    assert broker.syncs() == [*files, REDO_LOG]


def test_a_checkpoint_of_many_logs_is_one_sync_of_the_volume_where_there_is_one() -> None:
    broker = Broker(has_volume=True)
    broker.produced(range(PARTITIONS))
    assert broker.syncs() == [REDO_LOG]
    broker.pass_time(DUE_AFTER_MS)
    assert checkpoint_of(broker) == [DATA / "meta.properties", REDO_LOG]


def test_a_round_that_waits_for_a_checkpoint_is_answered_with_it(broker: Broker) -> None:
    broker.produced(range(2))
    broker.redo_log.is_due = True
    broker.produce(range(2))
    broker.syncs()
    assert broker.answers() == []
    assert broker.syncer.run_one()
    assert broker.answers() == [0, 0]
    assert broker.syncs() == [log_file(0), log_file(1), REDO_LOG]


def test_a_checkpoint_that_is_due_while_a_round_runs_follows_it(broker: Broker) -> None:
    broker.produced(range(2))
    broker.pass_time(DUE_AFTER_MS - 1)
    broker.produce(range(2))
    broker.pass_time(1)
    assert len(broker.syncer.rounds) == 1
    assert broker.syncer.run_one()
    broker.syncs()
    broker.produced(range(2))
    assert broker.syncs() == [log_file(0), log_file(1), REDO_LOG]


def test_a_power_cut_at_any_change_that_rounds_and_checkpoints_make_loses_nothing_acknowledged() -> None:
    def work(broker: Broker, acknowledged: list[int]) -> None:
        for number in range(4):
            assert broker.produced(range(PARTITIONS)) == [0] * PARTITIONS
            acknowledged[0] += 1
            if number % 2:
                broker.pass_time(DUE_AFTER_MS)
                broker.node.settle()

    broker = Broker()
    before = broker.files.changes
    work(broker, [1])
    changes = broker.files.changes - before
    assert changes > 50
    for number in range(changes):
        broker = Broker()
        last, acknowledged = broker.files.changes + number, [1]
        broker.files.crash_when = lambda _, __, files=broker.files, last=last: files.changes > last  # type: ignore[misc]  # defaults
        with pytest.raises(CrashPoint):
            work(broker, acknowledged)
        ends = broker.ends_after(broker.files.crash(random.Random(number)))
        assert min(ends) >= acknowledged[0]


# -- errors


def test_a_failed_sync_of_the_redo_log_refuses_all_that_wait_and_takes_the_directory_offline(broker: Broker) -> None:
    broker.files.fail("fdatasync", str(REDO_LOG), times=1)
    broker.produce(range(2))
    first = broker._clients
    broker.produce(range(2, 4))  # they wait for the next round
    broker.node.settle()
    assert broker.answers() == [REFUSED] * 2
    broker._clients = first
    assert broker.answers() == [REFUSED] * 2
    assert broker.is_offline
    assert broker.node.services.metrics.sync_failures == 1
    assert [broker.log(partition).high_watermark for partition in range(4)] == [1] * 4


def test_after_a_failed_sync_nothing_is_synced_any_more(broker: Broker) -> None:
    broker.files.fail("fdatasync", str(REDO_LOG), times=1)
    broker.produced(range(2))
    broker.syncs()
    assert broker.produced(range(PARTITIONS)) == [REFUSED] * PARTITIONS
    broker.pass_time(2 * DUE_AFTER_MS)
    broker.node.settle()
    assert broker.syncs() == []


def test_after_a_failed_sync_of_the_redo_log_what_was_acknowledged_before_is_found(broker: Broker) -> None:
    broker.produced(range(PARTITIONS))
    broker.files.fail("fdatasync", str(REDO_LOG), times=1)
    broker.produced(range(2))
    for seed in range(5):
        assert min(broker.ends_after(broker.files.crash(random.Random(seed)))) >= 2


@pytest.mark.parametrize("which", ["*/t-1/*", str(REDO_LOG)])
def test_a_checkpoint_that_fails_takes_the_directory_offline_and_a_start_finds_everything(which: str) -> None:
    for seed in range(5):
        broker = Broker()
        broker.produced(range(PARTITIONS))
        broker.files.fail("fdatasync", which, times=1)
        broker.pass_time(DUE_AFTER_MS)
        broker.node.settle()
        assert broker.is_offline
        assert broker.produced(range(2)) == [REFUSED] * 2
        assert broker.ends_after(broker.files.crash(random.Random(seed))) == [2] * PARTITIONS


def test_a_sync_of_the_volume_that_fails_as_a_checkpoint_takes_the_directory_offline_and_a_start_finds_everything() -> (
    None
):
    for seed in range(5):
        broker = Broker(has_volume=True)
        broker.produced(range(PARTITIONS))
        broker.files.fail("sync_volume", times=1)
        broker.pass_time(DUE_AFTER_MS)
        broker.node.settle()
        assert broker.is_offline
        assert broker.ends_after(broker.files.crash(random.Random(seed))) == [2] * PARTITIONS


def test_records_that_a_checkpoint_has_synced_are_answered_though_the_redo_log_cannot_be_made_void(
    broker: Broker,
) -> None:
    broker.produced(range(2))
    broker.files.fail("fdatasync", str(REDO_LOG), times=1)
    broker.redo_log.is_due = True
    assert broker.produced(range(2)) == [0, 0]
    assert broker.is_offline


def test_a_want_of_descriptors_lets_who_waits_be_served_later(broker: Broker) -> None:
    lacking = broker.files.fail("fdatasync", str(REDO_LOG), errno.EMFILE, times=None)
    broker.produce(range(2))
    broker.node.settle()
    for _ in range(3):
        broker.pass_time(POSTPONED_MS)
        broker.node.settle()
    assert broker.answers() == []
    assert not broker.is_offline
    broker.files.heal(lacking)
    broker.pass_time(POSTPONED_MS)
    broker.node.settle()
    assert broker.answers() == [0, 0]
    assert broker.ends_after(broker.files.crash(random.Random(1))) == [2, 2, 1, 1]


@pytest.mark.parametrize("place", [(redo_syncs, "RedoRound"), (redo_log_module, "head_of")])
def test_a_want_of_memory_lets_who_waits_be_served_later_and_loses_nothing(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, place: tuple[object, str]
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    broker.produced(range(PARTITIONS))
    with monkeypatch.context() as short:
        short.setattr(*place, fail)
        broker.produce(range(PARTITIONS))
        broker.node.settle()
    broker.pass_time(POSTPONED_MS)
    broker.node.settle()
    assert broker.answers() == [0] * PARTITIONS
    assert broker.produced(range(PARTITIONS)) == [0] * PARTITIONS
    for seed in range(10):
        assert broker.ends_after(broker.files.crash(random.Random(seed))) == [4] * PARTITIONS


def test_a_round_that_could_not_be_planned_for_want_of_memory_is_planned_by_the_next_request(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No round of the directory would ever begin again."""

    def fail(_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as short:
        short.setattr(Turn, "after_append", lambda turn, step: fail(step))
        broker.produce(range(1))
    assert broker.produced(range(PARTITIONS)) == [0] * PARTITIONS
    assert broker.log(0).synced_offset == broker.log(0).log_end_offset == 3


def test_a_checkpoint_that_lacks_a_descriptor_is_made_later_and_leaves_the_redo_log_until_then(broker: Broker) -> None:
    broker.produced(range(2))
    lacking = broker.files.fail("fdatasync", "*/t-1/*", errno.EMFILE, times=None)
    broker.pass_time(DUE_AFTER_MS)
    broker.node.settle()
    assert [len(record.entries) for record in records_of(broker.files.read_bytes(REDO_LOG))][-1] == 2
    broker.files.heal(lacking)
    broker.pass_time(POSTPONED_MS)
    broker.node.settle()
    assert [record.entries for record in records_of(broker.files.read_bytes(REDO_LOG))] == [[]]
    assert not broker.is_offline


def test_a_redo_log_that_cannot_be_made_void_for_want_of_a_descriptor_is_made_void_later(broker: Broker) -> None:
    broker.produced(range(2))
    lacking = broker.files.fail("fdatasync", str(REDO_LOG), errno.EMFILE, times=None)
    broker.pass_time(DUE_AFTER_MS)
    broker.node.settle()
    assert broker.produced(range(2)) == [0, 0], "by their files"
    assert not broker.is_offline
    assert broker.redo_log.is_due
    broker.files.heal(lacking)
    broker.pass_time(DUE_AFTER_MS)
    broker.node.settle()
    assert not broker.redo_log.is_due
    broker.syncs()
    broker.produced(range(2))
    assert broker.syncs() == [REDO_LOG]


def test_a_full_disk_leaves_the_round_to_the_files(broker: Broker) -> None:
    broker.files.fail("pwritev", str(REDO_LOG), errno.ENOSPC, times=None)
    assert broker.produced(range(3)) == [0] * 3
    assert sorted(broker.syncs()) == [log_file(partition) for partition in range(3)]
    assert not broker.is_offline


def test_without_a_thread_the_round_runs_on_the_brokers_own(broker: Broker) -> None:
    broker.syncer.has_threads = False
    assert broker.produced(range(3)) == [0] * 3
    assert broker.syncs() == [REDO_LOG]


def test_a_bug_in_the_sync_refuses_who_waits(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.produce(range(2))
    _, redo_round = broker.syncer.rounds[0]
    assert isinstance(redo_round, RedoRound)

    def bug() -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(redo_round.files[0], "fdatasync", bug)
    broker.node.settle()
    assert broker.answers() == [REFUSED] * 2
    assert broker.is_offline


def test_a_round_runs_once(broker: Broker) -> None:
    broker.produce(range(2))
    _, redo_round = broker.syncer.rounds[0]
    broker.syncs()
    redo_round.run()
    redo_round.run()
    assert broker.syncs() == [REDO_LOG]


def test_a_round_that_nothing_ran_has_failed(broker: Broker) -> None:
    broker.produce(range(2))
    queue, redo_round = broker.syncer.rounds.popleft()
    broker.syncer._finish(queue, redo_round)
    assert broker.answers() == [REFUSED] * 2


def test_a_bug_in_who_is_called_back_keeps_no_other_from_its_answer(broker: Broker) -> None:
    def bug(_: object) -> None:
        raise ValueError("a bug")

    broker.produce(range(2))
    _, redo_round = broker.syncer.rounds[0]
    assert isinstance(redo_round, RedoRound)
    redo_round.waits[broker.log(0)].insert(0, bug)
    broker.node.settle()
    assert broker.answers() == [0, 0]


# -- topics that are deleted, and stops


def test_a_topic_that_is_deleted_while_the_round_runs_is_answered_and_removed(broker: Broker) -> None:
    make_topic(broker.node, "u", 2)
    others = [Exchange(broker.node) for _ in range(2)]
    for partition, client in enumerate(others):
        client.ask(produce_request("u", batch(), partition=partition), 9)
    for partition, client in enumerate(others):
        client.send(produce_request("u", batch(), partition=partition), 9)
    broker.produce(range(2))
    assert len(broker.syncer.rounds) == 1
    done: list[object] = []
    broker.node.services.catalog.delete_topics(["u"], done.append)
    broker.node.settle()
    assert done
    assert not broker.is_offline
    assert broker.answers() == [0, 0]
    assert [len(client.replies()) for client in others] == [1, 1]
    assert {log.topic for log in broker.redo_log.logs} == {"t"}
    broker.pass_time(DUE_AFTER_MS)
    broker.node.settle()
    assert not broker.is_offline
    assert broker.ends_after(broker.files.crash(random.Random(1))) == [2, 2, 1, 1]


def test_a_topic_that_was_deleted_and_made_again_has_none_of_its_records_after_a_crash(broker: Broker) -> None:
    broker.produced(range(PARTITIONS))
    done: list[object] = []
    broker.node.services.catalog.delete_topics(["t"], done.append)
    broker.node.settle()
    make_topic(broker.node, "t", PARTITIONS)
    assert broker.produced(range(2)) == [0, 0]
    for seed in range(5):
        ends = broker.ends_after(broker.files.crash(random.Random(seed)))
        assert ends[:2] == [1, 1]
        assert max(ends) == 1


def test_a_clean_stop_leaves_no_redo_log(broker: Broker) -> None:
    broker.produced(range(PARTITIONS))
    broker.produce(range(2))  # a round runs
    broker.node.stop()
    assert broker.answers() == [0, 0]
    assert str(REDO_LOG) not in broker.files.synced_state()
    after = broker.files.crash(random.Random(1))
    assert f"{DATA}/.kafka_cleanshutdown" in after.written_state()
    assert broker.ends_after(after) == [3, 3, 2, 2]


# -- with threads


class Threaded:
    """A node whose syncs are threads, and whose loop is this test."""

    def __init__(self, files: SimulatedFiles | OsFiles, path: Path) -> None:
        self.posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.clock = ManualClock()
        config = BrokerConfig.of({"log.dirs": str(path), "ottla.acks.all": "sync"})
        self.node = Node(config, clock=self.clock, files=files, post=self.posted.put)
        self.node.start()
        done: list[object] = []
        self.node.services.catalog.create_topics([NewTopic("t", PARTITIONS)], done.append)
        self.wait_for(lambda: done)
        assert self.produce() == [0] * PARTITIONS

    def wait_for(self, is_done: Callable[[], object]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not is_done():
            self.node.run_due()
            with suppress(Empty):
                self.posted.get(timeout=0.01)()
                self.node.services.turn.end()
            assert time.monotonic() < deadline, "somebody waits and nothing runs for it"

    def produce(self) -> list[int]:
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

        self.wait_for(lambda: len(answers()) == PARTITIONS)
        return found


def test_threads_sync_the_redo_log_and_make_its_checkpoints(tmp_path: Path) -> None:
    threaded = Threaded(OsFiles(), tmp_path)
    assert isinstance(threaded.node.services.syncer, ThreadedSyncer)
    [queue] = threaded.node.services.syncer._queues.values()
    if queue.redo_log is None:  # a tmpfs
        queue.redo_log = threaded.node.services.log_manager.directories[0].redo_log
    redo_log = queue.redo_log
    assert redo_log is not None
    rounds = threaded.node.services.metrics.sync_rounds["redo"]
    before = rounds.rounds
    for _ in range(3):
        assert threaded.produce() == [0] * PARTITIONS
    assert rounds.rounds == before + 3
    assert len(redo_log.logs) == PARTITIONS
    threaded.clock.advance(DUE_AFTER_MS)
    threaded.wait_for(lambda: not redo_log.logs)
    assert [record.entries for record in records_of((tmp_path / REDO_LOG_FILE).read_bytes())] == [[]]
    threaded.node.stop()
    assert not (tmp_path / REDO_LOG_FILE).exists()


def test_a_stop_finishes_a_round_that_a_thread_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    files = SimulatedFiles()
    threaded = Threaded(files, DATA)
    begun, gate = threading.Event(), threading.Event()
    run = RedoRound.run

    def held(redo_round: RedoRound) -> None:
        begun.set()
        assert gate.wait(DEADLINE_S)
        run(redo_round)

    monkeypatch.setattr(RedoRound, "run", held)
    clients = [Exchange(threaded.node) for _ in range(2)]
    for partition, client in enumerate(clients):
        client.send(produce_request("t", batch(), partition=partition), 9)
    threaded.node.services.turn.end()
    assert begun.wait(DEADLINE_S)
    threading.Timer(0.05, gate.set).start()
    threaded.node.stop()
    threaded.node.services.turn.end()
    assert [len(client.replies()) for client in clients] == [1, 1]
    again, _, _ = start_node(files.crash(random.Random(2)))
    assert again.services.log_manager.was_clean
    assert [partition_of(again, "t", partition).log.log_end_offset for partition in range(4)] == [2, 2, 1, 1]
