"""Produce requests of several partitions get from their template what they get by the slow path, and leave such logs.

Two brokers go through the same history, one of them without learning: requests of any partitions of two topics, of one
alone, too, with damaged batches, gaps and repeats of idempotent producers, what is not there, named twice, or empty,
beside changed configurations, failed writes and syncs, deleted records, topics that go and grow. Answers are compared
byte by byte, before the syncs and after them, and so are the logs and what was counted.
"""

from __future__ import annotations

import errno
import random
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples
from kit.exchange import Exchange, batch, make_topic
from kit.known_ids import known_ids
from kit.nodes import ask, partition_of, pass_time, start_node
from kit.transport import feed

from ottla.broker.catalog.catalog import NewTopic, TopicResult
from ottla.broker.fast.hot_path import HotPath
from ottla.broker.fast.produce_layout import MOST_PARTITIONS, layout_of
from ottla.broker.fast.several_request import SeveralRequest
from ottla.broker.fast.several_template import SeveralTemplate
from ottla.broker.node import Node
from ottla.broker.partitions.appending import PartitionAppend
from ottla.broker.peer import Peer
from ottla.broker.principal import Principal
from ottla.broker.runtime.validity import Validity
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api.create_acls import CreateAclsRequest
from ottla.protocol.api.create_partitions import CreatePartitionsRequest
from ottla.protocol.api.delete_acls import DeleteAclsRequest
from ottla.protocol.api.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.compression import Compression
from ottla.storage.formats.layout import OFFSETS_TOPIC

TOPICS = {"orders": 4, "bills-of-a-long-name" + "-" * 120: 2}
ORDERS, BILLS = TOPICS
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
MOST_SEQUENCES = 60
"""A planted fault is met in so many sequences of steps, or the comparison has a hole."""
CONFIGS = (
    ("message.timestamp.type", ("CreateTime", "LogAppendTime")),
    ("max.message.bytes", ("200", "1048588")),
    ("ottla.acks.all", ("sync", "page-cache")),
    ("flush.messages", ("1", "9223372036854775807")),
    ("segment.bytes", ("1048576", "2000")),
)
SET, TOPIC_RESOURCE = 0, 2

Wanted = list[tuple[str, list[tuple[int, bytes | None]]]]
"""What a request names: topics, and of each the partitions with their batches."""


class Client:
    """One connection of a producer that is idempotent, or not."""

    def __init__(self, node: Node, version: int, acks: int, producer_id: int, timeout_ms: int = 30_000) -> None:
        self.exchange = Exchange(node)
        self.version, self.acks, self.producer_id, self.timeout_ms = version, acks, producer_id, timeout_ms
        self.sequences: Counter[tuple[str, int]] = Counter()
        self.newest: dict[tuple[str, int], bytes] = {}
        self.ids: dict[str, UUID] = {}

    def frame(self, wanted: Wanted, **more: Any) -> bytes:
        topics = self.exchange.node.services.catalog.topics
        self.ids |= {name: topics[name].id for name, _ in wanted if name in topics}
        request = ProduceRequest(
            acks=self.acks,
            timeout_ms=self.timeout_ms,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    name=name,
                    topic_id=self.ids.get(name, UUID(int=7)),
                    partition_data=[
                        ProduceRequest.PartitionProduceData(index=index, records=records) for index, records in named
                    ],
                )
                for name, named in wanted
            ],
            **more,
        )
        return self.exchange.frame(request, self.version)

    def records(self, name: str, index: int, chosen: random.Random) -> bytes:
        """The next batch for a partition; one in eight is wrong in some way, or was sent before."""
        key, wrong, count = (name, index), chosen.random(), chosen.randint(1, 3)
        if wrong < 0.03 and key in self.newest:
            return self.newest[key]
        options: dict[str, Any] = {"value": b"x" * chosen.choice((1, 30, 120, 17_000))}
        if self.producer_id >= 0:
            sequence = self.sequences[key] + (1 if wrong > 0.97 else 0)
            options |= {"producer_id": self.producer_id, "producer_epoch": 0, "base_sequence": sequence}
            self.sequences[key] += count
        if 0.03 < wrong < 0.05:
            options["compression"] = Compression.ZSTD
        records = bytearray(batch(count, **options))
        if 0.05 < wrong < 0.08:
            records[-1] ^= 1
        elif 0.08 < wrong < 0.1:
            records[16] = 1  # magic
        self.newest[key] = bytes(records)
        return bytes(records)


