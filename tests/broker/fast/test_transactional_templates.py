"""Transactional producers get from request templates what they get by the slow path, and leave the same logs.

Two brokers go through the same history, one of them without learning: transactions of producers of both kinds (Produce
12 adds its partitions; older ones add them at the coordinator first), beside zombies, repeated ends, wrong epochs and
sequences, batches that are not part of the transaction, timeouts, topics that go, quotas that nobody reaches. Answers
are compared byte by byte, and so are the logs of the topic and of the coordinator.
"""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.examples import examples
from kit.exchange import Exchange, batch, make_topic, produce_request
from kit.known_ids import known_ids
from kit.nodes import ask, partition_of, pass_time, start_node
from kit.transport import feed

from ottla.broker.catalog.catalog import NewTopic, TopicResult
from ottla.broker.fast.charged_produce_templates import ChargedProduceTemplates
from ottla.broker.fast.charged_transactional_templates import ChargedTransactionalTemplates
from ottla.broker.fast.end_template import EndInFlight, EndTemplate
from ottla.broker.fast.hot_path import ChargedHotPath, HotPath
from ottla.broker.fast.produce_templates import ProduceTemplates
from ottla.broker.fast.transactional_templates import (
    TransactionalRun,
    TransactionalTemplate,
    TransactionalTemplates,
)
from ottla.broker.node import Node
from ottla.broker.peer import Peer
from ottla.broker.principal import Principal
from ottla.broker.requests.dispatch import RequestDispatcher
from ottla.broker.runtime.validity import Validity
from ottla.broker.security.quotas.limits import PRODUCE, REQUEST, Limit
from ottla.broker.security.quotas.rate import Rate
from ottla.broker.transactions.admission import Admission
from ottla.broker.transactions.coordinator import TransactionCoordinator
from ottla.protocol.acls import AclOperation, ResourceType
from ottla.protocol.api import ApiKey
from ottla.protocol.api.add_partitions_to_txn import AddPartitionsToTxnRequest
from ottla.protocol.api.create_acls import CreateAclsRequest
from ottla.protocol.api.delete_acls import DeleteAclsRequest
from ottla.protocol.api.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.api.find_coordinator import FindCoordinatorRequest
from ottla.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.formats.layout import TRANSACTIONS_TOPIC

TOPIC = "orders"
PARTITIONS = 2
TIMEOUT_MS = 60_000
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
PLENTY = {"producer_byte_rate": 1e15, "request_percentage": 1e15}
MOST_SEQUENCES = 60
"""A planted fault is met in so many sequences of steps, or the comparison has a hole."""


class Producer:
    """A transactional producer that sends what a step says, right or wrong; it goes on with what it was answered."""

    def __init__(self, node: Node, transactional_id: str, produce_version: int, end_version: int) -> None:
        self.client = Exchange(node)
        self.id = transactional_id
        self.produce_version, self.end_version = produce_version, end_version
        self.producer_id = self.epoch = -1
        self.sequences: Counter[int] = Counter()
        self.answers: list[bytes] = []

    def init(self) -> None:
        find = FindCoordinatorRequest(key_type=1, coordinator_keys=[self.id])
        self.client.ask(find, 4)
        answer = self.ask(InitProducerIdRequest(transactional_id=self.id, transaction_timeout_ms=TIMEOUT_MS), 4)
        assert isinstance(answer, InitProducerIdResponse)
        if not answer.error_code:
            self.go_on(answer.producer_id, answer.producer_epoch)

    def ask(self, request: Any, version: int) -> Any:
        """The answer; its bytes are kept to be compared."""
        self.client.send(request, version)
        return self.take()[0]

    def take(self) -> list[Any]:
        self.client.node.settle()
        self.answers.append(bytes(self.client.transport.written))
        return [answer for _, answer in self.client.replies()]

    def add(self, partition: int) -> None:
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=TOPIC, partitions=[partition])
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[topic],
        )
        self.ask(request, 3)

    def produce_request(self, partition: int, records: bytes) -> ProduceRequest:
        request = produce_request(TOPIC, records, partition=partition, transactional_id=self.id)
        topic = self.client.node.services.catalog.topics.get(TOPIC)
        if topic is not None:
            request.topic_data[0].topic_id = topic.id
        return request

    def records(self, partition: int, count: int, **more: Any) -> bytes:
        values = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "base_sequence": self.sequences[partition],
            "is_transactional": True,
        }
        return batch(count, **(values | more))

    def produce(self, batches: list[tuple[int, bytes, int]]) -> list[ProduceResponse]:
        """Send them in one read: (partition, batch, how many records)."""
        frames = [
            self.client.frame(self.produce_request(partition, records), self.produce_version)
            for partition, records, _ in batches
        ]
        feed(self.client.connection, b"".join(frames))
        answers = self.take()
        for (partition, _, count), answer in zip(batches, answers, strict=True):
            assert isinstance(answer, ProduceResponse)
            if not answer.responses[0].partition_responses[0].error_code:
                self.sequences[partition] += count
        return answers

    def end_request(self, *, commit: bool = True, epoch: int | None = None) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            committed=commit,
        )

    def end(self, *, commit: bool = True, epoch: int | None = None) -> EndTxnResponse:
        answer = self.ask(self.end_request(commit=commit, epoch=epoch), self.end_version)
        assert isinstance(answer, EndTxnResponse)
        if not answer.error_code and self.end_version >= 5:
            self.go_on(answer.producer_id, answer.producer_epoch)
        return answer

    def go_on(self, producer_id: int, epoch: int) -> None:
        """Be this producer from now on."""
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch


