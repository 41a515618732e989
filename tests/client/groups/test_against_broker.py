"""Members of one group against a real broker: Ottla, or whatever OTTLA_TEST_BOOTSTRAP names (Apache Kafka for one)."""

from __future__ import annotations

import asyncio
import os
from collections import Counter

import pytest
from kit.consumers import Heard, reading, until

from ottla.client import (
    Admin,
    AdminError,
    CommitFailed,
    Consumer,
    ErrorCode,
    OffsetAndMetadata,
    Producer,
    RebalanceListener,
    TopicPartition,
)

CLASSIC = {"heartbeat_interval_ms": 100}
PROTOCOLS = {
    "range": {**CLASSIC, "partition_assignment_strategy": "range"},
    "sticky": {**CLASSIC, "partition_assignment_strategy": "sticky"},
    "cooperative-sticky": {**CLASSIC, "partition_assignment_strategy": "cooperative-sticky"},
    "consumer": {"group_protocol": "consumer"},
}
every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)
PARTITIONS = 4
SHORT_SESSION_MS = 6_000 if "OTTLA_TEST_BOOTSTRAP" in os.environ else 1_500
"""Of a member whose death is waited for. Kafka allows no less than 6 s unless it is configured."""


@pytest.fixture
def make(broker, topic):
    """Consumers of a group that is called as the topic."""

    def consumer(protocol="range", **options):
        given = {"group_id": topic, "auto_offset_reset": "earliest", **PROTOCOLS[protocol], **options}
        return Consumer(broker.bootstrap, **given)

    return consumer


@pytest.fixture
async def filled(broker, topic):
    """A topic of four partitions with 100 records."""
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topic(topic, partitions=PARTITIONS, replication_factor=1)
    await produce(broker, topic, range(100))


async def produce(broker, topic, numbers):
    async with Producer(broker.bootstrap) as producer:
        for number in numbers:
            await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)


def values(found):
    return sorted(int(record.value) for record in found.records)


class Ownership(RebalanceListener):
    """Keeps, for all members together, who owns what; two owners of one partition are an error."""

    def __init__(self, owners, name):
        self.owners, self.name = owners, name

    async def on_assigned(self, partitions):
        for partition in partitions:
            assert partition not in self.owners, f"{partition} is still {self.owners[partition]}'s"
            self.owners[partition] = self.name

    async def on_revoked(self, partitions):
        for partition in partitions:
            assert self.owners.pop(partition) == self.name


@every_protocol
async def test_members_share_take_over_and_lose_nothing(broker, topic, filled, make, protocol):
    owners = {}
    async with make(protocol) as first, reading(first) as found:
        first.subscribe([topic], listener=Ownership(owners, "first"))
        await until(lambda: len(found.records) == 100)
        async with make(protocol) as second, reading(second) as more:
            second.subscribe([topic], listener=Ownership(owners, "second"))
            await until(lambda: Counter(owners.values()) == {"first": 2, "second": 2})
            assert {*first.assignment()} | {*second.assignment()} == owners.keys()
            await produce(broker, topic, range(100, 200))
            await until(lambda: len(found.records) + len(more.records) == 200)
        await until(lambda: Counter(owners.values()) == {"first": 4})
        await produce(broker, topic, range(200, 300))
        await until(lambda: len(found.records) + len(more.records) == 300)
    assert sorted(values(found) + values(more)) == list(range(300)), "each record once"
    assert found.failures == more.failures == []
    assert owners == {}


@pytest.mark.parametrize("protocol", ["cooperative-sticky", "consumer"])
async def test_nobody_gives_up_what_it_keeps(broker, topic, filled, make, protocol):
    heard = Heard()
    async with make(protocol) as first, reading(first), make(protocol) as second:
        first.subscribe([topic], listener=heard)
        await until(lambda: heard.events)
        async with reading(second):
            second.subscribe([topic])
            await until(lambda: len(second.assignment()) == 2)
        (revoked,) = [partitions for what, partitions in heard.events if what == "revoked"]
        assert len(revoked) == 2


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky"])
async def test_what_a_dead_member_owned_is_taken_over(broker, topic, filled, make, protocol):
    async with make(protocol) as first, reading(first):
        dead = make(protocol, leave_group_on_close=False, enable_auto_commit=False, session_timeout_ms=SHORT_SESSION_MS)
        async with dead, reading(dead):
            first.subscribe([topic])
            dead.subscribe([topic])
            await until(lambda: len(first.assignment()) == len(dead.assignment()) == 2)
        await until(lambda: len(first.assignment()) == 4)


