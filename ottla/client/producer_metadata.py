"""The topics that a producer sends to: their partitions, learned when they are needed (Kafka's ProducerMetadata).

A topic is asked about from the first record for it until none was sent for `metadata_max_idle_ms`. Its queues are kept
all the same: one that began again at sequence 0 under the same producer id would make the broker take new records for
old ones.
"""

from __future__ import annotations

import asyncio

from ottla.client.accumulator import Batch
from ottla.client.cluster import Cluster
from ottla.client.producer_options import ProducerOptions
from ottla.client.shared_tasks import outcome_of
from ottla.client_core.partition_queue import PartitionQueue


class ProducerMetadata:
    """See the module. `queues` is the producer's: the partitions that records may be sent to, by topic."""

    def __init__(
        self, cluster: Cluster, options: ProducerOptions, queues: dict[str, list[PartitionQueue[Batch]]]
    ) -> None:
        self._cluster = cluster
        self._batch_bytes = options.batch_size
        self._max_block_ms = options.max_block_ms
        self._max_idle_s = options.metadata_max_idle_ms / 1000
        self._queues = queues
        self._every_queue: dict[str, list[PartitionQueue[Batch]]] = {}
        """Those of topics that rest, and those that the last answer did not name, too: a broker may be behind."""
        self._opening: dict[str, asyncio.Task[list[PartitionQueue[Batch]]]] = {}

    async def open(self, topic: str) -> list[PartitionQueue[Batch]]:
        """Learn a topic's partitions. Callers that send to it meanwhile wait for the same answer, and keep their order.

        Raises KafkaError when the topic cannot be had within `max_block_ms`.
        """
        opening = self._opening.get(topic)
        if opening is None:
            opening = self._opening[topic] = asyncio.create_task(self._learn(topic), name=f"ottla-topic-{topic}")
            opening.add_done_callback(lambda _: self._opening.pop(topic, None))
        return await outcome_of(opening)

    def update(self, now: float) -> None:
        """Metadata came: follow the numbers of partitions, and let go of topics that rest. `now` is the loop's time."""
        self._forget_idle(now - self._max_idle_s)
        for topic, queues in self._queues.items():
            known = self._cluster.topics.get(topic)
            if known is not None and known.is_usable:
                self._fit(topic, queues, len(known.partitions))

    def stop(self) -> None:
        """Learn nothing more; what waits for it is cancelled, or fails."""
        for opening in self._opening.values():
            opening.cancel()

    async def _learn(self, topic: str) -> list[PartitionQueue[Batch]]:
        known = await self._cluster.topic(topic, self._max_block_ms)
        queues = self._queues.setdefault(topic, [])
        self._fit(topic, queues, len(known.partitions))
        return queues

    def _forget_idle(self, before: float) -> None:
        """Stop asking about topics to which nothing was sent for `metadata_max_idle_ms`."""
        for topic in list(self._queues):
            if all(queue.is_idle and queue.used_at < before for queue in self._every_queue[topic]):
                del self._queues[topic]
                self._cluster.forget(topic)

    def _fit(self, topic: str, queues: list[PartitionQueue[Batch]], partitions: int) -> None:
        """Have as many queues as there are partitions; a topic that was created again may have fewer."""
        every = self._every_queue.setdefault(topic, [])
        every.extend(PartitionQueue(topic, index, self._batch_bytes) for index in range(len(every), partitions))
        queues[:] = every[:partitions]
