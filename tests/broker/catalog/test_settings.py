"""A configuration that changes is in effect when the change is answered: in the broker, its topics, and their logs."""

from __future__ import annotations

import random

import pytest
from kit.exchange import Exchange, batch, make_topic, produce_request
from kit.nodes import ask, pass_time, start_node
from kit.settings import APPEND, BROKER, DELETE, GROUP, SET, TOPIC, alter
from kit.transport import FakeTransport

from ottla.broker.node import Node
from ottla.broker.partitions.partition import Partition
from ottla.config.broker import BrokerConfig
from ottla.config.topic import TopicConfig
from ottla.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from ottla.protocol.api.produce import ProduceResponse
from ottla.protocol.errors import ErrorCode


def produce(node: Node, size_bytes: int = 100, *, topic: str = "t", acks: int = -1) -> ErrorCode:
    """What the produce of one record is answered with."""
    client = Exchange(node)
    response = client.ask(produce_request(topic, batch(1, value=b"v" * size_bytes), acks=acks), 9)
    assert isinstance(response, ProduceResponse)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


def partition_of(node: Node, topic: str = "t") -> Partition:
    partition = node.services.catalog.partition(topic, 0)
    assert partition is not None
    return partition


@pytest.fixture
def node() -> Node:
    node, _, _ = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t")
    return node


def test_a_topics_largest_batch_counts_for_the_next_produce(node: Node) -> None:
    assert produce(node, 5000) == ErrorCode.NONE
    assert alter(node, TOPIC, "t", ("max.message.bytes", SET, "1000"))[0] == ErrorCode.NONE
    assert produce(node, 5000) == ErrorCode.MESSAGE_TOO_LARGE
    assert alter(node, TOPIC, "t", ("max.message.bytes", DELETE, None))[0] == ErrorCode.NONE
    assert produce(node, 5000) == ErrorCode.NONE


@pytest.mark.parametrize("name", ["1", ""])
def test_a_brokers_default_reaches_the_topics_that_have_no_value_of_their_own(node: Node, name: str) -> None:
    make_topic(node, "own")
    alter(node, TOPIC, "own", ("max.message.bytes", SET, "100000"))
    assert alter(node, BROKER, name, ("message.max.bytes", SET, "1000"))[0] == ErrorCode.NONE
    assert (node.services.config.message_max_bytes, produce(node, 5000)) == (1000, ErrorCode.MESSAGE_TOO_LARGE)
    assert produce(node, 5000, topic="own") == ErrorCode.NONE
    make_topic(node, "later")
    assert produce(node, 5000, topic="later") == ErrorCode.MESSAGE_TOO_LARGE


def test_a_produce_template_does_not_outlive_the_configuration_it_was_learned_under(node: Node) -> None:
    client = Exchange(node)
    request = produce_request("t", batch(1, value=b"v" * 5000), acks=-1)
    for _ in range(3):
        client.ask(request, 9)
    alter(node, TOPIC, "t", ("max.message.bytes", SET, "1000"))
    response = client.ask(request, 9)
    assert isinstance(response, ProduceResponse)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_segments_roll_by_the_new_size(node: Node) -> None:
    for _ in range(3):
        produce(node, 2000)
    assert len(partition_of(node).log.segments) == 1
    alter(node, TOPIC, "t", ("segment.bytes", SET, "3000"))
    for _ in range(3):
        produce(node, 2000)
    assert len(partition_of(node).log.segments) > 2


def test_old_segments_go_by_the_new_retention() -> None:
    node, _, clock = start_node(ottla_acks_all="page-cache", log_retention_check_interval_ms=1000)
    make_topic(node, "t")
    alter(node, TOPIC, "t", ("segment.bytes", SET, "2000"))
    for _ in range(4):
        produce(node, 1500)
    assert partition_of(node).log.log_start_offset == 0
    alter(node, BROKER, "", ("log.retention.bytes", SET, "2000"))
    pass_time(node, clock, 2000)
    assert partition_of(node).log.log_start_offset >= 2


def test_a_topic_that_becomes_compacted_has_a_log_that_knows_it(node: Node) -> None:
    alter(node, TOPIC, "t", ("cleanup.policy", APPEND, "compact"))
    assert partition_of(node).log.config.cleanup_policy == ("delete", "compact")


