"""The fast path of sessions gives, byte for byte, what the slow path gives, and leaves the same behind, or yields."""

from __future__ import annotations

import random
import struct
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples
from kit.exchange import Exchange, batch, fetch_request, fetch_templates, make_topic, produce_request
from kit.known_ids import known_ids
from kit.nodes import partition_of, pass_time, start_node
from kit.session_consumer import MAX_WAIT_MS, SessionConsumer

from ottla.broker.catalog.catalog import NewTopic, TopicResult
from ottla.broker.fast.session_template import SessionTemplate
from ottla.broker.fetch.fetch_sessions import EVICTABLE_AFTER_MS, FetchTarget
from ottla.broker.node import Node
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.headers import encode_request_header
from ottla.protocol.message import encode
from ottla.storage.producers.transaction_index import AbortedTransaction
from ottla.storage.producers.transactions import LogTransactions
from ottla.storage.segment.slice import LogSlice

TOPIC, OTHER = "orders", "others"
PARTITIONS = 3
END = 12
"""Of what `reader` puts into a partition."""


def put(node: Node, index: int = 0, count: int = 1, size: int = 10, topic: str = TOPIC) -> None:
    Exchange(node).ask(produce_request(topic, batch(count, value=b"x" * size), partition=index), 9)


def state_of(node: Node) -> list[Any]:
    """All that the broker knows of its sessions, and counts."""
    sessions = node.services.fetch_sessions
    return [
        sessions.partition_count,
        sessions.evictions,
        [
            (
                session.id,
                session.epoch,
                session.last_used_ms,
                [[getattr(target, name) for name in FetchTarget.__slots__] for target in session.targets.values()],
            )
            for session in sessions
        ],
        [
            (name, counters.total_fetch_requests, counters.failed_fetch_requests, counters.bytes_out)
            for name, counters in node.services.metrics.topics.items()
        ],
        node.services.metrics.request_counts,
    ]


