"""A Produce to several partitions, acks=all: answered when the promise of each is kept or is not, each by its own."""

from __future__ import annotations

import errno

from kit.exchange import Exchange, batch, make_topic
from kit.nodes import partition_of, start_node
from kit.simulated_files import SimulatedFiles

from ottla.broker.node import Node
from ottla.broker.runtime.queued_syncer import QueuedSyncer
from ottla.protocol.api.produce import ProduceRequest, ProduceResponse
from ottla.protocol.errors import ErrorCode, KafkaError

OK, GONE = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
TIMED_OUT, FAILED = ErrorCode.REQUEST_TIMED_OUT, ErrorCode.KAFKA_STORAGE_ERROR


def produce(*places: tuple[str, int], timeout_ms: int = 30_000) -> ProduceRequest:
    """A batch to each partition, in this order."""
    topics = [
        ProduceRequest.TopicProduceData(
            name=topic, partition_data=[ProduceRequest.PartitionProduceData(index=index, records=batch())]
        )
        for topic, index in places
    ]
    return ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=topics)


def codes(client: Exchange) -> list[int]:
    answer = client.reply()
    assert isinstance(answer, ProduceResponse)
    return [topic.partition_responses[0].error_code for topic in answer.responses]


def offsets(client: Exchange) -> list[int]:
    answer = client.reply()
    assert isinstance(answer, ProduceResponse)
    return [topic.partition_responses[0].base_offset for topic in answer.responses]


def started(partitions: int = 3) -> tuple[Node, SimulatedFiles, Exchange]:
    node, files, _ = start_node(ottla_acks_all="sync")
    make_topic(node, "t", partitions)
    return node, files, Exchange(node)


def delete(node: Node, topic: str) -> None:
    """What the removal of a partition does to one that clients wait for."""
    partition = partition_of(node, topic)
    partition.close(KafkaError(GONE))
    partition.log.abandon()


def run_one(node: Node) -> None:
    """Run the oldest round of syncs, with its completions."""
    assert isinstance(node.services.syncer, QueuedSyncer)
    assert node.services.syncer.run_one()
    node.services.turn.end()


def test_the_answer_comes_with_the_round_of_syncs_that_covers_all() -> None:
    node, _, client = started()
    client.send(produce(("t", 0), ("t", 1), ("t", 2)), 9)
    node.services.turn.end()
    assert client.replies() == []
    run_one(node)
    assert offsets(client) == [0, 0, 0]


def test_what_is_synced_by_a_later_round_is_waited_for_though_the_last_partition_is_done() -> None:
    """The round that runs has the batch before; that of the last partition begins, and ends, with it."""
    node, _, client = started()
    others = Exchange(node, beside=client)
    others.send(produce(("t", 0)), 9)
    node.services.turn.end()
    others.send(produce(("t", 2)), 9)
    client.send(produce(("t", 0), ("t", 1), ("t", 2)), 9)
    node.services.turn.end()
    run_one(node)
    assert client.replies() == []
    run_one(node)
    assert offsets(client) == [1, 0, 1]


def test_a_partition_that_is_deleted_while_the_others_wait_fails_alone() -> None:
    node, _, client = started(2)
    make_topic(node, "gone")
    client.send(produce(("t", 0), ("gone", 0), ("t", 1)), 9)
    node.services.turn.end()
    delete(node, "gone")
    node.settle()
    assert codes(client) == [OK, GONE, OK]


def test_the_last_partition_that_is_deleted_does_not_take_the_others_promise() -> None:
    node, _, client = started(2)
    make_topic(node, "gone")
    client.send(produce(("t", 0), ("t", 1), ("gone", 0)), 9)
    node.services.turn.end()
    delete(node, "gone")
    node.settle()
    assert codes(client) == [OK, OK, GONE]


def test_a_sync_that_takes_too_long_times_out_each_partition() -> None:
    node, _, clock = start_node(ottla_acks_all="sync")
    make_topic(node, "t", 3)
    client = Exchange(node)
    client.send(produce(("t", 0), ("t", 1), ("t", 2), timeout_ms=1000), 9)
    node.services.turn.end()
    clock.advance(1000)
    node.run_due()
    node.run_due()
    node.services.turn.end()
    assert codes(client) == [TIMED_OUT] * 3


def test_a_failed_sync_fails_each_partition() -> None:
    node, files, client = started()
    client.send(produce(("t", 0), ("t", 1), ("t", 2)), 9)
    node.services.turn.end()
    files.fail("fdatasync", "*t-1*|*/ottla-redo.log", errno.EIO)
    node.settle()
    assert codes(client) == [FAILED] * 3
    again = Exchange(node)
    again.send(produce(("t", 0), ("t", 1), ("t", 2)), 9)
    node.settle()
    assert codes(again) == [FAILED] * 3


def test_what_the_append_refuses_does_not_keep_the_others_from_their_promise() -> None:
    node, _, client = started()
    request = produce(("t", 0), ("t", 1), ("t", 2))
    request.topic_data[2].partition_data[0].records = batch()[:-1] + b"?"
    client.send(request, 9)
    node.settle()
    assert codes(client) == [OK, OK, ErrorCode.CORRUPT_MESSAGE]
