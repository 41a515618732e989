"""Where groups live: `__consumer_offsets`, its making, and the shard of each of its partitions.

A partition has no shard while it loads, while its directory is offline or full after a failed write, and when it is
gone. A shard that died is loaded again once its directory takes writes: a chore of this module's own looks every
`RELOAD_INTERVAL_MS`. The number of partitions is that of the start, or of the topic's making: groups are found by a
hash over it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING
from uuid import uuid4

from ottla.broker.groups.services import GroupServices
from ottla.broker.groups.settings import GroupSettings
from ottla.broker.groups.shard import Shard
from ottla.broker.groups.shard_load import ShardLoad
from ottla.broker.groups.topics import CatalogTopics
from ottla.broker.metadata.change_requests import NewTopic
from ottla.broker.metadata.internal_topics import OFFSETS_MAX_MESSAGE_BYTES
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.compression import Compression
from ottla.storage.formats.layout import OFFSETS_TOPIC

if TYPE_CHECKING:
    from ottla.broker.metadata.change_requests import TopicResult
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.runtime.timers import Timer
    from ottla.broker.services import Services

logger = logging.getLogger(__name__)

RELOAD_INTERVAL_MS = 1_000
LOAD_AT_START_BYTES = 256 << 10
"""So much of each partition is loaded before the first request: milliseconds."""

Made = Callable[["KafkaError | None"], None]


class GroupHome:
    """The shards of one node."""

    def __init__(self, services: Services, *, new_id: Callable[[], str] | None = None) -> None:
        config = services.config
        self.settings = GroupSettings.of(config, services.catalog.settings.group_configs)
        self.services = GroupServices(
            settings=self.settings,
            topics=CatalogTopics(services.catalog),
            clock=services.clock,
            clock_trust=services.clock_trust,
            timers=services.timers,
            counters=services.metrics.groups,
            new_id=new_id or (lambda: str(uuid4())),
            compression=Compression(config.offsets_topic_compression_codec),
            commit_timeout_ms=config.offsets_commit_timeout_ms,
        )
        self._services = services
        self._shards: list[Shard | None] = []
        self._loads: dict[int, ShardLoad] = {}
        self._deleted_meanwhile: dict[int, set[str]] = {}
        """Topics that were deleted while a partition has no shard: what its log holds of them must not come back."""
        self._waiting: list[Made] = []
        self._reload_timer: Timer | None = None
        self._is_closed = False

    # --- life --------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Begin to load what is there."""
        topic = self._services.catalog.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return
        self._adopt()
        for load in list(self._loads.values()):
            load.run_now(LOAD_AT_START_BYTES)

    def close(self) -> None:
        """Plan nothing more."""
        self._is_closed = True
        if self._reload_timer is not None:
            self._reload_timer.cancel()
        for load in self._loads.values():
            load.cancel()

    def make(self, made: Made) -> None:
        """Call `made` once the topic is there, at once if it is; with COORDINATOR_NOT_AVAILABLE if it cannot be."""
        if self._shards:
            made(None)
            return
        self._waiting.append(made)
        if len(self._waiting) > 1:
            return
        config = self._services.config
        wish = NewTopic(
            OFFSETS_TOPIC,
            partitions=config.offsets_topic_num_partitions,
            replication_factor=1,
            configs=[
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("segment.bytes", str(config.offsets_topic_segment_bytes)),
                ("max.message.bytes", str(OFFSETS_MAX_MESSAGE_BYTES)),
            ],
        )
        self._services.catalog.create_topics([wish], self._made)

    def _made(self, outcomes: list[TopicResult]) -> None:
        error = None
        if outcomes[0].as_existing().failed:
            logger.error("%s cannot be made: %s", OFFSETS_TOPIC, outcomes[0].error_message)
            error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, outcomes[0].error_message)
        elif not self._shards:
            self._adopt()
        waiting, self._waiting = self._waiting, []
        for made in waiting:
            made(error)

    # --- shards ------------------------------------------------------------------------------------------------------

    def ready_shard(self, group_id: str) -> Shard:
        """The shard of a group. Raises KafkaError COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR."""
        index = self.partition_of(group_id)
        shard = self._shards[index]
        if shard is not None:
            return shard
        if index in self._loads:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        raise KafkaError(ErrorCode.NOT_COORDINATOR, "the partition of the group cannot be used at the moment")

    def shard(self, group_id: str) -> Shard | None:
        """The shard of a group, None while there is none."""
        return self._shards[self.partition_of(group_id)] if self._shards else None

    def shards(self) -> list[Shard]:
        """All shards that can be used. Raises KafkaError COORDINATOR_LOAD_IN_PROGRESS while one loads."""
        if self._loads:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return self.usable_shards()

    def usable_shards(self) -> list[Shard]:
        """The shards that are there at the moment."""
        return [shard for shard in self._shards if shard is not None]

    def is_loading(self, group_id: str) -> bool:
        """Whether the group's shard is being loaded."""
        return bool(self._loads) and self.partition_of(group_id) in self._loads

    def is_available(self, group_id: str) -> bool:
        """Whether the group's shard is there or will be soon."""
        return self._shards[self.partition_of(group_id)] is not None or self.is_loading(group_id)

    @property
    def loads_under_way(self) -> int:
        """How many partitions are being loaded."""
        return len(self._loads)

    def partition_of(self, group_id: str) -> int:
        """The partition of a group: Java's hash of its id."""
        count = len(self._shards)
        return 0 if count == 1 else java_hash(group_id) % count

    def _adopt(self) -> None:
        """The topic is there: a shard for each partition."""
        topic = self._services.catalog.topics[OFFSETS_TOPIC]
        self._shards = [None] * len(topic.partitions)
        for index in range(len(self._shards)):
            self._begin_load(index)

    def _begin_load(self, index: int) -> None:
        partition = self._services.catalog.partition(OFFSETS_TOPIC, index)
        if partition is None or not self._takes_writes(partition):
            self._plan_reload()
            return
        shard = Shard(partition, self.services, self._died)
        load = self._loads[index] = ShardLoad(self._services, shard, lambda error: self._loaded(index, shard, error))
        load.start()

    def _loaded(self, index: int, shard: Shard, error: BaseException | None) -> None:
        if self._loads.pop(index, None) is None or self._is_closed:
            return
        if error is not None:
            logger.error("%s-%d: groups cannot be loaded: %s", OFFSETS_TOPIC, index, error)
            self._plan_reload()
            return
        self._shards[index] = shard
        shard.on_topics_changed(self._deleted_meanwhile.pop(index, ()))

    def _died(self, shard: Shard) -> None:
        self._deleted_meanwhile.setdefault(shard.partition.index, set()).update(shard.deleted_topics)
        if shard in self._shards:
            self._shards[self._shards.index(shard)] = None
            self._plan_reload()

    def _takes_writes(self, partition: Partition) -> bool:
        home = self._services.log_manager.directory_of(OFFSETS_TOPIC, partition.index)
        return home is not None and home.takes_groups and partition.log.error is None and not partition.is_closed

    def _plan_reload(self) -> None:
        if self._reload_timer is None and not self._is_closed:
            at_ms = self._services.clock.monotonic_ms() + RELOAD_INTERVAL_MS
            self._reload_timer = self._services.timers.at(at_ms, self._reload)

    def _reload(self) -> None:
        self._reload_timer = None
        for index, shard in enumerate(self._shards):
            if shard is None and index not in self._loads:
                self._begin_load(index)

    # --- what happens ------------------------------------------------------------------------------------------------

    def on_topics_changed(self, deleted: Collection[str]) -> None:
        """The catalog's topics are other ones now; without `__consumer_offsets` there are no groups."""
        if OFFSETS_TOPIC in deleted:
            gone = self.usable_shards()
            for load in self._loads.values():
                load.cancel()
            self._shards, self._loads = [], {}
            for shard in gone:
                shard.die(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted"))
            self._deleted_meanwhile.clear()
            return
        for index, present in enumerate(list(self._shards)):
            if present is not None:
                present.on_topics_changed(deleted)
            elif deleted:
                self._deleted_meanwhile.setdefault(index, set()).update(deleted)

    def expire_some(self) -> bool:
        """A step of expiry in each shard; whether one left groups over."""
        left_over = [shard.expire_some() for shard in self.usable_shards()]
        return any(left_over)


def java_hash(text: str) -> int:
    """`Utils.abs(text.hashCode())` of Java: a hash over UTF-16 units, without its sign; 0 for the smallest number."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(units), 2):
        value = (31 * value + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    if value >= 1 << 31:
        value = (1 << 32) - value
    return 0 if value == 1 << 31 else value
