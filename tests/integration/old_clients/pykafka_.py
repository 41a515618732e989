"""pykafka: jobs on standard input, outcomes on standard output (tests/kit/old_clients.py)."""

import json
import sys

from pykafka import KafkaClient
from pykafka.common import CompressionType, OffsetType

WAIT_S = 30


def work(bootstrap, job):
    """One job: write, then read from the start. pykafka tells no offsets of what it wrote, but reports failures."""
    client = KafkaClient(hosts=bootstrap, broker_version=job["version"])
    topic = client.topics[job["topic"].encode()]
    codec = getattr(CompressionType, job["codec"].upper())
    with topic.get_producer(compression=codec, linger_ms=100, required_acks=-1, delivery_reports=True) as producer:
        for value in job["values"]:
            producer.produce(value.encode(), partition_key=b"old")
        for _ in job["values"]:
            _, problem = producer.get_delivery_report(timeout=WAIT_S)
            assert problem is None, problem
    if not job["group"]:
        settings = {"auto_offset_reset": OffsetType.EARLIEST, "consumer_timeout_ms": WAIT_S * 1000}
        return [], consume(topic.get_simple_consumer(**settings, reset_offset_on_start=True), job, job["expect"])
    half = job["expect"] // 2
    return [], [*consume(member(topic, job), job, half), *consume(member(topic, job), job, job["expect"] - half)]


def member(topic, job):
    """A member of the group, which the broker coordinates."""
    return topic.get_balanced_consumer(
        job["group"].encode(),
        managed=True,
        auto_commit_enable=False,
        auto_offset_reset=OffsetType.EARLIEST,
        consumer_timeout_ms=WAIT_S * 1000,
    )


def consume(consumer, job, count):
    """Read some, and commit where there is a group."""
    read = []
    for _ in range(count):
        message = consumer.consume()
        if message is None:
            consumer.consume(block=False)  # raises what has ended its thread, which the call that waited does not
            raise AssertionError(f"of {count} records no more than those at {[offset for offset, *_ in read]}")
        read.append([message.offset, None, message.partition_key.decode(), message.value.decode()])
    if job["group"]:
        consumer.commit_offsets()
    consumer.stop()
    return read


given = json.load(sys.stdin)
sys.stdout.write(json.dumps([work(given["bootstrap"], job) for job in given["jobs"]]) + "\n")