@every_protocol
async def test_a_static_member_that_restarts_gets_its_partitions_back_and_nobody_notices(
    broker, topic, filled, make, protocol
):
    heard = Heard()
    async with make(protocol, group_instance_id="one") as first, reading(first):
        first.subscribe([topic], listener=heard)
        async with make(protocol, group_instance_id="two") as second, reading(second):
            second.subscribe([topic])
            await until(lambda: len(first.assignment()) == len(second.assignment()) == 2)
            before = sorted(second.assignment())
        so_far = list(heard.events)
        async with make(protocol, group_instance_id="two") as again, reading(again):
            again.subscribe([topic])
            await until(again.assignment)
            assert sorted(again.assignment()) == before
        assert heard.events == so_far


async def test_a_static_member_is_fenced_by_another_of_its_name(broker, topic, filled, make):
    async with make(group_instance_id="one") as first, reading(first) as found:
        first.subscribe([topic])
        await until(first.assignment)
        async with make(group_instance_id="one") as second, reading(second):
            second.subscribe([topic])
            await until(second.assignment)
            await until(lambda: found.failures)
            assert found.failures[0].code is ErrorCode.FENCED_INSTANCE_ID
            assert first.assignment() == []


@every_protocol
async def test_positions_with_notes_are_committed_and_read_by_the_next(broker, topic, filled, make, protocol):
    partition = TopicPartition(topic, 0)
    async with make(protocol, enable_auto_commit=False) as consumer:
        async with reading(consumer):
            consumer.subscribe([topic])
            await until(consumer.assignment)
        await consumer.commit({partition: OffsetAndMetadata(7, "a note", 0)})
        assert await consumer.committed(partition, (topic, 1)) == {
            partition: OffsetAndMetadata(7, "a note", 0),
            TopicPartition(topic, 1): None,
        }
    async with make(protocol) as consumer:
        consumer.subscribe([topic])
        async with reading(consumer) as found:
            await until(lambda: len(found.records) == 93)
    assert min(record.offset for record in found.records if record.partition == 0) == 7


async def test_who_was_kicked_cannot_commit_and_comes_back(broker, topic, filled, make):
    async with make(enable_auto_commit=False) as consumer, Admin(broker.bootstrap) as admin:
        async with reading(consumer):
            consumer.subscribe([topic])
            await until(consumer.assignment)
        member_id = consumer.group_metadata().member_id  # which the next heartbeat after the removal takes away
        assert await admin.remove_members(topic) == [member_id]
        with pytest.raises(CommitFailed):
            await consumer.commit({TopicPartition(topic, 0): 1})
        async with reading(consumer):
            await until(lambda: consumer.group_metadata().generation > 1 and consumer.assignment())


@pytest.mark.parametrize("protocol", ["range", "consumer"])
async def test_new_partitions_and_topics_of_a_pattern_are_found(broker, topic, filled, make, protocol):
    async with make(protocol, metadata_max_age_ms=200) as consumer, reading(consumer), Admin(broker.bootstrap) as admin:
        import re

        consumer.subscribe(pattern=re.compile(re.escape(topic) + ".*"))
        await until(lambda: len(consumer.assignment()) == 4)
        await admin.create_topic(topic + "-2", partitions=2, replication_factor=1)
        await until(lambda: len(consumer.assignment()) == 6)
        await admin.create_partitions({topic: 5})
        await until(lambda: len(consumer.assignment()) == 7)


async def test_the_broker_matches_a_pattern(broker, topic, filled, make):
    async with make("consumer") as consumer, reading(consumer) as found:
        consumer.subscribe(pattern=topic[:-2] + "..")
        await until(lambda: len(found.records) == 100)


