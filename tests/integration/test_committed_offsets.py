"""Committed offsets and groups through real clients: commits by assignment, what administrators see, kcat -G.

Every test also passes against Apache Kafka (`OTTLA_TEST_BOOTSTRAP`), except those that restart the broker.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from kafka import KafkaAdminClient, KafkaConsumer
from kafka import TopicPartition as PyTopicPartition
from kafka.structs import OffsetAndMetadata
from kit.broker import BrokerProcess

WAIT_S = 30.0


@pytest.fixture
def filled(broker: BrokerProcess, topic: str) -> str:
    """A topic of two partitions with 20 records each."""
    return fill(broker, topic)


def fill(broker: BrokerProcess, topic: str) -> str:
    client = admin(broker)  # a future of a client that is gone never ends
    client.create_topics([NewTopic(topic, 2, 1)])[topic].result(WAIT_S)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(40):
        producer.produce(topic, b"%d" % number, partition=number % 2)
    assert producer.flush(WAIT_S) == 0
    return topic


def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def consumer(broker: BrokerProcess, group: str, **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **settings,
        }
    )


def commit(broker: BrokerProcess, group: str, *offsets: TopicPartition) -> None:
    client = consumer(broker, group)
    client.commit(offsets=list(offsets), asynchronous=False)
    client.close()


def reported(broker: BrokerProcess, group: str) -> dict[tuple[str, int], int]:
    """All offsets of a group, as an administrator receives them."""
    client = admin(broker)
    (future,) = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {(each.topic, each.partition): each.offset for each in future.result(WAIT_S).topic_partitions}


def take(client: Consumer, count: int) -> list[Message]:
    """That many records; a broker whose coordinator is still coming up is asked again."""
    deadline = time.monotonic() + 2 * WAIT_S
    taken: list[Message] = []
    while len(taken) < count and time.monotonic() < deadline:
        taken += [message for message in client.consume(count - len(taken), 1.0) if message.error() is None]
    assert len(taken) == count
    return taken


# Commits by assignment -----------------------------------------------------------------------------------------------


def test_librdkafka_goes_on_where_it_committed(broker: BrokerProcess, filled: str) -> None:
    first = consumer(broker, filled)
    first.assign([TopicPartition(filled, 0)])
    taken = take(first, 7)
    first.commit(message=taken[-1], asynchronous=False)
    first.close()
    second = consumer(broker, filled)
    (known,) = second.committed([TopicPartition(filled, 0)], WAIT_S)
    assert (known.offset, known.leader_epoch) == (7, 0)
    second.assign([TopicPartition(filled, 0)])
    assert take(second, 1)[0].offset() == 7
    second.close()


def test_what_was_never_committed_is_no_error(broker: BrokerProcess, filled: str) -> None:
    client = consumer(broker, f"{filled}-nobody")
    (known,) = client.committed([TopicPartition(filled, 1)], WAIT_S)
    assert known.error is None
    assert known.offset < 0
    client.close()


def test_aiokafka_commits_and_reads_offsets_with_their_text(broker: BrokerProcess, filled: str) -> None:
    partition = AioTopicPartition(filled, 1)

    async def commit_and_read() -> tuple[int | None, str | None, int]:
        client = AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap,
            group_id=filled,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        client.assign([partition])
        await client.start()
        try:
            await client.commit({partition: (13, "a mark")})
            position = await client.committed(partition)
            await client.seek_to_committed(partition)
            message = await client.getone()
            return position, None, message.offset
        finally:
            await client.stop()

    assert asyncio.run(commit_and_read()) == (13, None, 13)
    assert reported(broker, filled) == {(filled, 1): 13}


def test_kafka_python_commits_and_reads_offsets_with_their_text(broker: BrokerProcess, filled: str) -> None:
    partition = PyTopicPartition(filled, 0)
    client = KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=filled, enable_auto_commit=False)
    client.assign([partition])
    client.commit({partition: OffsetAndMetadata(5, "käse", 0)})
    assert client.committed(partition, metadata=True) == OffsetAndMetadata(5, "käse", 0)
    client.close()


def test_commits_of_several_partitions_in_any_order_keep_the_newest(broker: BrokerProcess, filled: str) -> None:
    for offset in (5, 19, 3):
        commit(broker, filled, TopicPartition(filled, 0, offset), TopicPartition(filled, 1, offset + 1))
    assert reported(broker, filled) == {(filled, 0): 3, (filled, 1): 4}


def test_commits_live_through_a_restart_and_a_kill(own_broker: BrokerProcess, topic: str) -> None:
    fill(own_broker, topic)
    commit(own_broker, "g", TopicPartition(topic, 0, 5), TopicPartition(topic, 1, 6))
    own_broker.stop()
    own_broker.start()
    assert reported(own_broker, "g") == {(topic, 0): 5, (topic, 1): 6}
    commit(own_broker, "g", TopicPartition(topic, 1, 9))
    own_broker.kill()
    own_broker.start()
    assert reported(own_broker, "g") == {(topic, 0): 5, (topic, 1): 9}


# Administrators ------------------------------------------------------------------------------------------------------


@pytest.fixture
def member(broker: BrokerProcess, filled: str) -> Iterator[Consumer]:
    """A member of the group named as the topic, with all partitions assigned and offsets committed."""
    client = consumer(broker, filled, **{"client.id": "somebody"})
    client.subscribe([filled])
    deadline = time.monotonic() + WAIT_S
    count = 0
    while count < 40 and time.monotonic() < deadline:
        message = client.poll(0.2)
        count += message is not None and message.error() is None
    assert count == 40
    client.commit(asynchronous=False)
    yield client
    client.close()


@pytest.mark.usefixtures("member")
def test_librdkafkas_admin_lists_describes_and_deletes_groups(broker: BrokerProcess, filled: str) -> None:
    simple = f"{filled}-simple"
    commit(broker, simple, TopicPartition(filled, 0, 3))
    client = admin(broker)
    groups = {each.group_id: each for each in client.list_consumer_groups().result(WAIT_S).valid}
    assert groups[filled].state is ConsumerGroupState.STABLE
    assert not groups[filled].is_simple_consumer_group
    assert groups[simple].state is ConsumerGroupState.EMPTY
    assert groups[simple].is_simple_consumer_group
    stable = client.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(WAIT_S).valid
    assert simple not in {each.group_id for each in stable}

    described = client.describe_consumer_groups([filled], include_authorized_operations=True)[filled].result(WAIT_S)
    assert described.state is ConsumerGroupState.STABLE
    assert described.partition_assignor == "range"
    (who,) = described.members
    assert (who.client_id, who.host.lstrip("/")) == ("somebody", "127.0.0.1")
    assert sorted((each.topic, each.partition) for each in who.assignment.topic_partitions) == [
        (filled, 0),
        (filled, 1),
    ]
    assert described.authorized_operations

    assert client.delete_consumer_groups([simple])[simple].result(WAIT_S) is None
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        client.delete_consumer_groups([filled])[filled].result(WAIT_S)
    with pytest.raises(KafkaException, match="GROUP_ID_NOT_FOUND"):
        client.delete_consumer_groups([simple])[simple].result(WAIT_S)
    assert reported(broker, simple) == {}


def test_librdkafkas_admin_alters_offsets_of_an_empty_group(broker: BrokerProcess, filled: str) -> None:
    commit(broker, filled, TopicPartition(filled, 0, 3), TopicPartition(filled, 1, 4))
    wanted = ConsumerGroupTopicPartitions(filled, [TopicPartition(filled, 0, 17)])
    client = admin(broker)
    (future,) = client.alter_consumer_group_offsets([wanted]).values()
    assert [each.error for each in future.result(WAIT_S).topic_partitions] == [None]
    assert reported(broker, filled) == {(filled, 0): 17, (filled, 1): 4}


@pytest.mark.usefixtures("member")
def test_offsets_of_a_group_with_members_are_not_altered_from_outside(broker: BrokerProcess, filled: str) -> None:
    wanted = ConsumerGroupTopicPartitions(filled, [TopicPartition(filled, 0, 1)])
    client = admin(broker)
    (future,) = client.alter_consumer_group_offsets([wanted]).values()
    (outcome,) = future.result(WAIT_S).topic_partitions
    assert outcome.error is not None
    assert outcome.error.name() == "UNKNOWN_MEMBER_ID"
    assert reported(broker, filled) == {(filled, 0): 20, (filled, 1): 20}


@pytest.mark.usefixtures("member")
def test_the_lag_of_a_group_is_what_an_administrator_computes(broker: BrokerProcess, filled: str) -> None:
    client = admin(broker)
    ends = client.list_offsets({TopicPartition(filled, index): OffsetSpec.latest() for index in (0, 1)})
    offsets = reported(broker, filled)
    assert [future.result(WAIT_S).offset - offsets[each.topic, each.partition] for each, future in ends.items()] == [
        0,
        0,
    ]


def test_kafka_pythons_admin_lists_describes_and_deletes_groups(broker: BrokerProcess, filled: str) -> None:
    commit(broker, filled, TopicPartition(filled, 0, 3))
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        listed = client.list_groups() if hasattr(client, "list_groups") else client.list_consumer_groups()
        assert filled in str(listed)
        assert filled in str(client.describe_groups([filled]))
        assert str(client.list_group_offsets(filled)).count("offset=3") == 1
        client.delete_groups([filled])
        other = admin(broker)
        assert filled not in {each.group_id for each in other.list_consumer_groups().result(WAIT_S).valid}
    finally:
        client.close()


def test_the_offsets_topic_can_be_read_like_any_other(broker: BrokerProcess, filled: str) -> None:
    commit(broker, filled, TopicPartition(filled, 0, 3))
    client = consumer(broker, f"{filled}-reader")
    metadata = client.list_topics(timeout=WAIT_S)
    assert "__consumer_offsets" in metadata.topics
    partitions = metadata.topics["__consumer_offsets"].partitions
    client.assign([TopicPartition("__consumer_offsets", index, 0) for index in partitions])
    deadline = time.monotonic() + WAIT_S
    keys: list[bytes] = []
    while not any(filled.encode() in key for key in keys) and time.monotonic() < deadline:
        keys += [message.key() or b"" for message in client.consume(500, 1.0) if message.error() is None]
    assert any(filled.encode() in key for key in keys)
    client.close()


# kcat ----------------------------------------------------------------------------------------------------------------


@pytest.mark.kcat
def test_kcat_reads_as_a_group_and_goes_on_where_it_was(broker: BrokerProcess, filled: str) -> None:
    if shutil.which("kcat") is None:
        pytest.skip("kcat is not on this machine")

    def read(count: int) -> list[str]:
        command = ["kcat", "-b", broker.bootstrap, "-G", filled, "-c", str(count), "-q", "-f", "%p %o\n"]
        done = subprocess.run(
            [*command, "-X", "auto.offset.reset=earliest", filled],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return done.stdout.splitlines()

    first = read(15)
    second = read(25)
    assert len({*first, *second}) == 40
