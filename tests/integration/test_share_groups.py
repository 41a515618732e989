"""Share groups as programs use them, with librdkafka's share consumer: several members of one partition, explicit
acknowledgements, time-outs, restarts.

Every test but those that restart the broker is to be judged by Apache Kafka too:

    scripts/interop/apache-kafka --version 4.4.0 -- .venv/bin/pytest tests/integration/test_share_groups.py

Kafka's own client, and its tools, are tried by scripts/interop/share-groups.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from kit.broker import BrokerProcess

WAIT_S = 20.0
RECORDS = 20
A_MOMENT_S = 2.0
"""Where nothing is to come."""
FIRST_ASSIGNMENT_S = 12.0
"""Kafka assigns partitions with the second heartbeat or the third, and a group's end of a partition is that of then."""


class Cluster:
    """A broker, and what its clients need."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def topic(self, partitions: int = 1, records: int = 0) -> str:
        """A new topic with so many records `v0`, `v1`, ... in each partition."""
        name = f"t-{uuid.uuid4().hex}"
        for made in self.admin.create_topics([NewTopic(name, partitions)]).values():
            made.result(WAIT_S)
        self.produce(name, range(records), partitions)
        return name

    def produce(self, topic: str, numbers: range, partitions: int = 1) -> None:
        """Write `v<number>` to each partition."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0})
        for partition in range(partitions):
            for number in numbers:
                producer.produce(topic, f"v{number}", partition=partition)
        assert producer.flush(WAIT_S) == 0

    def group(self, **settings: str) -> str:
        """A new group that begins with the first record of each partition."""
        name = f"g-{uuid.uuid4().hex}"
        settings = {"share.auto.offset.reset": "earliest"} | {
            key.replace("_", "."): value for key, value in settings.items()
        }
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.GROUP, name, incremental_configs=entries)
        for altered in self.admin.incremental_alter_configs([resource]).values():
            altered.result(WAIT_S)
        return name

    @contextmanager
    def member(self, group: str, topic: str, *, explicit: bool = False) -> Iterator[ShareConsumer]:
        """A member of a group, until the end of the block."""
        mode = {"share.acknowledgement.mode": "explicit"} if explicit else {}
        member = ShareConsumer({"bootstrap.servers": self.bootstrap, "group.id": group, **mode})
        member.subscribe([topic])
        try:
            yield member
        finally:
            member.close()


@pytest.fixture(scope="module")
def cluster(broker: BrokerProcess) -> Cluster:
    return Cluster(broker.bootstrap)


def polled(member: ShareConsumer, count: int, within_s: float = WAIT_S) -> list[Message]:
    """So many records, or those that come within the time."""
    records: list[Message] = []
    deadline = time.monotonic() + within_s
    while len(records) < count and time.monotonic() < deadline:
        for record in member.poll(timeout=0.2):
            assert record.error() is None, record.error()
            records.append(record)
    return records


def offsets(records: list[Message]) -> list[int]:
    return [record.offset() for record in records]


def committed(member: ShareConsumer) -> list[Any]:
    """The errors of what was acknowledged."""
    return [error for error in (member.commit_sync(WAIT_S) or {}).values() if error is not None]


def test_what_was_acknowledged_does_not_come_again(cluster: Cluster) -> None:
    topic, group = cluster.topic(records=10), cluster.group()
    with cluster.member(group, topic) as member:
        assert offsets(polled(member, 10)) == list(range(10))
        assert committed(member) == []
    with cluster.member(group, topic) as member:
        assert polled(member, 1, A_MOMENT_S) == []
        cluster.produce(topic, range(10, 12))
        assert offsets(polled(member, 2)) == [10, 11]


def test_a_new_group_begins_with_what_comes_next(cluster: Cluster) -> None:
    topic, group = cluster.topic(records=3), f"g-{uuid.uuid4().hex}"
    with cluster.member(group, topic) as member:
        assert polled(member, 1, FIRST_ASSIGNMENT_S if "OTTLA_TEST_BOOTSTRAP" in os.environ else A_MOMENT_S) == []
        cluster.produce(topic, range(3, 5))
        assert offsets(polled(member, 2)) == [3, 4]


