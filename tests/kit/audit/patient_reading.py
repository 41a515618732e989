"""Real consumers on damaged logs: they continue behind what they refuse, where they do, and say what they received."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

import confluent_kafka
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import KafkaError
from confluent_kafka import TopicPartition
from kit.audit.ledger import Place
from kit.audit.producers import QUICK_CONFLUENT
from kit.audit.reading import Rows

QUIET_S = 1.5
"""A client that was handed nothing for so long, and has not come to the end, does not get past the damage."""
SLOW_S = 5
"""So much longer for one that received no reason: the machine may be busy."""
PIECE_S = 0.05
MOST_RECORDS = 2_000
CHECKING = {
    "group.id": "auditor",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "check.crcs": True,
    "fetch.wait.max.ms": 20,
    "fetch.error.backoff.ms": 20,
    **QUICK_CONFLUENT,
}


class Patient(NamedTuple):
    """What a client was handed of a partition, and the first error that it received."""

    rows: Rows
    error: str | None


def read_past_damage(bootstrap: str, places: Sequence[Place]) -> dict[Place, Patient]:
    """All partitions from their starts, by confluent-kafka with `check.crcs`, as far as it gets."""
    rows: dict[Place, Rows] = {place: [] for place in places}
    errors: dict[Place, str] = {}
    waiting = set(places)
    with closing(confluent_kafka.Consumer({"bootstrap.servers": bootstrap, **CHECKING})) as consumer:
        starts = {place: consumer.get_watermark_offsets(TopicPartition(*place), 30)[0] for place in places}
        consumer.assign([TopicPartition(*place, start) for place, start in starts.items()])
        quiet_at = time.monotonic() + QUIET_S
        slow_at = quiet_at + SLOW_S
        while waiting and time.monotonic() < (quiet_at if waiting <= errors.keys() else slow_at):
            for message in consumer.consume(MOST_RECORDS, PIECE_S):
                place, error = (message.topic(), message.partition()), message.error()
                if error is None:
                    rows[place].append((message.offset(), message.key(), message.value()))
                    quiet_at = time.monotonic() + QUIET_S
                    slow_at = quiet_at + SLOW_S
                elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    waiting.discard(place)
                else:
                    errors.setdefault(place, str(error))
    return {place: Patient(rows[place], errors.get(place)) for place in places}


def read_at(bootstrap: str, place: Place, offset: int) -> tuple[int, bytes | None, bytes | None] | None:
    """The first record that confluent-kafka is handed at an offset."""
    with closing(confluent_kafka.Consumer({"bootstrap.servers": bootstrap, **CHECKING})) as consumer:
        consumer.assign([TopicPartition(*place, offset)])
        message = consumer.poll(10 * QUIET_S)
        if message is None or message.error() is not None:
            return None
        return message.offset(), message.key(), message.value()


def handed_to_aiokafka(bootstrap: str, place: Place, offset: int, loop: asyncio.AbstractEventLoop) -> str | None:
    """What aiokafka is handed of the damaged batch at `offset`; None for nothing. CORRUPT_MESSAGE it logs, and asks
    again.
    """

    async def read() -> str | None:
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap, fetch_max_wait_ms=20, group_id=None) as consumer:
            one = AioPartition(*place)
            consumer.assign([one])
            consumer.seek(one, offset)
            try:
                record = await asyncio.wait_for(consumer.getone(one), QUIET_S)
            except (KafkaError, TimeoutError):
                return None
            return f"was handed the record at offset {record.offset}"

    return asyncio.run_coroutine_threadsafe(read(), loop).result(60)
