"""The fast path of Fetch gives, byte for byte, what the slow path gives, or steps aside."""

from __future__ import annotations

import struct
from uuid import UUID

import pytest
from kit.exchange import Exchange, batch, fetch_request, fetch_templates, make_topic, produce_request
from kit.nodes import start_node
from kit.transport import feed

from ottla.broker.fast.fetch_templates import FetchTemplates
from ottla.broker.net.connection import READS_ALONE
from ottla.broker.node import Node
from ottla.protocol.api.fetch import FetchRequest, FetchResponse
from ottla.protocol.errors import ErrorCode
from ottla.protocol.headers import encode_request_header
from ottla.protocol.message import encode
from ottla.storage.log import log_reader

TOPIC = "orders"


@pytest.fixture
def node() -> Node:
    node, _, _ = start_node()
    make_topic(node, TOPIC)
    make_topic(node, "others")
    return node


@pytest.fixture
def fast_answers(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each frame that came to the fast path was answered there."""
    answered: list[bool] = []
    original = FetchTemplates.answer

    def noting(*arguments: object) -> object:
        answer = original(*arguments)  # type: ignore[arg-type]  # handed through
        answered.append(answer is not None)
        return answer

    monkeypatch.setattr(FetchTemplates, "answer", noting)
    return answered


def fill(node: Node, batches: int = 5) -> None:
    client = Exchange(node)
    for _ in range(batches):
        client.ask(produce_request(TOPIC, batch(3, value=b"x" * 100)), 9)


def request(node: Node, offset: int, version: int, **more: object) -> FetchRequest:
    wanted = fetch_request(TOPIC, offset, **more)  # type: ignore[arg-type]  # handed through
    if version >= 13:
        wanted.topics[0].topic_id = node.services.catalog.topics[TOPIC].id
    return wanted


def raw_answer(client: Exchange, wanted: FetchRequest, version: int) -> bytes:
    client.transport.written.clear()
    client.send_frame(encode_request_header(1, version, 7, "raw") + encode(wanted, version))
    client.node.settle()
    return bytes(client.transport.written)


@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("version", range(4, 19))
def test_both_ways_answer_alike(node: Node, version: int, isolation_level: int, fast_answers: list[bool]) -> None:
    fill(node)
    client = Exchange(node)
    for offset in (0, 4, 8, 14, 0):
        wanted = request(node, offset, version, isolation_level=isolation_level)
        assert raw_answer(client, wanted, version) == raw_answer(Exchange(node), wanted, version), offset
    assert fast_answers == [True] * 4


@pytest.mark.parametrize("version", [4, 11, 12, 17])
def test_large_answers_have_what_has_changed_since_the_last_one(
    node: Node, version: int, fast_answers: list[bool]
) -> None:
    producer, client = Exchange(node), Exchange(node)

    def produce(size_bytes: int) -> None:
        producer.ask(produce_request(TOPIC, batch(1, value=b"x" * size_bytes)), 9)

    def check(offset: int) -> None:
        wanted = request(node, offset, version, max_bytes=1)
        assert raw_answer(client, wanted, version) == raw_answer(Exchange(node), wanted, version)

    for size_bytes in (20_000, 20_000, 30_000, 100):
        produce(size_bytes)
    for offset in (0, 0, 1, 2, 1, 3, 1, 1):  # the same, another, another length, a small one
        check(offset)
    produce(20_000)  # the high watermark
    check(1)
    partition = node.services.catalog.partition(TOPIC, 0)
    assert partition is not None
    partition.log.delete_records(1)
    check(1)
    assert fast_answers == [True] * 9


def test_limits_mean_the_same(node: Node, fast_answers: list[bool]) -> None:
    fill(node)
    client = Exchange(node)
    wanted = request(node, 0, 12, max_bytes=700)
    first = raw_answer(client, wanted, 12)
    assert raw_answer(client, wanted, 12) == first
    wanted.topics[0].partitions[0].partition_max_bytes = 1
    assert raw_answer(client, wanted, 12) == raw_answer(Exchange(node), wanted, 12)
    assert True in fast_answers


def test_errors_and_empty_answers_take_the_slow_path(node: Node, fast_answers: list[bool]) -> None:
    fill(node)
    client = Exchange(node)
    client.ask(request(node, 0, 12), 12)
    answer = client.ask(request(node, 1000, 12), 12)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE  # type: ignore[attr-defined]
    answer = client.ask(request(node, 15, 12), 12)
    assert len(answer.responses[0].partitions[0].records) == 0  # type: ignore[attr-defined]
    assert fast_answers == [False, False]


def test_too_few_bytes_park_as_ever(node: Node) -> None:
    fill(node, 1)
    client = Exchange(node)
    client.ask(request(node, 0, 12, min_bytes=1000, max_wait_ms=0), 12)
    client.send(request(node, 0, 12, min_bytes=1000, max_wait_ms=10_000), 12)
    client.send(request(node, 0, 12, min_bytes=1000, max_wait_ms=10_000), 12)
    node.settle()
    assert client.replies() == []
    fill(node, 5)
    assert len(client.replies()) == 2


@pytest.mark.parametrize("leader_epoch", [-2, -1, 0, 1])
def test_both_ways_fence_the_same_leader_epochs(node: Node, leader_epoch: int, fast_answers: list[bool]) -> None:
    """Only -1 says none; any other that is older than the partition's is fenced, as in Kafka."""
    fill(node)
    client = Exchange(node)
    for offset in (0, 3, 6):
        wanted = request(node, offset, 12)
        wanted.topics[0].partitions[0].current_leader_epoch = leader_epoch
        assert raw_answer(client, wanted, 12) == raw_answer(Exchange(node), wanted, 12), offset


def test_a_new_leader_epoch_and_a_deleted_topic_end_the_template(node: Node, fast_answers: list[bool]) -> None:
    fill(node)
    client = Exchange(node)
    partition = node.services.catalog.partition(TOPIC, 0)
    assert partition is not None
    wanted = request(node, 0, 12)
    wanted.topics[0].partitions[0].current_leader_epoch = partition.leader_epoch
    client.ask(wanted, 12)
    client.ask(wanted, 12)
    assert fast_answers == [True]
    partition.leader_epoch += 1
    answer = client.ask(wanted, 12)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH  # type: ignore[attr-defined]
    plain = request(node, 0, 12)
    client.ask(plain, 12)
    node.services.catalog.delete_topics([TOPIC], lambda outcomes: None)
    node.settle()
    answer = client.ask(plain, 12)
    code = answer.responses[0].partitions[0].error_code  # type: ignore[attr-defined]
    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_what_has_a_session_or_an_epoch_that_is_not_the_latest_is_not_remembered(node: Node) -> None:
    fill(node)
    for number, wanted in enumerate(
        (
            request(node, 0, 12, session_epoch=0),
            fetch_request(TOPIC, 0, partitions=2),
            FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=-1, topics=[]),
        )
    ):
        client = Exchange(node)
        client.ask(wanted, 12)
        assert fetch_templates(client) is None, number
    wanted = request(node, 0, 12)
    wanted.topics[0].partitions[0].last_fetched_epoch = 1
    client = Exchange(node)
    client.ask(wanted, 12)
    assert fetch_templates(client) is None


