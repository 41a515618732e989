"""Readers of committed records that wait: they are woken when the last stable offset moves, on the slow path, from a
template, and in a session.
"""

from __future__ import annotations

import pytest
from kit.exchange import Exchange, batch, fetch_request, make_topic, produce_request
from kit.nodes import partition_of, start_node
from kit.transactional import end_transaction, put_transactional

from ottla.broker.node import Node
from ottla.broker.partitions.partition import Partition
from ottla.protocol.api.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from ottla.protocol.api.fetch import FetchResponse
from ottla.protocol.api.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.protocol.records.batch import decode_batch, iter_batches
from ottla.protocol.records.control import ControlType

TOPIC = "orders"
ONE, TWO = 1000, 2000
COMMITTED = 1
LATEST = -1


def started(acks_all: str) -> tuple[Node, Partition]:
    node, _, _ = start_node(ottla_acks_all=acks_all)
    make_topic(node, TOPIC)
    put(node)
    return node, partition_of(node, TOPIC)


def put(node: Node) -> None:
    Exchange(node).ask(produce_request(TOPIC, batch()), 9)


def offsets_of(data: FetchResponse.PartitionData) -> list[int]:
    records = bytes(data.records or b"")
    return [
        record.offset
        for start, header in iter_batches(records)
        for record in decode_batch(records[start : start + header.size_bytes])
        if not header.is_control
    ]


def listed(data: FetchResponse.PartitionData) -> list[tuple[int, int]]:
    return [(one.producer_id, one.first_offset) for one in data.aborted_transactions or []]


@pytest.mark.parametrize("acks_all", ["sync", "page-cache"])
@pytest.mark.parametrize("is_template_known", [True, False])
@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
def test_a_waiting_reader_gets_the_records_when_the_end_of_their_transaction_is_visible(
    acks_all: str, is_template_known: bool, kind: ControlType
) -> None:
    node, partition = started(acks_all)
    client = Exchange(node)
    if is_template_known:
        for _ in range(3):  # the length and the offset's place are the same
            client.ask(fetch_request(TOPIC, 0, isolation_level=COMMITTED, max_wait_ms=500), 12)
    put_transactional(partition, ONE, 2)
    node.settle()
    client.send(fetch_request(TOPIC, 1, isolation_level=COMMITTED, max_wait_ms=500), 12)
    put(node)  # behind the open transaction
    node.settle()
    assert client.replies() == []
    end_transaction(partition, ONE, kind)
    node.settle()
    answer = client.reply()
    assert isinstance(answer, FetchResponse)
    data = answer.responses[0].partitions[0]
    assert (offsets_of(data), data.last_stable_offset, data.high_watermark) == ([1, 2, 3], 5, 5)
    assert listed(data) == ([(ONE, 1)] if kind is ControlType.ABORT else [])


@pytest.mark.parametrize("acks_all", ["sync", "page-cache"])
def test_in_a_session_as_well(acks_all: str) -> None:
    node, partition = started(acks_all)
    client = Exchange(node)
    first = client.ask(fetch_request(TOPIC, 0, isolation_level=COMMITTED, session_epoch=0), 12)
    assert isinstance(first, FetchResponse)

    def ask(epoch: int, offset: int) -> list[FetchResponse.PartitionData]:
        session = {"session_id": first.session_id, "session_epoch": epoch}
        client.send(fetch_request(TOPIC, offset, isolation_level=COMMITTED, max_wait_ms=500, **session), 12)
        return answered()

    def answered() -> list[FetchResponse.PartitionData]:
        node.settle()
        answers = [one for _, one in client.replies()]
        return [one.responses[0].partitions[0] for one in answers if isinstance(one, FetchResponse)]

    for epoch, producer_id in enumerate((ONE, TWO), 1):
        put_transactional(partition, producer_id, 1)
        node.settle()
        offset = partition.last_stable_offset
        assert ask(epoch, offset) == []
        end_transaction(partition, producer_id)
        (ended,) = answered()
        assert listed(ended) == [(producer_id, offset)]
        assert offsets_of(ended) == [offset]


def test_the_latest_offset_of_committed_records_is_the_last_stable_one() -> None:
    node, partition = started("page-cache")
    put_transactional(partition, ONE, 2)
    put(node)

    def latest(level: int) -> int:
        asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=LATEST)
        topic = ListOffsetsRequest.ListOffsetsTopic(name=TOPIC, partitions=[asked])
        answer = Exchange(node).ask(ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=[topic]), 7)
        assert isinstance(answer, ListOffsetsResponse)
        return answer.topics[0].partitions[0].offset

    assert (latest(COMMITTED), latest(0)) == (1, 4)
    end_transaction(partition, ONE)
    assert (latest(COMMITTED), latest(0)) == (5, 5)


def test_describe_producers_names_the_open_transaction_and_the_coordinators_epoch() -> None:
    node, partition = started("page-cache")
    put_transactional(partition, ONE, 2)
    put_transactional(partition, TWO)
    partition.end_transaction(TWO, 3, True, 7, lambda _: None, now_ms=123)
    topic = DescribeProducersRequest.TopicRequest(name=TOPIC, partition_indexes=[0])
    answer = Exchange(node).ask(DescribeProducersRequest(topics=[topic]), 0)
    assert isinstance(answer, DescribeProducersResponse)
    described = {
        one.producer_id: (
            one.producer_epoch,
            one.last_sequence,
            one.coordinator_epoch,
            one.current_txn_start_offset,
        )
        for one in answer.topics[0].partitions[0].active_producers
    }
    assert described == {ONE: (0, 1, -1, 1), TWO: (3, -1, 7, -1)}
    (ended,) = [one for one in answer.topics[0].partitions[0].active_producers if one.producer_id == TWO]
    assert ended.last_timestamp == 123
