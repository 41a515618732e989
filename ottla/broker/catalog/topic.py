"""A topic as requests see it, and all topics of this broker by name and by id.

Written by the catalog and by `partition_creation.py`, read by every handler, on the broker's one thread. A topic is
in the index from the creation of its first partition (after the sync of its record) until its deletion is synced.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ottla.broker.metadata.image import MetadataError
from ottla.config.errors import ConfigError
from ottla.config.topic import TopicConfig
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.formats.layout import INTERNAL_TOPICS

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.broker.metadata.image import TopicState
    from ottla.broker.partitions.partition import Partition
    from ottla.config.broker import BrokerConfig

logger = logging.getLogger(__name__)

NAMES_SHOWN = 5
"""The number of topics that a warning names; for more it has only the count."""


class Topic:
    """A topic as requests see it. `partitions[i]` is partition i, None while its directory is offline."""

    __slots__ = ("config", "id", "is_internal", "name", "overrides", "partitions")

    def __init__(self, name: str, topic_id: UUID, overrides: Mapping[str, str], config: TopicConfig) -> None:
        self.name = name
        self.id = topic_id
        self.partitions: list[Partition | None] = []
        self.config = config
        self.overrides = dict(overrides)
        self.is_internal = name in INTERNAL_TOPICS

    def close(self, error: KafkaError) -> None:
        """End every partition; requests that wait for one get the error."""
        for partition in self.partitions:
            if partition is not None:
                partition.close(error)


def find_partition(topic: Topic | None, index: int, *, missing: ErrorCode) -> Partition:
    """A partition of `topic`.

    Raises KafkaError: `missing` when there is no such topic, UNKNOWN_TOPIC_OR_PARTITION when it has no such
    partition, KAFKA_STORAGE_ERROR when its log could not be opened.
    """
    if topic is None:
        raise KafkaError(missing)
    if not 0 <= index < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition = topic.partitions[index]
    if partition is None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic.name}-{index} is offline; the log says why")
    return partition


class TopicIndex:
    """All topics, `by_name` and `by_id`; both have the same ones."""

    def __init__(self, config: BrokerConfig) -> None:
        self.by_name: dict[str, Topic] = {}
        self.by_id: dict[UUID, Topic] = {}
        self._config = config

    def find(self, key: str | UUID) -> Topic | None:
        """The topic of that name or id; None where there is none."""
        return self.by_name.get(key) if isinstance(key, str) else self.by_id.get(key)

    def add(self, state: TopicState, overrides: Mapping[str, str]) -> Topic:
        """The topic of `state`, without partitions yet. Raises MetadataError when its configuration cannot be used."""
        try:
            config = TopicConfig.resolve(overrides, self._config)
        except ConfigError as error:
            raise MetadataError(f"the configuration of topic {state.name} cannot be used: {error}") from error
        topic = Topic(state.name, state.id, overrides, config)
        self.by_name[topic.name] = self.by_id[topic.id] = topic
        return topic

    def remove(self, topic_id: UUID) -> Topic | None:
        """Remove a topic; None when no topic has that id."""
        topic = self.by_id.pop(topic_id, None)
        if topic is not None:
            del self.by_name[topic.name]
        return topic

    def say_what_is_not_compacted(self, topics: Iterable[Topic]) -> None:
        """Log a warning for those of `topics` whose policy needs a cleaner that this broker does not run."""
        names = sorted(topic.name for topic in topics if "compact" in topic.config.cleanup_policy)
        if names and not self._config.log_cleaner_enable:
            more = len(names) - NAMES_SHOWN
            shown = ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
            logger.warning("cleanup.policy=compact of %s: log.cleaner.enable is false, every record is kept", shown)
