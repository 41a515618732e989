"""`-stray` directories: those that a start or a repair has renamed, why they are not served, and removing them by hand.

A start renames a directory that has a partition's name but belongs to no partition in the metadata. It never removes
one, because the unknown records may be the only copy. This module reports what is known of each: its owner by its
`partition.metadata`, its size, and the current state of its topic in the metadata.

A directory to be removed is first renamed to that of a deleted partition: the next start removes what a crash leaves of
it. Called by the command line only, which holds the log directory's lock while it removes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.storage.directories.delayed_removal import remove_tree
from ottla.storage.formats.checkpoint import BrokenFile
from ottla.storage.formats.layout import (
    CLUSTER_METADATA_TOPIC,
    DirectoryKind,
    TopicPartition,
    delete_directory_name,
    parse_partition_directory,
)
from ottla.storage.formats.partition_metadata import read_partition_metadata
from ottla.storage.tools.metadata_topics import MetadataTopics, metadata_topics

if TYPE_CHECKING:
    from ottla.storage.files.files import Files


class StrayReason(Enum):
    """The state of a stray directory's topic in the metadata."""

    DELETED = "its topic was deleted"
    OTHER_TOPIC = "a topic of this name exists, with another id"
    SAME_TOPIC = "its topic exists: it is a second directory of a partition, or of one that the topic does not have"
    NAME_ONLY = "it has no topic id, and a topic of this name exists"
    UNKNOWN = "the metadata does not know its topic"
    NO_METADATA = "there is no metadata log here: name the log directory that has it by --also"
    METADATA_LOG = "the metadata log as it was before a repair"


@dataclass(frozen=True, slots=True)
class Stray:
    """A stray directory. `newest_ms`: the time when a file in it was last written, None if it has none."""

    path: Path
    topic_partition: TopicPartition
    topic_id: UUID | None
    size_bytes: int
    newest_ms: int | None
    reason: StrayReason


def find_strays(files: Files, directory: Path, others: Sequence[Path] = ()) -> Iterator[Stray]:
    """The stray directories in a log directory, by name. `others`: further directories that may have the metadata log.
    Raises OSError.
    """
    reported = next((one for place in (directory, *others) if (one := metadata_topics(files, place)) is not None), None)
    for name in sorted(files.list_subdirectories(directory)):
        parsed = parse_partition_directory(name)
        if parsed is None or parsed.kind is not DirectoryKind.STRAY:
            continue
        path = directory / name
        try:
            topic_id = read_partition_metadata(files, path)
        except BrokenFile:
            topic_id = None
        names = [one for one in files.list_directory(path) if not files.is_directory(path / one)]
        yield Stray(
            path,
            parsed.topic_partition,
            topic_id,
            sum(files.size(path / one) for one in names),
            max((files.modified_ms(path / one) for one in names), default=None),
            _reason(reported, parsed.topic_partition.topic, topic_id),
        )


def _reason(reported: MetadataTopics | None, topic: str, topic_id: UUID | None) -> StrayReason:
    if topic == CLUSTER_METADATA_TOPIC:
        return StrayReason.METADATA_LOG
    if reported is None:
        return StrayReason.NO_METADATA
    if topic_id is None:
        return StrayReason.NAME_ONLY if topic in reported.ids else StrayReason.UNKNOWN
    if topic_id in reported.removed:
        return StrayReason.DELETED
    if topic_id in reported.ids.values():
        return StrayReason.SAME_TOPIC
    return StrayReason.OTHER_TOPIC if topic in reported.ids else StrayReason.UNKNOWN


def remove_stray(files: Files, stray: Stray) -> None:
    """Remove a stray directory permanently. Raises OSError; then the next start removes the rest."""
    doomed = stray.path.with_name(delete_directory_name(*stray.topic_partition))
    files.rename(stray.path, doomed)
    files.sync_directory(doomed.parent)
    remove_tree(files, doomed)
