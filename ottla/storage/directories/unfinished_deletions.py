"""Directories of deleted topics that a stop left under their names: distinguished from unknown ones, and renamed.

A deletion first writes a record to the metadata log, and then renames each directory to `-delete`. So if the topic id
of a directory is among the removed ones, and its log directory was not stopped cleanly, then a crash came in between,
and the start continues the deletion. All other directories are unknown: they become `-stray`, and Ottla never removes
them.

    its topic id was removed, no clean stop       the deletion is finished
    its topic id was removed, a clean stop        stray: a clean stop leaves none, so a person has put it here since
    its `partition.metadata` is blank             as a crash leaves it before the first sync: its name decides
    it has none, and no record                    the same, nothing can be lost
    anything else                                 stray

The removed ids are known as long as a directory may exist: see `Journal.removed_topics`. Called by `manager.py` only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from uuid import UUID

from ottla.storage.directories.log_placement import holds_records, rename_to_stray
from ottla.storage.formats.checkpoint import BlankFile, BrokenFile
from ottla.storage.formats.layout import TopicPartition, delete_directory_name
from ottla.storage.formats.partition_metadata import read_partition_metadata

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.storage.directories.delayed_removal import DelayedRemovals
    from ottla.storage.directories.log_directory import LogDirectory
    from ottla.storage.files.clock import Clock
    from ottla.storage.files.files import Files

logger = logging.getLogger(__name__)

RemovedTopics: TypeAlias = Callable[[], Mapping[UUID, str]]
"""Returns the ids of deleted topics, each with its name, which is empty if unknown."""

MAX_NAMES_IN_A_LINE = 10
"""The most names of topics in one line of the log."""
PUT_BACK = "its topic was deleted, and it was put here afterwards"
UNKNOWN = "no such partition is known"
OTHER_TOPIC = "it belongs to another topic id"


class Unwanted(NamedTuple):
    """A directory under a partition's name that is not the partition's. `is_taken`: another directory is."""

    partition: TopicPartition
    directory: LogDirectory
    is_taken: bool


class UnfinishedDeletions:
    """Renames directories of deleted topics to `-delete`, and unknown ones to `-stray`.

    `are_settled`: no directory of a deleted topic is left under its name, and none can be in an offline log directory.
    While it is False, the removed ids must be kept for the next start.
    `left_in`: the log directories in which one is left. They are not closed as clean: the next start would believe that
    a person has put it there.
    """

    def __init__(self, config: BrokerConfig, files: Files, clock: Clock, removals: DelayedRemovals) -> None:
        self.are_settled = True
        self.left_in: set[LogDirectory] = set()
        self._config = config
        self._files = files
        self._clock = clock
        self._removals = removals

    def clear(
        self,
        unwanted: Iterable[Unwanted],
        known: Collection[TopicPartition],
        removed: Mapping[UUID, str],
    ) -> tuple[list[TopicPartition], list[Path]]:
        """Rename each to `-delete` or to `-stray`; returns the partitions of deleted topics, and the strays.

        `known`: the existing partitions. Blocks. A disk that fails takes its directory offline.
        """
        strays: list[Path] = []
        deleted: dict[LogDirectory, list[Unwanted]] = {}
        for one in unwanted:
            if one.directory.is_offline:
                continue
            reason = OTHER_TOPIC if one.partition in known else UNKNOWN
            try:
                if is_deleted(self._files, one.directory.path / str(one.partition), one.partition.topic, removed):
                    if not one.directory.was_clean:
                        self._rename(one.directory, one.partition)
                        deleted.setdefault(one.directory, []).append(one)
                        continue
                    reason = PUT_BACK
                strays.append(rename_to_stray(self._files, one.directory, one.partition, reason))
                if not one.is_taken:
                    one.directory.checkpoints.forget([one.partition])
            except OSError as error:
                self._fail(one.directory, error)
        return [one for directory, renamed in deleted.items() for one in self._settle(directory, renamed)], strays

    def delete(
        self, topic: str, topic_id: UUID, partitions: Iterable[int], directories: Sequence[LogDirectory]
    ) -> None:
        """Rename the directories of partitions that are not open to `-delete`, if they are this topic's.

        Blocks: there are few of them. One that cannot be renamed, or has no topic id, is left to the next start.
        """
        for partition in partitions:
            one = TopicPartition(topic, partition)
            for directory in directories:
                path = directory.path / str(one)
                try:
                    if self._files.is_directory(path) and is_deleted(self._files, path, topic, {topic_id: topic}):
                        self._rename(directory, one)
                        directory.settle_names(directory.name_made())
                except OSError as error:
                    self._fail(directory, error)

    def _rename(self, directory: LogDirectory, one: TopicPartition) -> None:
        doomed = directory.path / delete_directory_name(*one)
        self._files.rename(directory.path / str(one), doomed)
        self._removals.add(doomed, self._clock.monotonic_ms() + self._config.log_segment_delete_delay_ms, one)

    def _settle(self, directory: LogDirectory, renamed: list[Unwanted]) -> list[TopicPartition]:
        """Bring the new names to the disk, and log it; returns their partitions."""
        try:
            directory.settle_names(directory.name_made())
            directory.checkpoints.forget([one.partition for one in renamed if not one.is_taken])
        except OSError as error:
            self._fail(directory, error)
            return []
        topics = sorted({one.partition.topic for one in renamed})
        logger.info(
            "%s: %d directories of deleted topics (%s) were left by the last stop, which came before they were removed:"
            " they are removed now",
            directory.path,
            len(renamed),
            ", ".join(topics[:MAX_NAMES_IN_A_LINE]) + (", ..." if len(topics) > MAX_NAMES_IN_A_LINE else ""),
        )
        return [one.partition for one in renamed]

    def _fail(self, directory: LogDirectory, error: OSError) -> None:
        self.are_settled = False
        self.left_in.add(directory)
        directory.mark_failed(error)


def is_deleted(files: Files, path: Path, topic: str, removed: Mapping[UUID, str]) -> bool:
    """Whether the directory at `path`, of a partition of `topic` that is not in the catalog, is of a deleted topic.
    Raises OSError.
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
