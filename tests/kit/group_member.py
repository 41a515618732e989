"""A program: one member of a consumer group, by one of three client libraries, that tells what happens to it.

    python group_member.py LIBRARY '{"bootstrap": ..., "group": ..., "topics": [...], ...}'

Writes one JSON object per line: {"assignment": [[topic, partition], ...]} whenever that changes, {"revoked": [...]}
when it gives partitions up, {"record": [topic, partition, offset, value]} for each record, whose offset is committed
next, {"left": true} at the end, which comes when standard input closes. Kill it to see a member die.

Options: instance (group.instance.id), session_ms, assignor ("range", "cooperative").
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from typing import Any

HEARTBEAT_MS = 300  # rebalances are noticed by heartbeats
RECONNECT_MS = 200  # at most, after a restart of the broker


def report(**event: object) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


class Reporter:
    """Says what changed."""

    def __init__(self) -> None:
        self.known: list[list[object]] | None = None
        self.must_leave = threading.Event()
        threading.Thread(target=self._await_end, daemon=True).start()

    def _await_end(self) -> None:
        sys.stdin.read()
        self.must_leave.set()

    def assignment(self, partitions: Any) -> None:
        now = places(partitions)
        if now != self.known:
            self.known = now
            report(assignment=now)


def places(partitions: Any) -> list[list[object]]:
    return sorted([each.topic, each.partition] for each in partitions)


def confluent(options: dict[str, Any], reporter: Reporter) -> None:
    from confluent_kafka import Consumer, KafkaException

    config = {
        "bootstrap.servers": options["bootstrap"],
        "group.id": options["group"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": options["session_ms"],
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "partition.assignment.strategy": "cooperative-sticky" if options["assignor"] == "cooperative" else "range",
        "topic.metadata.refresh.interval.ms": 1_000,
        "reconnect.backoff.max.ms": RECONNECT_MS,
    }
    if options.get("instance"):
        config["group.instance.id"] = options["instance"]
    consumer = Consumer(config)
    consumer.subscribe(options["topics"], on_revoke=lambda _, gone: report(revoked=places(gone)))
    while not reporter.must_leave.is_set():
        message = consumer.poll(0.05)
        reporter.assignment(consumer.assignment())
        if message is not None and message.error() is None:
            report(record=[message.topic(), message.partition(), message.offset(), message.value().decode()])
            try:
                consumer.commit(message, asynchronous=False)
            except KafkaException:
                continue  # a rebalance began: the next owner will read it again
    consumer.close()


def kafka_python(options: dict[str, Any], reporter: Reporter) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Any) -> None:
            report(revoked=places(revoked))

        def on_partitions_assigned(self, assigned: Any) -> None:
            return

    is_cooperative = options["assignor"] == "cooperative"
    consumer = KafkaConsumer(
        bootstrap_servers=options["bootstrap"],
        group_id=options["group"],
        group_instance_id=options.get("instance"),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=options["session_ms"],
        heartbeat_interval_ms=HEARTBEAT_MS,
        partition_assignment_strategy=[CooperativeStickyAssignor if is_cooperative else RangePartitionAssignor],
        metadata_max_age_ms=1_000,
        reconnect_backoff_max_ms=RECONNECT_MS,
    )
    consumer.subscribe(options["topics"], listener=Listener())
    while not reporter.must_leave.is_set():
        # Long: kafka-python 3.0 loses an assignment that arrives in the very moment in which a poll's time is over.
        batches = consumer.poll(1_000)
        reporter.assignment(consumer.assignment())
        for records in batches.values():
            for record in records:
                report(record=[record.topic, record.partition, record.offset, record.value.decode()])
        if batches:
            try:
                consumer.commit()
            except KafkaError:
                continue
    consumer.close()


async def aiokafka(options: dict[str, Any], reporter: Reporter) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            report(revoked=places(revoked))

        async def on_partitions_assigned(self, assigned: Any) -> None:
            return

    consumer = AIOKafkaConsumer(
        bootstrap_servers=options["bootstrap"],
        group_id=options["group"],
        group_instance_id=options.get("instance"),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=options["session_ms"],
        heartbeat_interval_ms=HEARTBEAT_MS,
        partition_assignment_strategy=[RangePartitionAssignor],
        metadata_max_age_ms=1_000,
    )
    consumer.subscribe(options["topics"], listener=Listener())
    await consumer.start()
    while not reporter.must_leave.is_set():
        batches = await consumer.getmany(timeout_ms=50)
        reporter.assignment(consumer.assignment())
        for records in batches.values():
            for record in records:
                report(record=[record.topic, record.partition, record.offset, record.value.decode()])
        if batches:
            try:
                await consumer.commit()
            except KafkaError:
                continue
    await consumer.stop()


def main() -> None:
    library, options = sys.argv[1], json.loads(sys.argv[2])
    reporter = Reporter()
    if library == "confluent":
        confluent(options, reporter)
    elif library == "kafka-python":
        kafka_python(options, reporter)
    else:
        asyncio.run(aiokafka(options, reporter))
    report(left=True)


if __name__ == "__main__":
    main()
