"""Writing the offsets of open logs to the checkpoints of their directories: which code writes them, and when.

    file                                written by
    recovery-point-offset-checkpoint    a chore; a start that recovered something, from time to time while it does;
                                        before a cleaning swaps segments; when Ottla takes over Kafka's directory
    ottla-index-offset-checkpoint       the same chore, which first syncs the index files
    log-start-offset-checkpoint         a chore; before DeleteRecords is answered; before freed segments are unlinked
    replication-offset-checkpoint       a chore
    cleaner-offset-checkpoint           the end of a cleaning; a start that finds it lost

A clean stop writes all but the last once more. `directory_checkpoints.py` has the files themselves, and drops the rows
that must not survive a change of a partition's bytes.

All methods that write wait for the disk and may run in any thread. Meanwhile the broker's thread creates and deletes
logs, so they iterate over a `copy()` of the logs. `list(logs.items())` is not enough: it makes a tuple for each log,
and in Python 3.11 any of them may begin a garbage collection, whose callbacks let the other thread run.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.storage.directories.index_syncs import IndexSyncs
from ottla.storage.files.disk_errors import level_of
from ottla.storage.files.files import NotOpened
from ottla.storage.formats.layout import (
    CLEANER_OFFSET_CHECKPOINT_FILE,
    INDEX_OFFSET_CHECKPOINT_FILE,
    LOG_START_OFFSET_CHECKPOINT_FILE,
    RECOVERY_POINT_CHECKPOINT_FILE,
    REPLICATION_OFFSET_CHECKPOINT_FILE,
    TopicPartition,
)

if TYPE_CHECKING:
    from ottla.storage.directories.log_directory import LogDirectory
    from ottla.storage.log.log import Log

logger = logging.getLogger(__name__)

_OffsetOf = Callable[[TopicPartition, "Log"], int | None]
"""The offset for a log's row; None for no row."""


