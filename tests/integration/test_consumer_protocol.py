"""confluent-kafka (librdkafka) with `group.protocol=consumer` (KIP-848), and on its way there from the classic one.

To be judged by Apache Kafka, which allows no heartbeats as quick as these unless it is configured to:

    scripts/interop/apache-kafka --override group.consumer.heartbeat.interval.ms=200 \
        --override group.consumer.min.heartbeat.interval.ms=100 --override group.consumer.session.timeout.ms=10000 \
        --override group.consumer.min.session.timeout.ms=1000 -- pytest tests/integration/test_consumer_protocol.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupType,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from kit.broker import BrokerProcess

PATIENCE_S = 60.0
PARTITIONS = 4
RECORDS = 40
QUICK = {
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.session.timeout.ms": "10000",
}
GONE = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}
"""What a client may say of a topic that was deleted while it read there."""


@pytest.fixture(scope="module")
def quick_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that asks for quick heartbeats, or the judge."""
    peer = os.environ.get("OTTLA_TEST_BOOTSTRAP")
    running = BrokerProcess(tmp_path_factory.mktemp("quick"), QUICK)
    if peer:
        running.port = int(peer.rpartition(":")[2])
        yield running
        return
    with running:
        yield running


@pytest.fixture
def admin(quick_broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": quick_broker.bootstrap})


class Reader:
    """A consumer, what it owns, and what it received on the way."""

    def __init__(self, broker: BrokerProcess, group: str, topics: list[str], **settings: Any) -> None:
        self.events: list[str] = []
        self.records: list[Message] = []
        self.deleted: set[str] = set()
        """Topics that the test deletes while this one reads there."""
        self.client = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 500,
                "reconnect.backoff.max.ms": 200,
                **settings,
            }
        )
        self.client.subscribe(
            topics,
            on_assign=lambda _, listed: self._note("assigned", listed),
            on_revoke=lambda _, listed: self._note("revoked", listed),
            on_lost=lambda _, listed: self._note("lost", listed),
        )

    def _note(self, what: str, listed: list[TopicPartition]) -> None:
        self.events.extend(f"{what} {entry.partition}" for entry in listed)

    @property
    def owned(self) -> set[tuple[str, int]]:
        return {(entry.topic, entry.partition) for entry in self.client.assignment()}

    def poll(self) -> None:
        message = self.client.poll(0.05)
        if message is None:
            return
        error = message.error()
        if error is None:
            self.records.append(message)
        else:
            assert message.topic() in self.deleted, (message.topic(), error)
            assert error.code() in GONE, (message.topic(), error)

    def close(self) -> None:
        self.client.close()


def until(condition: Callable[[], bool], *readers: Reader) -> None:
    """Let everybody poll until it is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, [reader.owned for reader in readers]
        for reader in readers:
            reader.poll()


def all_of(topic: str, partitions: int = PARTITIONS) -> set[tuple[str, int]]:
    return {(topic, partition) for partition in range(partitions)}


def shares(topic: str, *readers: Reader) -> bool:
    """Whether the readers own the topic between them, in equal parts."""
    owned = [entry for reader in readers for entry in reader.owned]
    even = all(len(reader.owned) == PARTITIONS // len(readers) for reader in readers)
    return even and sorted(owned) == sorted(all_of(topic))


def make_topic(admin: AdminClient, name: str, partitions: int = PARTITIONS) -> None:
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(PATIENCE_S)


def fill(broker: BrokerProcess, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, str(number), partition=number % PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0


def test_partitions_are_shared_out_when_members_come_and_go(
    quick_broker: BrokerProcess, admin: AdminClient, topic: str
) -> None:
    make_topic(admin, topic)
    fill(quick_broker, topic)
    first = Reader(quick_broker, topic, [topic])
    until(lambda: first.owned == all_of(topic) and len(first.records) == RECORDS, first)
    first.client.commit(asynchronous=False)
    second = Reader(quick_broker, topic, [topic])
    until(lambda: shares(topic, first, second), first, second)
    third = Reader(quick_broker, topic, [topic])
    fourth = Reader(quick_broker, topic, [topic])
    until(lambda: shares(topic, first, second, third, fourth), first, second, third, fourth)
    for reader in (first, third, fourth):
        reader.close()
    until(lambda: second.owned == all_of(topic), second)
    assert second.records == [], "everything was committed by the first"
    second.close()


def test_the_group_is_described_and_listed_as_what_it_is(
    quick_broker: BrokerProcess, admin: AdminClient, topic: str
) -> None:
    make_topic(admin, topic)
    reader = Reader(quick_broker, topic, [topic], **{"client.id": "reader", "group.remote.assignor": "range"})
    until(lambda: reader.owned == all_of(topic), reader)
    described = admin.describe_consumer_groups([topic])[topic].result(PATIENCE_S)
    assert described.state == ConsumerGroupState.STABLE
    assert described.type == ConsumerGroupType.CONSUMER
    assert described.partition_assignor == "range"
    (member,) = described.members
    assert (member.client_id, member.host) == ("reader", "/127.0.0.1")
    assert {(entry.topic, entry.partition) for entry in member.assignment.topic_partitions} == all_of(topic)
    assert member.target_assignment.topic_partitions == member.assignment.topic_partitions
    listed = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(PATIENCE_S).valid
    assert topic in [group.group_id for group in listed]
    listed = admin.list_consumer_groups(types={ConsumerGroupType.CLASSIC}).result(PATIENCE_S).valid
    assert topic not in [group.group_id for group in listed]
    reader.close()
    assert admin.describe_consumer_groups([topic])[topic].result(PATIENCE_S).state == ConsumerGroupState.EMPTY
    admin.delete_consumer_groups([topic])[topic].result(PATIENCE_S)


def test_a_subscription_by_expression_follows_the_topics(
    quick_broker: BrokerProcess, admin: AdminClient, topic: str
) -> None:
    make_topic(admin, f"{topic}-a")
    make_topic(admin, f"not-{topic}")
    fill(quick_broker, f"{topic}-a")
    reader = Reader(quick_broker, topic, [f"^{topic}-.*"])
    until(lambda: reader.owned == all_of(f"{topic}-a") and len(reader.records) == RECORDS, reader)
    make_topic(admin, f"{topic}-b", 2)
    until(lambda: reader.owned == all_of(f"{topic}-a") | all_of(f"{topic}-b", 2), reader)
    # It has read of every partition: it owns them before it knows where they begin, and asks for that until it knows.
    reader.deleted.add(f"{topic}-a")
    admin.delete_topics([f"{topic}-a"])[f"{topic}-a"].result(PATIENCE_S)
    until(lambda: reader.owned == all_of(f"{topic}-b", 2), reader)
    reader.close()


KILLED = """
import sys
from confluent_kafka import Consumer
bootstrap, topic = sys.argv[1:]
client = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "group.protocol": "consumer"})
client.subscribe([topic], on_assign=lambda _, listed: listed and print("assigned", flush=True))
while True:
    client.poll(0.1)
