"""kafka-python from 1.4 to 3: jobs on standard input, outcomes on standard output (tests/kit/old_clients.py)."""

import json
import sys

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

WAIT_S = 30


def work(bootstrap, job):
    """One job: write, then read from the start."""
    version = None if job["version"] == "auto" else tuple(int(part) for part in job["version"].split("."))
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        api_version=version,
        acks="all",
        linger_ms=100,
        compression_type=None if job["codec"] == "none" else job["codec"],
    )
    futures = [producer.send(job["topic"], key=b"old", value=value.encode(), partition=0) for value in job["values"]]
    producer.flush(WAIT_S)
    offsets = [future.get(WAIT_S).offset for future in futures]
    producer.close()
    if not job["group"]:
        return offsets, consume(bootstrap, version, job, job["expect"])
    half = job["expect"] // 2
    return offsets, [*consume(bootstrap, version, job, half), *consume(bootstrap, version, job, job["expect"] - half)]


def consume(bootstrap, version, job, count):
    """Read some, and commit where there is a group."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        api_version=version,
        group_id=job["group"] or None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        consumer_timeout_ms=WAIT_S * 1000,
    )
    if job["group"]:
        consumer.subscribe([job["topic"]])
    else:
        consumer.assign([TopicPartition(job["topic"], 0)])
        consumer.seek_to_beginning(TopicPartition(job["topic"], 0))
    read = []
    for record in consumer:
        read.append([record.offset, record.timestamp, record.key.decode(), record.value.decode()])
        if len(read) == count:
            break
    if job["group"]:
        consumer.commit()
    consumer.close()
    return read


given = json.load(sys.stdin)
sys.stdout.write(json.dumps([work(given["bootstrap"], job) for job in given["jobs"]]) + "\n")
