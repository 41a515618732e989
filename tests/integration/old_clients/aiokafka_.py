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
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, api_version=job["version"], group_id=None, auto_offset_reset="earliest"
    )
    await consumer.start()
    consumer.assign([TopicPartition(job["topic"], 0)])
    read = []
    while len(read) < job["expect"]:
        record = await asyncio.wait_for(consumer.getone(), WAIT_S)
        read.append([record.offset, record.timestamp, record.key.decode(), record.value.decode()])
    await consumer.stop()
    return offsets, read


async def main():
    """All jobs, one after the other."""
    given = json.load(sys.stdin)
    sys.stdout.write(json.dumps([await work(given["bootstrap"], job) for job in given["jobs"]]) + "\n")


asyncio.run(main())
