"""Whatever happens to a broker, it answers from request templates what it answers by the slow path, byte for byte.

Two brokers go through the same history, one of them without learning: random sequences of Produce and Fetch requests of
all versions, in sessions and without, of both isolation levels, beside changed configurations, transactions that end,
topics deleted and rebuilt, leader epochs, retention, syncs and, in every other history, quotas. With a fault planted in
the templates the sequences find a difference.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples
from kit.exchange import Exchange, batch, fetch_request, make_topic, produce_request
from kit.known_ids import known_ids
from kit.nodes import partition_of, pass_time, start_node
from kit.session_consumer import SessionConsumer
from kit.transactional import end_transaction, put_transactional

from ottla.broker.catalog.catalog import NewTopic, TopicResult
from ottla.broker.fast.fetch_template import FetchTemplate
from ottla.broker.fast.fetch_templates import FetchTemplates
from ottla.broker.fast.hot_path import HotPath
from ottla.broker.fast.parked_templates import ParkedPlainFetch
from ottla.broker.fast.partitions_template import PartitionsTemplate
from ottla.broker.fast.produce_templates import ProduceTemplates
from ottla.broker.fast.session_template import SessionTemplate
from ottla.broker.fast.sessionless_template import SessionlessTemplate
from ottla.broker.fetch.parked_fetches import Deadlines, ParkedFetch, ParkedFetches, SharedReads, Tail
from ottla.broker.partitions.partition import Partition
from ottla.broker.principal import Principal
from ottla.broker.runtime.validity import Validity
from ottla.broker.security.quotas.template_quota import TemplateQuota
from ottla.protocol.api.fetch import FetchRequest
from ottla.protocol.api.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.api.produce import ProduceRequest
from ottla.protocol.records.control import ControlType

TOPIC = "orders"
PARTITIONS = 2
BOTH = 2
"""The number of the client that asks for both partitions at once."""
MOST_SEQUENCES = 600
"""A planted fault is met in so many sequences of steps, or the comparison has a hole."""
MEETING = {
    "answers_longer_than_a_quota_lets_pass": 227,
    "those_that_wait_again_wait_wherever_they_are": 73,
    "produced_bytes_not_charged": 55,
    "parked_fetches_without_a_minimum": 20,
}
"""The first sequence that meets a rare fault. It is tried before all others: to search for the four took half a minute.
A change of the sequences may make it another one, which costs time and decides nothing.
"""
SET = 0
TOPIC_RESOURCE = 2
CONFIGS = (
    ("message.timestamp.type", ("CreateTime", "LogAppendTime")),
    ("max.message.bytes", ("200", "1048588")),
    ("compression.type", ("producer", "zstd")),
    ("ottla.acks.all", ("sync", "page-cache")),
)
KINDS = (ProduceTemplates, FetchTemplates, SessionTemplate, SessionlessTemplate)
WAITS_MS = (0, 100, 700)
QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
RATES = (20, 300, 2_000, 1e9)


@dataclass
class History:
    """One broker, and what its clients were answered."""

    seed: int
    acks_all: str
    is_alone: bool
    answers: list[tuple[str, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.node, _, self.clock = start_node(ottla_acks_all=self.acks_all)
        make_topic(self.node, TOPIC, PARTITIONS)
        self.has_quotas = self.seed % 2 == 1
        # Over a quota, how many bytes of several partitions are read is not promised, and so the time to wait for them.
        many = (1, 1, 1) if self.has_quotas else (1, 1, 300)
        self.clients = [Exchange(self.node) for _ in range(2)]
        self.consumers = [SessionConsumer(self.node, version) for version in (self.random.randint(7, 12), 13, 18)]
        for consumer in self.consumers:
            consumer.limits["max_wait_ms"] = self.random.choice(WAITS_MS)
            consumer.limits["min_bytes"] = self.random.choice(many)
            consumer.positions = {(TOPIC, index): 0 for index in range(PARTITIONS)}
            consumer.last_fetched_epoch = self.random.choice((-1, 0))
        # A client repeats itself: so its requests have templates.
        self.produces = [(self.random.randint(3, 13), self.random.choice((-1, 1))) for _ in self.clients]
        self.fetches = [(self.random.randint(4, 18), self.random.choice((0, 1))) for _ in self.clients]
        self.waits = [(self.random.choice(WAITS_MS), self.random.choice((0, 1, 1, 300))) for _ in self.clients]
        self.offsets = [0, 0]
        # One client that asks for both partitions at once.
        self.both = Exchange(self.node)
        self.both_asked = self.random.randint(4, 18), self.random.choice((0, 1))
        self.both_limits = self.random.choice(WAITS_MS), self.random.choice((0, *many))
        self.both_offsets = [0, 0]
        self.last_fetched_epoch = -1
        self.producers = 0
        self.last_id = UUID(int=1)
        self.pipelining = self.random.choice((0, 1, BOTH))
        self.do_limit()

    def may_send(self, number: int) -> bool:
        """Whether a client, or `BOTH`, sends now. Only one of them does while it waits for an answer: which of two
        whose waits end together goes on first is not promised.
        """
        client = self.both if number == BOTH else self.clients[number]
        return number == self.pipelining or not client.connection.is_waiting

    def run(self, steps: list[str]) -> list[tuple[str, bytes]]:
        for step in steps:
            getattr(self, f"do_{step}")()
            self.take(step)
        self.answers.append(("counted", repr(self.counts()).encode()))
        return self.answers

    def counts(self) -> list[Any]:
        services = self.node.services
        topics = [
            (name, counters.total_fetch_requests, counters.failed_fetch_requests, counters.bytes_out)
            for name, counters in services.metrics.topics.items()
        ]
        return [
            topics,
            sorted(item for item in services.metrics.request_counts.items() if item[0][0] in ("Fetch", "Produce")),
        ]

    def take(self, step: str) -> None:
        self.node.settle()
        for client in (*self.clients, self.both):
            self.answers.append((step, bytes(client.transport.written)))
            client.transport.written.clear()
        for consumer in self.consumers:
            consumer.take()
            self.answers += [(step, answer) for answer in consumer.answers]
            consumer.answers.clear()

    def do_produce(self) -> None:
        number = self.random.randrange(len(self.clients))
        version, acks = self.produces[number]
        if not self.may_send(number):
            return
        for _ in range(self.random.choice((1, 1, 3))):
            records = bytearray(batch(self.random.randint(1, 3), value=b"x" * self.random.choice((1, 90, 200))))
            if self.random.random() < 0.1:
                records[-1] ^= 1
            request: ProduceRequest = produce_request(TOPIC, bytes(records), acks=acks, partition=number)
            request.topic_data[0].topic_id = self.topic_id()
            self.clients[number].send(request, version)
            if self.is_alone:  # a template answers within the read, and the turn may come later: who waits sees it then
                self.node.settle()

    def do_fetch(self) -> None:
        number = self.random.randrange(len(self.clients))
        version, level = self.fetches[number]
        if not self.may_send(number):
            return
        max_wait_ms, min_bytes = self.waits[number]
        request: FetchRequest = fetch_request(
            TOPIC, self.offsets[number], isolation_level=level, max_wait_ms=max_wait_ms, min_bytes=min_bytes
        )
        asked = request.topics[0].partitions[0]
        asked.last_fetched_epoch = self.last_fetched_epoch if version >= 12 else -1
        request.topics[0].topic_id = self.topic_id()
        # Where a read is cut short depends on the reads before; those that wait are more on the slow path.
        asked.partition, asked.partition_max_bytes = number, 1 << 20 if max_wait_ms else 1000
        self.clients[number].send(request, version)
        self.node.settle()

    def do_fetch_both(self) -> None:
        """Without a session all is named each time: in any order, one of them left out at times."""
        (version, level), (max_wait_ms, min_bytes) = self.both_asked, self.both_limits
        if not self.may_send(BOTH):
            return
        named = self.random.choice(((0, 1), (0, 1), (1, 0), (1, 0), (0,), (1,)))
        wanted = [
            FetchRequest.FetchPartition(
                partition=index,
                fetch_offset=self.both_offsets[index],
                last_fetched_epoch=self.last_fetched_epoch if version >= 12 else -1,
                partition_max_bytes=1 << 20,
            )
            for index in named
        ]
        topic_id, entries = self.topic_id(), [wanted]
        if self.random.random() < 0.2:
            entries = [[each] for each in wanted]  # the topic named twice
        topics = [FetchRequest.FetchTopic(topic=TOPIC, topic_id=topic_id, partitions=entry) for entry in entries]
        request = FetchRequest(
            max_wait_ms=max_wait_ms, min_bytes=min_bytes, isolation_level=level, session_epoch=-1, topics=topics
        )
        self.both.send(request, version)
        self.node.settle()

    def do_seek_both(self) -> None:
        index = self.random.randrange(PARTITIONS)
        end = partition_of(self.node, TOPIC, index).log.log_end_offset
        self.both_offsets[index] = self.random.choice((0, self.random.randint(0, end), end + 5))

    def do_fetch_on_from_an_epoch(self) -> None:
        """Clients say by which leader epoch the last records came to them."""
        self.last_fetched_epoch = self.random.choice((-1, 0, 0, 1))
        for consumer in self.consumers:
            consumer.last_fetched_epoch = self.random.choice((-1, 0, 0, 1))

    def do_change_both(self) -> None:
        """Another isolation level, or another client."""
        if self.random.random() < 0.5:
            self.both_asked = self.both_asked[0], self.random.choice((0, 1))
            return
        self.take("before a client left")
        self.both.connection.connection_lost(None)
        self.both = Exchange(self.node)

    def do_wait_at_the_end(self) -> None:
        """Most clients do: what they ask for next is what comes next."""
        for number in range(len(self.clients)):
            partition = partition_of(self.node, TOPIC, number)
            level, both_level = self.fetches[number][1], self.both_asked[1]
            self.offsets[number] = partition.last_stable_offset if level else partition.high_watermark
            self.both_offsets[number] = partition.last_stable_offset if both_level else partition.high_watermark
        self.do_fetch()
        self.do_fetch_both()
        self.do_fetch_in_session()

    def do_leave(self) -> None:
        """A client goes, whatever it waits for, and comes back by another connection."""
        number = self.random.randrange(len(self.clients))
        self.take("before a client left")
        self.clients[number].connection.connection_lost(None)
        self.clients[number] = Exchange(self.node)
        self.clients[number].connection.peer.principal = Principal("User", f"user-{number}")

    def do_seek(self) -> None:
        number = self.random.randrange(len(self.clients))
        end = partition_of(self.node, TOPIC, number).log.log_end_offset
        self.offsets[number] = self.random.choice((0, self.random.randint(0, end), end + 5))

    def do_fetch_in_session(self) -> None:
        consumer = self.random.choice(self.consumers)
        if not consumer.is_waiting:
            consumer.fetch()

    def do_isolate(self) -> None:
        number = self.random.randrange(len(self.clients))
        self.fetches[number] = (self.fetches[number][0], self.random.choice((0, 1)))
        self.consumers[number].limits["isolation_level"] = self.random.choice((0, 1))

    def do_open_transaction(self) -> None:
        self.producers += 1
        put_transactional(self.partition(), 1000 + self.producers % 3, self.random.randint(1, 3))

    def do_end_transaction(self) -> None:
        kind = self.random.choice((ControlType.ABORT, ControlType.COMMIT))
        end_transaction(self.partition(), 1000 + self.random.randrange(3), kind)

    def do_configure(self) -> None:
        name, values = self.random.choice(CONFIGS)
        config = IncrementalAlterConfigsRequest.AlterableConfig(
            name=name, config_operation=SET, value=self.random.choice(values)
        )
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=TOPIC, configs=[config]
        )
        if self.may_send(0):
            self.clients[0].send(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)

    def do_new_leader_epoch(self) -> None:
        partition = self.partition()
        partition.leader_epoch = self.random.choice((0, 1))
        partition.wake_watchers()  # a start sets it, when nobody waits yet
        for consumer in self.consumers:
            consumer.leader_epoch = self.random.choice((-1, 0))

    def do_delete_records(self) -> None:
        partition = self.partition()
        if partition.log.delete_records(self.random.randint(0, partition.high_watermark)):
            partition.wake_watchers()

    def do_create_topic_again(self) -> None:
        results: list[TopicResult] = []
        self.node.services.catalog.delete_topics([TOPIC], results.extend)
        self.node.settle()
        self.do_produce()
        self.do_fetch()
        results.clear()
        self.node.services.catalog.create_topics([NewTopic(TOPIC, PARTITIONS)], results.extend)
        while not results:  # the directories of the one before are in the way
            pass_time(self.node, self.clock, 1)

    def do_limit(self) -> None:
        """Set quotas, which clients stay within or do not. Time does not pass within requests.

        Each client is a user with an account of its own: which of several that wait is answered first is not promised.
        What waits ends before: on the slow path it goes by the quota with which it came.
        """
        if not self.has_quotas:
            return
        exchanges = [*self.clients, *(consumer.exchange for consumer in self.consumers)]
        for number, exchange in enumerate(exchanges):
            exchange.connection.peer.principal = Principal("User", f"user-{number}")
        while any(exchange.connection.is_waiting for exchange in [*exchanges, self.both]):
            pass_time(self.node, self.clock, max(WAITS_MS))
        rates = {kind: self.random.choice(RATES) for kind in QUOTAS if self.random.random() < 0.7}
        quotas = self.node.services.quotas
        quotas.change({(("user", None),): rates})
        if quotas.clients is not None:
            quotas.clients.now_ns = lambda: 0

    def do_wait_for_quotas(self) -> None:
        if self.has_quotas:
            pass_time(self.node, self.clock, self.random.choice((3_000, 11_000)))

    def do_wait(self) -> None:
        pass_time(self.node, self.clock, self.random.choice((1, 100, 1_000)))

    def partition(self) -> Any:
        return partition_of(self.node, TOPIC, self.random.randrange(PARTITIONS))

    def topic_id(self) -> UUID:
        """Of the topic; when it is deleted, that of the one that was."""
        topic = self.node.services.catalog.topics.get(TOPIC)
        self.last_id = self.last_id if topic is None else topic.id
        return self.last_id


STEPS = [name.removeprefix("do_") for name in dir(History) if name.startswith("do_")]
OFTEN = [
    *("produce", "produce", "fetch", "fetch", "fetch_both", "fetch_both", "fetch_in_session", "fetch_in_session"),
    *("wait_at_the_end", "wait_at_the_end", "open_transaction", "end_transaction"),
]


def answers_of(seed: int, steps: list[str], *, by_templates: bool, hits: Counter[str] | None = None) -> Any:
    """What a broker of this history answered; how often each kind of template answered is added to `hits`."""
    chosen = random.Random(seed)
    acks_all = chosen.choice(("sync", "page-cache"))
    is_alone = chosen.choice((True, False))  # a connection that sends alone is answered within its read

    def counting(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def answer(*arguments: Any) -> Any:
            given = original(*arguments)
            if given is not None and hits is not None:
                hits[name] += 1
            return given

        return answer

    with ExitStack() as patches:
        patches.enter_context(known_ids(seed))
        patches.enter_context(patch("ottla.broker.net.connection.READS_ALONE", 0 if is_alone else 1 << 32))
        for kind in KINDS:
            for name in ("answer", "start", "park"):
                if hasattr(kind, name):
                    counted = kind.__name__ + (" parks" if name == "park" else "")
                    patches.enter_context(patch.object(kind, name, counting(counted, getattr(kind, name))))
        if not by_templates:
            patches.enter_context(patch("ottla.broker.requests.dispatch.learn", lambda *_: None))
        return History(seed, acks_all, is_alone).run(steps)


def steps_of(seed: int, count: int = 60) -> list[str]:
    return random.Random(seed).choices(OFTEN * 8 + STEPS, k=count)


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 1 << 16), steps=st.lists(st.sampled_from(OFTEN * 8 + STEPS), min_size=5, max_size=80))
def test_templates_and_the_slow_path_answer_alike(seed: int, steps: list[str]) -> None:
    fast = answers_of(seed, steps, by_templates=True)
    slow = answers_of(seed, steps, by_templates=False)
    for number, (ours, theirs) in enumerate(zip(fast, slow, strict=True)):
        assert ours == theirs, number


def test_the_sequences_are_answered_from_templates_of_each_kind() -> None:
    hits: Counter[str] = Counter()
    for seed in range(20):
        answers_of(seed, steps_of(seed), by_templates=True, hits=hits)
    parking = {f"{kind.__name__} parks" for kind in KINDS if hasattr(kind, "park")}
    assert set(hits) == {*(kind.__name__ for kind in KINDS), *parking}
    assert min(hits.values()) > 10, hits
    before = sum(hits.values())
    answers_of(0, steps_of(0), by_templates=False, hits=hits)
    assert sum(hits.values()) == before


# -- faults that the sequences must find --------------------------------------------------------------------


@contextmanager
def stamp_not_changed() -> Iterator[None]:
    with patch.object(Validity, "change", lambda self: None):
        yield


@contextmanager
def last_stable_offset_forgotten() -> Iterator[None]:
    init = FetchTemplate.__init__

    def faulty(self: FetchTemplate, *arguments: Any) -> None:
        init(self, *arguments)
        pack = self.pack_offsets
        self.pack_offsets = lambda high_watermark, _, log_start: pack(high_watermark, high_watermark, log_start)

    with patch.object(FetchTemplate, "__init__", faulty):
        yield


@contextmanager
def aborted_not_listed() -> Iterator[None]:
    """As if a template asked only when it was learnt."""
    answer = FetchTemplates.answer

    def faulty(*arguments: Any) -> Any:
        with patch("ottla.broker.partitions.partition.Partition.must_list_aborted", lambda *_: False):
            return answer(*arguments)

    with patch.object(FetchTemplates, "answer", faulty):
        yield


@contextmanager
def sessions_offsets_not_moved() -> Iterator[None]:
    with patch.object(SessionTemplate, "_go_on", lambda *_: True):
        yield


@contextmanager
def answers_out_of_order() -> Iterator[None]:
    start = HotPath.start

    def faulty(*arguments: Any) -> Any:
        begun = start(*arguments)
        if begun is not None and isinstance(begun[0], list):
            begun[0][0], begun[0][-1] = begun[0][-1], begun[0][0]
        return begun

    with patch.object(HotPath, "start", faulty):
        yield


@contextmanager
def parked_fetches_not_woken() -> Iterator[None]:
    with patch.object(Tail, "wake", lambda self: None):
        yield


@contextmanager
def parked_fetches_answered_at_another_stamp() -> Iterator[None]:
    init = ParkedFetch.__init__

    def faulty(self: ParkedFetch, *arguments: Any) -> None:
        init(self, *arguments)
        self.stamp = _Any()  # type: ignore[assignment]

    with patch.object(ParkedFetch, "__init__", faulty):
        yield


class _Any:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


@contextmanager
def parked_fetches_not_expired() -> Iterator[None]:
    with patch.object(Deadlines, "_expire", lambda self: None):
        yield


@contextmanager
def parked_fetches_without_a_minimum() -> Iterator[None]:
    find = ParkedPlainFetch._find

    def faulty(self: ParkedPlainFetch, reads: Any, min_bytes: int) -> Any:
        return find(self, reads, 1)

    with patch.object(ParkedPlainFetch, "_find", faulty):
        yield


@contextmanager
def one_that_waits_alone_without_a_minimum() -> Iterator[None]:
    look = ParkedPlainFetch.look_alone

    def faulty(self: ParkedPlainFetch) -> None:
        with patch.object(FetchTemplate, "min_bytes", 1):
            look(self)

    with patch.object(ParkedPlainFetch, "look_alone", faulty):
        yield


@contextmanager
def one_that_waits_alone_not_looked_at() -> Iterator[None]:
    with patch.object(ParkedPlainFetch, "look_alone", lambda self: None):
        yield


@contextmanager
def those_that_wait_again_wait_wherever_they_are() -> Iterator[None]:
    wait_again = ParkedPlainFetch.wait_again

    def faulty(self: ParkedPlainFetch, view: memoryview, end: int) -> bool:
        with patch.object(Partition, "high_watermark", _Any()):
            return wait_again(self, view, end)

    with patch.object(ParkedPlainFetch, "wait_again", faulty):
        yield


@contextmanager
def sessions_without_a_minimum() -> Iterator[None]:
    with patch.object(SessionTemplate, "min_bytes", property(lambda self: 1, lambda self, value: None)):
        yield


@contextmanager
def reads_shared_beyond_their_limits() -> Iterator[None]:
    """As if all that wait at one partition had asked for the same."""
    read = ParkedFetches.read

    def faulty(self: ParkedFetches, partition: Any, offset: int, *rest: Any) -> Any:
        *limits, reads = rest
        if partition not in reads.answers:
            reads.answers[partition] = read(self, partition, offset, *limits, SharedReads())
        return reads.answers[partition]

    with patch.object(ParkedFetches, "read", faulty):
        yield


@contextmanager
def session_not_moved_on_when_it_parks() -> Iterator[None]:
    park = SessionTemplate.park

    def faulty(*arguments: Any) -> Any:
        with patch("ottla.broker.fetch.fetch_sessions.FetchSessions.move_on", lambda *_: None):
            return park(*arguments)

    with patch.object(SessionTemplate, "park", faulty):
        yield


@contextmanager
def session_news_not_counted_as_sent() -> Iterator[None]:
    encode = PartitionsTemplate.encode

    def faulty(self: PartitionsTemplate, news: Any, *rest: Any) -> Any:
        sent = [(each[0].sent_high_watermark, each[0].sent_log_start_offset) for each in news]
        answer = encode(self, news, *rest)
        for each, before in zip(news, sent, strict=True):
            each[0].sent_high_watermark, each[0].sent_log_start_offset = before
        return answer

    with patch.object(PartitionsTemplate, "encode", faulty):
        yield


@contextmanager
def offsets_of_several_not_taken() -> Iterator[None]:
    take = SessionlessTemplate.take

    def faulty(self: SessionlessTemplate, *arguments: Any) -> Any:
        taken = take(self, *arguments)
        if taken is not None:
            next(iter(taken[1])).fetch_offset = 0
        return taken

    with patch.object(SessionlessTemplate, "take", faulty):
        yield


@contextmanager
def several_in_another_order() -> Iterator[None]:
    take = SessionlessTemplate.take

    def faulty(self: SessionlessTemplate, *arguments: Any) -> Any:
        taken = take(self, *arguments)
        return taken if taken is None else (taken[0], sorted(taken[1], key=lambda target: target.partition))

    with patch.object(SessionlessTemplate, "take", faulty):
        yield


@contextmanager
def no_time_is_left_on_the_slow_path() -> Iterator[None]:
    with patch.object(ParkedFetches, "wait_ms", lambda *_: 0.0):
        yield


@contextmanager
def produced_bytes_not_charged() -> Iterator[None]:
    with patch.object(TemplateQuota, "may_produce", lambda *_: True):
        yield


@contextmanager
def fetched_bytes_not_charged() -> Iterator[None]:
    with patch.object(TemplateQuota, "may_fetch", lambda *_: True):
        yield


@contextmanager
def answers_longer_than_a_quota_lets_pass() -> Iterator[None]:
    with patch.object(TemplateQuota, "fetch_bytes", lambda self, most_bytes: most_bytes):
        yield


@pytest.mark.parametrize(
    "fault",
    [
        produced_bytes_not_charged,
        fetched_bytes_not_charged,
        answers_longer_than_a_quota_lets_pass,
        parked_fetches_not_woken,
        parked_fetches_answered_at_another_stamp,
        parked_fetches_not_expired,
        parked_fetches_without_a_minimum,
        one_that_waits_alone_without_a_minimum,
        one_that_waits_alone_not_looked_at,
        those_that_wait_again_wait_wherever_they_are,
        sessions_without_a_minimum,
        reads_shared_beyond_their_limits,
        session_not_moved_on_when_it_parks,
        session_news_not_counted_as_sent,
        offsets_of_several_not_taken,
        several_in_another_order,
        no_time_is_left_on_the_slow_path,
        stamp_not_changed,
        last_stable_offset_forgotten,
        aborted_not_listed,
        sessions_offsets_not_moved,
        answers_out_of_order,
    ],
)
def test_a_fault_in_the_templates_is_found(fault: Callable[[], Any]) -> None:
    for seed in (MEETING.get(fault.__name__, 0), *range(MOST_SEQUENCES)):
        steps = steps_of(seed)
        slow = answers_of(seed, steps, by_templates=False)
        with fault():
            try:
                fast = answers_of(seed, steps, by_templates=True)
            except Exception:  # a client that cannot read what it was answered
                return
        if fast != slow:
            return
    pytest.fail(f"{MOST_SEQUENCES} sequences did not meet it")