async def test_a_pattern_that_the_broker_does_not_understand_is_raised(broker, topic, filled, make):
    async with make("consumer") as consumer:
        consumer.subscribe(pattern="(")
        async with reading(consumer) as found:
            await until(lambda: found.failures)
        assert found.failures[0].code is ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_an_assignor_that_the_broker_does_not_have_is_raised(broker, topic, filled, make):
    async with make("consumer", group_remote_assignor="best") as consumer:
        consumer.subscribe([topic])
        async with reading(consumer) as found:
            await until(lambda: found.failures)
        assert found.failures[0].code is ErrorCode.UNSUPPORTED_ASSIGNOR


async def test_members_with_nothing_in_common_are_told_so(broker, topic, filled, make):
    async with make("range") as first, reading(first), make("sticky") as second:
        first.subscribe([topic])
        await until(first.assignment)
        second.subscribe([topic])
        async with reading(second) as found:
            await until(lambda: found.failures)
        assert found.failures[0].code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


async def test_a_group_lives_through_a_restart_of_the_broker(own_broker, topic):
    async with Admin(own_broker.bootstrap) as admin:
        await admin.create_topic(topic, partitions=PARTITIONS, replication_factor=1)
    await produce(own_broker, topic, range(100))
    heard = Heard()
    consumer = Consumer(
        own_broker.bootstrap, group_id="g", auto_offset_reset="earliest", auto_commit_interval_ms=10, **CLASSIC
    )
    async with consumer, reading(consumer) as found:
        consumer.subscribe([topic], listener=heard)
        await until(lambda: len(found.records) == 100)
        async with Admin(own_broker.bootstrap) as admin:

            async def committed():
                offsets = (await admin.list_group_offsets({"g": None}))["g"]
                return sorted(one.offset for one in offsets.values())

            while await committed() != [25] * 4:
                await asyncio.sleep(0.01)
        await asyncio.to_thread(own_broker.restart)
        await produce(own_broker, topic, range(100, 200))
        await until(lambda: len(found.records) >= 200)
    assert values(found) == list(range(200))
    async with Admin(own_broker.bootstrap) as admin:
        offsets = (await admin.list_group_offsets({"g": None}))["g"]
        assert [one.offset for one in offsets.values()] == [50] * 4


async def test_committed_offsets_outlive_a_killed_broker(own_broker, topic):
    async with Admin(own_broker.bootstrap) as admin:
        await admin.create_topic(topic, partitions=1, replication_factor=1)
        partition = TopicPartition(topic, 0)
        await admin.alter_group_offsets("g", {partition: OffsetAndMetadata(3, "kept")})
    await asyncio.to_thread(own_broker.kill)
    await asyncio.to_thread(own_broker.start)
    async with Admin(own_broker.bootstrap) as admin:
        assert await admin.list_group_offsets({"g": None}) == {"g": {partition: OffsetAndMetadata(3, "kept")}}


async def test_the_admin_sees_lists_and_deletes(broker, topic, filled, make):
    async with Admin(broker.bootstrap) as admin:
        with pytest.raises(AdminError) as missing:
            await admin.describe_groups([topic])
        assert missing.value.errors[topic].code is ErrorCode.GROUP_ID_NOT_FOUND
        async with make("consumer", client_id="watched") as consumer, reading(consumer):
            consumer.subscribe([topic])
            await until(consumer.assignment)
            described = (await admin.describe_groups([topic]))[topic]
            (member,) = described.members
            assert (described.group_type, described.state, described.assignor) == ("consumer", "Stable", "uniform")
            assert (member.client_id, member.topics, member.speaks_classic) == ("watched", [topic], False)
            assert sorted(member.assignment) == sorted(consumer.assignment())
            listed = await admin.list_groups(types=["consumer"], states=["STABLE"])
            assert topic in [one.group_id for one in listed]
            assert topic not in [one.group_id for one in await admin.list_groups(types=["classic"])]
            with pytest.raises(AdminError) as in_use:
                await admin.delete_groups([topic])
            assert in_use.value.errors[topic].code is ErrorCode.NON_EMPTY_GROUP
        await admin.delete_groups([topic])
        assert await admin.list_group_offsets({topic: None}) == {topic: {}}
