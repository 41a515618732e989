"""aiokafka 0.8: jobs on standard input, outcomes on standard output (tests/kit/old_clients.py)."""

import asyncio
import json
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafka import TopicPartition

WAIT_S = 30


async def work(bootstrap, job):
    """One job: write, then read from the start."""
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        api_version=job["version"],
        acks="all",
        linger_ms=100,
        compression_type=None if job["codec"] == "none" else job["codec"],
    )
    await producer.start()
    futures = [
        await producer.send(job["topic"], key=b"old", value=value.encode(), partition=0) for value in job["values"]
    ]
    offsets = [(await future).offset for future in futures]
    await producer.stop()
    if not job["group"]:
        return offsets, await consume(bootstrap, job, job["expect"])
    half = job["expect"] // 2
    return offsets, [*await consume(bootstrap, job, half), *await consume(bootstrap, job, job["expect"] - half)]


async def consume(bootstrap, job, count):
    """Read some, and commit where there is a group."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        api_version=job["version"],
        group_id=job["group"] or None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    if job["group"]:
        consumer.subscribe([job["topic"]])
    await consumer.start()
    if not job["group"]:
        consumer.assign([TopicPartition(job["topic"], 0)])
    read = []
    while len(read) < count:
        record = await asyncio.wait_for(consumer.getone(), WAIT_S)
        read.append([record.offset, record.timestamp, record.key.decode(), record.value.decode()])
    if job["group"]:
        await consumer.commit()
    await consumer.stop()
    return read


async def main():
    """All jobs, one after the other."""
    given = json.load(sys.stdin)
    sys.stdout.write(json.dumps([await work(given["bootstrap"], job) for job in given["jobs"]]) + "\n")


asyncio.run(main())
