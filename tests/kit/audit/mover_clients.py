"""The client libraries of the processes that move records exactly once, behind one interface.

The group's metadata (member and generation) is taken before the records are, and not again later: by then the client
may have lost the partitions, and a commit without a generation is not compared with the group's. Ottla's own client
sees to that by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from kit.audit.moving import GROUP, INPUT, OUTPUT, transformed

R = TypeVar("R")

TRANSACTION_TIMEOUT_MS = 8_000
SESSION_TIMEOUT_MS = 4_000
HEARTBEAT_MS = 300
PATIENCE_S = 45.0
"""Far longer than any start of the broker."""
CLASSIC = {
    "partition.assignment.strategy": "range",
    "session.timeout.ms": SESSION_TIMEOUT_MS,
    "heartbeat.interval.ms": HEARTBEAT_MS,
}
KIP_848 = {"group.protocol": "consumer"}
"""Session and heartbeats are the broker's choice."""


class Taken(NamedTuple):
    """A record of the input."""

    partition: int
    offset: int
    value: bytes


class Mover(Protocol):
    """What the loop asks of a client library."""

    errors: tuple[type[Exception], ...]
    """What its calls raise."""

    def take(self, most: int) -> Sequence[Taken]:
        """The next records, of partitions that are assigned now; none when there are none."""

    def begin(self) -> None:
        """Begin a transaction."""

    def produce(self, key: bytes, records: Sequence[Taken]) -> None:
        """Send what these records become."""

    def flush(self) -> None:
        """Wait until what was sent is acknowledged."""

    def end(self, records: Sequence[Taken], *, is_commit: bool) -> None:
        """Add the offsets after these records, and end the transaction."""

    def abort(self) -> None:
        """Abort after an error. Raises what cannot be gone on after."""

    def rewind(self) -> None:
        """Go back to the committed offsets."""


def next_offsets(records: Sequence[Taken]) -> dict[int, int]:
    """Where the group continues after these records."""
    return {one.partition: one.offset + 1 for one in records}


