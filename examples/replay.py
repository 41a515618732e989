"""Replay: read a topic from a moment on, and look at what the client measured meanwhile.

python examples/replay.py [HOST:PORT]
"""

from __future__ import annotations

import asyncio
import sys

from ottla.client import Admin, Consumer, Producer, TopicPartition

TOPIC = "example-replay"
NOON_MS = 1_750_000_000_000
MINUTE_MS = 60_000


async def main(broker: str) -> None:
    """Write one record for each minute of two hours and read the last ten of the first."""
    async with Admin(broker) as admin:
        await admin.create_topic(TOPIC, partitions=1, configs={"retention.ms": "-1"})

    # The same options as a Kafka properties file has them: dotted names, text as values.
    settings = {
        "bootstrap.servers": broker,
        "linger.ms": "20",
        "compression.type": "zstd",
        "request.required.acks": "all",
    }
    async with Producer(settings) as producer:
        for minute in range(120):
            await producer.send(TOPIC, b"minute %d" % minute, timestamp_ms=NOON_MS + minute * MINUTE_MS)
        await producer.flush()
        measured = producer.metrics()
        print(f"{measured['record-send-total']:.0f} records sent, {measured['record-error-total']:.0f} failed")

    partition = TopicPartition(TOPIC, 0)
    async with Consumer(broker) as consumer:
        consumer.assign([partition])
        await consumer.seek_to_times({partition: NOON_MS + 50 * MINUTE_MS})
        async for record in consumer:
            if record.timestamp_ms >= NOON_MS + 60 * MINUTE_MS:
                break
            print((record.value or b"").decode(), end=", " if record.offset < 59 else "\n")
        print(f"{consumer.lag(partition)} records behind the end")

    async with Admin(broker) as admin:
        await admin.delete_topics([TOPIC])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"))
