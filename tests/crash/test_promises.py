"""docs/durability.md, its first table, line by line: acks 0, 1 and all under each flush setting, and what then happens.

Each test makes a broker on a simulated disk, produces, notes what was answered, lets something happen, and looks at
what a new start finds. What may be lost is checked to be lost at times: else a test of what is kept would mean nothing.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from kit.clock import ManualClock
from kit.exchange import Exchange, batch, fetch_request, make_topic, produce_request
from kit.nodes import start_node
from kit.simulated_files import SimulatedFiles

from ottla.broker.node import Node
from ottla.config.topic import TopicConfig
from ottla.protocol.api.fetch import FetchResponse
from ottla.protocol.api.produce import ProduceResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import decode_batch, iter_batches
from ottla.storage.log.log import Log

SEEDS = range(6)
FLUSH_MS = 500
NEVER_SYNCED = "page-cache"
EVERY_RECORD_SYNCED = ("sync", "sync and flush.messages", "flush.messages=1", "log.flush.interval.messages=1")
BY_TIME = ("flush.ms", "log.flush.interval.ms")

# name → (keys of the broker, keys of the topic)
SETTINGS: dict[str, tuple[dict[str, object], dict[str, str]]] = {
    "sync": ({"ottla_acks_all": "sync"}, {}),
    "sync and flush.messages": ({"ottla_acks_all": "sync"}, {"flush_messages": "1", "flush_ms": "500"}),
    "page-cache": ({"ottla_acks_all": "page-cache"}, {}),
    "flush.messages=1": ({"ottla_acks_all": "page-cache"}, {"flush_messages": "1"}),
    "flush.messages=3": ({"ottla_acks_all": "page-cache"}, {"flush_messages": "3"}),
    "log.flush.interval.messages=1": ({"ottla_acks_all": "page-cache", "log_flush_interval_messages": 1}, {}),
    "log.flush.interval.messages=3": ({"ottla_acks_all": "page-cache", "log_flush_interval_messages": 3}, {}),
    "flush.ms": ({"ottla_acks_all": "page-cache"}, {"flush_ms": str(FLUSH_MS)}),
    "log.flush.interval.ms": ({"ottla_acks_all": "page-cache", "log_flush_interval_ms": FLUSH_MS}, {}),
}


@dataclass
class Life:
    """A broker with one topic in one of the settings, and what its clients were answered."""

    setting: str
    keys: dict[str, object] = field(default_factory=dict)
    files: SimulatedFiles = field(default_factory=SimulatedFiles)
    clock: ManualClock = field(default_factory=ManualClock)
    answered: dict[int, bytes] = field(default_factory=dict)
    refusals: list[ErrorCode] = field(default_factory=list)
    sent: int = 0

    def __post_init__(self) -> None:
        keys, configs = SETTINGS[self.setting]
        self.keys = keys | self.keys
        self.node, _, _ = start_node(self.files, self.clock, **self.keys)
        make_topic(self.node, "t", **configs)
        self._clients: list[tuple[Exchange, bytes]] = []

    @property
    def log(self) -> Log:
        return log_of(self.node)

    def send(self, acks: int) -> Exchange:
        """One record of its own client, at the end of this turn in the log."""
        value = b"%d" % self.sent * 50
        self.sent += 1
        client = Exchange(self.node)
        client.send(produce_request("t", batch(1, value=value), acks=acks), 9)
        client.end_turn()
        if acks:
            self._clients.append((client, value))
        self.listen()
        return client

    def listen(self) -> None:
        """Note what was answered."""
        for client, value in list(self._clients):
            for _, reply in client.replies():
                assert isinstance(reply, ProduceResponse)
                answer = reply.responses[0].partition_responses[0]
                if answer.error_code == ErrorCode.NONE:
                    self.answered[answer.base_offset] = value
                else:
                    self.refusals.append(ErrorCode(answer.error_code))
                self._clients.remove((client, value))

    def sync(self) -> None:
        """Whatever was asked of the disk comes to its end."""
        self.node.settle()
        self.listen()

    def restarted(self, files: SimulatedFiles) -> Node:
        node, _, _ = start_node(files, self.clock, **self.keys)
        return node


def log_of(node: Node) -> Log:
    partition = node.services.catalog.partition("t", 0)
    assert partition is not None
    return partition.log


def found_in(node: Node) -> dict[int, bytes]:
    """Every record by offset, as a consumer gets it."""
    found: dict[int, bytes] = {}
    while True:
        answer = Exchange(node).ask(fetch_request("t", max(found, default=-1) + 1), 12)
        assert isinstance(answer, FetchResponse)
        partition = answer.responses[0].partitions[0]
        if partition.error_code or not partition.records:
            return found
        data = bytes(partition.records)
        for position, _ in iter_batches(memoryview(data)):
            for record in decode_batch(memoryview(data)[position:]):
                assert record.value is not None
                found[record.offset] = record.value


def check(found: dict[int, bytes], sent: int) -> None:
    """No record twice, no gap, nothing that nobody sent, in the order in which they were sent."""
    assert sorted(found) == list(range(len(found)))
    values = [b"%d" % number * 50 for number in range(sent)]
    positions = [values.index(value) for _, value in sorted(found.items())]
    assert positions == sorted(set(positions))


# -- a crash of the process


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_crash_of_the_process_takes_nothing_that_was_answered(setting: str, acks: int) -> None:
    life = Life(setting)
    for number in range(6):
        life.send(acks)
        if number == 3:
            life.sync()
    found = found_in(life.restarted(life.files.kill()))
    check(found, life.sent)
    assert life.answered.items() <= found.items()
    if acks == 1 or setting in (NEVER_SYNCED, *BY_TIME):
        assert len(life.answered) >= 4


def test_with_acks_0_a_crash_of_the_process_may_take_what_nobody_was_promised() -> None:
    life = Life("sync")
    for _ in range(3):
        life.send(0)
    Exchange(life.node).send(produce_request("t", batch(1), acks=0), 9)  # its turn does not end
    found = found_in(life.restarted(life.files.kill()))
    check(found, life.sent)
    assert len(found) == 3


# -- a crash of the machine


def lives_without_power(setting: str, acks: int) -> Iterator[tuple[Life, dict[int, bytes], int]]:
    """(life, what a start finds, synced offset before) for power cuts in the middle of producing."""
    for seed in SEEDS:
        life = Life(setting)
        for number in range(8):
            life.send(acks)
            if number in (2, 5):
                life.sync()
        synced = life.log.synced_offset
        found = found_in(life.restarted(life.files.crash(random.Random(seed))))
        check(found, life.sent)
        yield life, found, synced


@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_power_cut_takes_nothing_that_was_synced(setting: str, acks: int) -> None:
    for life, found, synced in lives_without_power(setting, acks):
        assert len(found) >= synced
        for offset, value in life.answered.items():
            assert offset >= synced or found[offset] == value


@pytest.mark.parametrize("setting", EVERY_RECORD_SYNCED)
def test_a_power_cut_takes_nothing_that_acks_all_was_answered(setting: str) -> None:
    answered = 0
    for life, found, _ in lives_without_power(setting, -1):
        assert life.answered.items() <= found.items()
        answered += len(life.answered)
    assert answered


@pytest.mark.parametrize("setting", ["flush.messages=1", "log.flush.interval.messages=1"])
def test_a_power_cut_takes_nothing_that_acks_1_was_answered_where_each_record_is_flushed(setting: str) -> None:
    for life, found, _ in lives_without_power(setting, 1):
        assert life.answered.items() <= found.items()


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("setting", ["flush.messages=3", "log.flush.interval.messages=3"])
def test_a_power_cut_takes_fewer_answered_records_than_flush_messages(setting: str, acks: int) -> None:
    lost = [len(life.answered.keys() - found.keys()) for life, found, _ in lives_without_power(setting, acks)]
    assert max(lost) < 3
    assert max(lost) > 0, "what may be lost is lost at times"


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("setting", BY_TIME)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_power_cut_takes_nothing_that_was_answered_flush_ms_ago(setting: str, acks: int, seed: int) -> None:
    """By the timer alone, which is of the oldest record that is not synced; later ones have one of their own."""
    life = Life(setting)
    for _ in range(3):
        life.send(acks)
        life.clock.advance(FLUSH_MS // 5)
        life.node.run_due()
        life.listen()
    assert len(life.answered) == 3, "nobody waits for the timer"
    assert life.log.synced_offset == 0
    life.clock.advance(FLUSH_MS - 3 * FLUSH_MS // 5)
    life.node.run_due()
    life.sync()
    assert life.log.synced_offset == 3
    old = dict(life.answered)
    life.send(acks)
    life.clock.advance(FLUSH_MS)
    life.node.run_due()
    life.sync()
    assert life.log.synced_offset == 4
    life.send(acks)
    found = found_in(life.restarted(life.files.crash(random.Random(seed))))
    check(found, life.sent)
    assert old.items() <= found.items()
    assert len(found) >= 4


@pytest.mark.parametrize(("setting", "acks"), [("sync", 1), ("page-cache", 1), ("page-cache", -1), ("flush.ms", -1)])
def test_a_power_cut_may_take_what_was_answered_and_not_synced(setting: str, acks: int) -> None:
    """The table says so, and the simulated disk shows it: the tests above are not passed by a disk that keeps all."""
    lost = [len(life.answered.keys() - found.keys()) for life, found, _ in lives_without_power(setting, acks)]
    assert any(lost)


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_power_cut_takes_nothing_of_a_segment_that_was_rolled_and_nobody_waits_for_its_sync(
    acks: int, seed: int
) -> None:
    """In page-cache without any flush key: Kafka, too, brings a segment to the disk when it is rolled."""
    life = Life("page-cache", keys={"log_segment_bytes": 1024})
    while len(life.log.segments) < 3:
        life.send(acks)
        assert len(life.answered) == life.sent
    active = life.log.segments[-1].base_offset
    life.sync()
    found = found_in(life.restarted(life.files.crash(random.Random(seed))))
    check(found, life.sent)
    assert len(found) >= active


def test_a_start_after_a_kill_looks_at_no_segment_that_was_rolled() -> None:
    life = Life("page-cache", keys={"log_segment_bytes": 1024})
    while len(life.log.segments) < 5:
        life.send(-1)
    life.sync()
    active_bytes = life.log.segments[-1].size_bytes
    life.node.services.log_manager.checkpoints.write_recovery_points()  # the chore
    assert log_of(life.restarted(life.files.kill())).recovery.scanned_bytes <= active_bytes + 1024


@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_consumer_saw_in_sync_is_never_taken_back_by_a_power_cut(seed: int) -> None:
    life = Life("sync")
    chance = random.Random(seed)
    seen: dict[int, bytes] = {}
    for _ in range(12):
        life.send(chance.choice((0, 1, -1)))
        if chance.random() < 0.4:
            life.sync()
        client = Exchange(life.node)
        client.send(fetch_request("t", 0), 12)
        client.end_turn()
        answer = client.reply()
        assert isinstance(answer, FetchResponse)
        data = bytes(answer.responses[0].partitions[0].records or b"")
        for position, _ in iter_batches(memoryview(data)):
            for record in decode_batch(memoryview(data)[position:]):
                assert record.value is not None
                seen[record.offset] = record.value
    assert seen
    found = found_in(life.restarted(life.files.crash(chance)))
    assert seen.items() <= found.items()


# -- the setting changes while the broker runs


@pytest.mark.parametrize("seed", SEEDS)
def test_a_shorter_flush_ms_counts_for_what_is_there_already(seed: int) -> None:
    life = Life("flush.ms")
    partition = life.node.services.catalog.partition("t", 0)
    assert partition is not None
    quick = partition.log.config
    partition.configure(TopicConfig.resolve({"flush.ms": "3600000"}, life.node.services.config))
    life.send(-1)
    partition.configure(quick)
    life.clock.advance(FLUSH_MS)
    life.node.run_due()
    life.sync()
    assert life.answered.items() <= found_in(life.restarted(life.files.crash(random.Random(seed)))).items()


# -- a full disk


@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_full_disk_refuses_keeps_what_was_answered_and_takes_more_when_there_is_room(setting: str, acks: int) -> None:
    life = Life(setting)
    life.send(-1)
    life.sync()
    full = life.files.fail("pwritev", "*/t-0/*.log", errno.ENOSPC, times=None)
    refused = life.send(acks)
    life.sync()
    if acks:
        assert life.refusals == [ErrorCode.KAFKA_STORAGE_ERROR]
    else:
        assert refused.transport.is_closing(), "with acks=0 an error ends the connection, as in Kafka"
    assert not life.node.services.log_manager.directories[0].is_offline
    assert life.log.log_end_offset == 1
    assert found_in(life.node) == life.answered
    life.files.heal(full)
    life.send(-1)
    life.sync()
    assert sorted(life.answered) == [0, 1]
    assert found_in(life.restarted(life.files.kill())).items() >= life.answered.items()


# -- a failing disk


@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_disk_that_fails_a_write_refuses_everything_until_a_restart_and_reads_go_on(setting: str, acks: int) -> None:
    life = Life(setting)
    life.send(-1)
    life.sync()
    life.files.fail("pwritev", "*/t-0/*.log", errno.EIO)
    for number in (1, 2):  # the disk works again, and is not believed
        client = life.send(acks)
        life.sync()
        if acks:
            assert life.refusals == [ErrorCode.KAFKA_STORAGE_ERROR] * number
        else:
            assert client.transport.is_closing()
    assert life.node.services.log_manager.directories[0].is_offline
    assert found_in(life.node) == life.answered
    found = found_in(life.restarted(life.files.kill()))
    assert life.answered.items() <= found.items()


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("setting", [name for name in SETTINGS if name != NEVER_SYNCED])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_disk_that_fails_a_sync_is_never_asked_again_and_what_was_promised_is_there(
    setting: str, acks: int, seed: int
) -> None:
    life = Life(setting)
    for _ in range(3):
        life.send(-1)
    life.clock.advance(FLUSH_MS)
    life.node.run_due()
    life.sync()
    assert life.log.synced_offset == 3
    promised = dict(life.answered)
    life.files.fail("fdatasync", "*/t-0/*.log|*/ottla-redo.log", errno.EIO)
    for _ in range(3):
        life.send(acks)
    life.clock.advance(FLUSH_MS)
    life.node.run_due()
    life.sync()
    assert life.node.services.log_manager.directories[0].is_offline
    if acks == -1 and setting in EVERY_RECORD_SYNCED:
        assert life.refusals == [ErrorCode.KAFKA_STORAGE_ERROR] * 3
    syncs = [call for call, _ in life.files.history].count("fdatasync")
    life.send(1)
    life.sync()
    assert life.refusals[-1] == ErrorCode.KAFKA_STORAGE_ERROR
    assert [call for call, _ in life.files.history].count("fdatasync") == syncs
    found = found_in(life.restarted(life.files.crash(random.Random(seed))))
    check(found, life.sent)
    assert promised.items() <= found.items()
    if acks == -1 and setting in EVERY_RECORD_SYNCED:
        assert life.answered == promised, "no answer came from a sync that failed"
