"""Real members of consumer groups under the audit: they read, note how far they were shown the logs, and commit.

They live through every death of the broker. `is_idle` once a poll brought nothing: nothing that the broker had shown
before it died still waits in the client's buffer. A member that does not come to that soon (some clients wait inside of
a call until they find a broker) is *muted*: what it is handed next may be of a past that a power cut has taken.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import confluent_kafka
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from aiokafka.errors import KafkaError as AioError
from kafka import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError as PythonError
from kit.audit.ledger import Ledger, Place
from kit.audit.producers import END_S, QUICK_CONFLUENT

POLL_S = 0.04
"""Short, because who is idle shows within `clients.DRAIN_S`. Where kafka-python 3.0's poll ends while its JoinGroup is
under way and the answer comes before the next one, it throws the assignment away and joins again: one rebalance more,
which no promise of the audit is about (what was read and committed must be true, not soon)."""
MOST_RECORDS = 400


class Member(Protocol):
    """What the audit asks of each kind of member."""

    group: str
    is_idle: bool
    is_muted: bool

    def end(self) -> None:
        """Leave."""


class ConfluentMember:
    """confluent-kafka, of either protocol, in a thread of its own."""

    def __init__(
        self,
        ledger: Ledger,
        going: threading.Event,
        bootstrap: str,
        group: str,
        topics: Sequence[str],
        settings: dict[str, Any],
    ) -> None:
        self.group = group
        self.is_idle = self.is_muted = False
        self._ledger, self._going = ledger, going
        self._next: dict[Place, int] = {}
        self._ended = threading.Event()
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
                "fetch.error.backoff.ms": 10,
                **QUICK_CONFLUENT,
                **settings,
            }
        )
        self._consumer.subscribe(list(topics), on_revoke=self._forget, on_lost=self._forget)
        self._thread = threading.Thread(target=self._run, name=group, daemon=True)
        self._thread.start()

    def _forget(self, _: object, gone: Iterable[confluent_kafka.TopicPartition]) -> None:
        for one in gone:
            self._next.pop((one.topic, one.partition), None)

    def _run(self) -> None:
        while not self._ended.is_set():
            messages = self._consumer.consume(MOST_RECORDS, POLL_S)
            self.is_idle = not messages
            self.is_muted = self.is_muted and bool(messages)
            for message in messages:
                if message.error() is None:
                    place = (message.topic(), message.partition())
                    self._next[place] = message.offset() + 1
                    if not self.is_muted:
                        self._ledger.seen(place, message.offset() + 1)
            if self._going.is_set() and self._next:
                self._commit()

    def _commit(self) -> None:
        asked = [confluent_kafka.TopicPartition(*place, offset) for place, offset in self._next.items()]
        for place, offset in self._next.items():
            self._ledger.committing(self.group, place, offset)
        try:
            answered = self._consumer.commit(offsets=asked, asynchronous=False)
        except confluent_kafka.KafkaException:
            return  # no answer: it may be committed, or not
        for one in answered or ():
            if one.error is None:
                self._ledger.committed(self.group, (one.topic, one.partition), one.offset)

    def end(self) -> None:
        self._ended.set()
        self._thread.join(END_S)
        self._consumer.close()


class KafkaPythonMember:
    """kafka-python, in a thread of its own."""

    def __init__(
        self, ledger: Ledger, going: threading.Event, bootstrap: str, group: str, topics: Sequence[str]
    ) -> None:
        self.group = group
        self.is_idle = self.is_muted = False
        self._ledger, self._going = ledger, going
        self._ended = threading.Event()
        self._consumer = KafkaConsumer(
            *topics,
            bootstrap_servers=bootstrap,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            allow_auto_create_topics=False,
            fetch_max_wait_ms=20,
            retry_backoff_ms=20,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=60,
        )
        self._thread = threading.Thread(target=self._run, name=group, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                polled = self._consumer.poll(timeout_ms=int(POLL_S * 1000), max_records=MOST_RECORDS)
                self.is_idle = not polled
                self.is_muted = self.is_muted and bool(polled)
                reached = {place: records[-1].offset + 1 for place, records in polled.items()}
                for place, offset in () if self.is_muted else reached.items():
                    self._ledger.seen((place.topic, place.partition), offset)
                if self._going.is_set() and reached:
                    self._commit(reached)
            except PythonError:
                self._ended.wait(POLL_S)  # the broker is gone
        self._consumer.close(autocommit=False)

    def _commit(self, reached: dict[TopicPartition, int]) -> None:
        for place, offset in reached.items():
            self._ledger.committing(self.group, (place.topic, place.partition), offset)
        self._consumer.commit({place: OffsetAndMetadata(offset, "", -1) for place, offset in reached.items()}, 5_000)
        for place, offset in reached.items():
            self._ledger.committed(self.group, (place.topic, place.partition), offset)

    def end(self) -> None:
        self._ended.set()
        self._thread.join(END_S)


class AioKafkaMember:
    """aiokafka, in the event loop that all clients of asyncio share."""

    def __init__(
        self,
        ledger: Ledger,
        going: threading.Event,
        bootstrap: str,
        group: str,
        topics: Sequence[str],
        *,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.group = group
        self.is_idle = self.is_muted = False
        self._ledger, self._going = ledger, going
        self._ended = False
        self._running = asyncio.run_coroutine_threadsafe(self._run(bootstrap, topics), loop)

    async def _run(self, bootstrap: str, topics: Sequence[str]) -> None:
        consumer = AIOKafkaConsumer(
            *topics,
            bootstrap_servers=bootstrap,
            group_id=self.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=20,
            retry_backoff_ms=20,
        )
        await consumer.start()
        try:
            while not self._ended:
                try:
                    polled = await consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=MOST_RECORDS)
                    self.is_idle = not polled
                    self.is_muted = self.is_muted and bool(polled)
                    reached = {place: records[-1].offset + 1 for place, records in polled.items()}
                    for place, offset in () if self.is_muted else reached.items():
                        self._ledger.seen((place.topic, place.partition), offset)
                    if self._going.is_set() and reached:
                        await asyncio.wait_for(self._commit(consumer, reached), 5)
                except (AioError, TimeoutError):
                    await asyncio.sleep(POLL_S)  # the broker is gone
        finally:
            await consumer.stop()

    async def _commit(self, consumer: AIOKafkaConsumer, reached: dict[AioPartition, int]) -> None:
        for place, offset in reached.items():
            self._ledger.committing(self.group, (place.topic, place.partition), offset)
        await consumer.commit(reached)
        for place, offset in reached.items():
            self._ledger.committed(self.group, (place.topic, place.partition), offset)

    def end(self) -> None:
        self._ended = True
        self._running.cancel()  # without a broker it may wait for one
