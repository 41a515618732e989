"""Readers of committed records get the same from a request template as from the slow path: end, list and offsets."""

from __future__ import annotations

import pytest
from kit.exchange import Exchange, batch, fetch_request, make_topic, produce_request
from kit.nodes import partition_of, start_node
from kit.transactional import end_transaction, put_transactional

from ottla.broker.fast.fetch_templates import FetchTemplates
from ottla.broker.node import Node
from ottla.protocol.api.fetch import FetchResponse
from ottla.storage.log.log_reader import SMALLEST_MAP_BYTES
from ottla.storage.producers.transactions import NONE_OPEN, LogTransactions

TOPIC = "orders"
PRODUCER = 1000
COMMITTED = 1


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each frame that came to the templates of Fetch was answered by one."""
    answered: list[bool] = []
    original = FetchTemplates.answer

    def noting(*arguments: object) -> object:
        answer = original(*arguments)  # type: ignore[arg-type]  # handed through
        answered.append(answer is not None)
        return answer

    monkeypatch.setattr(FetchTemplates, "answer", noting)
    return answered


def started(acks_all: str = "page-cache") -> Node:
    node, _, _ = start_node(ottla_acks_all=acks_all)
    make_topic(node, TOPIC)
    put(node)
    return node


def put(node: Node, value: bytes = b"x" * 100) -> None:
    Exchange(node).ask(produce_request(TOPIC, batch(3, value=value)), 9)


def read(client: Exchange, offset: int = 0, level: int = COMMITTED) -> FetchResponse.PartitionData:
    answer = client.ask(fetch_request(TOPIC, offset, isolation_level=level), 12)
    assert isinstance(answer, FetchResponse)
    return answer.responses[0].partitions[0]


def listed(data: FetchResponse.PartitionData) -> list[tuple[int, int]]:
    return [(one.producer_id, one.first_offset) for one in data.aborted_transactions or []]


def test_a_template_that_was_learnt_before_the_first_abort_does_not_hide_it(fast: list[bool]) -> None:
    node = started()
    client = Exchange(node)
    for _ in range(3):
        assert listed(read(client)) == []
    assert fast == [True, True]
    partition = partition_of(node, TOPIC)
    put_transactional(partition, PRODUCER, 2)
    end_transaction(partition, PRODUCER)
    for _ in range(2):
        assert listed(read(client)) == [(PRODUCER, 3)]


def test_an_answer_from_a_template_names_the_last_stable_offset_that_is(fast: list[bool]) -> None:
    node = started()
    put(node)
    client = Exchange(node)
    assert [read(client, level=0).last_stable_offset for _ in range(2)] == [6, 6]
    log = partition_of(node, TOPIC).log
    for open_offsets, last_stable_offset in (({PRODUCER: 3}, 3), ({}, 6)):
        log.transactions = LogTransactions(open_offsets=open_offsets)  # the other offsets and the records stay the same
        data = read(client, level=0)
        assert (data.high_watermark, data.last_stable_offset) == (6, last_stable_offset)
    assert fast == [True, True, True]


def test_a_transaction_is_open_until_its_marker_can_be_seen() -> None:
    node = started("sync")
    partition = partition_of(node, TOPIC)
    put_transactional(partition, PRODUCER, 2)
    node.settle()
    client = Exchange(node)
    end_transaction(partition, PRODUCER)
    transactions = partition.log.transactions
    assert partition.high_watermark == 5
    assert partition.log.log_end_offset == 6
    assert (transactions.first_open_offset, partition.last_stable_offset) == (3, 3)
    assert not transactions.has_aborted
    node.settle()
    assert (transactions.first_open_offset, partition.last_stable_offset) == (NONE_OPEN, 6)
    assert listed(read(client)) == [(PRODUCER, 3)]


def test_records_behind_the_last_abort_are_sent_from_the_map_again(monkeypatch: pytest.MonkeyPatch) -> None:
    node = started()
    partition = partition_of(node, TOPIC)
    put_transactional(partition, PRODUCER, 1)
    end_transaction(partition, PRODUCER)
    large = b"x" * SMALLEST_MAP_BYTES
    put(node, large)
    mapped: list[int] = []
    file = partition.log.segment_list.active.file
    monkeypatch.setattr(type(file), "resident_view", lambda self, length, position: mapped.append(length))
    for offset, is_mapped in ((3, False), (4, False), (5, True)):
        mapped.clear()
        partition.read(offset, 1 << 20, at_least_one=True, committed_only=True)
        assert bool(mapped) is is_mapped, offset


def test_aborts_before_the_log_start_are_forgotten() -> None:
    node = started()
    partition = partition_of(node, TOPIC)
    for producer_id in (PRODUCER, PRODUCER + 1):
        put_transactional(partition, producer_id, 2)
        end_transaction(partition, producer_id)
    transactions = partition.log.transactions
    partition.log.delete_records(6)
    assert transactions.has_aborted
    assert transactions.between(0, 99) == [(PRODUCER + 1, 6)]
    partition.log.delete_records(9)
    assert not transactions.has_aborted
    assert transactions.between(0, 99) == []
