"""Published compose files of other images of Kafka: the broker starts on their environments as they are, and a client
reaches it through each of the listeners that they name.

Only the ports and the container's own name differ, since these are the machine's: each port stands for a free one.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kit.broker import BrokerProcess

from ottla.testing.reserved_port import ReservedPort

APACHE = """
    KAFKA_NODE_ID=1
    KAFKA_PROCESS_ROLES=broker,controller
    KAFKA_LISTENERS=PLAINTEXT_HOST://broker:9092,CONTROLLER://broker:9093,PLAINTEXT://broker:19092
    KAFKA_ADVERTISED_LISTENERS=PLAINTEXT_HOST://localhost:9092,PLAINTEXT://broker:19092
    KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT
    KAFKA_CONTROLLER_QUORUM_VOTERS=1@broker:9093
    KAFKA_INTER_BROKER_LISTENER_NAME=PLAINTEXT
    KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER
    CLUSTER_ID=4L6g3nShT-eMCtK--X86sw
    KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR=1
    KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS=0
    KAFKA_TRANSACTION_STATE_LOG_MIN_ISR=1
    KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR=1
"""
"""apache/kafka: docker/examples/docker-compose-files/single-node/plaintext."""

BITNAMI = """
    KAFKA_CFG_NODE_ID=0
    KAFKA_CFG_PROCESS_ROLES=controller,broker
    KAFKA_CFG_CONTROLLER_QUORUM_VOTERS=0@broker:9093
    KAFKA_CFG_LISTENERS=PLAINTEXT://:9092,CONTROLLER://:9093
    KAFKA_CFG_ADVERTISED_LISTENERS=PLAINTEXT://:9092
    KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
    KAFKA_CFG_CONTROLLER_LISTENER_NAMES=CONTROLLER
    KAFKA_CFG_INTER_BROKER_LISTENER_NAME=PLAINTEXT
"""
"""bitnami/kafka: docker-compose.yml, one node with KRaft."""

BITNAMI_OLDER = """
    KAFKA_ENABLE_KRAFT=yes
    KAFKA_BROKER_ID=1
    KAFKA_KRAFT_CLUSTER_ID=LelM2dIFQkiUFvXCEcqRWA
    KAFKA_CFG_PROCESS_ROLES=broker,controller
    KAFKA_CFG_CONTROLLER_LISTENER_NAMES=CONTROLLER
    KAFKA_CFG_LISTENERS=CLIENT://:9092,CONTROLLER://:9093,EXTERNAL://:9094
    KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP=CONTROLLER:PLAINTEXT,CLIENT:PLAINTEXT,EXTERNAL:PLAINTEXT
    KAFKA_CFG_ADVERTISED_LISTENERS=CLIENT://broker:9092,EXTERNAL://localhost:9094
    KAFKA_CFG_CONTROLLER_QUORUM_VOTERS=1@broker:9093
    KAFKA_CFG_INTER_BROKER_LISTENER_NAME=CLIENT
    ALLOW_PLAINTEXT_LISTENER=yes
    BITNAMI_DEBUG=true
    KAFKA_HEAP_OPTS=-Xmx512m -Xms512m
"""
"""bitnami/kafka: its README about internal and external clients, of the time when ZooKeeper was the default."""

CONFLUENT = """
    KAFKA_NODE_ID=1
    KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT
    KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://broker:29092,PLAINTEXT_HOST://localhost:9092
    KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR=1
    KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS=0
    KAFKA_CONFLUENT_LICENSE_TOPIC_REPLICATION_FACTOR=1
    KAFKA_CONFLUENT_BALANCER_TOPIC_REPLICATION_FACTOR=1
    KAFKA_TRANSACTION_STATE_LOG_MIN_ISR=1
    KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR=1
    KAFKA_JMX_PORT=9101
    KAFKA_JMX_HOSTNAME=localhost
    KAFKA_PROCESS_ROLES=broker,controller
    KAFKA_CONTROLLER_QUORUM_VOTERS=1@broker:29093
    KAFKA_LISTENERS=PLAINTEXT://broker:29092,CONTROLLER://broker:29093,PLAINTEXT_HOST://0.0.0.0:9092
    KAFKA_INTER_BROKER_LISTENER_NAME=PLAINTEXT
    KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER
    CLUSTER_ID=MkU3OEVBNTcwNTJENDM2Qk