def test_an_offset_that_also_stands_elsewhere_in_the_frame_is_not_confused(node: Node) -> None:
    fill(node)
    client = Exchange(node)
    wanted = request(node, 3, 12, max_wait_ms=0, min_bytes=3)
    wanted.topics[0].partitions[0].log_start_offset = 3
    raw_answer(client, wanted, 12)
    wanted.topics[0].partitions[0].fetch_offset = 6
    assert raw_answer(client, wanted, 12) == raw_answer(Exchange(node), wanted, 12)


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_frame_that_only_begins_like_a_form_is_malformed_as_ever(node: Node, cut: int) -> None:
    fill(node)
    client = Exchange(node)
    wanted = request(node, 0, 12)
    raw_answer(client, wanted, 12)
    assert fetch_templates(client) is not None
    body = encode_request_header(1, 12, 7, "raw") + encode(wanted, 12)
    client.send_frame(body[:-cut])
    client.end_turn()
    assert client.transport.is_closing()


def test_a_topic_id_of_another_topic_is_another_form(node: Node) -> None:
    fill(node)
    client = Exchange(node)
    raw_answer(client, request(node, 0, 13), 13)
    wanted = request(node, 0, 13)
    wanted.topics[0].topic_id = UUID(int=12345)
    answer = raw_answer(client, wanted, 13)
    assert struct.pack(">h", ErrorCode.UNKNOWN_TOPIC_ID) in answer
    assert answer == raw_answer(Exchange(node), wanted, 13)