class History:
    """One broker, and what its producers were answered."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        acks_all = self.random.choice(("sync", "page-cache"))
        self.node, self.files, self.clock = start_node(ottla_acks_all=acks_all)
        make_topic(self.node, TOPIC, PARTITIONS)
        self.has_quotas = False
        self.producers = [
            Producer(self.node, "new", self.random.choice((12, 13)), 5),
            Producer(self.node, "old", self.random.choice((9, 11)), self.random.choice((2, 4))),
        ]
        for producer in self.producers:
            producer.init()

    def run(self, steps: list[str]) -> list[object]:
        answers: list[object] = []
        for step in steps:
            producer = self.random.choice((*self.producers, self.producers[0]))
            getattr(self, f"do_{step}")(producer)
            for each in self.producers:
                answers.append((step, each.id, each.answers))
                each.answers = []
        self.node.settle()
        answers += self.logs()
        counts = self.node.services.metrics.request_counts
        answers.append(sorted(item for item in counts.items() if item[0][0] == "EndTxn"))
        return answers

    def logs(self) -> list[bytes]:
        logs = [partition_of(self.node, TRANSACTIONS_TOPIC).log]
        if TOPIC in self.node.services.catalog.topics:
            logs += [partition_of(self.node, TOPIC, index).log for index in range(PARTITIONS)]
        return [self.files.read_bytes(log.segment_list.active.path) for log in logs]

    def do_produce(self, producer: Producer) -> None:
        first, batches = self.random.choice((0, 0, 0, 1)), []
        partitions = [first] * self.random.choice((1, 1, 2, 3))
        if self.random.random() < 0.1:
            partitions.append(1 - first)
        if producer.produce_version < 12 and self.random.random() < 0.9:
            for partition in sorted(set(partitions)):
                producer.add(partition)
        ahead: Counter[int] = Counter()
        for partition in partitions:
            count, wrong = self.random.randint(1, 3), self.random.random()
            more: dict[str, Any] = {"base_sequence": producer.sequences[partition] + ahead[partition]}
            if wrong < 0.04:
                more["producer_epoch"] = max(producer.epoch - 1, 0)
            elif wrong < 0.07:
                more["is_transactional"] = False
            elif wrong < 0.1:
                more["base_sequence"] += 1
            records = bytearray(producer.records(partition, count, **more))
            if 0.1 < wrong < 0.13:
                records[-1] ^= 1
            elif 0.13 < wrong < 0.15:
                records[16] = 1  # magic
            ahead[partition] += count
            batches.append((partition, bytes(records), count))
        producer.produce(batches)

    def do_write_outside_of_a_transaction(self, producer: Producer) -> None:
        producer.produce([(0, producer.records(0, 1, is_transactional=False), 1)])

    def do_end(self, producer: Producer) -> None:
        producer.end(commit=self.random.random() < 0.7)

    def do_transaction(self, producer: Producer) -> None:
        self.do_produce(producer)
        self.do_end(producer)

    def do_all_in_one_read(self, producer: Producer) -> None:
        """The end does not wait for the answer to what comes before it."""
        if producer.produce_version < 12:
            return
        records = producer.records(0, 2)
        frames = [
            producer.client.frame(producer.produce_request(0, records), producer.produce_version),
            producer.client.frame(producer.end_request(commit=self.random.random() < 0.5), producer.end_version),
        ]
        feed(producer.client.connection, b"".join(frames))
        _, answer = producer.take()
        if not answer.error_code:
            producer.go_on(answer.producer_id, answer.producer_epoch)

    def do_repeat_the_end(self, producer: Producer) -> None:
        producer.end(commit=self.random.random() < 0.5, epoch=max(producer.epoch - 1, 0))

    def do_end_with_a_wrong_epoch(self, producer: Producer) -> None:
        producer.end(epoch=producer.epoch + self.random.choice((1, 7)))

    def do_begin_again(self, producer: Producer) -> None:
        producer.init()

    def do_zombie(self, producer: Producer) -> None:
        """Another process with the transactional id comes; this one goes on as if nothing had happened."""
        other = Producer(self.node, producer.id, 12, 5)
        other.init()

    def do_wait(self, producer: Producer) -> None:
        pass_time(self.node, self.clock, self.random.choice((1, 1_000, 2 * TIMEOUT_MS)), step_ms=5_000)

    def do_quotas_come_or_go(self, producer: Producer) -> None:
        self.has_quotas = not self.has_quotas
        self.node.services.quotas.change({(("client-id", "test"),): PLENTY if self.has_quotas else {}})

    def do_create_topic_again(self, producer: Producer) -> None:
        results: list[TopicResult] = []
        self.node.services.catalog.delete_topics([TOPIC], results.extend)
        self.node.settle()
        self.do_transaction(producer)
        results.clear()
        self.node.services.catalog.create_topics([NewTopic(TOPIC, PARTITIONS)], results.extend)
        while not results:  # the directories of the one before are in the way
            pass_time(self.node, self.clock, 1)

    def do_leave(self, producer: Producer) -> None:
        """The connection ends in the middle of something, and the producer comes back by another one."""
        producer.client.send(producer.produce_request(0, producer.records(0, 1)), producer.produce_version)
        if self.random.random() < 0.5:
            producer.client.send(producer.end_request(), producer.end_version)
        producer.client.connection.connection_lost(None)
        self.node.settle()
        producer.client = Exchange(self.node)
        producer.init()


STEPS = [name.removeprefix("do_") for name in dir(History) if name.startswith("do_")]
OFTEN = [*("transaction", "transaction", "produce", "end", "all_in_one_read")]
KINDS = (TransactionalTemplates, EndTemplate, ChargedHotPath)


def answers_of(seed: int, steps: list[str], *, by_templates: bool, hits: Counter[str] | None = None) -> list[object]:
    """What a broker of this history answered and wrote; how often each kind of template answered is added to `hits`."""

    def counting(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def start(*arguments: Any) -> Any:
            given = original(*arguments)
            if given is not None and hits is not None:
                hits[name] += 1
            return given

        return start

    with ExitStack() as patches:
        patches.enter_context(known_ids(seed))
        is_alone = random.Random(f"alone {seed}").choice((True, False))  # another draw than the history's first one
        patches.enter_context(patch("ottla.broker.net.connection.READS_ALONE", 0 if is_alone else 1 << 32))
        for kind in KINDS:
            patches.enter_context(patch.object(kind, "start", counting(kind.__name__, kind.start)))
        if not by_templates:
            patches.enter_context(patch("ottla.broker.requests.dispatch.learn", lambda *_: None))
        return History(seed).run(steps)


def steps_of(seed: int, count: int = 60) -> list[str]:
    return random.Random(seed).choices(OFTEN * 4 + STEPS, k=count)


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 1 << 16), steps=st.lists(st.sampled_from(OFTEN * 4 + STEPS), min_size=5, max_size=80))
def test_templates_and_the_slow_path_answer_and_write_alike(seed: int, steps: list[str]) -> None:
    fast = answers_of(seed, steps, by_templates=True)
    slow = answers_of(seed, steps, by_templates=False)
    for number, (ours, theirs) in enumerate(zip(fast, slow, strict=True)):
        assert ours == theirs, number


def test_the_sequences_are_answered_from_templates_of_each_kind() -> None:
    hits: Counter[str] = Counter()
    for seed in range(10):
        answers_of(seed, steps_of(seed), by_templates=True, hits=hits)
    assert set(hits) == {kind.__name__ for kind in KINDS}
    assert min(hits.values()) > 50, hits
    before = sum(hits.values())
    answers_of(0, steps_of(0), by_templates=False, hits=hits)
    assert sum(hits.values()) == before


# -- faults that the sequences must find --------------------------------------------------------------------


@contextmanager
def stamp_not_changed() -> Iterator[None]:
    with patch.object(Validity, "change", lambda self: None):
        yield


@contextmanager
def coordinator_not_asked() -> Iterator[None]:
    with patch.object(TransactionalTemplate, "admit", lambda *_: Admission(None)):
        yield


@contextmanager
def plain_batches_taken() -> Iterator[None]:
    with patch("ottla.broker.fast.transactional_templates.TRANSACTIONAL_BIT", _AnyBit()):
        yield


class _AnyBit:
    def __rand__(self, attributes: int) -> bool:
        return True


@contextmanager
def only_the_last_batch_looked_at() -> Iterator[None]:
    admit = TransactionalTemplate.admit

    def faulty(self: TransactionalTemplate, entries: list[memoryview]) -> Any:
        return admit(self, entries[-1:])

    with patch.object(TransactionalTemplate, "admit", faulty):
        yield


@contextmanager
def partitions_added_for_old_clients() -> Iterator[None]:
    with patch("ottla.broker.fast.transactional_templates.FIRST_VERSION_THAT_ADDS", 0):
        yield


@contextmanager
def every_end_a_commit() -> Iterator[None]:
    end_now = TransactionCoordinator.end_now

    def faulty(self: TransactionCoordinator, transactional_id: str, producer: Any, is_commit: bool, waiter: Any) -> Any:
        return end_now(self, transactional_id, producer, True, waiter)

    with patch.object(TransactionCoordinator, "end_now", faulty):
        yield


@contextmanager
def answers_without_the_new_epoch() -> Iterator[None]:
    complete = EndInFlight.complete

    def faulty(self: EndInFlight, response: EndTxnResponse) -> None:
        complete(self, EndTxnResponse(producer_id=response.producer_id, producer_epoch=response.producer_epoch - 1))

    with patch.object(EndInFlight, "complete", faulty):
        yield


@contextmanager
def refused_ends_not_left_to_the_slow_path() -> Iterator[None]:
    end_now = TransactionCoordinator.end_now

    def faulty(self: TransactionCoordinator, transactional_id: str, producer: Any, is_commit: bool, waiter: Any) -> Any:
        if not end_now(self, transactional_id, producer, is_commit, waiter):
            waiter.complete(EndTxnResponse(producer_id=producer[0], producer_epoch=producer[1]))
        return True

    with patch.object(TransactionCoordinator, "end_now", faulty):
        yield


@contextmanager
def answered_within_the_read() -> Iterator[None]:
    with patch.object(TransactionalTemplates, "answer", ProduceTemplates.answer):
        yield


@contextmanager
def answered_within_the_read_under_a_quota() -> Iterator[None]:
    with patch.object(ChargedTransactionalTemplates, "answer", ChargedProduceTemplates.answer):
        yield


@pytest.mark.parametrize(
    "fault",
    [
        stamp_not_changed,
        coordinator_not_asked,
        plain_batches_taken,
        only_the_last_batch_looked_at,
        partitions_added_for_old_clients,
        every_end_a_commit,
        answers_without_the_new_epoch,
        refused_ends_not_left_to_the_slow_path,
        answered_within_the_read,
        answered_within_the_read_under_a_quota,
    ],
)
def test_a_fault_in_the_templates_is_found(fault: Callable[[], Any]) -> None:
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


def learnt(node: Node, principal: Principal | None = None) -> Producer:
    """A producer whose requests are answered from templates."""
    producer = Producer(node, "tx", 12, 5)
    if principal is not None:
        producer.client.connection.peer.principal = principal
    producer.init()
    produce(producer)
    producer.end()
    return producer


def produce(producer: Producer) -> int:
    """The error code of one more batch."""
    (answer,) = producer.produce([(0, producer.records(0, 1), 1)])
    return answer.responses[0].partition_responses[0].error_code


def hot_path_of(producer: Producer) -> HotPath:
    hot_path = producer.client.connection.peer.hot_path
    assert isinstance(hot_path, HotPath)
    return hot_path


def in_flight(producer: Producer, kind: type) -> int:
    return sum(isinstance(one, kind) for one in producer.client.connection.queue.in_flight)


@pytest.mark.parametrize("is_fast", [True, False])
def test_the_answer_is_an_error_where_the_coordinators_record_is_lost(is_fast: bool) -> None:
    node, files, _ = start_node(ottla_acks_all="sync")
    make_topic(node, TOPIC, PARTITIONS)
    with ExitStack() as patches:
        if not is_fast:
            patches.enter_context(patch("ottla.broker.requests.dispatch.learn", lambda *_: None))
        producer = learnt(node)
    files.fail("fdatasync", f"*{TRANSACTIONS_TOPIC}*|*/ottla-redo.log", errno.EIO)
    producer.client.send(producer.produce_request(0, producer.records(0, 1)), 12)
    assert in_flight(producer, TransactionalRun) == is_fast
    (answer,) = producer.take()
    # Either says that nothing is known, and to send it again; the directory is offline.
    codes = {ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR}
    assert answer.responses[0].partition_responses[0].error_code in codes


@pytest.mark.parametrize("is_fast", [True, False])
def test_an_end_is_refused_where_the_record_of_its_decision_is_lost(is_fast: bool) -> None:
    node, files, _ = start_node(ottla_acks_all="sync")
    make_topic(node, TOPIC, PARTITIONS)
    with ExitStack() as patches:
        if not is_fast:
            patches.enter_context(patch("ottla.broker.requests.dispatch.learn", lambda *_: None))
        producer = learnt(node)
    assert produce(producer) == ErrorCode.NONE
    files.fail("fdatasync", f"*{TRANSACTIONS_TOPIC}*|*/ottla-redo.log", errno.EIO)
    producer.client.send(producer.end_request(), 5)
    assert in_flight(producer, EndInFlight) == is_fast
    (answer,) = producer.take()
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (ErrorCode.NOT_COORDINATOR, -1, -1)
    counts = {
        code: count for (name, _, code), count in node.services.metrics.request_counts.items() if name == "EndTxn"
    }
    assert counts == {ErrorCode.NONE: 1, ErrorCode.NOT_COORDINATOR: 1}


def test_an_answer_waits_for_the_record_and_for_the_batch() -> None:
    node, _, _ = start_node(ottla_acks_all="page-cache")
    make_topic(node, TOPIC)
    producer = learnt(node)
    settled: list[Callable[[None], None]] = []
    with patch.object(Admission, "when_durable", lambda _, callback: settled.append(callback)):
        producer.client.send(producer.produce_request(0, producer.records(0, 1)), 12)
        node.settle()
    assert not producer.client.transport.written
    settled[0](None)
    node.settle()
    assert producer.client.transport.written


@pytest.mark.parametrize("error", [None, KafkaError(ErrorCode.NOT_COORDINATOR)])
def test_a_request_whose_connection_ends_before_its_record_is_durable_is_not_counted(error: KafkaError | None) -> None:
    node, _, _ = start_node(ottla_acks_all="page-cache")
    make_topic(node, TOPIC)
    producer = learnt(node)
    before = node.services.metrics.request_counts
    settled: list[Callable[[KafkaError | None], None]] = []
    with patch.object(Admission, "when_durable", lambda _, callback: settled.append(callback)):
        producer.client.send(producer.produce_request(0, producer.records(0, 1)), 12)
        node.settle()
    assert in_flight(producer, TransactionalRun)
    producer.client.connection.connection_lost(None)
    settled[0](error)
    assert node.services.metrics.request_counts == before


RIGHTS = [
    (ResourceType.TRANSACTIONAL_ID, "tx", AclOperation.WRITE, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    (ResourceType.TOPIC, TOPIC, AclOperation.WRITE, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
]
ROOT = Peer(principal=Principal("User", "admin"))


@pytest.mark.parametrize("taken", RIGHTS, ids=["transactional id", "topic"])
def test_a_right_that_is_taken_away_is_missed_at_once(taken: tuple[Any, ...]) -> None:
    node, _, _ = start_node(authorizer_class_name=STANDARD, super_users="User:admin")
    make_topic(node, TOPIC)
    for kind, name, operation, _ in RIGHTS:
        entry = CreateAclsRequest.AclCreation(
            resource_type=kind, resource_name=name, resource_pattern_type=3, principal="User:alice", host="*",
            operation=operation, permission_type=3,
        )  # fmt: skip
        ask(node, CreateAclsRequest(creations=[entry]), 3, peer=ROOT)
    producer = learnt(node, Principal("User", "alice"))
    assert produce(producer) == ErrorCode.NONE
    kind, name, operation, code = taken
    gone = DeleteAclsRequest.DeleteAclsFilter(
        resource_type_filter=kind, resource_name_filter=name, pattern_type_filter=3, principal_filter=None,
        host_filter=None, operation=operation, permission_type=3,
    )  # fmt: skip
    ask(node, DeleteAclsRequest(filters=[gone]), 3, peer=ROOT)
    assert produce(producer) == code
    ended = producer.end().error_code
    assert ended == (code if kind is ResourceType.TRANSACTIONAL_ID else ErrorCode.NONE)


def test_a_batch_outside_of_a_transaction_teaches_nothing() -> None:
    """Nobody has asked for the right to the transactional id."""
    node, _, _ = start_node()
    make_topic(node, TOPIC)
    producer = Producer(node, "tx", 12, 5)
    producer.init()
    producer.produce([(0, producer.records(0, 1, is_transactional=False), 1)])
    assert producer.client.connection.peer.hot_path is None


def test_an_end_with_tagged_fields_teaches_nothing() -> None:
    node, _, _ = start_node()
    make_topic(node, TOPIC)
    producer = Producer(node, "tx", 12, 5)
    producer.init()
    frame = producer.client.frame(producer.end_request(commit=False), 5)
    tagged = frame[4:-1] + b"\x01\x05\x01\x00"
    producer.client.send_frame(tagged)
    (answer,) = producer.take()
    assert answer.error_code == ErrorCode.NONE
    assert producer.client.connection.peer.hot_path is None


def test_one_connection_with_and_without_transactions_is_answered_in_order() -> None:
    node, _, _ = start_node(ottla_acks_all="page-cache")
    make_topic(node, TOPIC, PARTITIONS)
    producer = learnt(node)
    plain = produce_request(TOPIC, batch(), partition=1)
    for _ in range(3):
        answer = producer.ask(plain, 12)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert produce(producer) == ErrorCode.NONE
        assert producer.end().error_code == ErrorCode.NONE
    assert hot_path_of(producer).end_transaction is not None


# -- clients under a quota ----------------------------------------------------------------------------------


class Meter:
    """The account of the client in a node with quotas, and the clock that its requests are measured by: it stands still
    but for `look_ns`, by which each look at it is later.
    """

    def __init__(self, **rates: float) -> None:
        self.node, _, _ = start_node(ottla_acks_all="page-cache")
        make_topic(self.node, TOPIC)
        self.node.services.quotas.change({(("client-id", "test"),): rates})
        assert self.node.services.quotas.clients is not None
        self.quotas = self.node.services.quotas.clients
        self.quotas.now_ns = self._now_ns
        self.at_ns = self.look_ns = 0

    def _now_ns(self) -> int:
        self.at_ns += self.look_ns
        return self.at_ns

    def taken(self, kind: str) -> float:
        """Bytes, or percent of a second."""
        account = self.quotas.account(kind, Limit(1e15, "", "test"))
        assert isinstance(account.meter, Rate)
        rate, window_ms = account.meter.measure(self.quotas.now_ms())
        return rate * window_ms / 1000


@contextmanager
def path(*, is_fast: bool) -> Iterator[None]:
    """Requests are learnt and then answered from templates, or never learnt."""
    if is_fast:
        yield
    else:
        with patch("ottla.broker.requests.dispatch.learn", lambda *_: None):
            yield


@contextmanager
def only_templates(*, is_fast: bool) -> Iterator[None]:
    def refuse(*_: object) -> Any:
        raise AssertionError("a request took the slow path")

    with patch.object(RequestDispatcher, "start", refuse) if is_fast else ExitStack():
        yield


both_paths = pytest.mark.parametrize("is_fast", [True, False], ids=["templates", "slow path"])


@both_paths
def test_the_bytes_of_a_transaction_are_charged(is_fast: bool) -> None:
    meter = Meter(**PLENTY)
    with path(is_fast=is_fast):
        producer = learnt(meter.node)
        with only_templates(is_fast=is_fast):
            before = meter.taken(PRODUCE)
            size_bytes = len(producer.client.frame(producer.produce_request(0, producer.records(0, 1)), 12))
            assert produce(producer) == ErrorCode.NONE
            assert producer.end().error_code == ErrorCode.NONE
            assert meter.taken(PRODUCE) - before == pytest.approx(size_bytes - 4)


@pytest.mark.parametrize("rates", [{}, PLENTY], ids=["no quota", "quotas"])
def test_the_coordinator_is_asked_where_a_client_sends_alone_too(rates: dict[str, float]) -> None:
    """Such a client's requests are answered within their reads, but for those of transactions."""
    meter = Meter(**rates) if rates else None
    node = start_node(ottla_acks_all="page-cache")[0] if meter is None else meter.node
    if meter is None:
        make_topic(node, TOPIC)
    with patch("ottla.broker.net.connection.READS_ALONE", 0):
        producer = learnt(node)
        for number in range(5):
            assert produce(producer) == ErrorCode.NONE
            assert partition_of(node, TOPIC).log.transactions.first_open_offset == 2 * number + 2
            assert producer.end().error_code == ErrorCode.NONE
    assert node.services.metrics.transactions.committed == 6