class Play:
    """A story of two consumers and a broker, made from a list of numbers: the same for the same numbers and answers."""

    def __init__(self, seed: int, version: int) -> None:
        self.random = random.Random(seed)
        self.node, _, self.clock = start_node(
            max_incremental_fetch_session_cache_slots=2, ottla_acks_all="page-cache", log_segment_bytes=2000
        )
        make_topic(self.node, TOPIC, PARTITIONS)
        make_topic(self.node, OTHER, PARTITIONS)
        self.consumers = [SessionConsumer(self.node, version) for _ in range(2)]
        self.consumers[0].positions = {(TOPIC, index): 0 for index in range(PARTITIONS)}
        self.consumers[1].positions = {(OTHER, 1): 0, (TOPIC, 0): 0}
        self.seen: list[Any] = []

    def run(self, steps: list[str]) -> list[Any]:
        for step in steps:
            getattr(self, f"do_{step}")()
            self.node.settle()
            for consumer in self.consumers:
                consumer.take()
            self.seen.append((step, [list(consumer.answers) for consumer in self.consumers], state_of(self.node)))
            for consumer in self.consumers:
                consumer.answers.clear()
        return self.seen

    def _consumer(self) -> SessionConsumer:
        consumer = self.random.choice((self.consumers[0], *self.consumers))
        if consumer.is_waiting:
            pass_time(self.node, self.clock, consumer.limits["max_wait_ms"] + 1)
            consumer.take()
        assert not consumer.is_waiting
        return consumer

    def _key(self) -> tuple[str, int]:
        return self.random.choice(list(self.consumers[0].positions) or [(TOPIC, 0)])

    def do_put(self) -> None:
        name, index = self._key()
        if name in self.node.services.catalog.topics:
            put(self.node, index, self.random.randint(1, 4), self.random.choice((5, 100, 400)), name)

    def do_put_all(self) -> None:
        for index in range(PARTITIONS):
            put(self.node, index, 2, 50)

    def do_fetch(self) -> None:
        self._consumer().fetch()

    def do_fetch_all(self) -> None:
        self._consumer().fetch(everything=True)

    def do_fetch_of_a_wrong_epoch(self) -> None:
        consumer = self._consumer()
        consumer.fetch(epoch=consumer.epoch + 5)

    def do_fetch_twice_the_same(self) -> None:
        consumer = self._consumer()
        consumer.fetch(epoch=max(consumer.epoch - 1, 1))

    def do_open(self) -> None:
        consumer = self._consumer()
        consumer.epoch = 0
        consumer.fetch()

    def do_close(self) -> None:
        consumer = self._consumer()
        consumer.fetch(epoch=-1)
        consumer.session_id = consumer.epoch = 0

    def do_catch_up(self) -> None:
        """A topic with much to read, which a consumer reads in small pieces."""
        consumer = self._consumer()
        for index in range(PARTITIONS):
            for _ in range(5):
                put(self.node, index, 2, 50)
        before, consumer.partition_max_bytes = consumer.partition_max_bytes, self.random.choice((150, 250, 1000))
        for _ in range(6):
            if not consumer.is_waiting:
                consumer.fetch()
        consumer.partition_max_bytes = before

    def do_seek(self) -> None:
        self._consumer().positions[self._key()] = self.random.choice((0, 1, 3, 7, 10_000, -1))

    def do_forget(self) -> None:
        consumer, key = self._consumer(), self._key()
        if consumer.positions.pop(key, None) is not None:
            consumer.named.pop(key, None)
            consumer.forgotten.append(key)

    def do_add(self) -> None:
        self._consumer().positions.setdefault((TOPIC, self.random.randrange(PARTITIONS + 1)), 0)

    def do_limit(self) -> None:
        consumer = self._consumer()
        consumer.limits = {
            "max_wait_ms": self.random.choice((0, MAX_WAIT_MS)),
            "min_bytes": self.random.choice((0, 1, 1, 1, 300)),
            "max_bytes": self.random.choice((0, 1, 300, 1000, 50 << 20, 50 << 20)),
            "isolation_level": self.random.choice((0, 1)),
        }
        consumer.partition_max_bytes = self.random.choice((0, 1, 200, 1000, 1 << 20, 1 << 20))
        if consumer.limits["min_bytes"] > 1 and consumer.limits["max_wait_ms"]:
            # Where a read is truncated depends on the reads before; the slow path keeps those that wait for more.
            consumer.limits["max_bytes"], consumer.partition_max_bytes = 50 << 20, 1 << 20

    def do_name_the_leader_epoch(self) -> None:
        self._consumer().leader_epoch = self.random.choice((-2, -1, 0, 0, 1))

    def do_new_leader_epoch(self) -> None:
        partition_of(self.node, TOPIC, self.random.randrange(PARTITIONS)).leader_epoch = self.random.choice((0, 1))

    def do_delete_records(self) -> None:
        partition = partition_of(self.node, TOPIC, self.random.randrange(PARTITIONS))
        partition.log.delete_records(self.random.randint(0, partition.high_watermark))
        partition.wake_watchers()

    def do_roll(self) -> None:
        partition_of(self.node, TOPIC, self.random.randrange(PARTITIONS)).log.roll(self.clock.wall_ms())

    def do_recreate(self) -> None:
        outcomes: list[TopicResult] = []
        self.node.services.catalog.delete_topics([TOPIC], outcomes.extend)
        self.node.settle()
        if self.random.random() < 0.5:
            self._consumer().fetch()
        outcomes.clear()
        self.node.services.catalog.create_topics([NewTopic(TOPIC, PARTITIONS)], outcomes.extend)
        while not outcomes:  # the directories of the one before are in the way
            pass_time(self.node, self.clock, 1)
        assert outcomes[0].error_code == 0

    def do_configure(self) -> None:
        topic = self.node.services.catalog.topics[TOPIC]
        for partition in topic.partitions:
            if partition is not None:
                partition.configure(topic.config)

    def do_wait(self) -> None:
        pass_time(self.node, self.clock, self.random.choice((1, MAX_WAIT_MS)))

    def do_evict(self) -> None:
        pass_time(self.node, self.clock, EVICTABLE_AFTER_MS + 1, step_ms=EVICTABLE_AFTER_MS + 1)
        for _ in range(self.random.randint(1, 2)):
            stranger = SessionConsumer(self.node, 18)
            stranger.positions = {(OTHER, 0): 0}
            stranger.limits["max_wait_ms"] = 0
            stranger.fetch()

    def do_share_the_session(self) -> None:
        first, second = self.consumers
        if not (first.is_waiting or second.is_waiting):
            second.session_id, second.epoch = first.session_id, first.epoch
            second.fetch()
            if not second.is_waiting:
                first.epoch = second.epoch


STEPS = [name.removeprefix("do_") for name in dir(Play) if name.startswith("do_")]
OFTEN = ["put", "put", "put_all", "fetch", "fetch", "fetch", "fetch_all", "catch_up", "catch_up"]


def played(seed: int, version: int, steps: list[str], *, by_templates: bool) -> tuple[list[Any], int]:
    """What was seen, and how many requests the fast path answered."""
    answered = 0
    original = SessionTemplate.answer

    def answer(*arguments: Any) -> Any:
        nonlocal answered
        given = original(*arguments) if by_templates else None
        answered += given is not None
        return given

    with known_ids(seed), patch.object(SessionTemplate, "answer", answer):
        return Play(seed, version).run(steps), answered


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 1 << 16),
    version=st.integers(7, 18),
    steps=st.lists(st.sampled_from(OFTEN * 4 + STEPS), min_size=5, max_size=60),
)
def test_both_ways_answer_alike_and_leave_the_same_behind(seed: int, version: int, steps: list[str]) -> None:
    short, _ = played(seed, version, steps, by_templates=True)
    long, _ = played(seed, version, steps, by_templates=False)
    for ours, theirs in zip(short, long, strict=True):
        assert ours == theirs


