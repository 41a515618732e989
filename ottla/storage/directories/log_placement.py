"""The log directory of each partition: which are found, which topic owns them, where a new log is created, and strays.

`layout.py` parses names; a directory whose name is not that of a partition (`lost+found`, an administrator's backups)
is ignored. The owner of a partition's directory is the topic id in its `partition.metadata`, not its name. Called by
`manager.py`, `log_opening.py` and `directory_opening.py` only.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ottla.storage.directories.delayed_removal import empty_tree, remove_tree
from ottla.storage.directories.directory_status import DirectoryState
from ottla.storage.directories.log_directory import LogDirectory
from ottla.storage.errors import StorageError
from ottla.storage.files.disk_errors import is_full
from ottla.storage.formats.layout import (
    CLUSTER_METADATA_TOPIC,
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


class WantedLog(NamedTuple):
    """A partition in the catalog. `directory_id` is its log directory according to the catalog, None if unknown."""

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
    """Remove the `-delete` directories of an earlier run, and after a crash the checkpoint rows that may belong to
    them.

    Raises OSError.
    """
    found = [(name, parse_partition_directory(name)) for name in files.list_subdirectories(directory.path)]
    known = [(directory.path / name, parsed) for name, parsed in found if parsed is not None]
    deleted = {path: parsed.topic_partition for path, parsed in known if parsed.kind is DirectoryKind.DELETED}
    for path in deleted:
        empty_tree(files, path)
    if not directory.was_clean:  # a clean stop has left only rows of existing logs
        present = {parsed.topic_partition for _, parsed in known if parsed.kind is DirectoryKind.PARTITION}
        try:
            directory.checkpoints.forget_leftovers(set(deleted.values()), present)
        except OSError as error:
            if not is_full(error):
                raise
            # The directories stay, empty, so that the next start drops the rows.
            logger.warning("%s: rows of deleted topics are dropped later: %s", directory.path, error)
            return
    for path in deleted:
        remove_tree(files, path)


def scan(files: Files, directories: Iterable[LogDirectory]) -> dict[TopicPartition, list[LogDirectory]]:
    """The directories in which each partition was found. A directory that cannot be listed goes OFFLINE."""
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
                logger.warning("%s is ignored: an unfinished move by another broker", directory.path / name)
    return present


class ChosenDirectory(NamedTuple):
    """The directory of a partition. `is_marked`: its `partition.metadata` exists and has the topic id."""

    directory: LogDirectory
    is_marked: bool


def choose_directory(files: Files, wanted: WantedLog, directories: Sequence[LogDirectory]) -> ChosenDirectory | None:
    """Choose the partition's directory among `directories` that have one of its name; None if none is the partition's.

    A directory with another topic id is a stray. Of several, the one with records is chosen: a full disk may have
    stopped the creation of another.

    Raises:
        StorageError: more than one holds records, or none does, and the catalog names none of them.
        BrokenFile, OSError: `partition.metadata` cannot be read.
    """
    name = partition_directory_name(wanted.topic, wanted.partition)
    mine = []
    for directory in directories:
        topic_id = known_topic_id(files, directory.path / name, wanted.topic_id)
        if topic_id is None or topic_id == wanted.topic_id:
            mine.append(ChosenDirectory(directory, topic_id is not None))
    if len(mine) > 1:
        mine = [one for one in mine if holds_records(files, one.directory.path / name)] or mine
    if len(mine) > 1:
        named = [directory for directory in mine if directory.directory.id == wanted.directory_id]
        if len(named) != 1 or wanted.directory_id is None:
            places = " and ".join(str(directory.directory.path / name) for directory in mine)
            raise StorageError(f"{name} is in {places}: move all but one of them away")
        return named[0]
    return mine[0] if mine else None


def holds_records(files: Files, path: Path) -> bool:
    """Whether a segment in a partition's directory has a byte in it. Raises OSError."""
    return any(name.endswith(LOG_SUFFIX) and files.size(path / name) for name in files.list_directory(path))


