"""Where partitions live: what is in the log directories, whose it is, where a new one goes, what is set aside.

Names are read by `layout.py`; a directory whose name is no partition's (`lost+found`, people's backups) is nobody's
business here. The owner of a partition's directory is the topic id in its `partition.metadata`, not its name. Called
by `manager.py`, `log_opening.py` and `directory_opening.py` only.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ottla.storage.directories.delayed_removal import remove_tree
from ottla.storage.directories.directory_status import DirectoryState
from ottla.storage.directories.log_directory import LogDirectory
from ottla.storage.errors import StorageError
from ottla.storage.formats.layout import (
    CLUSTER_METADATA_TOPIC,
    DELETE_DIRECTORY_SUFFIX,
    LOG_SUFFIX,
    DirectoryKind,
    TopicPartition,
    parse_partition_directory,
    partition_directory_name,
    stray_directory_name,
)
from ottla.storage.formats.partition_metadata import known_topic_id

if TYPE_CHECKING:
    from ottla.config.topic import TopicConfig
    from ottla.storage.files.files import Files

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
    """Which partitions are in which directories. One that cannot be listed goes OFFLINE."""
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

    A directory of another topic id is a stray, not a home. Of several the one that holds records is meant: a full disk
    may have stopped the making of another. StorageError when more than one, or none, does and the catalog names none of
    them, BrokenFile and OSError from reading `partition.metadata`.
    """
    name = partition_directory_name(wanted.topic, wanted.partition)
    mine = []
    for home in homes:
        topic_id = known_topic_id(files, home.path / name, wanted.topic_id)
        if topic_id is None or topic_id == wanted.topic_id:
            mine.append(Home(home, topic_id is not None))
    if len(mine) > 1:
        mine = [one for one in mine if holds_records(files, one.directory.path / name)] or mine
    if len(mine) > 1:
        named = [home for home in mine if home.directory.id == wanted.directory_id]
        if len(named) != 1 or wanted.directory_id is None:
            places = " and ".join(str(home.directory.path / name) for home in mine)
            raise StorageError(f"{name} is in {places}: move one of them away")
        return named[0]
    return mine[0] if mine else None


def holds_records(files: Files, path: Path) -> bool:
    """Whether a segment in a partition's directory has a byte in it. Raises OSError."""
    return any(name.endswith(LOG_SUFFIX) and files.size(path / name) for name in files.list_directory(path))


def clear_name(files: Files, home: LogDirectory, topic_partition: TopicPartition) -> None:
    """Take out of the way what lies under the name of a partition that is about to be made: what is left of an attempt
    that a full disk stopped goes, and records are set aside, of a topic that was deleted while they could not be
    opened. Not so for the metadata log, whose directory holds its snapshots. Raises OSError.
    """
    path = home.path / partition_directory_name(*topic_partition)
    if topic_partition.topic == CLUSTER_METADATA_TOPIC or not files.is_directory(path):
        return
    if holds_records(files, path):
        rename_to_stray(files, home, topic_partition, "its topic was deleted")
    else:
        remove_tree(files, path)


def home_for_missing(
    wanted: WantedLog, directories: Sequence[LogDirectory], homes: Collection[LogDirectory]
) -> LogDirectory:
    """Where a partition that was found nowhere may be made. `homes` has the directory of each log that is open.

    Not at all while it may be in a directory that is offline: an empty log in its place would answer that all is
    gone. Raises StorageError then, OSError when no directory takes it.
    """
    offline = [directory for directory in directories if directory.is_offline]
    is_here = any(directory.id == wanted.directory_id for directory in directories if not directory.is_offline)
    if offline and not (wanted.directory_id is not None and is_here):
        raise StorageError(
            f"{wanted.topic_partition} may be in {offline[0].path}, which is offline: {offline[0].error}"
        )
    if wanted.topic == CLUSTER_METADATA_TOPIC:
        return directories[0]
    # It was promised before: the reserve is for such, too.
    usable = [one for one in directories if one.is_online] or [one for one in directories if one.has_taken_all]
    return _emptiest(usable, directories, homes)


def home_for_new(
    directory_id: UUID | None, directories: Sequence[LogDirectory], homes: Collection[LogDirectory]
) -> LogDirectory:
    """Where a partition that was created now is made: in the directory of this id while it takes writes, else where the
    fewest are. Raises OSError when no directory takes writes.
    """
    online = [one for one in directories if one.is_online]
    named = [one for one in online if one.id == directory_id]
    return named[0] if named and directory_id is not None else _emptiest(online, directories, homes)


def _emptiest(
    usable: Sequence[LogDirectory], directories: Sequence[LogDirectory], homes: Collection[LogDirectory]
) -> LogDirectory:
    if not usable:
        is_full = any(directory.state is DirectoryState.FULL for directory in directories)
        raise OSError(errno.ENOSPC if is_full else errno.EIO, "no log directory takes writes")
    counts = dict.fromkeys(usable, 0)
    for home in homes:
        if home in counts:
            counts[home] += 1
    return min(usable, key=counts.__getitem__)


def rename_to_stray(files: Files, home: LogDirectory, topic_partition: TopicPartition, reason: str) -> Path:
    """Rename a partition's directory to `-stray`, durably; returns its new path. Nobody ever deletes it. Raises
    OSError.
    """
    old = home.path / partition_directory_name(*topic_partition)
    new = home.path / stray_directory_name(*topic_partition)
    files.rename(old, new)
    files.sync_directory(home.path)
    logger.warning("%s is set aside as %s: %s", old, new.name, reason)
    return new
