"""The position of a stream, in Spark's checkpoint: the next offset of every partition, and the ids of the topics.

Its JSON is that of Spark's own Kafka source with one more entry, under a name that no topic can have:

    {"flights": {"0": 2017, "1": 1999}, "$ids": {"flights": "6f0f6d6e-..."}}

The id distinguishes a topic from another one that was created later under the same name; without it, a stream would
continue in the middle of the new one. Brokers before Kafka 2.8 have no ids, so it may be missing. Equal offsets give
equal text, by which Spark recognises that nothing is new.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.spark.errors import OptionError
from ottla.spark.option_values import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.spark.options import TopicPartition

IDS_KEY = "$ids"
NO_ID = uuid.UUID(int=0)


@dataclass(frozen=True)
class StreamOffsets:
    """The offset of the next record to read, by partition; ids by topic, without unknown ones."""

    positions: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, uuid.UUID]

    def id_of(self, topic: str) -> uuid.UUID:
        """Return the topic's id, NO_ID when it is not known."""
        return self.topic_ids.get(topic, NO_ID)

    def is_same_topic(self, topic: str, other: StreamOffsets) -> bool:
        """Return whether both have the same topic under this name, as far as ids are known."""
        mine, others = self.id_of(topic), other.id_of(topic)
        return not mine.int or not others.int or mine == others

    def to_json(self) -> dict[str, dict[str, Any]]:
        """Return the document for the checkpoint."""
        document: dict[str, dict[str, Any]] = {}
        for topic, partition in sorted(self.positions):
            document.setdefault(topic, {})[str(partition)] = self.positions[topic, partition]
        ids = {topic: str(self.topic_ids[topic]) for topic in sorted(document) if self.id_of(topic).int}
        return document | {IDS_KEY: ids} if ids else document

    @classmethod
    def from_json(cls, document: Any) -> StreamOffsets:
        """Read a document of the checkpoint. Raises OptionError if it is not from this source."""
        try:
            ids = {topic: uuid.UUID(text) for topic, text in document.get(IDS_KEY, {}).items()}
            positions = {
                (topic, int(partition)): int(offset)
                for topic, offsets in document.items()
                if topic != IDS_KEY
                for partition, offset in offsets.items()
            }
        except (AttributeError, TypeError, ValueError):
            raise OptionError(f"checkpointLocation holds no offsets of this source: {shown(str(document))}") from None
        return cls(positions, ids)
