"""A group whose members read columns: what was yielded is what is committed, also where the rest is taken away."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from kit.consumers import until

from ottla.client import Admin, Consumer, Producer, RebalanceListener, TopicPartition

pytest.importorskip("pyarrow")

PARTITIONS = 4
EACH = 50
PROTOCOLS = {
    "range": {"heartbeat_interval_ms": 100, "partition_assignment_strategy": "range"},
    "cooperative-sticky": {"heartbeat_interval_ms": 100, "partition_assignment_strategy": "cooperative-sticky"},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.fixture
async def filled(broker, topic):
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topic(topic, partitions=PARTITIONS, replication_factor=1)
    async with Producer(broker.bootstrap) as producer:
        for partition in range(PARTITIONS):
            await producer.send_many(topic, [b"x"] * EACH, partition=partition)


class Committed(RebalanceListener):
    """Notes what the group has committed for each partition as this member gets it."""

    def __init__(self, consumer):
        self.consumer = consumer
        self.found = {}

    async def on_assigned(self, partitions):
        if partitions:
            self.found |= await self.consumer.committed(*partitions)


async def read(parts, found):
    async for columns in parts:
        found.update((row["partition"], row["offset"]) for row in columns.to_pylist())


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_columns_that_were_fetched_and_not_yielded_go_to_the_next_owner(broker, topic, filled, protocol):
    def member():
        options = {"group_id": topic, "auto_offset_reset": "earliest", **PROTOCOLS[protocol]}
        return Consumer(broker.bootstrap, **options)

    found, more = Counter(), Counter()
    async with member() as first, member() as second:
        first.subscribe([topic])
        parts = first.arrow(columns=["partition", "offset"])
        rows = (await anext(parts)).to_pylist()
        (partition,) = {row["partition"] for row in rows}
        found.update((partition, row["offset"]) for row in rows)
        await until(lambda: all(first.high_watermark((topic, index)) == EACH for index in range(PARTITIONS)))
        first.pause(*(place for place in first.assignment() if place.partition != partition))
        assert len(found) == EACH, "three partitions are fetched, and nothing of them is yielded"

        heard = Committed(second)
        second.subscribe([topic], listener=heard)
        joining = asyncio.create_task(read(second.arrow(columns=["partition", "offset"]), more))
        reading = asyncio.create_task(read(parts, found))
        await until(lambda: len(second.assignment()) == len(heard.found) == 2)
        for place, committed in heard.found.items():
            assert committed.offset == (EACH if place.partition == partition else 0), place
        first.resume(*first.assignment())
        await until(lambda: len(found) + len(more) == PARTITIONS * EACH)
        for task in (joining, reading):
            task.cancel()
        await asyncio.gather(joining, reading, return_exceptions=True)
    assert set((found + more).values()) == {1}, "each record once"
    async with Admin(broker.bootstrap) as admin:
        offsets = (await admin.list_group_offsets({topic: None}))[topic]
    assert {place: committed.offset for place, committed in offsets.items()} == {
        TopicPartition(topic, index): EACH for index in range(PARTITIONS)
    }
