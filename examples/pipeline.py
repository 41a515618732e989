"""A pipeline: read a topic, change the records, write another, and go on after a restart where the last run ended.

The output says how far the input was read: each record carries its source's offset in a header. So a restart reads
the end of the output first, and nothing is done twice or left out, without groups and transactions. One partition in,
one out; run it for each.

python examples/pipeline.py [HOST:PORT]
"""

from __future__ import annotations

import asyncio
import sys

from ottla.client import Admin, Consumer, Producer, TopicPartition

SOURCE, RESULT = TopicPartition("example-words", 0), TopicPartition("example-loud-words", 0)


async def next_offset(broker: str) -> int:
    """Return the offset of the source at which the last run ended."""
    async with Consumer(broker) as consumer:
        end = (await consumer.end_offsets([RESULT]))[RESULT]
        if end == 0:
            return 0
        consumer.assign([RESULT])
        consumer.seek(RESULT, end - 1)
        last = await consumer.getone()
        return int(dict(last.headers)["source-offset"] or b"0") + 1


async def run(broker: str, limit: int) -> int:
    """Carry up to `limit` records over, those that are there, and return how many."""
    start = await next_offset(broker)
    async with Consumer(broker) as consumer, Producer(broker) as producer:
        consumer.assign([SOURCE])
        consumer.seek(SOURCE, start)
        end = min(start + limit, (await consumer.end_offsets([SOURCE]))[SOURCE])
        while await consumer.position(SOURCE) < end:
            record = await consumer.getone()
            loud = (record.value or b"").upper()
            headers = [("source-offset", b"%d" % record.offset)]
            await producer.send(RESULT.topic, loud, partition=RESULT.partition, headers=headers)
    return end - start


async def main(broker: str) -> None:
    """Fill the source, run the pipeline twice as if it was restarted in between, and show the result."""
    async with Admin(broker) as admin:
        for topic, _ in (SOURCE, RESULT):
            await admin.create_topic(topic, partitions=1)
    async with Producer(broker) as producer:
        for word in (b"all", b"these", b"words", b"get", b"loud"):
            await producer.send(SOURCE.topic, word)

    print("first run:", await run(broker, limit=2))
    print("second run:", await run(broker, limit=100))

    async with Consumer(broker, auto_offset_reset="earliest") as consumer:
        consumer.assign([RESULT])
        print(*[((await consumer.getone()).value or b"").decode() for _ in range(5)])

    async with Admin(broker) as admin:
        await admin.delete_topics([SOURCE.topic, RESULT.topic])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"))