"""


def test_the_partitions_of_a_killed_member_are_taken_over(
    quick_broker: BrokerProcess, admin: AdminClient, topic: str
) -> None:
    make_topic(admin, topic)
    short = ConfigEntry("consumer.session.timeout.ms", "2000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, topic, incremental_configs=[short])
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
    command = [sys.executable, "-c", KILLED, quick_broker.bootstrap, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "assigned\n"
        reader = Reader(quick_broker, topic, [topic])
        until(lambda: len(reader.owned) == PARTITIONS // 2, reader)
        killed.kill()
        until(lambda: reader.owned == all_of(topic), reader)
        reader.close()


def test_a_static_member_comes_back_to_its_partitions_unnoticed(
    quick_broker: BrokerProcess, admin: AdminClient, topic: str
) -> None:
    make_topic(admin, topic)
    one, two = (Reader(quick_broker, topic, [topic], **{"group.instance.id": name}) for name in ("one", "two"))
    until(lambda: shares(topic, one, two), one, two)
    before, reported = one.owned, list(two.events)
    one.close()
    again = Reader(quick_broker, topic, [topic], **{"group.instance.id": "one"})
    until(lambda: again.owned == before, again, two)
    assert two.events == reported
    again.close()
    two.close()


def test_members_of_both_protocols_share_a_group_until_the_last_classic_one_has_gone(
    quick_broker: BrokerProcess, admin: AdminClient, topic: str
) -> None:
    make_topic(admin, topic)
    classic = {"group.protocol": "classic", "partition.assignment.strategy": "cooperative-sticky"}
    old = Reader(quick_broker, topic, [topic], **classic, **{"heartbeat.interval.ms": 200})
    until(lambda: old.owned == all_of(topic), old)
    new = Reader(quick_broker, topic, [topic])
    until(lambda: shares(topic, old, new), old, new)
    described = admin.describe_consumer_groups([topic])[topic].result(PATIENCE_S)
    assert described.type == ConsumerGroupType.CONSUMER
    assert not [event for event in old.events if event.startswith("lost")]
    old.close()
    until(lambda: new.owned == all_of(topic), new)
    new.close()


@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_a_group_goes_back_to_the_classic_protocol_with_its_last_classic_members(
    quick_broker: BrokerProcess, admin: AdminClient, topic: str, strategy: str
) -> None:
    make_topic(admin, topic)
    new = Reader(quick_broker, topic, [topic])
    until(lambda: new.owned == all_of(topic), new)
    classic = {"group.protocol": "classic", "partition.assignment.strategy": strategy, "heartbeat.interval.ms": 200}
    old = Reader(quick_broker, topic, [topic], **classic)
    until(lambda: shares(topic, old, new), old, new)
    new.close()
    until(lambda: old.owned == all_of(topic), old)
    described = admin.describe_consumer_groups([topic])[topic].result(PATIENCE_S)
    assert described.type == ConsumerGroupType.CLASSIC
    old.close()


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_members_and_offsets_survive_a_restart_of_the_broker(tmp_path: Path, topic: str, how: str) -> None:
    with BrokerProcess(tmp_path / "data", QUICK) as own:
        make_topic(AdminClient({"bootstrap.servers": own.bootstrap}), topic)
        fill(own, topic)
        one, two = (Reader(own, topic, [topic]) for _ in range(2))
        until(lambda: shares(topic, one, two) and len(one.records + two.records) >= RECORDS, one, two)
        for reader in (one, two):
            reader.client.commit(asynchronous=False)
        reported = [list(reader.events) for reader in (one, two)]
        if how == "kill":
            own.kill()
        else:
            own.stop()
        own.start()
        fill(own, topic)
        seen = len(one.records + two.records)
        until(lambda: len(one.records + two.records) >= seen + RECORDS, one, two)
        assert [reader.events for reader in (one, two)] == reported, "they went on at their epochs"
        for reader in (one, two):
            reader.close()
