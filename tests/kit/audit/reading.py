"""Reading back everything that a broker shows, by real consumers that check checksums: each partition from its start to
its end, topics with their settings, and what the groups have committed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import closing

import confluent_kafka
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import OFFSET_INVALID, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition
from kit.audit.ledger import Ledger, Place, Shown
from kit.audit.producers import QUICK_CONFLUENT
from kit.audit.values import NotSent, key_of, mark_of

ANSWER_S = 30.0
MOST_RECORDS = 5_000
PIECE_S = 0.02
"""A call of `consume` waits for as many records as were asked for, or so long."""
Rows = list[tuple[int, bytes | None, bytes | None]]
"""(offset, key, value) in the order in which they came."""


def described(admin: AdminClient) -> dict[str, tuple[int, dict[str, str]]]:
    """Partition counts and own settings of all topics but internal ones."""
    topics = {
        name: len(topic.partitions)
        for name, topic in admin.list_topics(timeout=ANSWER_S).topics.items()
        if not name.startswith("__")
    }
    if not topics:
        return {}
    asked = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in topics])
    settings = {
        resource.name: {
            name: entry.value
            for name, entry in answer.result(ANSWER_S).items()
            if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        }
        for resource, answer in asked.items()
    }
    return {name: (count, settings[name]) for name, count in topics.items()}


def committed(bootstrap: str, group: str) -> dict[Place, int]:
    """What a group has committed. By a client of its own: librdkafka 2.16 may remember as coordinator a handle that it
    has given up meanwhile ("re-bootstrap"), and then it asks nobody until its time is up.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUICK_CONFLUENT})
    (answer,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {
        (one.topic, one.partition): one.offset
        for one in answer.result(ANSWER_S).topic_partitions
        if one.offset != OFFSET_INVALID
    }


class ShortRead(AssertionError):
    """A consumer was shown less than the end that it received, or an error. The message says where."""


def read_with_confluent(bootstrap: str, places: Sequence[Place]) -> dict[Place, tuple[int, int, Rows]]:
    """(log start, log end, rows) of each partition. Raises ShortRead."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "auditor",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "check.crcs": True,
        "fetch.wait.max.ms": 20,
        **QUICK_CONFLUENT,
    }
    with closing(confluent_kafka.Consumer(settings)) as consumer:
        bounds = {place: consumer.get_watermark_offsets(TopicPartition(*place), ANSWER_S) for place in places}
        rows: dict[Place, Rows] = {place: [] for place in places}
        waiting = set(places)
        consumer.assign([TopicPartition(*place, bounds[place][0]) for place in places])
        deadline = time.monotonic() + ANSWER_S
        while waiting:
            messages = consumer.consume(MOST_RECORDS, PIECE_S)
            if messages:
                deadline = time.monotonic() + ANSWER_S
            elif time.monotonic() > deadline:
                raise ShortRead(f"nothing comes any more of {sorted(waiting)}")
            for message in messages:
                place = (message.topic(), message.partition())
                error = message.error()
                if error is None:
                    rows[place].append((message.offset(), message.key(), message.value()))
                elif error.code() != confluent_kafka.KafkaError._PARTITION_EOF:
                    raise ShortRead(f"{place} after {len(rows[place])} records: {error}")
                elif message.offset() >= bounds[place][1]:
                    waiting.discard(place)
        return {place: _from(_start_now(consumer, place), bounds[place][1], rows[place]) for place in places}


def _start_now(consumer: confluent_kafka.Consumer, place: Place) -> int:
    """Where the log begins by now: retention goes on beside the readers."""
    start, _ = consumer.get_watermark_offsets(TopicPartition(*place), ANSWER_S)
    return int(start)


def _from(start: int, end: int, rows: Rows) -> tuple[int, int, Rows]:
    return start, max(start, end), [row for row in rows if row[0] >= start]


def read_with_kafka_python(bootstrap: str, place: Place) -> tuple[int, int, Rows]:
    """As `read_with_confluent`, of one partition."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, fetch_max_wait_ms=20, enable_auto_commit=False)
    try:
        one = PythonPartition(*place)
        consumer.assign([one])
        start, end = consumer.beginning_offsets([one])[one], consumer.end_offsets([one])[one]
        consumer.seek(one, start)
        rows: Rows = []
        while consumer.position(one) < end:
            polled = consumer.poll(timeout_ms=int(ANSWER_S * 1000), max_records=MOST_RECORDS)
            if not polled:
                raise ShortRead(f"kafka-python: nothing comes of {place} at {consumer.position(one)}, before {end}")
            rows += [(record.offset, record.key, record.value) for record in polled[one]]
        return start, end, rows
    finally:
        consumer.close(autocommit=False)


async def _read_with_aiokafka(bootstrap: str, place: Place) -> tuple[int, int, Rows]:
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap, fetch_max_wait_ms=20, enable_auto_commit=False) as reader:
        one = AioPartition(*place)
        reader.assign([one])
        start, end = (await reader.beginning_offsets([one]))[one], (await reader.end_offsets([one]))[one]
        reader.seek(one, start)
        rows: Rows = []
        while await reader.position(one) < end:
            polled = await reader.getmany(one, timeout_ms=int(ANSWER_S * 1000), max_records=MOST_RECORDS)
            if not polled:
                raise ShortRead(f"aiokafka: nothing comes of {place} at {await reader.position(one)}, before {end}")
            rows += [(record.offset, record.key, record.value) for record in polled[one]]
        return start, end, rows


def read_with_aiokafka(bootstrap: str, place: Place, loop: asyncio.AbstractEventLoop) -> tuple[int, int, Rows]:
    """As `read_with_confluent`, of one partition."""
    return asyncio.run_coroutine_threadsafe(_read_with_aiokafka(bootstrap, place), loop).result(2 * ANSWER_S)


def shown(ledger: Ledger, place: Place, start: int, end: int, rows: Rows) -> Shown:
    """What a reader got, with whose each record is."""
    is_keyed = ledger.topics[place[0]].is_compacted
    found = Shown(start, end, {})
    last = -1
    for offset, key, value in rows:
        if offset <= last:
            found.wrong.append(f"offset {offset} comes after {last}")
        last = offset
        try:
            mark = mark_of(value or b"", *place)
        except NotSent as error:
            found.wrong.append(f"offset {offset}: {error}")
            continue
        if key != (key_of(mark) if is_keyed else None):
            found.wrong.append(f"offset {offset}: {mark} with key {key!r}")
        found.records[offset] = mark
    return found
