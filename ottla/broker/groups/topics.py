"""The topics of the cluster as groups see them: names, ids, numbers of partitions, and an epoch of changes.

Read only. Groups see only the `TopicView`, never the catalog; tests pass a dictionary instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.broker.catalog.catalog import Catalog


class TopicView(Protocol):
    """What a group may ask about the topics."""

    @property
    def epoch(self) -> int:
        """Grows whenever a topic is created, grown or deleted; never goes back within one run."""

    def names(self) -> Iterable[str]:
        """The names of all topics, internal ones too."""

    def exists(self, name: str) -> bool:
        """Whether there is a topic of that name."""

    def id_of(self, name: str) -> UUID | None:
        """The id of a topic, None when there is none of that name."""

    def name_of(self, topic_id: UUID) -> str | None:
        """The name of a topic, None when there is none of that id."""

    def partition_count(self, topic_id: UUID) -> int:
        """The number of the topic's partitions; 0 when no topic has that id."""


class CatalogTopics:
    """The catalog's topics, as a `TopicView`."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    @property
    def epoch(self) -> int:
        """Grows whenever a topic is created, grown or deleted."""
        return self._catalog.topics_epoch

    def names(self) -> Iterable[str]:
        """The names of all topics."""
        return self._catalog.topics.keys()

    def exists(self, name: str) -> bool:
        """Whether there is a topic of that name."""
        return name in self._catalog.topics

    def id_of(self, name: str) -> UUID | None:
        """The id of a topic, or None."""
        topic = self._catalog.topics.get(name)
        return None if topic is None else topic.id

    def name_of(self, topic_id: UUID) -> str | None:
        """The name of a topic, or None."""
        topic = self._catalog.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def partition_count(self, topic_id: UUID) -> int:
        """The number of the topic's partitions, 0 for an unknown id."""
        topic = self._catalog.topics_by_id.get(topic_id)
        return 0 if topic is None else len(topic.partitions)
