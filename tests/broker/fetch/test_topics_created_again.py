"""A Fetch that waits while its topic is deleted and created again: it reads the new partitions, and waits for these."""

from __future__ import annotations

from typing import Any

import pytest
from kit.exchange import Exchange, batch, fetch_request, make_topic, produce_request
from kit.nodes import MOST_STEPS, partition_of, start_node, start_node_with
from kit.transactional import end_transaction, put_transactional
from kit.workers import HeldWorkers

from ottla.broker.fetch.delayed_fetch import PARTITIONS_PER_STEP
from ottla.broker.node import Node
from ottla.broker.partitions.partition import Partition
from ottla.protocol.api.fetch import FetchResponse
from ottla.storage.segment.slice import LogSlice

BOUND = 8 << 20
COMMITTED = 1
VERSION = 12
"""Names topics by name, so that a new topic is the one that was asked for."""


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is in the page cache."""
    read = Partition.read

    def read_cold(self: Partition, offset: int, max_bytes: int, *more: Any, **named: Any) -> LogSlice:
        piece = read(self, offset, max_bytes, *more, **named)
        return LogSlice(None, piece.length, load=piece.read_blocking) if piece.length else piece

    monkeypatch.setattr(Partition, "read", read_cold)


def create_again(node: Node, partitions: int = 1) -> None:
    before = partition_of(node, "t")
    node.services.catalog.delete_topics(["t"], lambda _: None)
    node.settle()
    make_topic(node, "t", partitions)
    assert before.is_closed
    assert partition_of(node, "t") is not before


@pytest.mark.usefixtures("cold")
def test_one_that_waits_for_memory_lists_the_aborted_transactions_of_the_new_topic() -> None:
    workers = HeldWorkers()
    node, _, _ = start_node_with(workers, ottla_acks_all="page-cache", ottla_connections_max_unsent_bytes=BOUND)
    make_topic(node, "t")
    client = Exchange(node)
    client.ask(produce_request("t", batch()), 9)
    held = node.services.answer_memory.reserve(BOUND)
    assert held is not None
    client.send(fetch_request("t", 0, isolation_level=COMMITTED), VERSION)
    client.end_turn()
    assert node.services.answer_memory.waiting == 1
    create_again(node)
    put_transactional(partition_of(node, "t"), 1000)
    end_transaction(partition_of(node, "t"), 1000)
    held.release()
    client.end_turn()
    client.end_turn()
    answer = client.reply()
    assert isinstance(answer, FetchResponse)
    data = answer.responses[0].partitions[0]
    assert data.records
    assert [(one.producer_id, one.first_offset) for one in data.aborted_transactions or []] == [(1000, 0)]


def test_one_that_was_read_in_steps_waits_for_records_of_the_new_topic() -> None:
    node, _, _ = start_node(ottla_acks_all="page-cache")
    count = PARTITIONS_PER_STEP + 1
    make_topic(node, "t", count)
    client = Exchange(node)
    client.send(fetch_request("t", 0, partitions=count, max_wait_ms=60_000), VERSION)
    client.end_turn()
    node.run_due()  # the first step
    create_again(node, count)
    node.run_due()
    node.settle()
    assert not client.transport.written
    assert all(partition_of(node, "t", index).is_watched for index in range(count))
    Exchange(node, beside=client).ask(produce_request("t", batch()), 9)
    for _ in range(MOST_STEPS):
        node.run_due()
        node.settle()
    answer = client.reply()
    assert isinstance(answer, FetchResponse)
    assert [data.partition_index for data in answer.responses[0].partitions if data.records] == [0]
    assert not any(partition_of(node, "t", index).is_watched for index in range(count))
