"""Consumer: reads partitions that the program names, or that its group shares out, and commits how far it got.

`subscribe` to topics and let the group share them out, or `assign` partitions; then iterate (`async for record in
consumer`) or take what is there (`getmany`). Where a partition is read from: `seek` and its relatives, else what the
group has committed, else `auto_offset_reset`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, Unpack

from ottla.client.consumer_options import ConsumerKeywords, ConsumerOptions
from ottla.client.options import Servers, read_options
from ottla.client.partition_reader import PartitionReader
from ottla.client.structs import K, TopicPartition, V


class Consumer(PartitionReader[K, V], Generic[K, V]):
    """See the module. Use it as a context manager, or call `start` and `close`.

    `bootstrap_servers` is `host:port`, with commas or as a list; or a mapping of options under Kafka's dotted names,
    `bootstrap.servers` among them. Options as keywords have underscores: `ConsumerOptions` and `ClientOptions` say what
    each means. The deserializers make keys and values of bytes, and with them the type of the records. Raises
    ValueError for an option that does not exist or makes no sense.
    """

    def __init__(
        self,
        bootstrap_servers: Servers | Mapping[str, object] | None = None,
        *,
        key_deserializer: Callable[[bytes], K] | None = None,
        value_deserializer: Callable[[bytes], V] | None = None,
        **options: Unpack[ConsumerKeywords],
    ) -> None:
        given: dict[str, object] = {**options}
        if key_deserializer is not None:
            given["key_deserializer"] = key_deserializer
        if value_deserializer is not None:
            given["value_deserializer"] = value_deserializer
        super().__init__(*read_options(ConsumerOptions, bootstrap_servers, given))

    # Assignment -------------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read these partitions from now on and no others. Those that were assigned before keep their position."""
        cluster, _ = self._started()
        wanted = [TopicPartition(*partition) for partition in partitions]
        for topic, index in wanted:
            if index < 0 or not topic:
                raise ValueError(f"{topic!r} partition {index} cannot be")
        topics = {partition.topic for partition in wanted}
        for partition in self._partitions:
            if partition.topic not in topics:
                cluster.forget(partition.topic)
        self._replace_assignment(wanted, awaits_committed=False)
        cluster.want(topics)

    async def assign_topics(self, *topics: str) -> list[TopicPartition]:
        """Assign every partition of the topics, and return them; raises as `partitions_for`."""
        partitions = [TopicPartition(topic, index) for topic in topics for index in await self.partitions_for(topic)]
        self.assign(partitions)
        return partitions