class ConfluentMover:
    """confluent-kafka (librdkafka), as a member of the classic or of the consumer protocol, static or not."""

    def __init__(self, bootstrap: str, name: str, *, is_kip_848: bool, is_static: bool) -> None:
        import confluent_kafka
        from kit.audit.producers import QUICK_CONFLUENT

        self._kafka = confluent_kafka
        self.errors: tuple[type[Exception], ...] = (confluent_kafka.KafkaException, BufferError)
        # librdkafka 2.16 may remember as coordinator a handle that it has given up for another bootstrap: it waits for
        # ever then.
        settings = {"bootstrap.servers": bootstrap, "metadata.recovery.strategy": "none", **QUICK_CONFLUENT}
        self._producer = confluent_kafka.Producer(
            {**settings, "transactional.id": name, "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS, "linger.ms": 1}
        )
        self._patiently(lambda: self._producer.init_transactions(PATIENCE_S))
        self._taken: list[Taken] = []
        self._metadata: Any = None
        self._is_kip_848 = is_kip_848
        self._consumer = confluent_kafka.Consumer(
            {
                **settings,
                **(KIP_848 if is_kip_848 else CLASSIC),
                **({"group.instance.id": name} if is_static else {}),
                "group.id": GROUP,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
                "fetch.error.backoff.ms": 10,
            }
        )
        self._consumer.subscribe([INPUT], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)

    def _assigned(self, consumer: Any, partitions: Sequence[Any]) -> None:
        self._revoked(consumer, partitions)
        self._metadata = consumer.consumer_group_metadata()

    def _revoked(self, _: object, partitions: Sequence[Any]) -> None:
        gone = {one.partition for one in partitions}
        self._taken = [one for one in self._taken if one.partition not in gone]

    def _lost(self, consumer: Any, partitions: Sequence[Any]) -> None:
        self._revoked(consumer, partitions)
        self._metadata = None

    def take(self, most: int) -> Sequence[Taken]:
        self._taken = []
        if self._is_kip_848 and self._metadata is not None:
            # The epoch changes without an assignment. Before anything is taken: it must not be newer than that.
            self._metadata = self._consumer.consumer_group_metadata()
        while len(self._taken) < most:
            message = self._consumer.poll(0.01 if self._taken else 0.2)
            if message is None:
                break
            error = message.error()
            if error is None:
                self._taken.append(Taken(message.partition(), message.offset(), message.value()))
            elif error.fatal():
                raise SystemExit(f"ends: {error!r}")
        if self._taken and self._metadata is None:
            raise SystemExit("ends: records without a generation")
        return list(self._taken)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def produce(self, key: bytes, records: Sequence[Taken]) -> None:
        for one in records:
            self._producer.produce(OUTPUT, transformed(one.value), key, one.partition)
        self._producer.poll(0)

    def flush(self) -> None:
        self._producer.flush(PATIENCE_S)

    def end(self, records: Sequence[Taken], *, is_commit: bool) -> None:
        offsets = [self._kafka.TopicPartition(INPUT, *each) for each in next_offsets(records).items()]
        self._patiently(lambda: self._producer.send_offsets_to_transaction(offsets, self._metadata, PATIENCE_S))
        if is_commit:
            self._patiently(lambda: self._producer.commit_transaction(PATIENCE_S))
        else:
            self.abort()

    def abort(self) -> None:
        self._patiently(lambda: self._producer.abort_transaction(PATIENCE_S))

    def rewind(self) -> None:
        assigned = self._consumer.assignment()
        for one in self._patiently(lambda: self._consumer.committed(assigned, PATIENCE_S)):
            self._consumer.seek(self._kafka.TopicPartition(one.topic, one.partition, max(one.offset, 0)))

    def _patiently(self, call: Callable[[], R]) -> R:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                return call()
            except self._kafka.KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise


class KafkaPythonMover:
    """kafka-python, which begins at the committed offsets after each assignment because its mover sees to that.

    By itself kafka-python 3.0.12 does not always do so, two ways (`tests/crash/test_mover_clients.py` has both):

    - It keeps its own position of a partition that it had before a rebalance and has after it. If it is removed from
      the group while it joins (its SyncGroup is answered UNKNOWN_MEMBER_ID), or misses a generation, another member had
      the partition in between.
    - It keeps an OffsetFetch that was not answered within a `poll`, whatever generation comes, and takes the answer for
      one to its next question about the same partitions.

    Either way it writes again what others have moved, in its new generation: no broker can refuse that.
    """

    def __init__(self, bootstrap: str, name: str) -> None:
        import kafka
        from kafka.errors import KafkaError

        self._kafka = kafka
        self.errors: tuple[type[Exception], ...] = (KafkaError, AssertionError)
        self.metadata: Any = None
        """The group's, as of the newest assignment."""
        self.must_rewind = False
        """Whether partitions were assigned since it went to the committed offsets."""
        quick = {
            "bootstrap_servers": bootstrap,
            "retry_backoff_ms": 20,
            "reconnect_backoff_ms": 20,
            "reconnect_backoff_max_ms": 60,
        }
        self._producer = kafka.KafkaProducer(
            transactional_id=name, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS, linger_ms=1, **quick
        )
        self._producer.init_transactions()
        self._consumer = consumer = kafka.KafkaConsumer(
            group_id=GROUP,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            partition_assignment_strategy=[kafka.coordinator.assignors.range.RangePartitionAssignor],
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            fetch_max_wait_ms=20,
            **quick,
        )
        mover = self

        class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
            def on_partitions_assigned(self, assigned: object) -> None:
                mover.metadata = consumer.group_metadata()
                mover.must_rewind = True

            def on_partitions_revoked(self, revoked: object) -> None:
                mover.metadata = None

        self._consumer.subscribe([INPUT], listener=Listener())

    def take(self, most: int) -> Sequence[Taken]:
        polled = self._consumer.poll(timeout_ms=200, max_records=most)
        if self.must_rewind:
            self.must_rewind = False
            self.rewind()
            return ()
        if polled and (self.metadata is None or self.metadata.generation_id < 0):
            raise SystemExit("ends: records without a generation")  # it was lost before it could be taken
        return [Taken(where.partition, one.offset, one.value) for where, found in polled.items() for one in found]

    def begin(self) -> None:
        self._producer.begin_transaction()

    def produce(self, key: bytes, records: Sequence[Taken]) -> None:
        for one in records:
            self._producer.send(OUTPUT, transformed(one.value), key, partition=one.partition)

    def flush(self) -> None:
        self._producer.flush(PATIENCE_S)

    def end(self, records: Sequence[Taken], *, is_commit: bool) -> None:
        offsets = {
            self._kafka.TopicPartition(INPUT, partition): self._kafka.OffsetAndMetadata(offset, "", -1)
            for partition, offset in next_offsets(records).items()
        }
        self._producer.send_offsets_to_transaction(offsets, self.metadata)
        if is_commit:
            self._producer.commit_transaction()
        else:
            self.abort()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def rewind(self) -> None:
        for where in self._consumer.assignment():
            self._consumer.committed(where)  # this may be the answer to a question of before
            self._consumer.seek(where, self._consumer.committed(where) or 0)

    def close(self) -> None:
        """Leave the group, and end the connections; what is not sent is given up."""
        self._consumer.close(timeout_ms=1000)
        self._producer.close(timeout=1)


class OttlaMover:
    """The bundled client, in its blocking form."""

    def __init__(self, bootstrap: str, name: str, *, is_kip_848: bool) -> None:
        from ottla import Consumer, Producer
        from ottla.client.errors import KafkaError

        self.errors: tuple[type[Exception], ...] = (KafkaError,)
        self._transaction: Any = None
        self._producer = Producer(
            bootstrap,
            transactional_id=name,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
            linger_ms=1,
            max_block_ms=int(PATIENCE_S * 1000),
        )
        of_the_group: dict[str, Any] = {"group_protocol": "consumer"}
        if not is_kip_848:
            of_the_group = {"session_timeout_ms": SESSION_TIMEOUT_MS, "heartbeat_interval_ms": HEARTBEAT_MS}
        self._consumer = Consumer(
            bootstrap,
            group_id=GROUP,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=20,
            **of_the_group,
        )
        self._consumer.subscribe([INPUT])

    def take(self, most: int) -> Sequence[Taken]:
        polled = self._consumer.getmany(timeout_ms=200, max_records=most)
        return [
            Taken(where.partition, one.offset, one.value or b"") for where, found in polled.items() for one in found
        ]

    def begin(self) -> None:
        self._transaction = self._producer.transaction()
        self._transaction.__enter__()

    def produce(self, key: bytes, records: Sequence[Taken]) -> None:
        for one in records:
            self._producer.send(OUTPUT, transformed(one.value), key=key, partition=one.partition)

    def flush(self) -> None:
        self._producer.flush()

    def end(self, records: Sequence[Taken], *, is_commit: bool) -> None:
        self._transaction.send_offsets(self._consumer)
        if is_commit:
            self._producer.commit_transaction()
        else:
            self.abort()

    def abort(self) -> None:
        self._transaction.abort()

    def rewind(self) -> None:
        self._consumer.seek_to_committed()
