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
    consumer = topic.get_simple_consumer(
        consumer_timeout_ms=WAIT_S * 1000, auto_offset_reset=OffsetType.EARLIEST, reset_offset_on_start=True
    )
    read = []
    while len(read) < job["expect"]:
        message = consumer.consume()
        assert message is not None, f"{len(read)} records, no more"
        read.append([message.offset, None, message.partition_key.decode(), message.value.decode()])
    consumer.stop()
    return [], read


given = json.load(sys.stdin)
sys.stdout.write(json.dumps([work(given["bootstrap"], job) for job in given["jobs"]]) + "\n")
