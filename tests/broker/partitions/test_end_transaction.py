"""Ends of transactions in a partition: when they are visible, what readers get, and what is left open."""

from __future__ import annotations

from kit.exchange import Exchange, batch, make_topic, produce_request
from kit.nodes import partition_of, start_node
from kit.transactional import end_transaction, put_transactional

from ottla.broker.node import Node
from ottla.broker.partitions.partition import Partition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.control import ControlType

TOPIC = "orders"
ONE, TWO = 1000, 2000


def started(acks_all: str = "page-cache") -> tuple[Node, Partition]:
    node, _, _ = start_node(ottla_acks_all=acks_all)
    make_topic(node, TOPIC)
    return node, partition_of(node, TOPIC)


def test_in_sync_a_marker_is_visible_when_it_is_on_disk() -> None:
    node, partition = started("sync")
    put_transactional(partition, ONE, 2)
    node.settle()
    results = end_transaction(partition, ONE)
    assert results.ended == []
    assert partition.last_stable_offset == 0
    assert not partition.must_list_aborted(0)
    node.settle()
    assert results.ended == [None]
    assert (partition.last_stable_offset, partition.high_watermark) == (3, 3)
    assert partition.must_list_aborted(0)


def test_in_page_cache_a_marker_is_visible_at_once() -> None:
    _, partition = started()
    put_transactional(partition, ONE)
    assert partition.last_stable_offset == 0
    assert end_transaction(partition, ONE, ControlType.COMMIT).ended == [None]
    assert partition.last_stable_offset == 2


def test_a_marker_comes_behind_the_batches_of_its_turn() -> None:
    node, partition = started()
    Exchange(node).send(produce_request(TOPIC, batch(3)), 9)
    assert partition.gathered
    assert partition.end_transaction(ONE, 0, True, 0, lambda _: None) == 3


def test_what_is_open_is_named_until_its_marker_is_in_the_log() -> None:
    node, partition = started("sync")
    put_transactional(partition, ONE, 2)
    put_transactional(partition, TWO)
    assert partition.open_transactions() == {ONE: 0, TWO: 2}
    end_transaction(partition, ONE)
    assert partition.open_transactions() == {TWO: 2}
    node.settle()
    assert partition.last_stable_offset == 2


def test_a_refused_marker_is_reported_with_its_code() -> None:
    _, partition = started()
    put_transactional(partition, ONE)
    errors: list[BaseException | None] = []
    assert partition.end_transaction(ONE, 5, True, 3, errors.append) == 1
    assert partition.end_transaction(ONE, 4, True, 3, errors.append) == -1
    assert partition.end_transaction(ONE, 5, True, 2, errors.append) == -1
    assert errors[0] is None
    assert [error.code for error in errors[1:] if isinstance(error, KafkaError)] == [
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    ]


def test_a_partition_that_was_given_up_ends_nothing() -> None:
    _, partition = started()
    put_transactional(partition, ONE)
    given_up = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    partition.close(given_up)
    errors: list[BaseException | None] = []
    assert partition.end_transaction(ONE, 0, True, 0, errors.append) == -1
    assert errors == [given_up]