class History:
    """One broker, and what its producers were answered."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.node, self.files, self.clock = start_node(ottla_acks_all=self.random.choice(("sync", "page-cache")))
        for name, partitions in TOPICS.items():
            make_topic(self.node, name, partitions)
        self.clients = [
            Client(self.node, self.random.choice((5, 7, 8, 9, 12, 13)), self.random.choice((-1, -1, 1)), producer_id)
            for producer_id in (-1, 1000, 1001)
        ]
        self.answers: list[object] = []

    def run(self, steps: list[str]) -> list[object]:
        for step in steps:
            getattr(self, f"do_{step}")()
            self.node.services.turn.end()
            self.take(step)
            self.node.settle()
            self.take(step)
        self.answers += self.logs()
        metrics = self.node.services.metrics
        names = ("messages_in", "bytes_in", "bytes_rejected", "total_produce_requests", "failed_produce_requests")
        self.answers += [(name, [getattr(metrics.topic(name), each) for each in names]) for name in TOPICS]
        self.answers.append(sorted(item for item in metrics.request_counts.items() if item[0][0] == "Produce"))
        return self.answers

    def take(self, step: str) -> None:
        for number, client in enumerate(self.clients):
            self.answers.append((step, number, bytes(client.exchange.transport.written)))
            client.exchange.transport.written.clear()

    def logs(self) -> list[object]:
        found: list[object] = []
        for name, topic in sorted(self.node.services.catalog.topics.items()):
            for index, partition in enumerate(topic.partitions):
                if partition is not None:
                    contents = [self.files.read_bytes(segment.path) for segment in partition.log.segment_list]
                    found.append((name, index, partition.high_watermark, contents))
        return found

    def wanted(self, client: Client) -> Wanted:
        names = self.random.choice(([ORDERS], [ORDERS], [BILLS], [ORDERS, BILLS], [BILLS, ORDERS]))
        wanted: Wanted = []
        for name in names:
            indexes = self.random.sample(range(TOPICS[name]), self.random.randint(1, TOPICS[name]))
            wanted.append((name, [(index, client.records(name, index, self.random)) for index in indexes]))
        return wanted

    def do_produce(self) -> None:
        client = self.random.choice(self.clients)
        frames = [client.frame(self.wanted(client)) for _ in range(self.random.choice((1, 1, 3)))]
        feed(client.exchange.connection, b"".join(frames))

    def do_produce_by_all(self) -> None:
        """Of the same turn: what one gathers stands beside what others do."""
        for client in self.clients:
            feed(client.exchange.connection, client.frame(self.wanted(client)))

    def do_produce_to_one(self) -> None:
        client, name = self.random.choice(self.clients), self.random.choice((ORDERS, BILLS))
        index = self.random.randrange(TOPICS[name])
        frame = client.frame([(name, [(index, client.records(name, index, self.random))])])
        feed(client.exchange.connection, frame * self.random.choice((1, 2)))

    def do_produce_what_is_wrong(self) -> None:
        client = self.random.choice(self.clients)
        wanted = self.wanted(client)
        name, named = self.random.choice(wanted)
        match self.random.randrange(7):
            case 0:
                named.append((self.random.choice((-1, TOPICS[name], 99)), batch()))
            case 1:
                named.append(named[0])
            case 2:
                named.append((0, self.random.choice((None, b""))))
            case 3:
                wanted.append(("unknown", [(0, batch())]))
            case 4:
                wanted.append((OFFSETS_TOPIC, [(0, batch())]))
            case 5:
                wanted.append((name, list(named)))
            case 6:
                wanted.append((ORDERS, []))
        feed(client.exchange.connection, client.frame(wanted))

    def do_send_in_pieces(self) -> None:
        client = self.random.choice(self.clients)
        data = client.frame(self.wanted(client)) + client.frame(self.wanted(client))
        cut = self.random.randrange(len(data))
        feed(client.exchange.connection, data[:cut])
        feed(client.exchange.connection, data[cut:])

    def do_leave(self) -> None:
        """A client goes, before it is answered, and comes back by another connection."""
        client = self.random.choice(self.clients)
        feed(client.exchange.connection, client.frame(self.wanted(client)))
        client.exchange.connection.connection_lost(None)
        self.node.settle()
        client.exchange = Exchange(self.node)

    def do_time_out(self) -> None:
        """No sync comes before the time of the request is over."""
        client = self.random.choice(self.clients)
        feed(client.exchange.connection, client.frame(self.wanted(client)))
        self.node.services.turn.end()
        self.clock.advance(client.timeout_ms + 1)
        self.node.run_due()

    def do_configure(self) -> None:
        name, values = self.random.choice(CONFIGS)
        config = IncrementalAlterConfigsRequest.AlterableConfig(
            name=name, config_operation=SET, value=self.random.choice(values)
        )
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=self.random.choice((ORDERS, BILLS)), configs=[config]
        )
        ask(self.node, IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)

    def do_write_that_fails(self) -> None:
        self.files.fail("pwritev", f"*{ORDERS}-{self.random.randrange(4)}/*.log", errno.ENOSPC)
        self.do_produce_by_all()

    def do_delete_records(self) -> None:
        partition = self.node.services.catalog.partition(ORDERS, self.random.randrange(TOPICS[ORDERS]))
        if partition is not None and partition.log.delete_records(
            self.random.randint(partition.log_start_offset, partition.high_watermark)
        ):
            partition.wake_watchers()

    def do_create_topic_again(self) -> None:
        results: list[TopicResult] = []
        self.node.services.catalog.delete_topics([ORDERS], results.extend)
        self.node.settle()
        self.do_produce()
        results.clear()
        self.node.services.catalog.create_topics([NewTopic(ORDERS, TOPICS[ORDERS])], results.extend)
        while not results:  # the directories of the one before are in the way
            pass_time(self.node, self.clock, 1)

    def do_wait(self) -> None:
        pass_time(self.node, self.clock, self.random.choice((1, 1_000)))


STEPS = [name.removeprefix("do_") for name in dir(History) if name.startswith("do_")]
OFTEN = ["produce", "produce_by_all", "produce_to_one", "produce_what_is_wrong", "send_in_pieces"]


def answers_of(seed: int, steps: list[str], *, by_templates: bool, hits: Counter[str] | None = None) -> list[object]:
    """What a broker of this history answered and wrote; how often the template answered is added to `hits`."""
    start = SeveralTemplate.start

    def counting(*arguments: Any) -> Any:
        begun = start(*arguments)
        if begun is not None and hits is not None:
            hits["one" if len(begun[0].results) == 1 else "several"] += 1
        return begun

    with ExitStack() as patches:
        patches.enter_context(known_ids(seed))
        is_alone = random.Random(f"alone {seed}").choice((True, False))  # another draw than the history's first one
        patches.enter_context(patch("ottla.broker.net.connection.READS_ALONE", 0 if is_alone else 1 << 32))
        patches.enter_context(patch.object(SeveralTemplate, "start", counting))
        # Templates of one partition have tests of their own; here those requests take this one.
        patches.enter_context(patch("ottla.broker.fast.hot_path._learnable_partition", lambda *_: None))
        if not by_templates:
            patches.enter_context(patch("ottla.broker.requests.dispatch.learn", lambda *_: None))
        return History(seed).run(steps)


def steps_of(seed: int, count: int = 40) -> list[str]:
    return random.Random(seed).choices(OFTEN * 4 + STEPS, k=count)


@settings(max_examples=examples(40), deadline=None)
@given(seed=st.integers(0, 1 << 16), steps=st.lists(st.sampled_from(OFTEN * 4 + STEPS), min_size=5, max_size=60))
def test_the_template_and_the_slow_path_answer_and_write_alike(seed: int, steps: list[str]) -> None:
    fast = answers_of(seed, steps, by_templates=True)
    slow = answers_of(seed, steps, by_templates=False)
    for number, (ours, theirs) in enumerate(zip(fast, slow, strict=True)):
        assert ours == theirs, number


def test_the_sequences_are_answered_from_the_template() -> None:
    hits: Counter[str] = Counter()
    for seed in range(10):
        answers_of(seed, steps_of(seed), by_templates=True, hits=hits)
    assert hits["several"] > 50, hits
    assert hits["one"] > 20, hits
    before = sum(hits.values())
    answers_of(0, steps_of(0), by_templates=False, hits=hits)
    assert sum(hits.values()) == before


# -- faults that the sequences must find --------------------------------------------------------------------


@contextmanager
def stamp_not_changed() -> Iterator[None]:
    with patch.object(Validity, "change", lambda self: None):
        yield


@contextmanager
def promises_not_waited_for() -> Iterator[None]:
    with patch.object(SeveralRequest, "wait", SeveralRequest.answered):
        yield


@contextmanager
def only_the_promise_of_the_last_waited_for() -> Iterator[None]:
    def faulty(self: SeveralRequest, partition: PartitionAppend, deadline_ms: float, error: Any) -> None:
        self._missing = 1
        self.visible(partition, error)

    with patch.object(SeveralRequest, "last_visible", faulty):
        yield


@contextmanager
def promises_that_were_not_kept_acknowledged() -> Iterator[None]:
    visible = SeveralRequest.visible

    def faulty(self: SeveralRequest, partition: PartitionAppend, error: BaseException | None) -> None:
        visible(self, partition, None)

    with patch.object(SeveralRequest, "visible", faulty):
        yield


@contextmanager
def answered_at_the_first_append() -> Iterator[None]:
    run_appended = SeveralRequest.run_appended

    def faulty(self: SeveralRequest, appended: Any, partition: PartitionAppend) -> None:
        self._unappended = 1
        run_appended(self, appended, partition)

    with patch.object(SeveralRequest, "run_appended", faulty):
        yield


@contextmanager
def refused_batches_acknowledged() -> Iterator[None]:
    def faulty(self: SeveralRequest, partition: PartitionAppend, result: Any) -> None:
        self.stored(partition, result.base_offset, result.last_offset, -1, result.log_start_offset)

    with patch.object(SeveralRequest, "refused", faulty):
        yield


@contextmanager
def requests_read_as(change: Callable[[Any], Any]) -> Iterator[None]:
    with ExitStack() as patches:
        for version in range(5, 14):
            layout = layout_of(version)

            def faulty(*arguments: Any, named: Callable[..., Any] = layout.named) -> Any:
                found = named(*arguments)
                return found if found is None else change(found)

            patches.enter_context(patch.object(layout, "named", faulty))
        yield


@contextmanager
def partitions_in_another_order() -> Iterator[None]:
    with requests_read_as(lambda found: (found[0][::-1], found[1], found[2])):
        yield


@contextmanager
def a_partition_named_twice_taken_once() -> Iterator[None]:
    with requests_read_as(lambda found: (list(dict.fromkeys(found[0])), found[1], found[2])):
        yield


@contextmanager
def zstd_taken_of_old_clients() -> Iterator[None]:
    with patch("ottla.broker.fast.several_template.FIRST_PRODUCE_VERSION_WITH_ZSTD", 0):
        yield


@contextmanager
def log_append_time_forgotten() -> Iterator[None]:
    stored = SeveralRequest.stored

    def faulty(self: SeveralRequest, partition: PartitionAppend, base: int, last: int, _: int, start: int) -> None:
        stored(self, partition, base, last, -1, start)

    with patch.object(SeveralRequest, "stored", faulty):
        yield


@pytest.mark.parametrize(
    "fault",
    [
        stamp_not_changed,
        promises_not_waited_for,
        only_the_promise_of_the_last_waited_for,
        promises_that_were_not_kept_acknowledged,
        answered_at_the_first_append,
        refused_batches_acknowledged,
        partitions_in_another_order,
        a_partition_named_twice_taken_once,
        zstd_taken_of_old_clients,
        log_append_time_forgotten,
    ],
)
def test_a_fault_in_the_template_is_found(fault: Callable[[], Any]) -> None:
    for seed in range(MOST_SEQUENCES):
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


# -- what the comparison does not meet ----------------------------------------------------------------------


def learnt(acks_all: str = "page-cache", *, version: int = 13, **config: Any) -> tuple[Client, Any]:
    """A client whose requests of several partitions are answered from its template, and the broker's files."""
    node, files, _ = start_node(ottla_acks_all=acks_all, **config)
    make_topic(node, ORDERS, 4)
    client = Client(node, version, -1, -1)
    assert codes_of(client, [0, 1]) == [0, 0]
    return client, files


