"""One face for the transactional producers, and the readers of both isolation levels, of three client libraries.

The libraries name the same steps in other words, and aiokafka wants an event loop, which each of its objects has for
itself here and drives only while one of its methods is called.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Protocol, Self

import aiokafka
import confluent_kafka
import kafka
from aiokafka.errors import InvalidProducerEpoch, ProducerFenced
from kafka.errors import InvalidProducerEpochError, ProducerFencedError

LIMIT_S = 60.0


class Transactional(Protocol):
    """A producer with a transactional id; it has been initialized, so that an earlier one of its id is fenced."""

    def begin(self) -> None: ...
    def send(self, topic: str, partition: int, value: str) -> None:
        """Returns when the broker has acknowledged the record; raises what it was refused with."""

    def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class Reader(Protocol):
    """A consumer of some partitions of one topic, from their beginning, without a group."""

    def poll(self, timeout_s: float) -> str | None:
        """The next value; None when none has come in this time."""

    def close(self) -> None: ...


class Library:
    """What a test asks of a client library: producers and readers, which are closed when its block ends."""

    name = ""
    fencing: tuple[type[Exception], ...] = ()

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._opened: list[Transactional | Reader] = []

    def producer(self, transactional_id: str, timeout_ms: int = 60_000) -> Any:
        """A Transactional that has been initialized."""
        opened = self._producer(transactional_id, timeout_ms)
        self._opened.append(opened)
        return opened

    def reader(self, topic: str, isolation: str, partitions: int = 1) -> Any:
        """A Reader of partitions 0 and up."""
        opened = self._reader(topic, isolation, partitions)
        self._opened.append(opened)
        return opened

    def read_until(self, last: str, topic: str, isolation: str, partitions: int = 1) -> list[str]:
        """Every value up to `last`, which has to be the last of each partition."""
        reader = self.reader(topic, isolation, partitions)
        values: list[str] = []
        while values.count(last) < partitions:
            value = reader.poll(LIMIT_S)
            assert value is not None, f"{last!r} never came; only {values}"
            values.append(value)
        return [value for value in values if value != last]

    def is_fenced(self, error: Exception) -> bool:
        """Whether the producer was refused because there is a newer one, or a newer epoch."""
        return isinstance(error, self.fencing)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for opened in reversed(self._opened):
            opened.close()

    def _producer(self, transactional_id: str, timeout_ms: int) -> Transactional:
        raise NotImplementedError

    def _reader(self, topic: str, isolation: str, partitions: int) -> Reader:
        raise NotImplementedError


# --- confluent-kafka


class Confluent(Library):
    name = "confluent-kafka"

    def is_fenced(self, error: Exception) -> bool:
        code = error.args[0].code() if isinstance(error, confluent_kafka.KafkaException) else None
        known = confluent_kafka.KafkaError
        return code in {known._FENCED, known.PRODUCER_FENCED, known.INVALID_PRODUCER_EPOCH}

    def _producer(self, transactional_id: str, timeout_ms: int) -> Transactional:
        return ConfluentProducer(self.bootstrap, transactional_id, timeout_ms)

    def _reader(self, topic: str, isolation: str, partitions: int) -> Reader:
        return ConfluentReader(self.bootstrap, topic, isolation, partitions)


class ConfluentProducer:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._bootstrap = bootstrap
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "linger.ms": 0,
            }
        )
        self._producer.init_transactions(LIMIT_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: str) -> None:
        errors: list[confluent_kafka.KafkaError] = []

        def delivered(error: confluent_kafka.KafkaError | None, _: object) -> None:
            if error is not None:
                errors.append(error)

        self._producer.produce(topic, value, partition=partition, on_delivery=delivered)
        assert self._producer.flush(LIMIT_S) == 0
        if errors:
            raise confluent_kafka.KafkaException(errors[0])

    def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})
        metadata = consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction(
            [confluent_kafka.TopicPartition(topic, partition, offset)], metadata, LIMIT_S
        )
        consumer.close()

    def commit(self) -> None:
        self._producer.commit_transaction(LIMIT_S)

    def abort(self) -> None:
        self._producer.abort_transaction(LIMIT_S)

    def close(self) -> None:
        """Nothing: it leaves its transaction open, as a producer that has died."""


class ConfluentReader:
    def __init__(self, bootstrap: str, topic: str, isolation: str, partitions: int) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "isolation.level": isolation}
        self._consumer = confluent_kafka.Consumer({**settings, "enable.auto.commit": False})
        places = [confluent_kafka.TopicPartition(topic, index, 0) for index in range(partitions)]
        self._consumer.assign(places)

    def poll(self, timeout_s: float) -> str | None:
        message = self._consumer.poll(timeout_s)
        if message is None:
            return None
        assert message.error() is None, message.error()
        return str(message.value(), "utf-8")

    def close(self) -> None:
        self._consumer.close()


# --- aiokafka


class Aiokafka(Library):
    name = "aiokafka"
    fencing = (ProducerFenced, InvalidProducerEpoch)

    def _producer(self, transactional_id: str, timeout_ms: int) -> Transactional:
        return AiokafkaProducer(self.bootstrap, transactional_id, timeout_ms)

    def _reader(self, topic: str, isolation: str, partitions: int) -> Reader:
        return AiokafkaReader(self.bootstrap, topic, isolation, partitions)


class AiokafkaProducer:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._runner = asyncio.Runner()

        async def begin() -> aiokafka.AIOKafkaProducer:
            settings = {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms}
            producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, **settings)
            await producer.start()
            return producer

        self._producer = self._runner.run(begin())

    def begin(self) -> None:
        self._runner.run(self._producer.begin_transaction())

    def send(self, topic: str, partition: int, value: str) -> None:
        self._runner.run(self._producer.send_and_wait(topic, value.encode(), partition=partition))

    def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        offsets = {aiokafka.TopicPartition(topic, partition): offset}
        self._runner.run(self._producer.send_offsets_to_transaction(offsets, group))

    def commit(self) -> None:
        self._runner.run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._runner.run(self._producer.abort_transaction())

    def close(self) -> None:
        """It leaves its transaction open, as a producer that has died: only its connections end, with the loop."""
        self._runner.run(self._producer.client.close())
        self._runner.close()


class AiokafkaReader:
    def __init__(self, bootstrap: str, topic: str, isolation: str, partitions: int) -> None:
        self._runner = asyncio.Runner()
        places = [aiokafka.TopicPartition(topic, index) for index in range(partitions)]

        async def begin() -> aiokafka.AIOKafkaConsumer:
            consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation)
            await consumer.start()
            consumer.assign(places)
            await consumer.seek_to_beginning(*places)
            return consumer

        self._consumer = self._runner.run(begin())

    def poll(self, timeout_s: float) -> str | None:
        some = self._runner.run(self._consumer.getmany(timeout_ms=int(timeout_s * 1000), max_records=1))
        values = [record.value.decode() for records in some.values() for record in records]
        return values[0] if values else None

    def close(self) -> None:
        self._runner.run(self._consumer.stop())
        self._runner.close()


# --- kafka-python


class KafkaPython(Library):
    name = "kafka-python"
    fencing = (ProducerFencedError, InvalidProducerEpochError)

    def _producer(self, transactional_id: str, timeout_ms: int) -> Transactional:
        return KafkaPythonProducer(self.bootstrap, transactional_id, timeout_ms)

    def _reader(self, topic: str, isolation: str, partitions: int) -> Reader:
        return KafkaPythonReader(self.bootstrap, topic, isolation, partitions)


class KafkaPythonProducer:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: str) -> None:
        self._producer.send(topic, value.encode(), partition=partition).get(LIMIT_S)

    def send_offset(self, group: str, topic: str, partition: int, offset: int) -> None:
        place, end = kafka.TopicPartition(topic, partition), kafka.OffsetAndMetadata(offset, "", -1)
        self._producer.send_offsets_to_transaction({place: end}, group)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=0)


class KafkaPythonReader:
    def __init__(self, bootstrap: str, topic: str, isolation: str, partitions: int) -> None:
        self._consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation)
        places = [kafka.TopicPartition(topic, index) for index in range(partitions)]
        self._consumer.assign(places)
        self._consumer.seek_to_beginning(*places)

    def poll(self, timeout_s: float) -> str | None:
        some = self._consumer.poll(timeout_ms=int(timeout_s * 1000), max_records=1)
        values = [record.value.decode() for records in some.values() for record in records]
        return values[0] if values else None

    def close(self) -> None:
        self._consumer.close()


LIBRARIES: list[type[Library]] = [Confluent, Aiokafka, KafkaPython]
