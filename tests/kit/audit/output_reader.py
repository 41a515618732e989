"""A read_committed reader that follows the output of the audit's movers through all deaths of the broker."""

from __future__ import annotations

import threading
import time

import confluent_kafka
from confluent_kafka import KafkaException, TopicPartition
from kit.audit.moving import OUTPUT, PARTITIONS, Moved
from kit.audit.producers import END_S, QUICK_CONFLUENT
from kit.audit.transactions_seen import ends_of

MOST_RECORDS = 2_000
POLL_S = 0.05


class OutputReader:
    """Hands each record to `moved`, in a thread of its own, until `end`."""

    def __init__(self, moved: Moved, bootstrap: str, isolation_level: str = "read_committed") -> None:
        self._moved, self._bootstrap = moved, bootstrap
        self._ended = threading.Event()
        self._reached = [0] * PARTITIONS
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "auditor",
                "isolation.level": isolation_level,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.wait.max.ms": 20,
                "fetch.error.backoff.ms": 10,
                **QUICK_CONFLUENT,
            }
        )
        self._consumer.assign([TopicPartition(OUTPUT, partition, 0) for partition in range(PARTITIONS)])
        self._thread = threading.Thread(target=self._run, name="reader of the output", daemon=True)
        self._thread.start()

    def reach_end(self, patience_s: float) -> bool:
        """Wait until everything up to the last stable offsets is read; whether it came to that."""
        _, stable = ends_of(self._bootstrap, [(OUTPUT, partition) for partition in range(PARTITIONS)])
        deadline = time.monotonic() + patience_s
        while any(self._reached[partition] < offset for (_, partition), offset in stable.items()):
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True

    def end(self) -> None:
        """Leave."""
        self._ended.set()
        self._thread.join(END_S)
        self._consumer.close()

    def _run(self) -> None:
        while not self._ended.is_set():
            for message in self._consumer.consume(MOST_RECORDS, POLL_S):
                if message.error() is None:
                    self._moved.take(message.partition(), message.offset(), message.key(), message.value())
                elif not message.error().retriable() and message.error().code() > 0:
                    self._moved.breach(f"the reader of the output: {message.error()}")
            self._note_positions()

    def _note_positions(self) -> None:
        """Positions are past markers and aborted records, too."""
        try:
            positions = self._consumer.position([TopicPartition(OUTPUT, each) for each in range(PARTITIONS)])
        except KafkaException:
            return
        for one in positions:
            self._reached[one.partition] = max(self._reached[one.partition], one.offset)