def send(client: Client, indexes: list[int]) -> bool:
    """Send a batch to each of the partitions; whether the template has taken them."""
    frame = client.frame([(ORDERS, [(index, batch()) for index in indexes])])
    feed(client.exchange.connection, frame)
    return any(isinstance(one, SeveralRequest) for one in client.exchange.connection.queue.in_flight)


def codes_of(client: Client, indexes: list[int], **more: Any) -> list[int]:
    """The errors of one more batch to each of the partitions."""
    frame = client.frame([(ORDERS, [(index, batch()) for index in indexes])], **more)
    feed(client.exchange.connection, frame)
    client.exchange.node.settle()
    answer = client.exchange.reply()
    assert isinstance(answer, ProduceResponse)
    return [each.error_code for each in answer.responses[0].partition_responses]


def hot_path_of(client: Client) -> HotPath:
    hot_path = client.exchange.connection.peer.hot_path
    assert isinstance(hot_path, HotPath)
    return hot_path


@pytest.mark.parametrize("version", range(5, 14))
def test_one_and_several_partitions_in_turn_are_answered_from_templates(version: int) -> None:
    client, _ = learnt(version=version)
    for indexes in ([3], [0, 2], [1], [3, 2, 1, 0], [2]):
        assert send(client, indexes)
        client.exchange.node.settle()
        assert client.exchange.reply()


