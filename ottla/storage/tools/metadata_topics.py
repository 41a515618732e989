"""Reads the topics of a directory's metadata log, for tools that have no broker to ask.

The verification of a log needs them: only compaction lets offsets be missing inside of a log, an id in a
`partition.metadata` can only be held against the metadata's, a folder that is not there against a partition that
should be, and the epoch of a last batch against the partition's leader epoch. What is read are the TopicRecords,
PartitionRecords and PartitionChangeRecords, and the ConfigRecord `cleanup.policy` of each topic, in the newest snapshot
and the log after it. A policy that a broker's configuration sets for all topics is not in there, but the cleaner's
checkpoint has a row for each log that it cleaned.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from ottla.protocol.errors import MalformedMessage
from ottla.protocol.records.batch import CorruptBatch, decode_batch
from ottla.protocol.stored.metadata import (
    NO_LEADER_CHANGE,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_metadata_record,
)
from ottla.storage.files.files import Files
from ottla.storage.formats import layout
from ottla.storage.segment.scan import walk

_TOPIC: Final = 2
"""Kafka's ConfigResource.Type.TOPIC."""
_SNAPSHOT_SUFFIX: Final = ".checkpoint"
_BOOTSTRAP: Final = "bootstrap"


class PartitionPlace(NamedTuple):
    """The nodes that have a replica of a partition, the directory of each, where the record names one, and the leader
    epoch.
    """

    replicas: tuple[int, ...]
    directories: dict[int, UUID]
    leader_epoch: int


@dataclass(slots=True)
class MetadataTopics:
    """Topic ids by name, partitions by topic id and number, the names of the compacted topics, and the ids of topics
    that were deleted, as far as the log is kept.
    """

    ids: dict[str, UUID] = field(default_factory=dict)
    partitions: dict[UUID, dict[int, PartitionPlace]] = field(default_factory=dict)
    compacted: set[str] = field(default_factory=set)
    removed: set[UUID] = field(default_factory=set)

    def leader_epoch(self, one: layout.TopicPartition) -> int | None:
        """The leader epoch of a partition; None for one that the metadata does not know."""
        topic_id = self.ids.get(one.topic)
        place = None if topic_id is None else self.partitions.get(topic_id, {}).get(one.partition)
        return None if place is None else place.leader_epoch


def metadata_topics(files: Files, log_directory: Path) -> MetadataTopics | None:
    """The topics; None when the directory has no metadata log, or one that cannot be read. Raises OSError."""
    directory = log_directory / layout.partition_directory_name(layout.CLUSTER_METADATA_TOPIC, 0)
    if not files.is_directory(directory):
        return None
    names = files.list_directory(directory)
    snapshots = [name for name in names if name.endswith(_SNAPSHOT_SUFFIX) and not name.startswith(_BOOTSTRAP)]
    logs = [name for name in names if name.endswith(layout.LOG_SUFFIX)]
    if not logs and not snapshots:
        return None
    found = MetadataTopics()
    try:
        for name in (*snapshots[-1:], *logs):
            _read(files, directory / name, found)
    except (CorruptBatch, MalformedMessage):
        return None
    return found


def _read(files: Files, path: Path, found: MetadataTopics) -> None:
    file = files.open(path)
    try:
        for position, header in walk(file.pread, 0, file.size()):
            if header.is_control:
                continue
            for record in decode_batch(file.pread(header.size_bytes, position)):
                _note(found, decode_metadata_record(record.value or b""))
    finally:
        file.close()


def _note(found: MetadataTopics, reported: object) -> None:
    if isinstance(reported, TopicRecord):
        found.ids[reported.name] = reported.topic_id
    elif isinstance(reported, RemoveTopicRecord):
        found.ids = {name: one for name, one in found.ids.items() if one != reported.topic_id}
        found.partitions.pop(reported.topic_id, None)
        found.removed.add(reported.topic_id)
    elif isinstance(reported, PartitionRecord):
        place = PartitionPlace(
            tuple(reported.replicas),
            dict(zip(reported.replicas, reported.directories, strict=False)),
            reported.leader_epoch,
        )
        found.partitions.setdefault(reported.topic_id, {})[reported.partition_id] = place
    elif isinstance(reported, PartitionChangeRecord):
        before = found.partitions.get(reported.topic_id, {}).get(reported.partition_id)
        if before is not None:
            found.partitions[reported.topic_id][reported.partition_id] = _changed(before, reported)
    elif isinstance(reported, ConfigRecord) and reported.resource_type == _TOPIC and reported.name == "cleanup.policy":
        if "compact" in (reported.value or ""):
            found.compacted.add(reported.resource_name)
        else:
            found.compacted.discard(reported.resource_name)


def _changed(before: PartitionPlace, change: PartitionChangeRecord) -> PartitionPlace:
    replicas, directories = before.replicas, before.directories
    if change.replicas is not None or change.directories is not None:
        replicas = replicas if change.replicas is None else tuple(change.replicas)
        directories = dict(zip(replicas, change.directories or (), strict=False))
    begins_epoch = change.leader != NO_LEADER_CHANGE
    return PartitionPlace(replicas, directories, before.leader_epoch + begins_epoch)