def test_members_share_one_partition_and_each_record_goes_to_one_of_them(cluster: Cluster) -> None:
    topic, group = cluster.topic(), cluster.group()
    with ExitStack() as stack:
        members = [stack.enter_context(cluster.member(group, topic)) for _ in range(3)]
        for member in members:
            polled(member, 1, 0.5)
        seen: list[list[int]] = [[] for _ in members]
        deadline = time.monotonic() + WAIT_S
        for number in range(RECORDS):
            cluster.produce(topic, range(number, number + 1))
            for place, member in enumerate(members):
                seen[place] += offsets(list(member.poll(timeout=0.05)))
        while sum(map(len, seen)) < RECORDS and time.monotonic() < deadline:
            for place, member in enumerate(members):
                seen[place] += offsets(list(member.poll(timeout=0.1)))
        assert sorted(offset for some in seen for offset in some) == list(range(RECORDS))
        assert sum(bool(some) for some in seen) > 1


def test_released_records_come_again_and_rejected_ones_do_not(cluster: Cluster) -> None:
    topic, group = cluster.topic(records=6), cluster.group()
    with cluster.member(group, topic, explicit=True) as member:
        kinds = [AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT]
        for record in polled(member, 6):
            member.acknowledge(record, kinds[record.offset() // 2])
        assert committed(member) == []
        again = polled(member, 2)
        assert offsets(again) == [2, 3]
        assert [record.delivery_count() for record in again] == [2, 2]
        for record in again:
            member.acknowledge(record, AcknowledgeType.ACCEPT)
        assert committed(member) == []
        assert polled(member, 1, A_MOMENT_S) == []


def test_a_record_is_delivered_as_often_as_the_group_allows(cluster: Cluster) -> None:
    topic, group = cluster.topic(records=1), cluster.group(share_delivery_count_limit="3")
    counts: list[int] = []
    with cluster.member(group, topic, explicit=True) as member:
        for _ in range(4):
            for record in polled(member, 1, WAIT_S if len(counts) < 3 else A_MOMENT_S):
                counts.append(record.delivery_count())
                member.acknowledge(record, AcknowledgeType.RELEASE)
            member.commit_sync(WAIT_S)
    assert counts == [1, 2, 3]


def test_the_records_of_a_member_that_leaves_go_to_another(cluster: Cluster) -> None:
    topic, group = cluster.topic(records=4), cluster.group()
    with cluster.member(group, topic, explicit=True) as member:
        first = polled(member, 4)
        assert offsets(first) == [0, 1, 2, 3]
        member.acknowledge(first[0], AcknowledgeType.ACCEPT)
        assert committed(member) == []
    with cluster.member(group, topic, explicit=True) as member:
        assert offsets(polled(member, 3)) == [1, 2, 3]


def restart(broker: BrokerProcess, how: Callable[[BrokerProcess], None]) -> None:
    how(broker)
    broker.start()


@pytest.mark.parametrize("how", [BrokerProcess.stop, BrokerProcess.kill], ids=["a clean stop", "a kill"])
def test_a_restart_keeps_what_was_acknowledged_and_how_often_the_rest_was_delivered(
    tmp_path: Path, how: Callable[[BrokerProcess], None]
) -> None:
    with BrokerProcess(tmp_path, {"group.share.record.lock.duration.ms": "60000"}) as broker:
        cluster = Cluster(broker.bootstrap)
        topic, group = cluster.topic(records=6), cluster.group()
        with cluster.member(group, topic, explicit=True) as member:
            for record in polled(member, 6):
                kind = AcknowledgeType.ACCEPT if record.offset() % 2 else AcknowledgeType.RELEASE
                member.acknowledge(record, kind)
            assert committed(member) == []
        restart(broker, how)
        with cluster.member(group, topic, explicit=True) as member:
            again = polled(member, 3)
            assert offsets(again) == [0, 2, 4]
            assert {record.delivery_count() for record in again} <= {2, 3}
