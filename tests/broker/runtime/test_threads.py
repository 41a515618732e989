"""A system that gives no thread ("can't start new thread"): nobody is left without an answer, then or afterwards."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest
from confluent_kafka import Producer
from kit.broker import BrokerDidNotStart, BrokerProcess
from kit.clock import ManualClock
from kit.exchange import Exchange, batch, make_topic, produce_request
from kit.logs import ticket_with_steps
from kit.nodes import DATA, start_node
from kit.simulated_files import SimulatedFiles
from kit.thread_shortage import ThreadShortage

from ottla.broker.metadata.change_requests import NewTopic
from ottla.broker.node import Node
from ottla.broker.runtime import disk
from ottla.broker.runtime.sync_threads import ThreadedSyncer
from ottla.broker.runtime.threads import NoThread, post_surely
from ottla.broker.runtime.workers import ThreadedWorkers
from ottla.cli.stdin_lines import stdin_lines
from ottla.client.blocking.loop_thread import LoopThread
from ottla.config.broker import BrokerConfig
from ottla.protocol.api.produce import ProduceResponse
from ottla.protocol.errors import ErrorCode
from ottla.storage.files.files import Files
from ottla.storage.log.log import Log
from ottla.storage.log.sync import SyncTicket

DEADLINE_S = 60


class Refusal:
    """While `is_on`, no thread can be started in this process."""

    def __init__(self, start: Callable[[threading.Thread], None]) -> None:
        self._start = start
        self.is_on = False
        self.allowed = 0
        """How many more may be started though it is on."""
        self.count = 0

    def start(self, thread: threading.Thread) -> None:
        if self.is_on and self.allowed <= 0:
            self.count += 1
            raise RuntimeError("can't start new thread")
        self.allowed -= 1
        self._start(thread)


@pytest.fixture
def refusal(monkeypatch: pytest.MonkeyPatch) -> Refusal:
    refusal = Refusal(threading.Thread.start)
    monkeypatch.setattr(threading.Thread, "start", lambda thread: refusal.start(thread))  # noqa: PLW0108  # a bound method is not bound again
    return refusal


class Life:
    """A node whose syncs and workers are threads, and whose loop is this test."""

    def __init__(self, files: Files | None = None) -> None:
        self.posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
        config = BrokerConfig.of({"log.dirs": str(DATA), "ottla.acks.all": "sync"})
        self.node = Node(config, clock=ManualClock(), files=files or SimulatedFiles(), post=self.posted.put)
        self.node.start()

    def wait_for(self, is_done: Callable[[], object]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not is_done():
            self.node.run_due()
            with suppress(Empty):
                self.posted.get(timeout=0.01)()
                self.node.services.turn.end()
            assert time.monotonic() < deadline, "somebody waits and nothing runs for it"

    def make_topic(self, name: str) -> None:
        done: list[object] = []
        self.node.services.catalog.create_topics([NewTopic(name, 1)], done.append)
        self.wait_for(lambda: done)

    def produce(self, client: Exchange) -> ErrorCode:
        """Produce a batch and wait for the answer."""
        client.send(produce_request("t", batch()), 9)
        found: list[ErrorCode] = []

        def is_answered() -> bool:
            for _, reply in client.replies():
                assert isinstance(reply, ProduceResponse)
                found.append(ErrorCode(reply.responses[0].partition_responses[0].error_code))
            return bool(found)

        self.wait_for(is_answered)
        return found[0]

    def end_threads(self) -> None:
        """The threads of syncs and workers end, as if something had ended them."""
        syncer, workers = self.node.services.syncer, self.node.services.workers
        assert isinstance(syncer, ThreadedSyncer)
        assert isinstance(workers, ThreadedWorkers)
        for thread, rounds in syncer._threads.values():
            rounds.put(None)
            thread.join()
        for _ in workers._threads:
            workers._jobs.put(None)
        for thread in workers._threads:
            thread.join()


@pytest.fixture
def life() -> Iterator[Life]:
    life = Life()
    life.make_topic("t")
    yield life
    life.node.stop()
    assert life.node.services.log_manager.directories[0].is_online


def test_a_started_broker_needs_no_other_thread(life: Life, refusal: Refusal) -> None:
    refusal.is_on = True
    client = Exchange(life.node)
    assert [life.produce(client) for _ in range(3)] == [ErrorCode.NONE] * 3
    assert refusal.count == 0


def test_a_sync_whose_thread_ended_is_done_without_one_and_a_thread_is_started_when_it_can_be(
    life: Life, refusal: Refusal, caplog: pytest.LogCaptureFixture
) -> None:
    life.end_threads()
    refusal.is_on = True
    client = Exchange(life.node)
    with caplog.at_level("INFO", "ottla"):
        assert [life.produce(client) for _ in range(3)] == [ErrorCode.NONE] * 3
        assert refusal.count >= 3  # each asks again
        refusal.is_on = False
        assert life.produce(client) == ErrorCode.NONE
    lines = [record.getMessage() for record in caplog.records if record.name == "ottla.threads"]
    assert len(lines) == 2
    assert "no thread can be started for sync data (can't start new thread)" in lines[0]
    assert "`ulimit -u`" in lines[0]
    assert lines[1] == "a thread could be started again: sync data"
    assert isinstance(life.node.services.syncer, ThreadedSyncer)
    assert all(thread.is_alive() for thread, _ in life.node.services.syncer._threads.values())


def test_work_is_done_without_a_thread_and_by_one_again_when_there_is_one(life: Life, refusal: Refusal) -> None:
    life.end_threads()
    refusal.is_on = True
    ran: list[int] = []
    done: list[tuple[object, object]] = []

    def have_done() -> None:
        life.node.services.workers.run(lambda: ran.append(threading.get_ident()), lambda *outcome: done.append(outcome))

    have_done()
    assert done == []  # not before the caller is done with what it does
    life.wait_for(lambda: done)
    refusal.is_on = False
    have_done()
    life.wait_for(lambda: len(done) == 2)
    assert ran[0] == threading.get_ident() != ran[1]


def test_work_waits_for_the_threads_that_there_are(life: Life, refusal: Refusal) -> None:
    refusal.is_on = True
    gate = threading.Event()
    done: list[object] = []
    for _ in range(6):
        life.node.services.workers.run(lambda: gate.wait(DEADLINE_S), lambda *outcome: done.append(outcome))
    assert refusal.count == 5
    gate.set()
    life.wait_for(lambda: len(done) == 6)
    assert done == [(True, None)] * 6


@pytest.mark.parametrize("error", [SystemExit(1), MemoryError()], ids=repr)
def test_whatever_work_raises_comes_to_who_waits(life: Life, error: BaseException) -> None:
    def raising() -> None:
        raise error

    done: list[tuple[object, object]] = []
    life.node.services.workers.run(raising, lambda *outcome: done.append(outcome))
    life.wait_for(lambda: done)
    life.node.services.workers.run(lambda: 7, lambda *outcome: done.append(outcome))
    life.wait_for(lambda: len(done) == 2)
    assert done == [(None, error), (7, None)]


def test_a_round_that_cannot_even_say_what_went_wrong_answers_and_counts_as_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing may be acknowledged whose sync did not end."""
    life = Life()
    life.make_topic("t")

    def failing(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(disk.LOG, "exception", failing)
    log = life.node.services.catalog.topics["t"].partitions[0].log  # type: ignore[union-attr]
    begin = type(log).begin_sync

    def with_bug(one: Log) -> SyncTicket | None:
        ticket = begin(one)
        if one is log and ticket is not None:
            return ticket_with_steps(ticket, [failing])
        return ticket

    monkeypatch.setattr(type(log), "begin_sync", with_bug)
    assert life.produce(Exchange(life.node)) == ErrorCode.KAFKA_STORAGE_ERROR
    assert life.node.services.log_manager.directories[0].is_offline
    life.node.stop()


def test_a_completion_is_posted_until_there_is_room_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.runtime.threads.sleep", lambda _: None)
    posted: list[Callable[[], None]] = []
    failures = iter([MemoryError(), MemoryError()])

    def post(step: Callable[[], None]) -> None:
        for error in failures:
            raise error
        posted.append(step)

    post_surely(post, step := lambda: None)
    assert posted == [step]


def test_rounds_of_a_simulation_that_find_no_thread_are_answered_too() -> None:
    node, _, _ = start_node(ottla_acks_all="sync")
    make_topic(node, "t")
    node.services.syncer.has_threads = False  # type: ignore[attr-defined]  # the queued one
    client = Exchange(node)
    client.send(produce_request("t", batch()), 9)
    node.services.turn.end()
    assert client.replies() == []
    node.settle()
    assert len(client.replies()) == 1


def test_a_refused_start_leaves_the_mark_of_the_clean_stop(life: Life, refusal: Refusal) -> None:
    life.node.stop()
    files = life.node.services.files
    refusal.is_on = True
    with pytest.raises(NoThread):
        Life(files)
    refusal.is_on = False
    again = Life(files)
    assert again.node.services.log_manager.was_clean
    life.node = again.node


def test_a_start_without_threads_ends_in_one_line(refusal: Refusal) -> None:
    refusal.is_on = True
    with pytest.raises(
        NoThread, match=r"^no thread can be started for sync data .*--pids-limit of a container raises it$"
    ):
        Life()


@pytest.mark.parametrize("allowed", [0, 1])
def test_logs_are_opened_by_the_threads_that_there_are(refusal: Refusal, allowed: int) -> None:
    node, files, clock = start_node(log_dirs="/data,/more")
    make_topic(node, "t", 20)
    node.stop()
    refusal.is_on, refusal.allowed = True, allowed
    again, _, _ = start_node(files, clock, log_dirs="/data,/more")
    assert refusal.count == 2 - allowed
    assert all(again.services.catalog.partition("t", index) is not None for index in range(20))


async def test_standard_input_without_a_thread_to_read_it_is_an_error_for_people(refusal: Refusal) -> None:
    refusal.is_on = True
    with pytest.raises(OSError, match="no thread to read it: can't start new thread"):
        async for _ in stdin_lines():
            pass


def test_a_client_that_got_no_thread_may_ask_again(refusal: Refusal) -> None:
    refusal.is_on = True
    with pytest.raises(RuntimeError):
        LoopThread()
    refusal.is_on = False
    thread = LoopThread()
    thread.loop.call_soon_threadsafe(thread.loop.stop)


# --- the process


@pytest.fixture
def shortage(tmp_path: Path) -> ThreadShortage:
    return ThreadShortage(tmp_path / "site")


def test_a_process_that_gets_no_thread_any_more_acknowledges_and_stops_cleanly(
    tmp_path: Path, shortage: ThreadShortage
) -> None:
    with BrokerProcess(tmp_path / "data", environment=shortage.environment) as broker:
        shortage.begin()
        producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
        outcomes: list[object] = []
        for _ in range(3):
            producer.produce("t", b"x", on_delivery=lambda error, _: outcomes.append(error))
            assert producer.flush(DEADLINE_S) == 0
        assert outcomes == [None] * 3
        assert broker.stop() == 0
    assert "Traceback" not in broker.output
    assert "cut off" not in broker.output


def test_a_process_that_gets_no_thread_does_not_start_and_says_so_in_one_line(
    tmp_path: Path, shortage: ThreadShortage
) -> None:
    shortage.begin()
    with pytest.raises(BrokerDidNotStart) as refused:
        BrokerProcess(tmp_path / "data", environment=shortage.environment).start()
    assert "cannot start: no thread can be started for start (can't start new thread)" in str(refused.value)
    assert "Traceback" not in str(refused.value)