def clear_name(files: Files, directory: LogDirectory, topic_partition: TopicPartition) -> None:
    """Free the directory name of a partition before it is created.

    The files of an attempt that a full disk stopped are removed. Records that could not be opened when their topic was
    deleted are renamed to `-stray`. The metadata log is left as it is: its directory has the snapshots. Raises OSError.
    """
    path = directory.path / partition_directory_name(*topic_partition)
    if topic_partition.topic == CLUSTER_METADATA_TOPIC or not files.is_directory(path):
        return
    if holds_records(files, path):
        rename_to_stray(files, directory, topic_partition, "its topic was deleted")
    else:
        remove_tree(files, path)


def require_free_name(files: Files, directory: LogDirectory, topic_partition: TopicPartition) -> None:
    """Raise FileExistsError if the name of a partition without a directory is taken by something else: a file, or a
    link whose disk is not mounted. To be called before the rows of its checkpoints are dropped: they may be needed
    when the link leads to its records again.
    """
    path = directory.path / partition_directory_name(*topic_partition)
    if not files.is_directory(path) and files.is_taken(path):
        what = "there is a file of that name" if files.exists(path) else "it is a link to nothing"
        raise FileExistsError(errno.EEXIST, f"{what}, and no partition is created in its place", str(path))


def directory_for_missing(
    wanted: WantedLog, directories: Sequence[LogDirectory], directories_of_logs: Collection[LogDirectory]
) -> LogDirectory:
    """The directory in which a partition that was not found may be created.

    `directories_of_logs` has the directory of each open log.

    Raises StorageError while the partition may be in a directory that is offline: an empty log in its place would hide
    its records from clients. Raises OSError when no directory accepts it.
    """
    offline = [directory for directory in directories if directory.is_offline]
    is_here = any(directory.id == wanted.directory_id for directory in directories if not directory.is_offline)
    if offline and not (wanted.directory_id is not None and is_here):
        raise StorageError(
            f"{wanted.topic_partition} may be in {offline[0].path}, which is offline: {offline[0].error}"
        )
    if wanted.topic == CLUSTER_METADATA_TOPIC:
        return directories[0]
    # The partition's creation was acknowledged before: it may use the reserve.
    usable = [one for one in directories if one.is_online] or [one for one in directories if one.has_taken_all]
    return _emptiest(_preferred(usable), directories, directories_of_logs)


def directory_for_new(
    directory_id: UUID | None, directories: Sequence[LogDirectory], directories_of_logs: Collection[LogDirectory]
) -> LogDirectory:
    """The directory for a new partition: the one of this id if it accepts writes, else the one with the fewest logs.

    Raises OSError when no directory accepts writes.
    """
    online = [one for one in directories if one.is_online]
    named = [one for one in online if one.id == directory_id]
    if named and directory_id is not None:
        return named[0]
    return _emptiest(_preferred(online), directories, directories_of_logs)


def _preferred(usable: Sequence[LogDirectory]) -> Sequence[LogDirectory]:
    """Those that are not cordoned. If all are, all: the partition's creation was acknowledged before."""
    return [one for one in usable if not one.is_cordoned] or usable


def _emptiest(
    usable: Sequence[LogDirectory], directories: Sequence[LogDirectory], directories_of_logs: Collection[LogDirectory]
) -> LogDirectory:
    if not usable:
        is_full = any(directory.state is DirectoryState.FULL for directory in directories)
        raise OSError(errno.ENOSPC if is_full else errno.EIO, "no log directory takes writes")
    counts = dict.fromkeys(usable, 0)
    for log_directory in directories_of_logs:
        if log_directory in counts:
            counts[log_directory] += 1
    return min(usable, key=counts.__getitem__)


def rename_to_stray(files: Files, directory: LogDirectory, topic_partition: TopicPartition, reason: str) -> Path:
    """Rename a partition's directory to `-stray`, durably; returns its new path. Ottla never deletes it. Raises
    OSError.
    """
    old = directory.path / partition_directory_name(*topic_partition)
    new = directory.path / stray_directory_name(*topic_partition)
    files.rename(old, new)
    files.sync_directory(directory.path)
    logger.warning("%s is renamed to %s: %s", old, new.name, reason)
    return new
