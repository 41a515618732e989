"""Rounds of the redo log that the broker's own thread waits for: when, and what follows from them."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest
from kit.clock import ManualClock
from kit.exchange import Exchange, batch, fetch_request, make_topic, produce_request
from kit.nodes import DATA, partition_of, start_node
from kit.simulated_files import SimulatedFiles
from kit.transport import feed

from ottla.broker.metadata.change_requests import NewTopic
from ottla.broker.net.connection import READS_ALONE
from ottla.broker.node import Node
from ottla.broker.runtime.queued_syncer import QueuedSyncer
from ottla.broker.runtime.quick_disk import SLOW_US
from ottla.broker.runtime.redo_round import RedoRound
from ottla.broker.runtime.turn import Turn
from ottla.config.broker import BrokerConfig
from ottla.protocol.api.fetch import FetchResponse
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.errors import ErrorCode
from ottla.storage.formats.layout import REDO_LOG_FILE

PARTITIONS = 3
REDO_LOG = DATA / REDO_LOG_FILE
REFUSED = ErrorCode.KAFKA_STORAGE_ERROR
VERSION = 9


def to_all(*, acks: int = -1) -> ProduceRequest:
    """A batch for each partition."""
    data = [ProduceRequest.PartitionProduceData(index=index, records=batch()) for index in range(PARTITIONS)]
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=data)
    return ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic])


def one(*, acks: int = -1) -> ProduceRequest:
    """A batch for the first partition."""
    return produce_request("t", batch(), acks=acks)


def refuse(*_: object) -> None:
    raise AssertionError("this must not be called")


class Broker:
    """A node without threads on a quick disk, and a client that is known to send alone."""

    def __init__(self, *, is_quick: bool = True, request: ProduceRequest | None = None, **configs: str) -> None:
        request = request or to_all()
        self.node, self.files, self.clock = start_node(ottla_acks_all="sync")
        make_topic(self.node, "t", PARTITIONS, **configs)
        self.client = Exchange(self.node)
        for _ in range(READS_ALONE + 2):
            assert not any(self.errors(self.client.ask(request, VERSION)))
        self.syncer.is_quick = is_quick
        self.files.history.clear()

    @property
    def asked(self) -> int:
        """The number of requests that the client has sent."""
        return len(self.client.asked)

    def requests(self) -> int:
        """The number of requests that the broker has counted."""
        return sum(self.node.services.metrics.request_counts.values())

    @property
    def syncer(self) -> QueuedSyncer:
        assert isinstance(self.node.services.syncer, QueuedSyncer)
        return self.node.services.syncer

    def rounds(self, way: str) -> int:
        return self.node.services.metrics.sync_rounds[way].rounds

    @staticmethod
    def errors(reply: object) -> list[int]:
        assert isinstance(reply, ProduceResponse)
        return [one.error_code for one in reply.responses[0].partition_responses]

    def syncs(self) -> list[Path]:
        return [path for call, path in self.files.history if call == "fdatasync"]

    def end(self) -> int:
        return partition_of(self.node, "t").log.log_end_offset


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def alone() -> Broker:
    """A broker whose client has sent batches one by one to a single partition."""
    return Broker(request=one())


def test_a_client_that_is_alone_is_answered_in_the_turn_that_has_synced_its_records(broker: Broker) -> None:
    before = broker.rounds("loop"), broker.rounds("redo")
    broker.client.send(to_all(), VERSION)
    assert broker.errors(broker.client.reply()) == [0] * PARTITIONS
    assert broker.syncs() == [REDO_LOG]
    assert not broker.syncer.rounds
    assert (broker.rounds("loop"), broker.rounds("redo")) == (before[0] + 1, before[1])


def test_on_a_disk_that_is_not_quick_a_thread_syncs() -> None:
    broker = Broker(is_quick=False)
    broker.client.send(to_all(), VERSION)
    assert not broker.client.replies()
    broker.node.settle()
    assert broker.errors(broker.client.reply()) == [0] * PARTITIONS


def test_where_another_client_sends_too_a_thread_syncs(broker: Broker) -> None:
    other = Exchange(broker.node, beside=broker.client)
    other.send(produce_request("t", batch()), VERSION)
    broker.node.settle()
    broker.client.send(to_all(), VERSION)
    broker.node.services.turn.end()
    assert not broker.client.replies()
    assert len(broker.syncer.rounds) == 1
    broker.node.settle()
    assert broker.errors(broker.client.reply()) == [0] * PARTITIONS


def test_where_the_client_has_several_requests_in_flight_a_thread_syncs(broker: Broker) -> None:
    feed(broker.client.connection, broker.client.frame(to_all(), VERSION) + broker.client.frame(to_all(), VERSION))
    assert not broker.client.replies()
    assert len(broker.syncer.rounds) == 1
    broker.node.settle()
    assert len(broker.client.replies()) == 2


def test_where_an_earlier_request_of_the_client_still_waits_a_thread_syncs(broker: Broker) -> None:
    broker.syncer.is_quick = False
    broker.client.send(to_all(), VERSION)
    broker.syncer.is_quick = True
    broker.client.send(to_all(), VERSION)
    assert not broker.client.replies()
    broker.node.settle()
    assert len(broker.client.replies()) == 2


def test_a_large_record_is_synced_by_a_thread(broker: Broker) -> None:
    broker.client.send(produce_request("t", batch(value=bytes(20_000))), VERSION)
    broker.node.services.turn.end()
    assert not broker.client.replies()
    broker.node.settle()
    assert broker.errors(broker.client.reply()) == [0]


def test_a_failed_sync_refuses_the_request_and_takes_the_directory_offline_for_good(broker: Broker) -> None:
    broker.files.fail("fdatasync", str(REDO_LOG), errno.EIO)
    broker.client.send(to_all(), VERSION)
    assert broker.errors(broker.client.reply()) == [REFUSED] * PARTITIONS
    assert broker.syncs() == [REDO_LOG]
    assert broker.node.services.log_manager.directories[0].is_offline
    broker.files.history.clear()
    assert broker.errors(broker.client.ask(to_all(), VERSION)) == [REFUSED] * PARTITIONS
    assert broker.syncs() == []


def test_a_sync_that_could_not_begin_is_made_later(broker: Broker) -> None:
    broker.files.fail("fdatasync", str(REDO_LOG), errno.EMFILE)
    broker.client.send(to_all(), VERSION)
    assert not broker.client.replies()
    broker.clock.advance(1_000)
    broker.node.run_due()
    broker.node.settle()
    assert broker.errors(broker.client.reply()) == [0] * PARTITIONS


def test_what_is_acknowledged_so_survives_every_power_cut(broker: Broker) -> None:
    for seed in range(20):
        broker.client.send(to_all(), VERSION)
        assert broker.errors(broker.client.reply()) == [0] * PARTITIONS
        again, _, _ = start_node(broker.files.crash(random.Random(seed)), ottla_acks_all="sync")
        ends = [partition_of(again, "t", partition).log.log_end_offset for partition in range(PARTITIONS)]
        assert ends == [broker.end()] * PARTITIONS


def test_a_consumer_that_waits_gets_the_records_in_the_same_turn(broker: Broker) -> None:
    consumer = Exchange(broker.node, beside=broker.client)
    consumer.send(fetch_request("t", broker.end(), max_wait_ms=10_000), 12)
    broker.node.services.turn.end()
    for _ in range(READS_ALONE + 2):
        broker.client.ask(produce_request("t", batch(), partition=1), VERSION)
    assert not consumer.replies()
    broker.client.send(to_all(), VERSION)
    assert broker.errors(broker.client.reply()) == [0] * PARTITIONS
    fetched = consumer.reply()
    assert isinstance(fetched, FetchResponse)
    assert fetched.responses[0].partitions[0].high_watermark == broker.end()


def test_a_round_that_the_end_of_one_begins_is_run_by_a_thread(broker: Broker) -> None:
    partition = partition_of(broker.node, "t", 1)
    heard: list[BaseException | None] = []

    def write_more(error: BaseException | None) -> None:
        heard.append(error)
        partition.append([memoryview(bytearray(batch()))], len(batch()), broker.clock.wall_ms())

    broker.client.send(to_all(), VERSION)  # synced, and answered
    assert broker.errors(broker.client.reply()) == [0] * PARTITIONS
    partition.when_visible(broker.end() + 1, write_more)
    broker.client.send(to_all(), VERSION)
    assert heard == [None]
    assert broker.errors(broker.client.reply()) == [0] * PARTITIONS
    assert len(broker.syncer.rounds) == 1
    broker.node.settle()
    assert partition.high_watermark == broker.end() + 1


def test_a_batch_alone_is_answered_within_the_read(alone: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Turn, "flush", refuse)  # no batch is gathered for the end of the turn
    end, before = alone.end(), alone.rounds("loop")
    alone.client.send(one(), VERSION)
    reply = alone.client.reply()
    assert alone.errors(reply) == [0]
    assert isinstance(reply, ProduceResponse)
    assert reply.responses[0].partition_responses[0].base_offset == end
    assert alone.syncs() == [REDO_LOG]
    assert alone.rounds("loop") == before + 1
    assert partition_of(alone.node, "t").high_watermark == end + 1
    assert alone.requests() == alone.asked


def test_a_batch_alone_is_refused_after_a_failed_sync(alone: Broker) -> None:
    alone.files.fail("fdatasync", str(REDO_LOG), errno.EIO)
    visible = partition_of(alone.node, "t").high_watermark
    alone.client.send(one(), VERSION)
    assert alone.errors(alone.client.reply()) == [REFUSED]
    assert alone.syncs() == [REDO_LOG]
    assert partition_of(alone.node, "t").high_watermark == visible
    assert alone.node.services.log_manager.directories[0].is_offline
    assert alone.errors(alone.client.ask(one(), VERSION)) == [REFUSED]


def test_a_batch_alone_whose_sync_could_not_begin_is_answered_after_a_later_one(alone: Broker) -> None:
    alone.files.fail("fdatasync", str(REDO_LOG), errno.EMFILE)
    alone.client.send(one(), VERSION)
    assert not alone.client.replies()
    alone.clock.advance(1_000)
    alone.node.run_due()
    alone.node.settle()
    assert alone.errors(alone.client.reply()) == [0]
    assert alone.requests() == alone.asked


def test_a_batch_alone_that_begins_a_segment_waits_for_a_thread() -> None:
    alone = Broker(request=one(), segment_bytes="1024")
    log = partition_of(alone.node, "t").log
    segments = len(log.segments)
    while True:
        alone.client.send(one(), VERSION)
        if len(log.segments) > segments:
            break
        assert alone.errors(alone.client.reply()) == [0]
    assert not alone.client.replies()
    assert len(alone.syncer.rounds) == 1
    alone.node.settle()
    assert alone.errors(alone.client.reply()) == [0]
    assert alone.requests() == alone.asked


def test_a_batch_alone_beside_a_round_of_others_waits_for_the_next(alone: Broker) -> None:
    other = partition_of(alone.node, "t", 1)
    other.append([memoryview(bytearray(batch()))], len(batch()), alone.clock.wall_ms())
    alone.node.services.turn.end()
    assert len(alone.syncer.rounds) == 1
    alone.client.send(one(), VERSION)
    assert not alone.client.replies()
    alone.node.settle()
    assert alone.errors(alone.client.reply()) == [0]


@pytest.mark.parametrize("request_of", [one, to_all])
def test_a_client_that_waits_for_no_sync_is_answered_before_it(request_of: Callable[..., ProduceRequest]) -> None:
    alone = Broker(request=request_of(acks=1))
    for _ in range(2):
        alone.client.send(request_of(acks=1), VERSION)
        assert not any(alone.errors(alone.client.reply()))
        assert not alone.syncs()
        assert len(alone.syncer.rounds) == 1
        alone.node.settle()
        assert alone.syncs() == [REDO_LOG]
        alone.files.history.clear()
    assert alone.requests() == alone.asked


def test_a_repeated_batch_alone_is_answered_without_a_sync(alone: Broker) -> None:
    repeated = produce_request("t", batch(producer_id=7, producer_epoch=0, base_sequence=0))
    first = alone.client.ask(repeated, VERSION)
    alone.files.history.clear()
    alone.client.send(repeated, VERSION)
    second = alone.client.reply()
    assert isinstance(first, ProduceResponse)
    assert isinstance(second, ProduceResponse)
    assert second.responses == first.responses
    assert not alone.syncs()
    assert not alone.node.services.turn.serves_one  # which would be the turn of any client


def test_what_a_batch_alone_was_acknowledged_for_survives_every_power_cut(alone: Broker) -> None:
    for seed in range(20):
        alone.client.send(one(), VERSION)
        assert alone.errors(alone.client.reply()) == [0]
        again, _, _ = start_node(alone.files.crash(random.Random(seed)), ottla_acks_all="sync")
        assert partition_of(again, "t").log.log_end_offset == alone.end()


def test_a_consumer_that_waits_gets_a_batch_alone_in_the_same_read(alone: Broker) -> None:
    consumer = Exchange(alone.node, beside=alone.client)
    consumer.send(fetch_request("t", alone.end(), max_wait_ms=10_000), 12)
    alone.node.services.turn.end()
    for _ in range(READS_ALONE + 2):
        alone.client.ask(produce_request("t", batch(), partition=1), VERSION)
    alone.client.send(one(), VERSION)
    assert alone.errors(alone.client.reply()) == [0]
    fetched = consumer.reply()
    assert isinstance(fetched, FetchResponse)
    assert fetched.responses[0].partitions[0].high_watermark == alone.end()


class Threaded:
    """A node with threads for its syncs, on simulated files: a sync takes no time."""

    def __init__(self, **keys: object) -> None:
        self.posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
        values = {"log.dirs": str(DATA), "ottla.acks.all": "sync"}
        config = BrokerConfig.of(values | {key.replace("_", "."): value for key, value in keys.items()})
        self.node = Node(config, clock=ManualClock(), files=SimulatedFiles(), post=self.posted.put)
        self.node.start()
        done: list[object] = []
        self.node.services.catalog.create_topics([NewTopic("t", PARTITIONS)], done.append)
        self.run_until(lambda: done)
        self.client = Exchange(self.node)

    def run_until(self, is_done: Callable[[], object]) -> None:
        while not is_done():
            self.node.run_due()
            with suppress(Empty):
                self.posted.get(timeout=0.01)()
                self.node.services.turn.end()

    def rounds(self) -> tuple[int, int]:
        ways = self.node.services.metrics.sync_rounds
        return ways["redo"].rounds, ways["loop"].rounds

    def produce(self, times: int) -> None:
        for _ in range(times):
            self.client.send(to_all(), VERSION)
            self.node.services.turn.end()
            self.run_until(lambda: self.client.transport.written)
            assert Broker.errors(self.client.reply()) == [0] * PARTITIONS


def test_a_broker_with_threads_syncs_by_itself_once_its_disk_is_known_to_be_quick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threaded = Threaded()
    threaded.produce(READS_ALONE + 60)
    by_thread, by_loop = threaded.rounds()
    assert by_thread >= READS_ALONE
    assert by_loop > 0
    run = RedoRound.run

    def slowly(redo_round: RedoRound) -> None:
        run(redo_round)
        redo_round.elapsed_us = SLOW_US

    with monkeypatch.context() as patch:
        patch.setattr(RedoRound, "run", slowly)
        threaded.produce(1)
    threaded.produce(10)
    assert threaded.rounds() == (by_thread + 10, by_loop + 1)
    threaded.node.stop()


def test_where_the_key_says_so_threads_sync_always() -> None:
    threaded = Threaded(ottla_sync_main_thread_enable=False)
    threaded.produce(READS_ALONE + 60)
    assert threaded.rounds()[1] == 0
    threaded.node.stop()