@settings(max_examples=examples(100), deadline=None)
@given(data=st.data(), version=st.sampled_from((8, 12, 13)))
def test_a_damaged_frame_is_answered_as_by_the_slow_path(data: st.DataObject, version: int) -> None:
    """Whatever bytes stand in the front, in counts, lengths, indexes and tags."""
    places = data.draw(st.lists(st.tuples(st.integers(4, 400), st.integers(0, 255)), min_size=1, max_size=3))
    seen = []
    for by_templates in (True, False):
        with ExitStack() as patches:
            patches.enter_context(known_ids(3))
            if not by_templates:
                patches.enter_context(patch("ottla.broker.requests.dispatch.learn", lambda *_: None))
            client, files = learnt(version=version)
            wanted: Wanted = [(ORDERS, [(index, batch(value=b"v" * 70)) for index in (0, 2, 1)])]
            frame = bytearray(client.frame(wanted))
            for place, value in places:
                frame[place % (len(frame) - 4) + 4] = value
            feed(client.exchange.connection, bytes(frame))
            client.exchange.node.settle()
            logs = [partition_of(client.exchange.node, ORDERS, index).log for index in range(4)]
            contents = [files.read_bytes(log.segment_list.active.path) for log in logs]
            seen.append((bytes(client.exchange.transport.written), client.exchange.transport.closed, contents))
    assert seen[0] == seen[1]


