"""A broker that is killed and comes back loses nothing that was delivered, and the client goes on by itself."""

from __future__ import annotations

import asyncio

from ottla.client import (
    Admin,
    ConfigChange,
    ConfigResource,
    Consumer,
    ErrorCode,
    Producer,
    ShareConsumer,
    TopicPartition,
)

QUICK = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 20, "reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 20}


async def test_records_sent_across_a_kill_arrive_once_and_in_order(own_broker, topic):
    async with Producer(own_broker.bootstrap, batch_size=300, linger_ms=0, **QUICK) as producer:
        deliveries = []
        for number in range(3000):
            deliveries.append(await producer.send(topic, b"%d" % number))
            if number in (1000, 2000):
                await deliveries[number // 2]
                own_broker.kill()
                starting = asyncio.to_thread(own_broker.start)
                await asyncio.gather(starting, *[deliveries[place] for place in range(number - 50, number)])
        offsets = [(await delivery).offset for delivery in deliveries]
    assert offsets == list(range(3000))
    partition = TopicPartition(topic, 0)
    async with Consumer(own_broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        assert [int((await consumer.getone()).value) for _ in range(3000)] == list(range(3000))


async def test_a_consumer_reads_on_after_its_broker_was_restarted(own_broker, topic):
    async with (
        Producer(own_broker.bootstrap, **QUICK) as producer,
        Consumer(own_broker.bootstrap, auto_offset_reset="earliest", **QUICK) as consumer,
    ):
        await producer.send_and_wait(topic, b"before")
        await consumer.assign_topics(topic)
        assert (await consumer.getone()).value == b"before"
        reading = asyncio.create_task(consumer.getone())
        await asyncio.to_thread(own_broker.restart)
        await producer.send_and_wait(topic, b"after")
        assert (await reading).value == b"after"


async def test_a_share_consumer_reads_and_accepts_after_its_broker_was_killed(own_broker, topic):
    group = f"g-{topic}"
    async with (
        Admin(own_broker.bootstrap) as admin,
        Producer(own_broker.bootstrap, **QUICK) as producer,
        ShareConsumer(own_broker.bootstrap, group_id=group, **QUICK) as consumer,
    ):
        earliest = ConfigChange.set("share.auto.offset.reset", "earliest")
        await admin.alter_configs({ConfigResource.group(group): [earliest]})
        for number in range(3):
            await producer.send_and_wait(topic, b"%d" % number)
        consumer.subscribe([topic])
        assert (await consumer.getone()).value == b"0"
        assert set((await consumer.commit()).values()) == {None}
        assert (await consumer.getone()).value == b"1"
        own_broker.kill()
        await asyncio.to_thread(own_broker.start)
        results = await consumer.commit()
        assert results[TopicPartition(topic, 0)].code is ErrorCode.NETWORK_EXCEPTION
        found = []
        while len(found) < 2:
            found.append((await consumer.getone()).value)
        assert found == [b"1", b"2"]
        assert set((await consumer.commit()).values()) == {None}
    async with Admin(own_broker.bootstrap) as admin:
        (offsets,) = (await admin.share_group_offsets({group: None}))[group].values()
        assert (offsets.start_offset, offsets.lag) == (3, 0)
