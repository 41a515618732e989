"""A log directory with everything in it, made by a real broker and real clients: bits are flipped in copies of it.

Ten partitions of a plain topic in all codecs, two of a compacted one, committed offsets, producers' snapshots, two
leader epochs. The broker was killed, and its recovery points are put back into the middle of the logs (an older
checkpoint is what a crash leaves), so that each log has a part below and a part past its recovery point. The high
watermark is known of every other partition. What the clients read before is what must be read ever after.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kit.audit import damage
from kit.audit.ledger import Place
from kit.audit.producers import QUICK_CONFLUENT
from kit.audit.reading import Rows, committed, read_with_confluent
from kit.audit.values import Mark, key_of, value_of
from kit.broker import BrokerProcess

ANSWER_S = 30.0
PLAIN, COMPACTED = "plain", "compacted"
TOPICS = {PLAIN: (10, {}), COMPACTED: (2, {"cleanup.policy": "compact", "segment.bytes": "8192"})}
CODECS = ("none", "gzip", "lz4", "zstd", "snappy")
RECORDS = 130
"""In each partition and life; a batch has a handful."""
GROUP = "reader"
SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "20",
    "log.cleaner.min.cleanable.ratio": "0.3",
    "log.index.interval.bytes": "1024",
    "log.segment.bytes": "16384",
    "log.segment.delete.delay.ms": "50",
    "offsets.topic.num.partitions": "1",
    "ottla.http.listener": "127.0.0.1:0",
    # What is damaged are the logs' own files: a start would mend their ends by the redo log.
    "ottla.redo.log.enable": "false",
}


@dataclass
class Specimen:
    """See the module."""

    directory: Path
    rows: dict[Place, Rows]
    commits: dict[Place, int]
    recovery_points: dict[str, int]
    """By the names of the partitions' directories."""

    @property
    def places(self) -> list[Place]:
        """All partitions but internal ones."""
        return sorted(self.rows)

    def copy(self, to: Path) -> None:
        """Make the directory again, for something to be done to it."""
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(self.directory, to)


def make_specimen(directory: Path) -> Specimen:
    """Make one in `directory`."""
    broker = BrokerProcess(directory, SETTINGS)
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, **QUICK_CONFLUENT})
        wanted = [NewTopic(name, count, 1, config=settings) for name, (count, settings) in TOPICS.items()]
        for answer in admin.create_topics(wanted).values():
            answer.result(ANSWER_S)
        _produce(broker.bootstrap, 0)
        broker.kill()
        broker.start()
        _produce(broker.bootstrap, 1)
        places = [(name, index) for name, (count, _) in TOPICS.items() for index in range(count)]
        _commit(broker.bootstrap, places)
        commits = committed(broker.bootstrap, GROUP)
        found = read_with_confluent(broker.bootstrap, places)
        broker.kill()
    points = {path.name: _middle(path) for path in damage.partitions(directory) if not path.name.startswith("__c")}
    _lower(directory / damage.RECOVERY_POINTS, {**damage.rows(directory / damage.RECOVERY_POINTS), **points})
    ends = {f"{name}-{index}": end for (name, index), (_, end, _) in found.items() if index % 2}
    _lower(directory / damage.HIGH_WATERMARKS, ends)
    return Specimen(directory, {place: rows for place, (_, _, rows) in found.items()}, commits, points)


def _produce(bootstrap: str, life: int) -> None:
    for number, codec in enumerate(CODECS):
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "batch.num.messages": 5,
                "linger.ms": 5,
                "compression.type": codec,
                **QUICK_CONFLUENT,
            }
        )
        for sequence in range(RECORDS):
            for index in range(number, TOPICS[PLAIN][0], len(CODECS)):
                mark = Mark(number, life * RECORDS + sequence)
                producer.produce(PLAIN, value_of(mark, PLAIN, index), partition=index)
            if number < TOPICS[COMPACTED][0]:
                mark = Mark(number, life * RECORDS + sequence)
                producer.produce(COMPACTED, value_of(mark, COMPACTED, number), key_of(mark), number)
        assert producer.flush(ANSWER_S) == 0


def _commit(bootstrap: str, places: list[Place]) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, **QUICK_CONFLUENT})
    try:
        for offset in range(1, 6):
            wanted = [TopicPartition(*place, offset) for place in places]
            consumer.commit(offsets=wanted, asynchronous=False)
    finally:
        consumer.close()


def _middle(partition: Path) -> int:
    """A batch's base offset, more than half way through the log."""
    bases = [batch.base_offset for segment in damage.segments(partition) for batch in damage.batches(segment)]
    return bases[len(bases) * 3 // 5] if bases else 0


def _lower(checkpoint: Path, points: dict[str, int]) -> None:
    lines = [" ".join((*name.rsplit("-", 1), str(offset))) for name, offset in sorted(points.items())]
    checkpoint.write_text("\n".join(["0", str(len(lines)), *lines, ""]))
