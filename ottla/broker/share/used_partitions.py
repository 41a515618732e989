"""The share partitions that members use at the moment: found, made on first use, and released when no session has them.

What is here can be made again from the states of the shards, but for acquisitions: those of a share partition that is
closed end without a word to the members, who get INVALID_RECORD_STATE for their acknowledgements.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.broker.catalog.topic import find_partition
from ottla.broker.share.dead_letter_queue import DeadLetterQueue
from ottla.broker.share.settings import GroupSettings, serves_dead_letters
from ottla.broker.share.share_partition import SharePartition
from ottla.broker.share.stored_state import SharePartitionKey
from ottla.config.share_groups import BY_DURATION, duration_ms
from ottla.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.coordination.shard_map import ShardMap
    from ottla.broker.partitions.partition import Partition
    from ottla.broker.services import Services
    from ottla.broker.share.sessions import Place, ShareSession
    from ottla.broker.share.settings import ShareSettings
    from ottla.broker.share.shard import ShareStateShard

MayRead = Callable[[str], bool]
"""Whether the client may read a topic, by its name."""
GROUPS_REMEMBERED: Final = 1_000
"""Groups whose settings are kept as they were resolved last."""
RESUMED_PER_TURN: Final = 100
LOADS_MS: Final = 100
"""After this time it is checked again whether a load has ended."""


class UsedPartitions:
    """See the module's text. All calls on the broker's thread."""

    def __init__(self, services: Services, shards: ShardMap[ShareStateShard]) -> None:
        self._services = services
        self._shards = shards
        self._by_key: dict[SharePartitionKey, SharePartition] = {}
        self._settings: dict[str, GroupSettings] = {}
        self.dead_letters = DeadLetterQueue(services, self.settings_of, self.partition_of)
        """Those that are to be written."""

    def __iter__(self) -> Iterator[SharePartition]:
        return iter(list(self._by_key.values()))

    def get(self, key: SharePartitionKey) -> SharePartition | None:
        """A share partition, if it is used."""
        return self._by_key.get(key)

    def find(self, session: ShareSession, may_read: MayRead, place: Place) -> SharePartition:
        """The share partition that a session reads. Raises KafkaError, with codes that clients know of a ShareFetch."""
        partition = self.partition_at(place, may_read)
        key = SharePartitionKey(session.group_id, *place)
        share_partition = self._by_key.get(key)
        if share_partition is None:
            share_partition = self._open(key, partition)
        share_partition.sessions.add(session)
        return share_partition

    def partition_at(self, place: Place, may_read: MayRead) -> Partition:
        """The partition at a place. Raises KafkaError, with the code of a client that may not read it, too."""
        topic = self._services.catalog.find_topic(place[0])
        if topic is not None and not may_read(topic.name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return find_partition(topic, place[1], missing=ErrorCode.UNKNOWN_TOPIC_ID)

    def _open(self, key: SharePartitionKey, partition: Partition) -> SharePartition:
        """Begin to use a share partition; one without a state begins where `share.auto.offset.reset` says."""
        group_settings = self._group_settings(key.group_id)
        settings = group_settings.now
        try:
            shard = self._shards.ready(key.text)
            state = shard.states.get(key)
            is_new = state is None or state.start_offset < 0
            if is_new:
                shard.begin(key, self._first_offset(partition, settings), partition.leader_epoch)
        except KafkaError as error:  # of a coordinator, which clients do not expect here
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message) from error
        share_partition = SharePartition(key, partition, shard, self._services, group_settings, self.dead_letters)
        self._by_key[key] = share_partition
        share_partition.begin()
        if not is_new:
            share_partition.resume_letters(shard.states[key].batches)
        return share_partition

    def resume_letters(self, keys: Collection[SharePartitionKey], after_ms: int = 0) -> None:
        """Write the dead letters of share partitions, some in each turn; the load of their states ends soon."""
        services, waiting = self._services, list(keys)

        def resume() -> None:
            loading = []
            for key in waiting[:RESUMED_PER_TURN]:
                partition = self.partition_of(key)
                if partition is None or key in self._by_key:
                    continue
                try:
                    self._open(key, partition)
                except KafkaError:  # if it is not loading, the next load tries again
                    if self._shards.is_loading(key.text):
                        loading.append(key)
            if loading:
                self.resume_letters(loading, LOADS_MS)
            if len(waiting) > RESUMED_PER_TURN:
                self.resume_letters(waiting[RESUMED_PER_TURN:])

        services.timers.at(services.clock.monotonic_ms() + after_ms, resume)

    def _first_offset(self, partition: Partition, settings: ShareSettings) -> int:
        partition.settle()
        reset = settings.offset_reset
        end_offset = partition.last_stable_offset if settings.committed_only else partition.high_watermark
        if reset == "earliest":
            return partition.log_start_offset
        if reset.startswith(BY_DURATION):
            since_ms = self._services.clock.wall_ms() - duration_ms(reset)
            try:
                found = partition.log.offset_for_timestamp(max(since_ms, 0), end_offset=end_offset)
            except OSError as failure:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)) from failure
            if found is not None:
                return found[0]
        return end_offset

    def close(self, keys: Collection[SharePartitionKey]) -> None:
        """States are not where they were: removed, or their shard is dead."""
        for key in keys:
            share_partition = self._by_key.pop(key, None)
            if share_partition is not None:
                share_partition.close()

    def forget_if_idle(self, share_partition: SharePartition) -> None:
        """Release a share partition that no session has, if nothing of it is acquired."""
        if share_partition.is_idle:
            share_partition.note_start()
            self._by_key.pop(share_partition.key, None)
            share_partition.close()

    def settings_of(self, group_id: str) -> ShareSettings:
        """The settings of a group, as they are now."""
        return self._group_settings(group_id).now

    def _group_settings(self, group_id: str) -> GroupSettings:
        settings = self._settings.get(group_id)
        if settings is None:
            if len(self._settings) >= GROUPS_REMEMBERED:
                self._settings.clear()
            services = self._services
            settings = self._settings[group_id] = GroupSettings(
                services.config, services.catalog.settings, group_id, partial(serves_dead_letters, services.catalog)
            )
        return settings

    def partition_of(self, key: SharePartitionKey) -> Partition | None:
        """The log that a share partition reads; None where it is gone, or offline."""
        topic = self._services.catalog.find_topic(key.topic_id)
        return None if topic is None else self._services.catalog.partition(topic.name, key.partition)
