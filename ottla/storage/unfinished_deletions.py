"""Directories of deleted topics that a stop left under their names: told apart from unknown ones, and renamed.

A deletion is a record in the metadata log first, and then a rename to `-delete` per directory. So a directory whose
topic id is among the removed ones, in a log directory that was not stopped cleanly, is what a crash left in between:
the start goes on with the deletion. The rest is unknown: it becomes `-stray`, and nobody removes it but a person.

    its topic id was removed, no clean stop       the deletion is finished
    its topic id was removed, a clean stop        stray: a clean stop leaves none, so somebody has put it here since
    its `partition.metadata` is blank             as a crash leaves it before the first sync: its name decides
    it has none, and no record                    the same, nothing can be lost
    anything else                                 stray

Which ids were removed is known as long as a directory may be there: see `Journal.removed_topics`. Called by
`manager.py` only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from ottla.storage.checkpoint import BlankFile, BrokenFile
from ottla.storage.layout import delete_directory_name, partition_directory_name
from ottla.storage.log_homes import holds_records
from ottla.storage.partition_metadata import read_partition_metadata

if TYPE_CHECKING:
    from ottla.storage.files import Files
    from ottla.storage.layout import TopicPartition
    from ottla.storage.log_directory import LogDirectory

RemovedTopics: TypeAlias = Callable[[], Mapping[UUID, str]]
"""Asks for the ids of topics that were deleted, with their names as far as they are known, else empty."""

PUT_BACK = "its topic was deleted, and somebody has put it here since"
UNKNOWN = "no such partition is known"
OTHER_TOPIC = "it belongs to another topic id"


def is_deleted(files: Files, path: Path, topic: str, removed: Mapping[UUID, str]) -> bool:
    """Whether the directory at `path`, of a partition of `topic` that nobody wants, is of a deleted topic. Raises
    OSError.
    """
    try:
        topic_id = read_partition_metadata(files, path)
    except BlankFile:
        return topic in removed.values()
    except BrokenFile:
        return False
    if topic_id is None:
        return topic in removed.values() and not holds_records(files, path)
    return topic_id in removed


def rename_deleted(files: Files, home: LogDirectory, one: TopicPartition) -> Path:
    """Give a partition's directory the name of a deleted one; its new path. Not durable yet. Raises OSError."""
    doomed = home.path / delete_directory_name(*one)
    files.rename(home.path / partition_directory_name(*one), doomed)
    return doomed