def node_with_topics() -> Node:
    node, _, _ = start_node()
    make_topic(node, TOPIC, PARTITIONS)
    make_topic(node, OTHER)
    return node


@pytest.fixture
def node() -> Node:
    return node_with_topics()


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each frame that came to the fast path was answered there."""
    answered: list[bool] = []
    original = SessionTemplate.answer

    def noting(*arguments: Any) -> Any:
        answer = original(*arguments)
        answered.append(answer is not None)
        return answer

    monkeypatch.setattr(SessionTemplate, "answer", noting)
    return answered


def reader(node: Node, *keys: tuple[str, int], version: int = 18, batches: int = 6) -> SessionConsumer:
    """A consumer that has opened a session, and has more to read."""
    for name, index in keys:
        for _ in range(batches):
            put(node, index, 2, 50, name)
    consumer = SessionConsumer(node, version)
    consumer.partition_max_bytes = 200  # a batch
    consumer.positions = dict.fromkeys(keys, 0)
    consumer.fetch()
    return consumer


@pytest.mark.parametrize("version", range(7, 19))
@pytest.mark.parametrize("keys", [[(TOPIC, 1)], [(TOPIC, 0), (TOPIC, 2), (OTHER, 0)]])
def test_who_reads_on_in_a_session_is_answered_by_templates_from_the_third_request_on(
    node: Node, ways: list[bool], keys: list[tuple[str, int]], version: int
) -> None:
    consumer = reader(node, *keys, version=version)
    for _ in range(5):
        consumer.fetch()
    assert ways == [True] * 4
    assert consumer.positions == dict.fromkeys(keys, 12)


def test_who_has_read_all_waits_on_the_fast_path(node: Node, ways: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = reader(node, (TOPIC, 0), batches=3)
    consumer.fetch()
    slow: list[Any] = []
    monkeypatch.setattr("ottla.broker.fetch.delayed_fetch.DelayedFetch.park", slow.append)
    for _ in range(2):
        consumer.fetch()
    assert consumer.is_waiting
    assert ways == [True, False]
    for offset in range(6, 9):
        put(node)
        consumer.take()
        assert consumer.positions == {(TOPIC, 0): offset + 1}
        consumer.fetch()
    assert ways == [True, False]
    put(node)
    consumer.take()
    for _ in range(3):
        put(node, size=150)
    for _ in range(3):
        consumer.fetch()
    assert ways == [True, False, True, True, True]
    assert not slow


def test_where_one_partition_has_records_the_others_need_not_be_named(node: Node, ways: list[bool]) -> None:
    consumer = reader(node, (TOPIC, 0), (TOPIC, 1), batches=1)
    for _ in range(5):
        put(node, 1, 2, 50)
    for _ in range(4):
        consumer.fetch()
    assert consumer.positions == {(TOPIC, 0): 2, (TOPIC, 1): 10}
    assert ways == [True, True, True]  # the first names both, those behind it the one


def test_a_session_of_many_partitions_takes_the_slow_path(
    node: Node, ways: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.broker.fast.session_template.MOST_PARTITIONS", 4)
    count = 5
    make_topic(node, "wide", count)
    consumer = reader(node, ("wide", 0))
    consumer.positions |= {("wide", index): 0 for index in range(1, count)}
    for _ in range(4):
        consumer.fetch()
        for _ in range(4):
            node.run_due()
            node.settle()
        consumer.take()
    assert consumer.positions["wide", 0] == 10
    assert True not in ways


def test_a_session_that_another_connection_uses_or_changes_is_seen_as_it_is(node: Node, ways: list[bool]) -> None:
    consumer = reader(node, (TOPIC, 0))
    consumer.fetch()
    consumer.fetch()
    other = SessionConsumer(node, 18)
    other.session_id, other.epoch, other.positions = consumer.session_id, consumer.epoch, {(TOPIC, 1): 0}
    put(node, 1)
    other.fetch()
    assert ways == [True]
    consumer.epoch = other.epoch
    consumer.positions[TOPIC, 1] = consumer.named[TOPIC, 1] = 0  # it receives what the other has added
    consumer.fetch()
    assert consumer.positions == {(TOPIC, 0): 8, (TOPIC, 1): 1}
    assert ways == [True, True]


def test_a_session_that_another_connection_has_closed_is_gone(node: Node, ways: list[bool]) -> None:
    consumer = reader(node, (TOPIC, 0))
    consumer.fetch()
    consumer.fetch()
    other = SessionConsumer(node, 18)
    other.session_id = consumer.session_id
    other.fetch(epoch=-1)
    consumer.fetch()
    assert (consumer.session_id, consumer.positions) == (0, {(TOPIC, 0): 6})
    assert ways == [True, False]


def test_the_order_of_reading_and_what_was_told_are_kept_as_by_the_slow_path(node: Node) -> None:
    states = []
    for by_templates in (True, False):
        with known_ids(1):
            play = node_with_topics()
            consumer = reader(play, (TOPIC, 0), (TOPIC, 1), (OTHER, 0), batches=4)
        consumer.limits["max_bytes"] = 250
        for _ in range(8):
            template = fetch_templates(consumer.exchange)
            if not by_templates and isinstance(template, SessionTemplate):
                template.rest()
            consumer.fetch(everything=True)
            states.append(state_of(play))
            put(play)
    assert states[:8] == states[8:]


def test_cold_records_are_the_slow_paths_and_behind_two_of_them_nobody_looks(
    node: Node, ways: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = reader(node, (TOPIC, 0), batches=9)
    consumer.fetch()
    log = partition_of(node, TOPIC).log
    hot = log.read

    def cold(offset: int, *_: int, **__: Any) -> LogSlice:
        records = hot(offset, 200, end_offset=18).read_blocking()
        log.reader.forget_hints()
        return LogSlice(None, len(records), load=lambda: records)

    for are_cold in (True, False, True, True, True, False, False):
        with monkeypatch.context() as patched:
            if are_cold:
                log.reader.forget_hints()
                patched.setattr(log, "read", cold)
            consumer.fetch()
    assert ways == [False, True, False, False, True]
    assert consumer.positions == {(TOPIC, 0): 18}


def test_aborted_transactions_are_told_by_the_slow_path(node: Node, ways: list[bool]) -> None:
    consumer = reader(node, (TOPIC, 0))
    consumer.limits["isolation_level"] = 1
    consumer.fetch()
    consumer.fetch()
    partition_of(node, TOPIC).log.transactions = LogTransactions([AbortedTransaction(1000, 0, 99, 100)])
    consumer.fetch()
    assert ways == [True, False]
    assert consumer.positions == {(TOPIC, 0): 8}


def test_a_request_without_a_session_in_between_leaves_the_sessions_form(node: Node, ways: list[bool]) -> None:
    consumer = reader(node, (TOPIC, 0))
    consumer.fetch()
    answer = consumer.exchange.ask(fetch_request(TOPIC, 0), 12)
    assert isinstance(answer, FetchResponse)
    assert answer.responses[0].partitions[0].records
    ways.clear()
    consumer.fetch()
    assert ways == [True]


def frame_of(consumer: SessionConsumer, offset: int) -> bytes:
    """A frame as `reader` sends them, as long as the one before, of the session's next epoch."""
    node = consumer.exchange.node
    asked = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=200)
    topic = FetchRequest.FetchTopic(topic_id=node.services.catalog.topics[TOPIC].id, partitions=[asked])
    request = FetchRequest(
        session_id=consumer.session_id,
        session_epoch=consumer.epoch,
        topics=[topic],
        **consumer.limits,  # type: ignore[arg-type]  # fields by name
    )
    return encode_request_header(1, 18, 7, "test") + encode(request, 18)


