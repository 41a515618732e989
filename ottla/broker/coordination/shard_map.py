"""The shards of an internal topic: one for each partition, found by the hash of a key.

A partition has no shard while it loads, while its directory is offline or full after a failed write, and after it has
been deleted. A shard that died is loaded again once its directory takes writes: a timer of this module checks that
every `RELOAD_INTERVAL_MS`. The number of partitions is fixed at the start, or when the topic is created: keys are found
by a hash over it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Generic

from ottla.broker.coordination.definition import S
from ottla.broker.coordination.loader import CoordinatorLoader
from ottla.broker.coordination.shard import CoordinatorShard, ShardContext
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.coordination.definition import CoordinatorDefinition
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.runtime.timers import Timer
    from ottla.broker.services import Services

logger = logging.getLogger(__name__)

RELOAD_INTERVAL_MS = 1_000


class ShardMap(Generic[S]):
    """The shards of one broker. `adopt` begins to load them; before that there are none."""

    def __init__(self, services: Services, definition: CoordinatorDefinition[S]) -> None:
        self._services = services
        self._definition = definition
        self._shards: list[S | None] = []
        self._loads: dict[int, CoordinatorLoader] = {}
        self._deleted_meanwhile: dict[int, set[str]] = {}
        """Topics that were deleted while a partition had no shard: records of them in its log must not be restored."""
        self._reload_timer: Timer | None = None
        self._is_closed = False

    # --- life --------------------------------------------------------------------------------------------------------

    def adopt(self) -> None:
        """The topic exists: begin to load a shard for each partition."""
        topic = self._services.catalog.topics[self._definition.topic]
        self._shards = [None] * len(topic.partitions)
        for index in range(len(self._shards)):
            self._begin_load(index)

    def load_now(self, most_bytes: int) -> None:
        """Load up to `most_bytes` of each partition now. May wait for the disk: for a start."""
        for load in list(self._loads.values()):
            load.run_now(most_bytes)

    def close(self) -> None:
        """Start no more work."""
        self._is_closed = True
        if self._reload_timer is not None:
            self._reload_timer.cancel()
        for load in self._loads.values():
            load.cancel()

    def on_topics_changed(self, deleted: Collection[str]) -> Iterator[None]:
        """Handle a change of the catalog's topics; without the internal topic there are no shards. Returns the steps of
        long work.
        """
        if self._definition.topic in deleted:
            gone = self.active()
            for load in self._loads.values():
                load.cancel()
            self._shards, self._loads = [], {}
            for shard in gone:
                shard.die(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic was deleted"))
            self._deleted_meanwhile.clear()
            return iter(())
        steps = []
        for index, present in enumerate(list(self._shards)):
            if present is not None:
                steps.append(present.on_topics_changed(deleted))
            elif deleted:
                self._deleted_meanwhile.setdefault(index, set()).update(deleted)
        return chain.from_iterable(steps)

    # --- look-ups ----------------------------------------------------------------------------------------------------

    @property
    def is_adopted(self) -> bool:
        """Whether the topic exists."""
        return bool(self._shards)

    def ready(self, key: str) -> S:
        """The shard of a key. Raises KafkaError COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR."""
        shards = self._shards
        shard = shards[0] if len(shards) == 1 else None
        return shard if shard is not None else self.ready_at(self.partition_of(key))

    def ready_at(self, index: int) -> S:
        """The shard of an existing partition of the topic. Raises like `ready`."""
        shard = self._shards[index]
        if shard is not None:
            return shard
        if index in self._loads:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        noun = self._definition.noun
        raise KafkaError(ErrorCode.NOT_COORDINATOR, f"the partition of the {noun} cannot be used at the moment")

    def get(self, key: str) -> S | None:
        """The shard of a key, None while there is none."""
        return self._shards[self.partition_of(key)] if self._shards else None

    def all_ready(self) -> list[S]:
        """All shards that can be used. Raises KafkaError COORDINATOR_LOAD_IN_PROGRESS while one loads."""
        if self._loads:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return self.active()

    def active(self) -> list[S]:
        """The shards that exist at the moment."""
        return [shard for shard in self._shards if shard is not None]

    def is_loading(self, key: str) -> bool:
        """Whether the key's shard is being loaded."""
        return bool(self._loads) and self.partition_of(key) in self._loads

    def is_available(self, key: str) -> bool:
        """Whether the key's shard exists or will exist soon."""
        return self._shards[self.partition_of(key)] is not None or self.is_loading(key)

    @property
    def loads_under_way(self) -> int:
        """The number of partitions that are being loaded."""
        return len(self._loads)

    @property
    def count(self) -> int:
        """The number of the topic's partitions; 0 where it does not exist."""
        return len(self._shards)

    def partition_of(self, key: str) -> int:
        """The partition of a key; before the topic is created, the one that it will have."""
        count = len(self._shards) or self._definition.partitions
        return 0 if count == 1 else self._definition.hash_of(key) % count

    # --- loads -------------------------------------------------------------------------------------------------------

    def _begin_load(self, index: int) -> None:
        definition = self._definition
        partition = self._services.catalog.partition(definition.topic, index)
        if partition is None or not self._takes_writes(partition):
            self._plan_reload()
            return
        shard = definition.make_shard(
            ShardContext(
                partition=partition,
                services=self._services,
                codec=definition.codec,
                noun=definition.noun,
                write_timeout_ms=definition.write_timeout_ms,
                on_dead=self._died,
            )
        )
        load = self._loads[index] = CoordinatorLoader(
            self._services, definition.counters, shard, lambda error: self._loaded(index, shard, error)
        )
        try:
            load.start()
        except MemoryError:
            load.cancel()
            self._loads.pop(index, None)
            raise

    def _loaded(self, index: int, shard: S, error: BaseException | None) -> None:
        if self._loads.pop(index, None) is None or self._is_closed:
            return
        if error is not None:
            definition = self._definition
            logger.error("%s-%d: %ss cannot be loaded: %s", definition.topic, index, definition.noun, error)
            self._plan_reload()
            return
        self._shards[index] = shard
        for _ in shard.on_topics_changed(self._deleted_meanwhile.pop(index, ())):
            pass  # not in later turns: by then such a topic may exist again, with offsets that must stay

    def _died(self, shard: CoordinatorShard) -> None:
        self._deleted_meanwhile.setdefault(shard.partition.index, set()).update(shard.deleted_topics)
        for index, present in enumerate(self._shards):
            if present is shard:
                self._shards[index] = None
                self._plan_reload()

    def _takes_writes(self, partition: Partition) -> bool:
        directory = self._services.log_manager.directory_of(self._definition.topic, partition.index)
        if directory is None or not directory.takes_coordinator_records:
            return False
        return partition.log.error is None and not partition.is_closed

    def _plan_reload(self) -> None:
        if self._reload_timer is None and not self._is_closed:
            at_ms = self._services.clock.monotonic_ms() + RELOAD_INTERVAL_MS
            self._reload_timer = self._services.timers.surely_at(at_ms, self._reload)

    def _reload(self) -> None:
        self._reload_timer = None
        for index, shard in enumerate(self._shards):
            if shard is None and index not in self._loads:
                self._begin_load(index)
