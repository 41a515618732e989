"""Configurations and what else administrators ask, through the admins of confluent-kafka, kafka-python and our own.

Apache Kafka judges them too: `OTTLA_TEST_BOOTSTRAP`. What is put right again at the end of a test is the broker's.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from confluent_kafka import ElectionType, KafkaException
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from kafka import KafkaProducer, TopicPartition
from kafka.admin import ConfigResource as PythonResource
from kafka.admin import ConfigResourceType, KafkaAdminClient
from kafka.errors import MessageSizeTooLargeError
from kit.broker import BrokerProcess

from ottla.client import Admin, AdminError, ConfigChange, ErrorCode
from ottla.client import ConfigResource as OurResource
from ottla.client import TopicPartition as OurPartition

WAIT_S = 30


@pytest.fixture
def confluent(broker: BrokerProcess, topic: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)], operation_timeout=WAIT_S)[topic].result(WAIT_S)
    return admin


@contextmanager
def kafka_python(broker: BrokerProcess) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        yield admin


def change(
    admin: AdminClient, kind: ResourceType, name: str, *changes: tuple[str, AlterConfigOpType, str | None]
) -> None:
    entries = [ConfigEntry(key, value, incremental_operation=operation) for key, operation, value in changes]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)


def described(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    entries: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(WAIT_S)
    return entries


SET, DELETE = AlterConfigOpType.SET, AlterConfigOpType.DELETE
APPEND, SUBTRACT = AlterConfigOpType.APPEND, AlterConfigOpType.SUBTRACT
DYNAMIC_TOPIC, DYNAMIC_BROKER, DEFAULT = 1, 2, 5


# --- confluent-kafka


def test_confluent_changes_single_keys_of_a_topic(confluent: AdminClient, topic: str) -> None:
    change(confluent, ResourceType.TOPIC, topic, ("retention.ms", SET, "7000"), ("cleanup.policy", APPEND, "compact"))
    reported = described(confluent, ResourceType.TOPIC, topic)
    assert (reported["retention.ms"].value, reported["retention.ms"].source) == ("7000", DYNAMIC_TOPIC)
    assert reported["cleanup.policy"].value == "delete,compact"
    change(confluent, ResourceType.TOPIC, topic, ("retention.ms", DELETE, None), ("cleanup.policy", SUBTRACT, "delete"))
    reported = described(confluent, ResourceType.TOPIC, topic)
    assert (reported["retention.ms"].is_default, reported["cleanup.policy"].value) == (True, "compact")


def test_confluent_replaces_all_keys_of_a_topic(confluent: AdminClient, topic: str) -> None:
    change(confluent, ResourceType.TOPIC, topic, ("retention.ms", SET, "7000"))
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"segment.ms": "9000"})
    confluent.alter_configs([resource])[resource].result(WAIT_S)
    reported = described(confluent, ResourceType.TOPIC, topic)
    assert (reported["segment.ms"].value, reported["retention.ms"].is_default) == ("9000", True)


@pytest.mark.skipif(
    "OTTLA_TEST_BOOTSTRAP" in os.environ, reason="Kafka answers before a broker's configuration is in effect"
)
def test_confluent_changes_the_broker_and_a_topic_follows(confluent: AdminClient, topic: str) -> None:
    change(confluent, ResourceType.BROKER, "1", ("log.flush.interval.messages", SET, "12345"))
    try:
        reported = described(confluent, ResourceType.BROKER, "1")["log.flush.interval.messages"]
        assert (reported.value, reported.source, reported.is_read_only) == ("12345", DYNAMIC_BROKER, False)
        inherited = described(confluent, ResourceType.TOPIC, topic)["flush.messages"]
        assert (inherited.value, inherited.source) == ("12345", DYNAMIC_BROKER)
        assert "log.flush.interval.messages" in inherited.synonyms
    finally:
        change(confluent, ResourceType.BROKER, "1", ("log.flush.interval.messages", DELETE, None))
    assert described(confluent, ResourceType.TOPIC, topic)["flush.messages"].is_default


@pytest.mark.parametrize(
    ("kind", "name", "key", "value", "code"),
    [
        (ResourceType.TOPIC, "no-such-topic", "retention.ms", "1", "UNKNOWN_TOPIC_OR_PART"),
        (ResourceType.TOPIC, "", "no.such.key", "1", "INVALID_CONFIG"),
        (ResourceType.TOPIC, "", "retention.ms", "soon", "INVALID_CONFIG"),
        (ResourceType.BROKER, "1", "node.id", "7", "INVALID_REQUEST"),
        (ResourceType.BROKER, "1", "log.retention.ms", "soon", "INVALID_REQUEST"),
    ],
)
def test_confluent_gets_an_error_for_what_cannot_be_changed(
    confluent: AdminClient, topic: str, kind: ResourceType, name: str, key: str, value: str, code: str
) -> None:
    with pytest.raises(KafkaException) as refused:
        change(confluent, kind, name or topic, (key, SET, value))
    assert refused.value.args[0].name() == code


def test_confluent_learns_that_no_leader_need_be_elected(confluent: AdminClient, topic: str) -> None:
    elected = confluent.elect_leaders(ElectionType.PREFERRED, [ConfluentPartition(topic, 0)]).result(WAIT_S)
    assert [error.name() for error in elected.values()] == ["ELECTION_NOT_NEEDED"]


# --- kafka-python


def test_kafka_python_changes_resets_and_describes(broker: BrokerProcess, confluent: AdminClient, topic: str) -> None:
    with kafka_python(broker) as admin:
        wanted = PythonResource(
            ConfigResourceType.TOPIC, topic, {"retention.ms": "7000", "segment.ms": ("SET", "8000")}
        )
        admin.alter_configs([wanted])
        modified = admin.describe_configs([PythonResource(ConfigResourceType.TOPIC, topic)])["topic"][topic]
        assert {name: one["value"] for name, one in modified.items()} == {"retention.ms": "7000", "segment.ms": "8000"}
        admin.alter_configs(
            [PythonResource(ConfigResourceType.TOPIC, topic, {"segment.ms": "9000"})], incremental=False
        )
        admin.reset_configs([PythonResource(ConfigResourceType.TOPIC, topic, ["retention.ms"])])
        modified = admin.describe_configs([PythonResource(ConfigResourceType.TOPIC, topic)])["topic"][topic]
        assert {name: one["value"] for name, one in modified.items()} == {"segment.ms": "9000"}
        assert topic in admin.list_config_resources(["TOPIC"])["topic"]


def test_kafka_python_sees_directories_producers_and_the_quorum(
    broker: BrokerProcess, confluent: AdminClient, topic: str
) -> None:
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap)) as producer:
        producer.send(topic, b"v" * 1000).get(WAIT_S)
    with kafka_python(broker) as admin:
        (reported,) = admin.describe_log_dirs({topic: [0]})
        (directory,) = [one for one in reported["log_dirs"] if one["topics"]]
        assert directory["topics"][0]["partitions"][0]["partition_size"] > 1000
        place = TopicPartition(topic, 0)
        (remembered,) = admin.describe_producers([place])[place].active_producers
        assert remembered.last_sequence == 0
        assert admin.list_partition_reassignments() == {}
        (partition,) = admin.describe_metadata_quorum()["topics"][0]["partitions"]
        assert [one["replica_id"] for one in partition["current_voters"]] == [partition["leader_id"]] == [1]
        finalized = admin.describe_features()["group.version"]["finalized"]
        assert finalized == (1, 1)
        assert admin.update_features({"group.version": 1}) == {"group.version": "OK"}
        refused = admin.alter_partition_reassignments({place: [1, 2], TopicPartition(topic, 7): [1]})
        assert [refused[one].__name__ for one in (place, TopicPartition(topic, 7))] == [
            "InvalidReplicationAssignmentError",
            "UnknownTopicOrPartitionError",
        ]
        assert admin.alter_partition_reassignments({place: [1]}) == {place: None}


# --- our own


def test_our_admin_changes_configurations_quotas_and_looks_around(
    broker: BrokerProcess, confluent: AdminClient, topic: str
) -> None:
    async def look() -> None:
        place, group = OurPartition(topic, 0), OurResource.group(f"group-of-{topic}"[:80])
        entity = (("client-id", topic), ("user", None))
        async with Admin(broker.bootstrap) as admin:
            await admin.alter_configs(
                {
                    OurResource.topic(topic): [ConfigChange.set("retention.ms", "7")],
                    group: [ConfigChange.set("consumer.session.timeout.ms", "50000")],
                }
            )
            reported = await admin.describe_configs([OurResource.topic(topic), group])
            assert reported[OurResource.topic(topic)]["retention.ms"].value == "7"
            assert reported[group]["consumer.session.timeout.ms"].value == "50000"
            with pytest.raises(AdminError) as refused:
                await admin.alter_configs({OurResource.broker(1): [ConfigChange.set("node.id", "5")]})
            assert refused.value.code == ErrorCode.INVALID_REQUEST
            await admin.alter_configs(
                {OurResource.all_brokers(): [ConfigChange.set("log.roll.ms", "99")]}, validate_only=True
            )
            await admin.alter_quotas({entity: {"producer_byte_rate": 5.0, "request_percentage": 2.5}})
            await admin.alter_quotas({entity: {"producer_byte_rate": None}})
            assert await admin.describe_quotas({"client-id": topic}) == {entity: {"request_percentage": 2.5}}
            with pytest.raises(AdminError, match="must be greater than 0"):
                await admin.alter_quotas({entity: {"producer_byte_rate": -1.0}})
            (directories,) = (await admin.describe_log_dirs([place])).values()
            (directory,) = [one for one in directories if one.replicas]
            assert directory.total_bytes >= directory.usable_bytes > 0
            assert directory.replicas[place].size_bytes == 0
            assert await admin.list_partition_reassignments() == {}
            await admin.alter_partition_reassignments({place: [1]})
            with pytest.raises(AdminError) as refused:
                await admin.alter_partition_reassignments({place: None})
            assert refused.value.code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS

    asyncio.run(look())


# --- what survives


def test_what_was_changed_survives_a_kill(own_broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": own_broker.bootstrap})
    admin.create_topics([NewTopic("t", 1, 1)], operation_timeout=WAIT_S)["t"].result(WAIT_S)
    change(admin, ResourceType.TOPIC, "t", ("max.message.bytes", SET, "2000"))
    change(admin, ResourceType.BROKER, "1", ("log.segment.bytes", SET, "3000000"))
    own_broker.kill()
    own_broker.start()
    answers = {}
    for size_bytes in (5000, 500):  # each with a producer of its own: an idempotent one ends with its first failure
        with closing(KafkaProducer(bootstrap_servers=own_broker.bootstrap)) as producer:
            future = producer.send("t", b"v" * size_bytes)
            producer.flush(WAIT_S)
            answers[size_bytes] = type(future.exception) if future.failed() else future.value.offset
    assert answers == {5000: MessageSizeTooLargeError, 500: 0}
    again = AdminClient({"bootstrap.servers": own_broker.bootstrap})
    reported = described(again, ResourceType.TOPIC, "t")
    assert (reported["max.message.bytes"].value, reported["segment.bytes"].value) == ("2000", "3000000")
