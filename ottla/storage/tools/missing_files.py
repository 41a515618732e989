"""What should be in a directory and does not, and the other way round: metadata, folders and checkpoints compared.

    a folder that the metadata does not know     its topic was deleted while the disk was away, or somebody put it here
    a partition without a folder                 somebody took it away; or a crash came before it was made
    a log that begins after what was deleted    somebody took its first segments away, or a crash came while retention
                                                 freed them: then `.deleted` files are still there
    no `log-start-offset-checkpoint`             somebody took it away: what DeleteRecords had deleted, nobody knows

The first two are compared here, the last two are facts of the files alone (`formats/lost_starts.py`). Only what can be
known is reported. The metadata's PartitionRecords name a directory for each
replica (KIP-858), so that partitions in another one of `log.dirs`, or of other brokers, are not missed here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.storage.formats import layout
from ottla.storage.formats.checkpoint import BrokenFile
from ottla.storage.formats.meta_properties import read_meta_properties
from ottla.storage.formats.partition_metadata import read_partition_metadata
from ottla.storage.tools.verify_findings import Finding, Severity

if TYPE_CHECKING:
    from ottla.storage.files.files import Files
    from ottla.storage.formats.layout import TopicPartition
    from ottla.storage.tools.metadata_topics import MetadataTopics

_RESERVED_DIRECTORY_IDS = 100
"""Kafka's DirectoryId: ids below this number stand for no directory in particular (unassigned, lost, migrating)."""


def strays(
    files: Files,
    metadata: MetadataTopics,
    directory: Path,
    present: Collection[TopicPartition],
    *,
    was_clean: bool,
) -> Iterator[Finding]:
    """Folders of partitions that the metadata does not know. One of another topic id is reported by `Verification`.

    As `missing`, it looks once more before it speaks: a running broker makes and deletes topics meanwhile.
    """
    for one in sorted(present):
        if one.topic == layout.CLUSTER_METADATA_TOPIC:
            continue
        topic_id = metadata.ids.get(one.topic)
        is_known = topic_id is not None and one.partition in metadata.partitions.get(topic_id, {})
        if is_known or not files.is_directory(directory / str(one)):
            continue
        if not was_clean and _is_deleted(files, directory / str(one), metadata):
            words = "its topic was deleted, and the stop came first: the next start removes it"
            yield Finding(Severity.NOTE, directory / str(one), words)
        else:
            words = (
                "the metadata knows no such partition: the next start renames it to -stray and does not serve it;"
                " remove it if it is not needed (docs/log-verify.md says how its records can be served)"
            )
            yield Finding(Severity.NOTE, directory / str(one), words)


def _is_deleted(files: Files, path: Path, metadata: MetadataTopics) -> bool:
    try:
        return read_partition_metadata(files, path) in metadata.removed
    except BrokenFile:
        return False


def missing(
    files: Files,
    metadata: MetadataTopics,
    directory: Path,
    present: Collection[TopicPartition],
    checkpoints: Mapping[str, Mapping[TopicPartition, int]],
    *,
    was_clean: bool,
) -> Iterator[tuple[TopicPartition, Finding]]:
    """Partitions that the metadata has here and that have no folder: damage where a checkpoint knows of records, unless
    these may be of a deleted topic of that name, whose `-delete` folder a crash has left.
    """
    try:
        owner = read_meta_properties(files, directory)
    except BrokenFile:
        owner = None
    if owner is None:
        return
    deleted = set() if was_clean else _deleted(files, directory)
    for topic, topic_id in sorted(metadata.ids.items()):
        for partition, place in sorted(metadata.partitions.get(topic_id, {}).items()):
            one = layout.TopicPartition(topic, partition)
            if one in present or owner.node_id not in place.replicas:
                continue
            said = place.directories.get(owner.node_id)
            if said is not None and said.int >= _RESERVED_DIRECTORY_IDS and said != owner.directory_id:
                continue
            if files.is_directory(directory / str(one)):
                continue
            rows = (layout.RECOVERY_POINT_CHECKPOINT_FILE, layout.REPLICATION_OFFSET_CHECKPOINT_FILE)
            reached = max(checkpoints[name].get(one, 0) for name in rows)
            if reached and layout.name_when_deleted(one) not in deleted:
                words = (
                    f"its directory is missing, and the log had reached offset {reached}: put it back before the broker"
                    " is started, which would create it again, empty"
                )
                yield one, Finding(Severity.DAMAGE, directory / str(one), words)
            else:
                words = (
                    "its directory is missing, and no checkpoint has records of it: the next start creates it, empty"
                )
                yield one, Finding(Severity.NOTE, directory / str(one), words)


def _deleted(files: Files, directory: Path) -> set[TopicPartition]:
    """Partitions whose `-delete` folders are here, by the names that these have."""
    parsed = map(layout.parse_partition_directory, files.list_directory(directory))
    return {one.topic_partition for one in parsed if one is not None and one.kind is layout.DirectoryKind.DELETED}