def test_the_answer_waits_for_the_syncs_of_all_partitions() -> None:
    client, _ = learnt("sync")
    assert send(client, [0, 1, 2])
    node = client.exchange.node
    node.services.turn.end()
    assert not client.exchange.transport.written
    node.settle()
    assert client.exchange.replies()


def test_what_was_not_synced_is_not_acknowledged() -> None:
    client, files = learnt("sync")
    assert send(client, [0, 1, 2])
    files.fail("fdatasync", f"*{ORDERS}-1*|*/ottla-redo.log", errno.EIO)
    files.fail("syncfs", "*", errno.EIO)
    client.exchange.node.settle()
    answer = client.exchange.reply()
    assert isinstance(answer, ProduceResponse)
    codes = {each.index: each.error_code for each in answer.responses[0].partition_responses}
    assert codes[1] == ErrorCode.KAFKA_STORAGE_ERROR
    for index, code in codes.items():
        log = partition_of(client.exchange.node, ORDERS, index).log
        assert code or log.synced_offset == log.log_end_offset


def test_a_partition_that_came_later_is_written_from_the_template() -> None:
    client, _ = learnt()
    node = client.exchange.node
    wanted = CreatePartitionsRequest.CreatePartitionsTopic(name=ORDERS, count=6, assignments=None)
    ask(node, CreatePartitionsRequest(topics=[wanted], timeout_ms=1_000, validate_only=False), 3)
    assert codes_of(client, [5, 0]) == [0, 0]
    assert send(client, [5, 4])


def test_a_request_whose_connection_has_ended_is_stored_and_not_answered() -> None:
    client, _ = learnt()
    node = client.exchange.node
    assert send(client, [0, 1])
    client.exchange.connection.connection_lost(None)
    node.settle()
    assert [partition_of(node, ORDERS, index).log.log_end_offset for index in (0, 1)] == [2, 2]
    assert not client.exchange.transport.written