@both_paths
def test_batches_that_the_coordinator_refuses_are_charged_once(is_fast: bool) -> None:
    meter = Meter(**PLENTY)
    with path(is_fast=is_fast):
        producer = learnt(meter.node)
        before = meter.taken(PRODUCE)
        records = producer.records(0, 1, producer_epoch=producer.epoch + 5)
        request = producer.produce_request(0, records)
        answer = producer.ask(request, 12)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert meter.taken(PRODUCE) - before == pytest.approx(len(producer.client.frame(request, 12)) - 4)


@both_paths
def test_bytes_of_a_transaction_that_are_over_the_quota_mute_the_connection(is_fast: bool) -> None:
    meter = Meter(producer_byte_rate=300)
    with path(is_fast=is_fast):
        producer = learnt(meter.node)
        (answer,) = producer.produce([(0, producer.records(0, 1, value=b"x" * 10_000), 1)])
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert answer.throttle_time_ms > 0
    assert producer.client.transport.is_paused


@both_paths
def test_a_batch_whose_time_is_over_the_quota_is_answered_and_the_connection_muted(is_fast: bool) -> None:
    meter = Meter(request_percentage=1)
    with path(is_fast=is_fast):
        producer = learnt(meter.node)
        with only_templates(is_fast=is_fast):
            meter.look_ns = 200_000_000  # one percent of ten seconds is 100 ms
            (answer,) = producer.produce([(0, producer.records(0, 1), 1)])
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert 0 < answer.throttle_time_ms <= 1_000, "Kafka lets nobody wait for longer than a sample"
    assert producer.client.transport.is_paused


