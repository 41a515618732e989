"""confluent-kafka (librdkafka): jobs on standard input, outcomes on standard output (tests/kit/old_clients.py)."""

import json
import sys

from confluent_kafka import OFFSET_BEGINNING, TIMESTAMP_NOT_AVAILABLE, Consumer, Producer, TopicPartition

WAIT_S = 30


def work(bootstrap, job):
    """One job: write, then read from the start."""
    settings = {"bootstrap.servers": bootstrap}
    if job["version"] != "auto":
        settings |= {"api.version.request": False, "broker.version.fallback": job["version"]}
    offsets = []

    def delivered(error, message):
        assert error is None, error
        offsets.append(message.offset())

    producer = Producer({**settings, "compression.codec": job["codec"], "linger.ms": 100})
    for value in job["values"]:
        producer.produce(job["topic"], key=b"old", value=value.encode(), partition=0, on_delivery=delivered)
    assert producer.flush(WAIT_S) == 0
    if not job["group"]:
        return offsets, consume(settings, job, job["expect"])
    half = job["expect"] // 2
    return offsets, [*consume(settings, job, half), *consume(settings, job, job["expect"] - half)]


def consume(settings, job, count):
    """Read some, and commit where there is a group."""
    group = {"group.id": job["group"] or "none", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, **group, "check.crcs": True})
    if job["group"]:
        consumer.subscribe([job["topic"]])
    else:
        consumer.assign([TopicPartition(job["topic"], 0, OFFSET_BEGINNING)])
    read = []
    while len(read) < count:
        message = consumer.poll(WAIT_S)
        assert message is not None, f"{len(read)} records, no more"
        if message.error() is not None:
            assert not message.error().fatal(), message.error()
            continue
        kind, stamp = message.timestamp()
        stamp = None if kind == TIMESTAMP_NOT_AVAILABLE else stamp
        read.append([message.offset(), stamp, message.key().decode(), message.value().decode()])
    if job["group"]:
        consumer.commit(message=message, asynchronous=False)
    consumer.close()
    return read


given = json.load(sys.stdin)
sys.stdout.write(json.dumps([work(given["bootstrap"], job) for job in given["jobs"]]) + "\n")
