"""Where partitions live: what lies in the log directories, which of it is whose, and what is set aside.

Names are read by `layout.py`; a directory whose name is no partition's (`lost+found`, people's backups) is nobody's
business here. The owner of a partition's directory is the topic id in its `partition.metadata`, not its name. Called
by `manager.py` only.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ottla.storage.delayed_removal import remove_tree
from ottla.storage.errors import StorageError
from ottla.storage.layout import (
    DELETE_DIRECTORY_SUFFIX,
    DirectoryKind,
    TopicPartition,
    parse_partition_directory,
    partition_directory_name,
    stray_directory_name,
)
from ottla.storage.log_directory import LogDirectory
from ottla.storage.partition_metadata import known_topic_id

if TYPE_CHECKING:
    from ottla.config.topic import TopicConfig
    from ottla.storage.files import Files

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WantedLog:
    """A partition that the catalog knows. `directory_id` is where it was last said to live, None if nobody said."""

    topic: str
    partition: int
    topic_id: UUID
    config: TopicConfig
    directory_id: UUID | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition by name."""
        return TopicPartition(self.topic, self.partition)


def remove_leftovers(files: Files, directory: LogDirectory) -> None:
    """Remove the `-delete` directories of an earlier life. Raises OSError."""
    for name in files.list_directory(directory.path):
        parsed = parse_partition_directory(name) if name.endswith(DELETE_DIRECTORY_SUFFIX) else None
        if parsed is not None and parsed.kind is DirectoryKind.DELETED:
            remove_tree(files, directory.path / name)


def scan(files: Files, directories: Iterable[LogDirectory]) -> dict[TopicPartition, list[LogDirectory]]:
    """Which partitions lie in which directories. One that cannot be listed goes OFFLINE."""
    present: dict[TopicPartition, list[LogDirectory]] = {}
    for directory in directories:
        try:
            names = files.list_subdirectories(directory.path)
        except OSError as error:
            directory.mark_offline(error)
            continue
        for name in names:
            parsed = parse_partition_directory(name)
            if parsed is None:
                continue
            if parsed.kind is DirectoryKind.PARTITION:
                present.setdefault(parsed.topic_partition, []).append(directory)
            elif parsed.kind is DirectoryKind.FUTURE:
                logger.warning("%s is left alone: an unfinished move of another broker", directory.path / name)
    return present


class Home(NamedTuple):
    """Where a partition is. `is_marked`: its `partition.metadata` is there and says so."""

    directory: LogDirectory
    is_marked: bool


def choose_home(files: Files, wanted: WantedLog, homes: Sequence[LogDirectory]) -> Home | None:
    """Where the partition is, of `homes` that have a directory of its name; None when it is nowhere.

    A directory of another topic id is a stray, not a home. StorageError when it is in two places and the catalog
    names neither, BrokenFile and OSError from reading `partition.metadata`.
    """
    name = partition_directory_name(wanted.topic, wanted.partition)
    mine = []
    for home in homes:
        topic_id = known_topic_id(files, home.path / name, wanted.topic_id)
        if topic_id is None or topic_id == wanted.topic_id:
            mine.append(Home(home, topic_id is not None))
    if len(mine) > 1:
        named = [home for home in mine if home.directory.id == wanted.directory_id]
        if len(named) != 1:
            places = " and ".join(str(home.directory.path / name) for home in mine)
            raise StorageError(f"{name} is in {places}: move one of them away")
        return named[0]
    return mine[0] if mine else None


def set_aside(files: Files, home: LogDirectory, topic_partition: TopicPartition, reason: str) -> Path:
    """Rename a partition's directory to `-stray`, durably; returns its new path. Nobody ever deletes it. Raises
    OSError.
    """
    old = home.path / partition_directory_name(*topic_partition)
    new = home.path / stray_directory_name(*topic_partition)
    files.rename(old, new)
    files.sync_directory(home.path)
    logger.warning("%s is set aside as %s: %s", old, new.name, reason)
    return new
