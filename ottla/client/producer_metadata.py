"""The topics of a producer: their partitions, looked up when they are needed (Kafka's ProducerMetadata).

The metadata of a topic is requested from the first record on, until no record was sent for `metadata_max_idle_ms`. Its
queues are kept even then: if one began again at sequence 0 under the same producer id, the broker would treat new
records as duplicates.
"""

from __future__ import annotations

import asyncio

from ottla.client.accumulator import Batch
from ottla.client.cluster import Cluster
from ottla.client.producer_options import ProducerOptions
from ottla.client.shared_tasks import outcome_of
from ottla.client_core.partition_queue import PartitionQueue


class ProducerMetadata:
    """See the module. `queues` is the producer's dict: the partitions to which records may be sent, by topic."""

    def __init__(
        self, cluster: Cluster, options: ProducerOptions, queues: dict[str, list[PartitionQueue[Batch]]]
    ) -> None:
        self._cluster = cluster
        self._batch_bytes = options.batch_size
        self._max_block_ms = options.max_block_ms
        self._max_idle_s = options.metadata_max_idle_ms / 1000
        self._queues = queues
        self._every_queue: dict[str, list[PartitionQueue[Batch]]] = {}
        """All queues, including those of idle topics and of partitions that were missing in the last answer, since a
        broker's metadata may be outdated."""
        self._opening: dict[str, asyncio.Task[list[PartitionQueue[Batch]]]] = {}

    async def open(self, topic: str) -> list[PartitionQueue[Batch]]:
        """Look up a topic's partitions. Concurrent callers wait for the same answer, and keep their order.

        Raises KafkaError if the topic is not available within `max_block_ms`.
        """
        opening = self._opening.get(topic)
        if opening is None:
            opening = self._opening[topic] = asyncio.create_task(self._learn(topic), name=f"ottla-topic-{topic}")
            opening.add_done_callback(lambda _: self._opening.pop(topic, None))
        return await outcome_of(opening)

    def update(self, now: float) -> None:
        """Apply new metadata: adapt the numbers of partitions, and drop idle topics. `now` is the loop's time."""
        self._forget_idle(now - self._max_idle_s)
        for topic, queues in self._queues.items():
            known = self._cluster.topics.get(topic)
            if known is not None and known.is_usable:
                self._fit(topic, queues, len(known.partitions))

    def stop(self) -> None:
        """Cancel all look-ups; their callers are cancelled, or fail."""
        for opening in self._opening.values():
            opening.cancel()

    async def _learn(self, topic: str) -> list[PartitionQueue[Batch]]:
        known = await self._cluster.topic(topic, self._max_block_ms)
        queues = self._queues.setdefault(topic, [])
        self._fit(topic, queues, len(known.partitions))
        return queues

    def _forget_idle(self, before: float) -> None:
        """Stop requesting the metadata of topics to which nothing was sent for `metadata_max_idle_ms`."""
        for topic in list(self._queues):
            if all(queue.is_idle and queue.used_at < before for queue in self._every_queue[topic]):
                del self._queues[topic]
                self._cluster.forget(topic)

    def _fit(self, topic: str, queues: list[PartitionQueue[Batch]], partitions: int) -> None:
        """Adapt the number of queues to that of partitions; a topic that was created again may have fewer."""
        every = self._every_queue.setdefault(topic, [])
        every.extend(PartitionQueue(topic, index, self._batch_bytes) for index in range(len(every), partitions))
        queues[:] = every[:partitions]