@pytest.mark.parametrize("offset", [4, END])
def test_a_byte_that_is_another_means_what_it_means_on_the_slow_path(node: Node, offset: int) -> None:
    consumer = reader(node, (TOPIC, 0))
    consumer.fetch()
    length = len(frame_of(consumer, offset))
    for at in range(length):
        outcomes = []
        for by_templates in (True, False):
            with known_ids(1):
                play = node_with_topics()
                consumer = reader(play, (TOPIC, 0))
            consumer.fetch()
            frame = bytearray(frame_of(consumer, offset))
            frame[at] ^= 1
            template = fetch_templates(consumer.exchange)
            assert isinstance(template, SessionTemplate)
            assert template.least_bytes <= len(frame) + 4
            if not by_templates:
                template.rest()
            consumer.exchange.send_frame(bytes(frame))
            play.settle()
            put(play)
            transport = consumer.exchange.transport
            outcomes.append((bytes(transport.written), transport.is_closing(), state_of(play)))
        assert outcomes[0] == outcomes[1], at


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_frame_of_which_a_part_has_come_waits_for_the_rest(node: Node, cut: int) -> None:
    consumer = reader(node, (TOPIC, 0))
    consumer.fetch()
    content = frame_of(consumer, 4)
    frame = struct.pack(">i", len(content)) + content
    transport = consumer.exchange.transport
    for part in (frame[:-cut], frame[-cut:]):
        assert not transport.written
        room = consumer.exchange.connection.get_buffer(-1)
        room[: len(part)] = part
        consumer.exchange.connection.buffer_updated(len(part))
        node.settle()
    assert transport.written
