"""Workers that share a topic: a consumer group, commits by hand, and a listener that commits what is taken away.

Each worker handles records and then commits them, so that a crash repeats some and loses none. While a worker waits for
the next record, the group may give some of its partitions to another; the listener commits what was done before that.

python examples/workers.py [HOST:PORT]
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter

from ottla.client import Admin, Consumer, Producer, RebalanceListener, TopicPartition

TOPIC, GROUP, PARTITIONS, JOBS = "example-jobs", "example-workers", 4, 40


class Worker(RebalanceListener):
    """One member of the group."""

    def __init__(self, broker: str, done: Counter[bytes | None]) -> None:
        self.done = done
        self.consumer = Consumer(
            broker,
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
            partition_assignment_strategy="cooperative-sticky",
        )

    async def on_revoked(self, partitions: list[TopicPartition]) -> None:
        """Commit before others go on where this worker ended."""
        await self.consumer.commit()

    async def run(self) -> None:
        """Work until cancelled."""
        async with self.consumer as consumer:
            consumer.subscribe([TOPIC], listener=self)
            while True:
                for records in (await consumer.getmany(timeout_ms=1000, max_records=5)).values():
                    for record in records:
                        self.done[record.value] += 1
                await consumer.commit()


async def produce(broker: str, numbers: range) -> None:
    """Write jobs, spread over the partitions."""
    async with Producer(broker) as producer:
        for number in numbers:
            await producer.send(TOPIC, b"job %d" % number, partition=number % PARTITIONS)


async def main(broker: str) -> None:
    """Let one worker begin, and another help."""
    async with Admin(broker) as admin:
        await admin.create_topic(TOPIC, partitions=PARTITIONS)
        done: Counter[bytes | None] = Counter()
        workers = [Worker(broker, done), Worker(broker, done)]
        tasks = [asyncio.create_task(workers[0].run())]
        await produce(broker, range(JOBS // 2))
        while len(done) < JOBS // 2:
            await asyncio.sleep(0.01)
        tasks.append(asyncio.create_task(workers[1].run()))
        while [len(worker.consumer.assignment()) for worker in workers] != [2, 2]:
            await asyncio.sleep(0.01)
        print("each of 2 workers has 2 partitions")
        await produce(broker, range(JOBS // 2, JOBS))
        while len(done) < JOBS:
            await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        print(f"{len(done)} jobs were done, {sum(times > 1 for times in done.values())} of them twice")

        await admin.delete_groups([GROUP])
        await admin.delete_topics([TOPIC])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"))
