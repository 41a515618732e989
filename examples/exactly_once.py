"""Consume, transform, produce, exactly once: a worker that may be killed at any moment and started again.

What a worker writes for some records, and the offsets behind these records, belong to one transaction. When the worker
is killed, neither counts: the next one with the same transactional id aborts the transaction, and reads the records
again. Readers with `read_committed` never see what the killed worker has written.

The first program fills the topic and starts the worker (the same file, with `work`); it kills it in the middle of its
work, again and again, and then looks whether each payment was booked once.

python examples/exactly_once.py [HOST:PORT]
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter

from ottla.client import AbortableTransactionError, Admin, Consumer, Producer

PAYMENTS, BOOKINGS, NAME = "example-payments", "example-bookings", "example-booker"
COUNT, KILLS = 600, 2


async def work(broker: str) -> None:
    """Book payments until the process ends. An error that cannot be mended here ends it, too: it is started again."""
    consumer = Consumer(
        broker,
        group_id=NAME,
        group_instance_id=NAME,  # a worker that is started again has its partitions back at once
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        enable_auto_commit=False,  # the transaction commits the offsets
    )
    async with consumer, Producer(broker, transactional_id=NAME) as producer:
        consumer.subscribe([PAYMENTS])
        while True:
            payments = await consumer.getmany(timeout_ms=1000, max_records=10)
            if not payments:
                continue
            try:
                async with producer.transaction() as transaction:
                    for some in payments.values():
                        for payment in some:
                            await producer.send(BOOKINGS, b"booked: " + (payment.value or b""), key=payment.key)
                    await transaction.send_offsets(consumer)
            except AbortableTransactionError:
                consumer.seek_to_committed()  # the group has moved on, or a record was refused: again from there


async def booked(broker: str) -> list[bytes]:
    """What readers of the bookings see now."""
    async with Consumer(broker, auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        ends = await consumer.end_offsets(await consumer.assign_topics(BOOKINGS))
        found: list[bytes] = []
        while not all([await consumer.has_reached(partition, end) for partition, end in ends.items()]):
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                found += [record.value or b"" for record in records]
        return found


async def main(broker: str) -> None:
    """Start workers, kill each in the middle of its work, and count."""
    async with Admin(broker) as admin:
        for topic in (PAYMENTS, BOOKINGS):
            await admin.create_topic(topic, partitions=2)
        async with Producer(broker) as producer:
            await producer.send_many(PAYMENTS, [b"payment %d" % number for number in range(COUNT)])

        for turn in range(KILLS + 1):
            worker = await asyncio.create_subprocess_exec(sys.executable, __file__, "work", broker)
            wanted = COUNT * (turn + 1) // (KILLS + 1)
            while len(await booked(broker)) < wanted:
                await asyncio.sleep(0.01)
            worker.kill()
            await worker.wait()

        once = sum(times == 1 for times in Counter(await booked(broker)).values())
        print(f"{COUNT} payments, {once} booked once, by {KILLS + 1} workers that were killed")

        await admin.remove_members(NAME)
        await admin.delete_groups([NAME])
        await admin.delete_topics([PAYMENTS, BOOKINGS])


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        asyncio.run(work(sys.argv[2]))
    else:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"))
