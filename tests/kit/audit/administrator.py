"""A real administrator under the audit: topics come and go, grow and change, records are deleted.

It works alone on what it changes: topics that come and go have no other producer, so that an acknowledgement speaks of
one life of a name. What it was not answered is in doubt until the next audit, and left alone until then.
"""

from __future__ import annotations

import random
import threading

import confluent_kafka
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from confluent_kafka.admin import NewPartitions as NewCount
from kit.audit.ledger import Ledger, PartitionLedger, TopicLedger
from kit.audit.producers import END_S, QUICK_CONFLUENT
from kit.audit.values import value_of

ANSWER_S = 15.0
PAUSE_S = 0.03
NAMES = [f"brief-{number}" for number in range(6)]
TRIMMED = "trimmed"
ALTERED = "kept"


class Administrator:
    """See the module. Works while `going` is set; `is_settled` between two things that it does."""

    def __init__(self, ledger: Ledger, going: threading.Event, bootstrap: str, chance: random.Random) -> None:
        self.is_settled = True
        self._ledger, self._going, self._chance = ledger, going, chance
        self._doubtful: set[str] = set()
        self._ended = threading.Event()
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **QUICK_CONFLUENT})
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "all", **QUICK_CONFLUENT})
        self._number = ledger.enlist("administrator", is_once=False)
        self._settings_count = 0
        self._thread = threading.Thread(target=self._run, name="administrator", daemon=True)
        self._thread.start()

    def audited(self) -> None:
        """An audit has settled what was in doubt."""
        self._doubtful.clear()

    def end(self) -> None:
        """Give up and close."""
        self._ended.set()
        self._thread.join(END_S)
        self._producer.purge()
        self._producer.flush(END_S)

    def _run(self) -> None:
        while not self._ended.wait(PAUSE_S):
            if not self._going.is_set():
                self.is_settled = not len(self._producer)
                self._producer.poll(0)
                continue
            self.is_settled = False
            try:
                self._chance.choice((self._create, self._delete, self._grow, self._alter, self._trim, self._trim))()
            except (KafkaException, TimeoutError):
                # In doubt, or refused because somebody else's wish came first; a start that has to be mended first may
                # take longer than anybody waits. That the broker answers in the end is seen by what comes next.
                self._producer.poll(0)

    def _free(self, *, exists: bool) -> str | None:
        with self._ledger.lock:
            names = [name for name in NAMES if (name in self._ledger.topics) is exists and name not in self._doubtful]
        return self._chance.choice(names) if names else None

    def _create(self) -> None:
        name = self._free(exists=False)
        if name is None:
            return
        count, settings = self._chance.randrange(1, 4), {"retention.ms": str(10**10 + self._chance.randrange(100))}
        with self._ledger.lock:
            self._ledger.creating[name] = (count, settings)
        self._doubtful.add(name)
        self._admin.create_topics([NewTopic(name, count, 1, config=settings)])[name].result(ANSWER_S)
        with self._ledger.lock:
            del self._ledger.creating[name]
            partitions = [PartitionLedger() for _ in range(count)]
            self._ledger.topics[name] = TopicLedger(name, partitions, settings, counts_asked=count)
            self._ledger.counts["topics created"] += 1
        self._doubtful.discard(name)
        for _ in range(self._chance.randrange(20)):
            self._send(name, self._chance.randrange(count))
        self._producer.flush(ANSWER_S)

    def _send(self, topic: str, partition: int) -> None:
        mark = self._ledger.next_mark(self._number)

        def reported(error: object, message: confluent_kafka.Message) -> None:
            if error is None:
                self._ledger.acknowledged((topic, partition), message.offset(), mark)

        self._producer.produce(topic, value_of(mark, topic, partition), partition=partition, on_delivery=reported)

    def _delete(self) -> None:
        name = self._free(exists=True)
        if name is None or len(self._producer):
            return
        with self._ledger.lock:
            self._ledger.deleting.add(name)
        self._doubtful.add(name)
        self._admin.delete_topics([name])[name].result(ANSWER_S)
        with self._ledger.lock:
            self._ledger.deleting.discard(name)
            self._ledger.topics.pop(name)
            self._ledger.counts["topics deleted"] += 1
        self._doubtful.discard(name)

    def _grow(self) -> None:
        name = self._free(exists=True)
        if name is None:
            return
        with self._ledger.lock:
            topic = self._ledger.topics[name]
            count = len(topic.partitions) + 1
            topic.counts_asked = max(topic.counts_asked, count)
        self._doubtful.add(name)
        self._admin.create_partitions([NewCount(name, count)])[name].result(ANSWER_S)
        with self._ledger.lock:
            topic.partitions.append(PartitionLedger())
            self._ledger.counts["topics grown"] += 1
        self._doubtful.discard(name)

    def _alter(self) -> None:
        if ALTERED in self._doubtful:
            return
        self._settings_count += 1
        with self._ledger.lock:
            topic = self._ledger.topics[ALTERED]
            settings = {**topic.settings, "retention.ms": str(10**10 + self._settings_count)}
            topic.settings_asked.append(settings)
        entry = ConfigEntry("retention.ms", settings["retention.ms"], incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, ALTERED, incremental_configs=[entry])
        self._doubtful.add(ALTERED)
        self._admin.incremental_alter_configs([resource])[resource].result(ANSWER_S)
        with self._ledger.lock:
            topic.settings, topic.settings_asked = settings, []
            self._ledger.counts["configurations altered"] += 1
        self._doubtful.discard(ALTERED)

    def _trim(self) -> None:
        with self._ledger.lock:
            partitions = self._ledger.topics[TRIMMED].partitions
            index = self._chance.randrange(len(partitions))
            known = partitions[index]
            reached = max([known.start, *(offset + 1 for offset in known.kept), *(offset + 1 for offset in known.soft)])
            offset = self._chance.randrange(known.start, reached + 1)
            known.start_asked = max(known.start_asked, offset)
        place = TopicPartition(TRIMMED, index, offset)
        answer = self._admin.delete_records([place])[place].result(ANSWER_S)
        with self._ledger.lock:
            known = self._ledger.topics[TRIMMED].partitions[index]
            known.start = max(known.start, answer.low_watermark)
            self._ledger.counts["deletions of records"] += 1
