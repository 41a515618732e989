"""A broker that is killed and comes back loses nothing that was delivered, and the client goes on by itself."""

from __future__ import annotations

import asyncio

from ottla.client import Consumer, Producer, TopicPartition

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
