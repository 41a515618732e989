"""What a directory's metadata log says of topics, for tools that have no broker to ask: ids, partitions, compaction.

The verification of a log needs them: only compaction lets offsets be missing inside of a log, an id in a
`partition.metadata` can only be held against the metadata's, and a folder that is not there against a partition that
should be. What is read are the TopicRecords and PartitionRecords, and the ConfigRecord
`cleanup.policy` of each topic, in the newest snapshot and the log behind it; a policy that a broker's configuration
sets for all topics is not in there, but the cleaner's checkpoint has a row for each log that it cleaned.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID

from ottla.protocol.errors import MalformedMessage
from ottla.protocol.records.batch import CorruptBatch, decode_batch
from ottla.protocol.stored.metadata import (
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
    """Which nodes have a replica of a partition, and in which directory, by node, as far as that is said."""

    replicas: tuple[int, ...]
    directories: dict[int, UUID]


@dataclass(slots=True)
class MetadataTopics:
    """Topic ids by name, partitions by topic id and number, the names of the compacted topics, and the ids of topics
    that were deleted, as far as the log is kept.
    """

    ids: dict[str, UUID] = field(default_factory=dict)
    partitions: dict[UUID, dict[int, PartitionPlace]] = field(default_factory=dict)
    compacted: set[str] = field(default_factory=set)
    removed: set[UUID] = field(default_factory=set)


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


def _note(found: MetadataTopics, told: object) -> None:
    if isinstance(told, TopicRecord):
        found.ids[told.name] = told.topic_id
    elif isinstance(told, RemoveTopicRecord):
        found.ids = {name: one for name, one in found.ids.items() if one != told.topic_id}
        found.partitions.pop(told.topic_id, None)
        found.removed.add(told.topic_id)
    elif isinstance(told, PartitionRecord):
        place = PartitionPlace(tuple(told.replicas), dict(zip(told.replicas, told.directories, strict=False)))
        found.partitions.setdefault(told.topic_id, {})[told.partition_id] = place
    elif isinstance(told, PartitionChangeRecord):
        before = found.partitions.get(told.topic_id, {}).get(told.partition_id)
        if before is not None and (told.replicas is not None or told.directories is not None):
            replicas = before.replicas if told.replicas is None else tuple(told.replicas)
            directories = dict(zip(replicas, told.directories or (), strict=False))
            found.partitions[told.topic_id][told.partition_id] = PartitionPlace(replicas, directories)
    elif isinstance(told, ConfigRecord) and told.resource_type == _TOPIC and told.name == "cleanup.policy":
        if "compact" in (told.value or ""):
            found.compacted.add(told.resource_name)
        else:
            found.compacted.discard(told.resource_name)