class LogCheckpoints:
    """See the module. `directories`, `logs` and `directory_by_log` are the manager's own objects: each write reads
    their current content.
    """

    def __init__(
        self,
        directories: Sequence[LogDirectory],
        logs: dict[TopicPartition, Log],
        directory_by_log: Mapping[TopicPartition, LogDirectory],
    ) -> None:
        self._directories = directories
        self._logs = logs
        self._directory_by_log = directory_by_log
        self._failed: frozenset[TopicPartition] = frozenset()
        self._index_syncs = IndexSyncs()
        self._recovered: dict[LogDirectory, dict[TopicPartition, int]] = {}
        self._recovered_guard = threading.Lock()

    # -- recovery points

    def write_recovery_points(self) -> None:
        """Write up to where each log is known to be on disk. Errors are logged and shown in the directory's state."""
        self._write_all(RECOVERY_POINT_CHECKPOINT_FILE, _recovery_point)

    def note_recovered(self, directory: LogDirectory, one: TopicPartition, recovery_point: int) -> None:
        """Note that a start has recovered a log, which is now on disk up to its end; `write_recovered` writes it."""
        with self._recovered_guard:
            self._recovered.setdefault(directory, {})[one] = recovery_point

    def write_recovered(self) -> None:
        """Write what was recovered while other logs still are, so that a start after a kill does not check it again.
        Directories of a Kafka are skipped, since nothing is known of its cleaner. Errors are logged. Any thread.
        """
        with self._recovered_guard:
            recovered = {directory: dict(rows) for directory, rows in self._recovered.items() if directory.is_ours}
        for directory, rows in recovered.items():
            try:
                directory.checkpoints.write(RECOVERY_POINT_CHECKPOINT_FILE, partial(_with_recovered, directory, rows))
            except OSError as error:
                logger.log(
                    level_of(error), "cannot write %s: %s", directory.path / RECOVERY_POINT_CHECKPOINT_FILE, error
                )

    def cover(self, topic: str, partition: int, offset: int) -> None:
        """Write a recovery point of at least `offset`, up to where the log is on disk: the cleaner is going to remove
        records below it.

        Durable when this returns. Raises OSError.
        """
        covered = TopicPartition(topic, partition)
        directory = self._directory_by_log.get(covered)
        if directory is None or directory.checkpoints.offset_of(RECOVERY_POINT_CHECKPOINT_FILE, covered) >= offset:
            return  # its topic was deleted, or the chore has written it
        self._demand(RECOVERY_POINT_CHECKPOINT_FILE, directory, _recovery_point)

    def take_over(self, directory: LogDirectory) -> None:
        """Take over Kafka's directory: what it cleaned beyond its recovery points is below Ottla's."""
        try:
            # Once the directory is Ottla's, a log without a row starts at offset 0.
            names = {RECOVERY_POINT_CHECKPOINT_FILE: _recovery_point, LOG_START_OFFSET_CHECKPOINT_FILE: _moved_start}
            if all(self._write(name, directory, offset_of) for name, offset_of in names.items()):
                directory.take_over()
        except OSError as error:
            directory.mark_failed(error)
            logger.error("cannot take %s over: %s", directory.path, error)

    # -- index files

    def sync_indexes(self) -> None:
        """Sync the index files of the active segments that have grown most, and write up to where they are on disk."""
        for directory in self._not_offline():
            logs = self._logs.copy().items()
            its_logs = [(one, log) for one, log in logs if self._directory_by_log.get(one) is directory]
            try:
                self._index_syncs.run(its_logs)
            except (OSError, ValueError) as error:
                if isinstance(error, NotOpened):
                    logger.debug("%s: index files are synced another time: %s", directory.path, error)
                else:
                    directory.mark_offline(error if isinstance(error, OSError) else OSError(str(error)))
        self._index_syncs.keep(self._logs)
        self._write_index_offsets()

    def _write_index_offsets(self) -> None:
        self._write_all(INDEX_OFFSET_CHECKPOINT_FILE, self._indexed_offset)

    def _indexed_offset(self, one: TopicPartition, log: Log) -> int | None:
        offset = self._index_syncs.offset_of(one, log)
        directory = self._directory_by_log.get(one)
        if offset is None and directory is not None:
            return directory.checkpoints.rows[INDEX_OFFSET_CHECKPOINT_FILE].get(one)
        return offset

    # -- log start offsets

    def write_log_start_offsets(self) -> None:
        """Write the log starts other than offset 0."""
        self._write_all(LOG_START_OFFSET_CHECKPOINT_FILE, _moved_start)

    def write_log_start_offsets_of(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """The same for the directories of some logs, durable when this returns: before DeleteRecords is answered.

        Returns the partitions whose directory could not be written, which is logged. Partitions that have been deleted
        since are not among them.
        """
        failed: set[TopicPartition] = set()
        directory_by_log = {one: self._directory_by_log.get(one) for one in partitions}
        for directory in {directory for directory in directory_by_log.values() if directory is not None}:
            try:
                is_written = self._write(LOG_START_OFFSET_CHECKPOINT_FILE, directory, _moved_start)
            except OSError as error:
                logger.error("cannot write %s: %s", directory.path / LOG_START_OFFSET_CHECKPOINT_FILE, error)
                is_written = False
            if not is_written:
                failed |= {one for one, its in directory_by_log.items() if its is directory}
        return failed

    # -- high watermarks

    def write_high_watermarks(self) -> None:
        """Write each log's high watermark."""
        self._write_all(REPLICATION_OFFSET_CHECKPOINT_FILE, _high_watermark)

    # -- clean offsets

    def clean_offset_of(self, topic: str, partition: int) -> int | None:
        """The offset up to which a log was cleaned, None if it never was."""
        one = TopicPartition(topic, partition)
        directory = self._directory_by_log.get(one)
        return None if directory is None else directory.checkpoints.rows[CLEANER_OFFSET_CHECKPOINT_FILE].get(one)

    def write_clean_offset(self, log: Log, offset: int) -> None:
        """Write up to where a log is clean, durable when this returns. Raises OSError.

        Does nothing for a log that is gone: a topic of its name may have been created again, and was never cleaned.
        """
        cleaned = TopicPartition(log.topic, log.partition)
        directory = self._directory_by_log.get(cleaned)
        if directory is None or self._logs.get(cleaned) is not log:
            return

        def known(one: TopicPartition, its: Log) -> int | None:
            # Looked up under the guard: the partition may have been deleted and created again since.
            return offset if its is log else directory.checkpoints.rows[CLEANER_OFFSET_CHECKPOINT_FILE].get(one)

        self._demand(CLEANER_OFFSET_CHECKPOINT_FILE, directory, known)

    def keep_cleaned(self, directory: LogDirectory, failed: Collection[TopicPartition]) -> None:
        """If the cleaner's checkpoint was lost: keep the next unclean start from taking missing offsets for damage, in
        the logs that are open and in those that `failed` to open.
        """
        if directory.checkpoints.has_lost_cleaned:
            starts = dict.fromkeys(failed, 0)
            starts |= {
                one: log.log_start_offset for one, log in self._logs.items() if self._directory_by_log[one] is directory
            }
            try:
                directory.checkpoints.keep_cleaned(starts)
            except OSError as error:
                logger.error("cannot write %s: %s", directory.path / CLEANER_OFFSET_CHECKPOINT_FILE, error)

    # -- the life of logs

    def keep_rows_of(self, failed: Collection[TopicPartition]) -> None:
        """Keep the rows of logs that could not be opened."""
        self._failed = frozenset(failed)

    def log_closed(self, topic_partition: TopicPartition, log: Log) -> None:
        """Note that a log was closed cleanly: its index files are on disk, too."""
        self._index_syncs.closed(topic_partition, log)

    def log_deleted(self, topic_partition: TopicPartition) -> None:
        """Note that a log was deleted. The next write drops its rows, and at the latest the next use of its name or the
        removal of its directory.
        """
        self._index_syncs.forget(topic_partition)

    def forget_deleted(self, root: Path, partitions: Collection[TopicPartition]) -> None:
        """Durably drop the rows of deleted partitions of the log directory at `root`. Partitions that have been created
        again there keep theirs, which are new. Any thread. Raises OSError.
        """

        def lives(one: TopicPartition) -> bool:
            directory = self._directory_by_log.get(one)
            return directory is not None and directory.path == root

        for directory in self._not_offline():
            if directory.path == root:
                directory.checkpoints.forget_unless(partitions, lives)

    def write_last(self) -> None:
        """Write everything once more, after the logs were closed and before the stop is marked as clean."""
        self.write_recovery_points()
        self._write_index_offsets()
        self.write_log_start_offsets()
        self.write_high_watermarks()

    # -- one file

    def _not_offline(self) -> list[LogDirectory]:
        return [directory for directory in self._directories if not directory.is_offline]

    def _write_all(self, name: str, offset_of: _OffsetOf) -> None:
        for directory in self._not_offline():
            try:
                self._write(name, directory, offset_of)
            except OSError as error:
                logger.log(level_of(error), "cannot write %s: %s", directory.path / name, error)

    def _demand(self, name: str, directory: LogDirectory, offset_of: _OffsetOf) -> None:
        if not self._write(name, directory, offset_of):
            raise OSError(errno.EIO, "the log directory is offline", str(directory.path))

    def _write(self, name: str, directory: LogDirectory, offset_of: _OffsetOf) -> bool:
        """Returns whether it was written, as `DirectoryCheckpoints.write`. Raises OSError."""

        def make_rows() -> dict[TopicPartition, int]:
            # A log that is not open (not yet, or it failed) keeps its row.
            rows = {
                one: offset
                for one, offset in directory.checkpoints.rows[name].items()
                if not directory.is_loaded or one in self._failed
            }
            for one, log in self._logs.copy().items():
                # In this order: if the directory is the one of a log that was opened later, then so is the log.
                if self._directory_by_log.get(one) is directory and self._logs.get(one) is log:
                    rows.pop(one, None)
                    offset = offset_of(one, log)
                    if offset is not None:
                        rows[one] = offset
            return rows

        return directory.checkpoints.write(name, make_rows)


def _with_recovered(directory: LogDirectory, rows: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
    return {**directory.checkpoints.rows[RECOVERY_POINT_CHECKPOINT_FILE], **rows}


def _recovery_point(_: TopicPartition, log: Log) -> int:
    return log.recovery_point


def _high_watermark(_: TopicPartition, log: Log) -> int:
    return log.high_watermark


def _moved_start(_: TopicPartition, log: Log) -> int | None:
    """A log start that the files may not show.

    Kafka writes no row for a log that starts with its first segment. Ottla keeps the row: retention may be between the
    rename of the segments before it and the sync of their names, and without the row they would come back.
    """
    return log.log_start_offset or None