def test_requests_are_counted_on_either_way(node: Node) -> None:
    fill(node, 2)
    client = Exchange(node)
    for offset in (0, 0, 1000):
        client.ask(request(node, offset, 12), 12)
    client.ask(produce_request(TOPIC, b"no batch at all, but long enough to be looked at as one: 61 bytes"), 9)
    counters = node.services.metrics.topic(TOPIC)
    assert (counters.total_fetch_requests, counters.failed_fetch_requests) == (3, 1)
    assert (counters.total_produce_requests, counters.failed_produce_requests) == (3, 1)


def test_who_asks_alone_is_answered_within_the_read_and_behind_what_the_socket_has_not_taken(
    node: Node, fast_answers: list[bool]
) -> None:
    fill(node)
    client = Exchange(node)
    wanted = request(node, 0, 12)
    content = encode_request_header(1, 12, 7, "raw") + encode(wanted, 12)
    frame = struct.pack(">i", len(content)) + content
    expected = raw_answer(Exchange(node), wanted, 12)
    for _ in range(READS_ALONE + 2):
        feed(client.connection, frame)
        client.node.settle()
    client.transport.written.clear()
    fast_answers.clear()
    feed(client.connection, frame)  # and no turn ends
    assert client.transport.written == expected
    assert fast_answers == [True]
    # What a turn that has not ended yet wants to send goes first.
    client.connection.queue.let_out([b"before"])
    client.connection.plan()
    feed(client.connection, frame)
    client.node.settle()
    assert client.transport.written == expected + b"before" + expected


def test_who_reads_on_in_several_partitions_is_answered_by_hints_and_as_without_them(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_topic(node, "many", 3)
    producer = Exchange(node)
    for partition in range(3):
        for _ in range(4):
            producer.ask(produce_request("many", batch(3, value=b"x" * 1000), partition=partition), 9)
    partitions = [partition for partition in node.services.catalog.topics["many"].partitions if partition is not None]
    batch_bytes = partitions[0].log.size_bytes // 4
    client = Exchange(node)

    def answers(offset: int, max_bytes: int, partition_bytes: int = 1 << 20) -> bytes:
        wanted = fetch_request("many", offset, partitions=3, max_bytes=max_bytes)
        for asked in wanted.topics[0].partitions:
            asked.partition_max_bytes = partition_bytes
        return raw_answer(client, wanted, 12)

    def go_on(offset: int) -> None:
        """All have read up to here."""
        for partition in partitions:
            partition.log.reader.forget_hints()
            partition.read(offset - 3, batch_bytes, at_least_one=True)

    # One batch, two, all; a first one that is larger than what it may be, and no room for those behind it.
    limits = [(1 << 20, batch_bytes), (batch_bytes * 2, batch_bytes), (1 << 20, 1 << 20), (1, 1), (batch_bytes, 1)]
    for limit in limits:
        go_on(3)
        with_hints = answers(3, *limit)
        for partition in partitions:
            partition.log.reader.forget_hints()
        assert with_hints == answers(3, *limit), limit
    expected = answers(3, 1 << 20, batch_bytes)
    go_on(3)
    monkeypatch.setattr(log_reader, "_find", None)  # the long look-up
    assert answers(3, 1 << 20, batch_bytes) == expected


@pytest.mark.parametrize("partitions", [1, 2])
@pytest.mark.parametrize("version", [12, 17])
def test_a_replica_is_refused_each_time(version: int, partitions: int) -> None:
    node, _, _ = start_node()
    make_topic(node, TOPIC, 2)
    fill(node)
    client = Exchange(node)
    asked = request(node, 0, version, partitions=partitions)
    if version < 15:
        asked.replica_id = 1
    else:
        asked.replica_state = FetchRequest.ReplicaState(replica_id=1)
    for _ in range(3):
        answer = client.ask(asked, version)
        assert isinstance(answer, FetchResponse)
        codes = {data.error_code for data in answer.responses[0].partitions}
        assert codes == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