@both_paths
def test_an_end_whose_time_is_over_the_quota_is_answered_and_the_connection_muted(is_fast: bool) -> None:
    meter = Meter(request_percentage=1)
    with path(is_fast=is_fast), patch.object(meter.quotas, "note_throttle") as noted:
        producer = learnt(meter.node)
        with only_templates(is_fast=is_fast):
            assert produce(producer) == ErrorCode.NONE
            meter.look_ns = 200_000_000
            answer = producer.end()
    assert answer.error_code == ErrorCode.NONE
    assert 0 < answer.throttle_time_ms <= 1_000
    assert producer.client.transport.is_paused
    noted.assert_called_once_with(
        producer.client.connection.peer, "test", ApiKey.END_TXN, REQUEST, answer.throttle_time_ms
    )


@both_paths
def test_the_append_of_a_transactions_batch_is_charged(is_fast: bool) -> None:
    meter = Meter(**PLENTY)
    with path(is_fast=is_fast):
        producer = learnt(meter.node)
        log: Any = partition_of(meter.node, TOPIC).log
        append = log.append_batches

        def slowly(*arguments: Any) -> Any:
            meter.at_ns += 1_000_000_000
            return append(*arguments)

        before = meter.taken(REQUEST)
        log.append_batches = slowly
        with only_templates(is_fast=is_fast):
            assert produce(producer) == ErrorCode.NONE
        assert meter.taken(REQUEST) - before == pytest.approx(100)