@pytest.mark.parametrize("version", [8, 13])
def test_a_request_of_more_partitions_than_are_read_is_left_to_the_slow_path(version: int) -> None:
    client, _ = learnt(version=version)
    template, (partition, *_) = (
        hot_path_of(client).several,
        client.exchange.node.services.catalog.topics[ORDERS].partitions,
    )
    assert template is not None
    key = template.layout.topic_key(ORDERS, client.ids[ORDERS])
    known = {key: [partition] * (MOST_PARTITIONS + 1)}
    for count in (MOST_PARTITIONS, MOST_PARTITIONS + 1):
        frame = memoryview(bytearray(client.frame([(ORDERS, [(index, batch()) for index in range(count)])])))
        named = template.layout.named(frame, 12 + len(template.front), len(frame), known)
        assert (named is not None) == (count <= MOST_PARTITIONS)


@pytest.mark.parametrize(("acks", "more"), [(0, {}), (-1, {"transactional_id": "tx"})])
def test_nothing_is_learnt_without_answers_or_with_a_transactional_id(acks: int, more: dict[str, Any]) -> None:
    node, _, _ = start_node()
    make_topic(node, ORDERS, 4)
    client = Client(node, 11, acks, -1)
    feed(client.exchange.connection, client.frame([(ORDERS, [(0, batch()), (1, batch())])], **more))
    node.settle()
    assert client.exchange.connection.peer.hot_path is None


def test_nothing_is_learnt_of_a_client_under_a_quota() -> None:
    node, _, _ = start_node()
    make_topic(node, ORDERS, 4)
    node.services.quotas.change({(("client-id", "test"),): {"request_percentage": 1e12}})
    client = Client(node, 13, -1, -1)
    assert codes_of(client, [0, 1]) == [0, 0]
    assert client.exchange.connection.peer.hot_path is None


ROOT = Peer(principal=Principal("User", "admin"))


def test_a_right_that_is_taken_counts_for_the_next_request() -> None:
    node, _, _ = start_node(authorizer_class_name=STANDARD, super_users="User:admin")
    make_topic(node, ORDERS, 4)
    make_topic(node, BILLS, 2)
    kind, write, exact, allow = ResourceType.TOPIC, AclOperation.WRITE, 3, 3
    given_right = CreateAclsRequest.AclCreation(
        resource_type=kind,
        resource_name=ORDERS,
        resource_pattern_type=exact,
        principal="User:ann",
        host="*",
        operation=write,
        permission_type=allow,
    )
    ask(node, CreateAclsRequest(creations=[given_right]), 3, peer=ROOT)
    client = Client(node, 13, -1, -1)
    client.exchange.connection.peer.principal = Principal("User", "ann")
    assert codes_of(client, [0, 1]) == [0, 0]
    assert send(client, [0, 1])
    node.settle()
    client.exchange.reply()
    # Of a topic without the right nothing is written, whatever the template knows.
    both: Wanted = [(ORDERS, [(0, batch())]), (BILLS, [(0, batch()), (1, batch())])]
    for _ in range(2):
        feed(client.exchange.connection, client.frame(both))
        node.settle()
        answer = client.exchange.reply()
        assert isinstance(answer, ProduceResponse)
        codes = [[each.error_code for each in topic.partition_responses] for topic in answer.responses]
        assert codes == [[0], [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2]
    assert partition_of(node, BILLS).log.log_end_offset == 0
    gone = DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=kind,
        resource_name_filter=ORDERS,
        pattern_type_filter=exact,
        principal_filter="User:ann",
        host_filter="*",
        operation=write,
        permission_type=allow,
    )
    ask(node, DeleteAclsRequest(filters=[gone]), 3, peer=ROOT)
    assert codes_of(client, [0, 1]) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2


def test_an_answer_without_the_result_of_a_batch_cannot_be_made() -> None:
    client, _ = learnt()
    assert send(client, [0, 1])
    (request,) = client.exchange.connection.queue.in_flight
    assert isinstance(request, SeveralRequest)
    with pytest.raises(TypeError):
        request.answered()


def test_the_frame_of_another_version_with_the_same_front_is_left_to_the_slow_path() -> None:
    client, _ = learnt(version=9)
    frame = bytearray(client.frame([(ORDERS, [(0, batch()), (1, batch())])]))
    struct.pack_into(">h", frame, 6, 10)
    client.exchange.asked[max(client.exchange.asked)] = (0, 10)
    feed(client.exchange.connection, bytes(frame))
    assert not any(isinstance(one, SeveralRequest) for one in client.exchange.connection.queue.in_flight)
    assert hot_path_of(client).several is not None
