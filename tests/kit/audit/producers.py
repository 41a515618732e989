"""Real producers under the audit: they live through every death of the broker; what they are answered goes on a ledger.

A producer works while `going` is set and otherwise only waits for what it has sent; `is_settled` once all of that was
answered. An idempotent one that loses its broker sends again what was not answered: stored twice or out of order would
be the broker's fault. A delivery that fails is one, too: the broker is back long before a time-out.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

import confluent_kafka
from aiokafka import AIOKafkaProducer
from kafka import KafkaProducer
from kafka.errors import KafkaTimeoutError
from kit.audit.ledger import Ledger, Place
from kit.audit.values import Mark, key_of, value_of

END_S = 60.0
PAUSE_S = 0.005
MOST_UNANSWERED = 80
QUICK_CONFLUENT = {
    "log_level": 0,  # librdkafka would print every lost connection; losing it is the point here
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 60,
    "retry.backoff.ms": 20,
    "topic.metadata.refresh.fast.interval.ms": 20,
}


class Producing(Protocol):
    """What the audit asks of each kind of producer."""

    name: str

    @property
    def is_settled(self) -> bool:
        """Whether everything that was sent has been answered."""

    def end(self) -> None:
        """Give up and close."""


class ConfluentProducing:
    """confluent-kafka (librdkafka), in a thread of its own."""

    def __init__(
        self,
        ledger: Ledger,
        going: threading.Event,
        bootstrap: str,
        name: str,
        places: Sequence[Place],
        chance: random.Random,
        settings: dict[str, Any],
    ) -> None:
        self.name = name
        self._is_all = settings.get("acks", "all") == "all"
        self._is_keyed = bool(settings.pop("keyed", False))
        self._number = ledger.enlist(name, is_once=bool(settings.get("enable.idempotence")))
        self._ledger, self._going, self._places, self._chance = ledger, going, places, chance
        self._unanswered = 0
        self._ended = threading.Event()
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 2, "batch.num.messages": 20, **QUICK_CONFLUENT, **settings}
        )
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_settled(self) -> bool:
        return not self._unanswered

    def _run(self) -> None:
        while not self._ended.is_set():
            if self._going.is_set() and self._unanswered < MOST_UNANSWERED:
                for _ in range(self._chance.randrange(1, 12)):
                    self._send()
                self._producer.poll(0)
            else:
                self._producer.poll(PAUSE_S)

    def _send(self) -> None:
        topic, partition = self._chance.choice(self._places)
        mark = self._ledger.next_mark(self._number)
        self._unanswered += 1

        def reported(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
            self._unanswered -= 1
            if error is None:
                self._ledger.acknowledged((topic, partition), message.offset(), mark, is_all=self._is_all)
            elif not self._ended.is_set():
                self._ledger.breach(f"{self.name}: {mark} was refused: {error}")

        key = key_of(mark) if self._is_keyed else None
        self._producer.produce(topic, value_of(mark, topic, partition), key, partition, reported)

    def end(self) -> None:
        self._ended.set()
        self._thread.join(END_S)
        self._producer.purge()
        self._producer.flush(END_S)


class KafkaPythonProducing:
    """kafka-python, whose own thread sends; ours fills it."""

    def __init__(
        self,
        ledger: Ledger,
        going: threading.Event,
        bootstrap: str,
        name: str,
        places: Sequence[Place],
        chance: random.Random,
        settings: dict[str, Any],
    ) -> None:
        self.name = name
        self._is_all = settings.get("acks", "all") == "all"
        self._number = ledger.enlist(name, is_once=bool(settings.get("enable_idempotence")))
        self._ledger, self._going, self._places, self._chance = ledger, going, places, chance
        self._guard = threading.Lock()
        self._unanswered = 0
        self._ended = threading.Event()
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            linger_ms=3,
            retry_backoff_ms=20,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=60,
            **settings,
        )
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_settled(self) -> bool:
        return not self._unanswered

    def _run(self) -> None:
        while not self._ended.wait(PAUSE_S):
            if self._going.is_set() and self._unanswered < MOST_UNANSWERED:
                for _ in range(self._chance.randrange(1, 8)):
                    self._send()

    def _send(self) -> None:
        topic, partition = self._chance.choice(self._places)
        mark = self._ledger.next_mark(self._number)
        with self._guard:
            self._unanswered += 1

        def reported(metadata: Any) -> None:
            self._ledger.acknowledged((topic, partition), metadata.offset, mark, is_all=self._is_all)
            with self._guard:
                self._unanswered -= 1

        def refused(error: BaseException) -> None:
            if not self._ended.is_set():
                self._ledger.breach(f"{self.name}: {mark} was refused: {error!r}")
            with self._guard:
                self._unanswered -= 1

        future = self._producer.send(topic, value_of(mark, topic, partition), partition=partition)
        future.add_callback(reported)
        future.add_errback(refused)

    def end(self) -> None:
        self._ended.set()
        self._thread.join(END_S)
        with suppress(KafkaTimeoutError):  # what a dead broker will never answer
            self._producer.close(timeout=0)


class AioKafkaProducing:
    """aiokafka, in the event loop that all clients of asyncio share."""

    def __init__(
        self,
        ledger: Ledger,
        going: threading.Event,
        bootstrap: str,
        name: str,
        places: Sequence[Place],
        chance: random.Random,
        settings: dict[str, Any],
        *,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.name = name
        self._number = ledger.enlist(name, is_once=bool(settings.get("enable_idempotence")))
        self._ledger, self._going, self._places, self._chance = ledger, going, places, chance
        self._unanswered = 0
        self._ended = False
        self._loop = loop
        self._running = asyncio.run_coroutine_threadsafe(self._run(bootstrap, settings), loop)

    @property
    def is_settled(self) -> bool:
        return not self._unanswered

    async def _run(self, bootstrap: str, settings: dict[str, Any]) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=2, retry_backoff_ms=20, **settings)
        await producer.start()
        try:
            while not self._ended:
                if self._going.is_set() and self._unanswered < MOST_UNANSWERED:
                    for _ in range(self._chance.randrange(1, 8)):
                        await self._send(producer)
                await asyncio.sleep(PAUSE_S)
        finally:
            await producer.client.close()  # `stop` would wait for what a dead broker will never answer

    async def _send(self, producer: AIOKafkaProducer) -> None:
        topic, partition = self._chance.choice(self._places)
        mark: Mark = self._ledger.next_mark(self._number)
        self._unanswered += 1
        future = await producer.send(topic, value_of(mark, topic, partition), partition=partition)

        def reported(done: asyncio.Future[Any]) -> None:
            self._unanswered -= 1
            error = None if done.cancelled() else done.exception()
            if error is None and not done.cancelled():
                self._ledger.acknowledged((topic, partition), done.result().offset, mark)
            elif not self._ended:
                self._ledger.breach(f"{self.name}: {mark} was refused: {error!r}")

        future.add_done_callback(reported)

    def end(self) -> None:
        self._ended = True
        self._running.cancel()  # without a broker it may wait for metadata