"""
"""confluentinc/cp-kafka: cp-all-in-one-kraft."""

CONFLUENT_QUICKSTART = """
    KAFKA_BROKER_ID=1
    KAFKA_ZOOKEEPER_CONNECT=zookeeper:2181
    KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=PLAINTEXT:PLAINTEXT,PLAINTEXT_INTERNAL:PLAINTEXT
    KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092,PLAINTEXT_INTERNAL://broker:29092
    KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR=1
    KAFKA_TRANSACTION_STATE_LOG_MIN_ISR=1
    KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR=1
"""
"""confluentinc/cp-kafka: the quickstart with ZooKeeper, in which no variable says where to listen."""

WURSTMEISTER = """
    KAFKA_ADVERTISED_HOST_NAME=broker
    KAFKA_PORT=9092
    KAFKA_ZOOKEEPER_CONNECT=zookeeper:2181
    KAFKA_CREATE_TOPICS=test:1:1
"""
"""wurstmeister/kafka: docker-compose-single-broker.yml; KAFKA_PORT for this test's port."""

OF_THE_MACHINE = re.compile(r"(?<=:)\d{4,5}\b|(?<=KAFKA_PORT=)\d+")


class Published(BrokerProcess):
    """A broker whose listeners are those of a published environment."""

    def __init__(self, directory: Path, text: str) -> None:
        self.reserved = {port: ReservedPort() for port in OF_THE_MACHINE.findall(text)}
        text = OF_THE_MACHINE.sub(lambda match: str(self.reserved[match[0]].number), text)
        lines = text.replace("broker:", "127.0.0.1:").replace("NAME=broker", "NAME=127.0.0.1").split("\n")
        super().__init__(directory, environment=dict(line.strip().split("=", 1) for line in lines if line.strip()))
        self.port = self.reserved["9092"].number

    def command(self) -> list[str]:
        """The command line, without a listener of the test's own."""
        words = super().command()
        at = next(index for index, word in enumerate(words) if word.startswith("listeners="))
        return [*words[: at - 1], *words[at + 1 :]]


@pytest.mark.parametrize(
    ("text", "ports", "says"),
    [
        (APACHE, ["9092", "19092"], []),
        (BITNAMI, ["9092"], []),
        (
            BITNAMI_OLDER,
            ["9092", "9094"],
            ["ALLOW_PLAINTEXT_LISTENER: no effect", "BITNAMI_DEBUG: no effect", "KAFKA_HEAP_OPTS: no effect"],
        ),
        (CONFLUENT, ["9092", "29092"], ["KAFKA_JMX_HOSTNAME, KAFKA_JMX_PORT: no effect", "KAFKA_CONFLUENT_"]),
        (CONFLUENT_QUICKSTART, ["9092", "29092"], ["zookeeper.connect: no effect", "listeners are not set: listening"]),
        (WURSTMEISTER, ["9092"], ["zookeeper.connect: no effect", "created test (1 partition)"]),
    ],
    ids=["apache", "bitnami", "bitnami-older", "confluent", "confluent-quickstart", "wurstmeister"],
)
def test_a_published_environment_starts_and_each_listener_sends_clients_to_itself(
    text: str, ports: list[str], says: list[str], tmp_path: Path
) -> None:
    with Published(tmp_path, text) as broker:
        for number, port in enumerate(ports):
            address = f"127.0.0.1:{broker.reserved[port].number}"
            (node,) = AdminClient({"bootstrap.servers": address}).list_topics(timeout=30).brokers.values()
            assert f"{node.host}:{node.port}".replace("localhost", "127.0.0.1") == address
            producer = Producer({"bootstrap.servers": address, "broker.address.family": "v4"})
            producer.produce("t", b"%d" % number, partition=0)
            assert producer.flush(30) == 0
            assert last_of(address, number) == b"%d" % number
        for line in says:
            assert line in broker.output
        for unknown in ("not a key that Ottla knows", "Traceback"):
            assert unknown not in broker.output


def last_of(address: str, offset: int) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "unused", "broker.address.family": "v4"})
    consumer.assign([TopicPartition("t", 0, offset)])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    assert message.error() is None
    value = message.value()
    assert value is None or isinstance(value, bytes)
    return value