def test_from_page_cache_to_sync_nothing_is_taken_back_and_the_rest_is_brought_to_the_disk() -> None:
    node, files, clock = start_node(ottla_acks_all="page-cache")
    make_topic(node, "t")
    produce(node)
    partition = partition_of(node)
    assert partition.high_watermark == 1
    assert partition.log.synced_offset < 1
    alter(node, TOPIC, "t", ("ottla.acks.all", SET, "sync"))
    assert (partition.high_watermark, partition.log.synced_offset) == (1, 1)
    survivor, _, _ = start_node(files.crash(random.Random(3)), clock)
    assert partition_of(survivor).log.log_end_offset == 1


def test_from_sync_to_page_cache_all_that_wait_are_answered() -> None:
    node, _, _ = start_node(ottla_acks_all="sync")
    make_topic(node, "t")
    client = Exchange(node)
    client.send(produce_request("t", batch(1), acks=-1), 9)
    node.services.turn.end()
    assert client.replies() == []
    partition_of(node).configure(TopicConfig.resolve({"ottla.acks.all": "page-cache"}, node.services.config))
    node.services.turn.end()
    assert len(client.replies()) == 1


def test_idle_producers_are_forgotten_by_the_new_time(node: Node) -> None:
    assert partition_of(node).log.producers.expiration_ms == 86_400_000
    alter(node, BROKER, "1", ("producer.id.expiration.ms", SET, "5000"))
    assert partition_of(node).log.producers.expiration_ms == 5000


def test_the_number_of_connections_is_bounded_by_the_new_limit(node: Node) -> None:
    alter(node, BROKER, "1", ("max.connections.per.ip.overrides", SET, "192.0.2.7:0"))
    assert Exchange(node).transport.is_closing()
    alter(node, BROKER, "1", ("max.connections.per.ip.overrides", DELETE, None))
    assert not Exchange(node).transport.is_closing()
    alter(node, BROKER, "", ("max.connections", SET, "1"))
    first, transport = Exchange(node), FakeTransport()
    first.connections.protocol("PLAINTEXT").connection_made(transport)
    assert (first.transport.is_closing(), transport.is_closing()) == (False, True)


@pytest.mark.parametrize("key", ["max.connections", "max.connections.per.ip", "max.connection.creation.rate"])
@pytest.mark.parametrize("name", ["1", ""])
def test_clients_cannot_lock_everybody_out(node: Node, key: str, name: str) -> None:
    code, message = alter(node, BROKER, name, (key, SET, "0"))
    assert code == ErrorCode.INVALID_REQUEST
    assert "no client could connect" in (message or "")
    assert not Exchange(node).transport.is_closing()


def test_a_value_that_another_kafka_wrote_and_nobody_can_read_has_no_effect() -> None:
    warnings = BrokerConfig.of().set_dynamic(node={"log.retention.ms": "soon", "nope": "1"}, all_nodes={})
    assert len(warnings) == 2
    assert all("no effect" in warning for warning in warnings)


def test_a_groups_heartbeat_interval_counts_for_its_next_heartbeat(node: Node) -> None:
    def heartbeat(member_epoch: int, member_id: str) -> ConsumerGroupHeartbeatResponse:
        response = ask(
            node,
            ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id=member_id,
                member_epoch=member_epoch,
                rebalance_timeout_ms=60_000 if member_epoch == 0 else -1,
                subscribed_topic_names=["t"] if member_epoch == 0 else None,
                topic_partitions=[] if member_epoch == 0 else None,
            ),
            1,
        )
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        assert response.error_code == ErrorCode.NONE, response.error_message
        return response

    joined = heartbeat(0, "3eDqNJ8yRf2m0bW1Qe5wVg")
    assert joined.heartbeat_interval_ms == 5000
    assert alter(node, GROUP, "g", ("consumer.heartbeat.interval.ms", SET, "7000"))[0] == ErrorCode.NONE
    assert heartbeat(joined.member_epoch, joined.member_id or "").heartbeat_interval_ms == 7000


def test_the_cleaner_steps_at_its_new_interval() -> None:
    node, _, clock = start_node(log_cleaner_backoff_ms=3_600_000)
    before = node.services.metrics.chore("log cleaner").steps
    alter(node, BROKER, "1", ("log.cleaner.backoff.ms", SET, "1000"))
    pass_time(node, clock, 3000)
    assert node.services.metrics.chore("log cleaner").steps > before
