"""The offset checkpoints of one log directory: read at the start, held in memory, and replaced whole.

    recovery-point-offset-checkpoint   up to where each log is known to be on disk
    log-start-offset-checkpoint        where it starts, if not with its first segment (DeleteRecords)
    replication-offset-checkpoint      its high watermark
    cleaner-offset-checkpoint          up to where it was cleaned
    ottla-log-start-offset-copy        the log starts once more, with a checksum (`log_start_copy.py`)
    ottla-index-offset-checkpoint      up to where its last index files are on disk (`index_syncs.py`); broken or lost,
                                       it is as if it had no rows

A row is a promise about a log's bytes, and is withdrawn before other bytes replace them: by `forget` before the
partition is created again, by `lower` before an append to a log that was truncated. `log_checkpoints.py` defines the
content of the rows, `checkpoint.py` the bytes of a file.

Any thread may call these methods. A guard is held from the making of rows until they are on disk, so the broker's
thread must not call methods that write: a worker drops the rows of a name before the name is used again, and `forget`
then has nothing left to do. The guard of the directory's state is held for the rename only, so that no checkpoint is
replaced after the directory was reported as offline.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from pathlib import Path
from typing import Final

from ottla.storage.directories.blank_checkpoints import CONSEQUENCES, STARTS_LOST, Blank, meaning_of
from ottla.storage.directories.directory_status import DirectoryStatus
from ottla.storage.errors import StorageError
from ottla.storage.files.disk_errors import is_full
from ottla.storage.files.files import Files, write_all
from ottla.storage.formats.checkpoint import BlankFile, BrokenFile, encode_offsets, read_offsets, write_offsets
from ottla.storage.formats.layout import (
    CLEANER_OFFSET_CHECKPOINT_FILE,
    INDEX_OFFSET_CHECKPOINT_FILE,
    LOG_START_COPY_FILE,
    LOG_START_OFFSET_CHECKPOINT_FILE,
    RECOVERY_POINT_CHECKPOINT_FILE,
    REPLICATION_OFFSET_CHECKPOINT_FILE,
    TEMPORARY_SUFFIX,
    TopicPartition,
    name_when_deleted,
)
from ottla.storage.formats.log_start_copy import BentRow, LogStartCopy, bent_row, encode_copy, read_copy
from ottla.storage.formats.lost_starts import freed_starts, has_lost_starts
from ottla.storage.recovery import missing_offsets

logger = logging.getLogger(__name__)

CHECKPOINT_FILES: Final = (
    RECOVERY_POINT_CHECKPOINT_FILE,
    LOG_START_OFFSET_CHECKPOINT_FILE,
    REPLICATION_OFFSET_CHECKPOINT_FILE,
    CLEANER_OFFSET_CHECKPOINT_FILE,
)
"""Kafka's."""

_ALL_FILES: Final = (*CHECKPOINT_FILES, INDEX_OFFSET_CHECKPOINT_FILE)


class DirectoryCheckpoints:
    """See the module. `status` is notified when the disk refuses a row, and decides when nothing may be written."""

    def __init__(self, files: Files, path: Path, status: DirectoryStatus) -> None:
        self.rows: dict[str, Mapping[TopicPartition, int]] = {name: {} for name in _ALL_FILES}
        """Offset by partition, by file name: as read at the start and as last written. Never changed in place."""
        self.has_lost_cleaned = False
        """Whether it is unknown which logs were cleaned, until `keep_cleaned`."""
        self.has_lost_starts = False
        """Whether it is unknown which deleted records are still in the segments."""
        self.has_certain_starts = False
        """Whether the log starts are those that were once written here, confirmed by their copy."""
        self.bent_start: BentRow | None = None
        """The row of `log-start-offset-checkpoint` in which a bit has flipped, until `believe_copy`."""
        self.of_deleted: Set[TopicPartition] = frozenset()
        """Partitions of deleted topics whose rows a start could not drop because the disk was full."""
        self.guard = threading.RLock()
        """Held while rows are made and replaced, including the wait for the disk."""
        self._never_written: set[str] = set()
        self._copy: LogStartCopy | None = None
        self._files = files
        self._path = path
        self._status = status

    # -- at the start

    def read(self, *, is_ours: bool) -> None:
        """Read every file without changing anything. `is_ours`: the directory has an `ottla.format`.

        Raises BrokenFile where rows cannot be reconstructed, StorageError where they are gone and nothing can replace
        them, OSError.
        """
        if has_lost_starts(self._files, self._path, is_ours=is_ours):
            logger.error("%s is not there any more: %s", self._path / LOG_START_OFFSET_CHECKPOINT_FILE, STARTS_LOST)
            self.has_lost_starts = True
        for name in CHECKPOINT_FILES:
            try:
                self.rows[name] = read_offsets(self._files, self._path / name)
            except BlankFile as blank:
                self._take_blank(name, blank, is_ours=is_ours)
        self._look_at_copy()
        name = INDEX_OFFSET_CHECKPOINT_FILE
        try:
            self.rows[name] = read_offsets(self._files, self._path / name)
        except BrokenFile as error:
            logger.warning("%s: indexes are rebuilt instead", error)

    def _look_at_copy(self) -> None:
        try:
            self._copy = read_copy(self._files, self._path)
        except BrokenFile as error:
            logger.warning("%s: it is rewritten when a log start moves", error)
        if self._copy is not None:
            self.bent_start = bent_row(self._files, self._path, self._copy)
            self.has_certain_starts = self._copy.rows == self.rows[LOG_START_OFFSET_CHECKPOINT_FILE]

    def believe_copy(self) -> None:
        """Where a bit of the log starts has flipped, use the rows of the copy, and write them back if there is room.
        Raises OSError.
        """
        if self.bent_start is None or self._copy is None:
            return
        path = self._path / LOG_START_OFFSET_CHECKPOINT_FILE
        logger.error("%s: %s, by %s: it is rewritten", path, self.bent_start, LOG_START_COPY_FILE)
        try:
            self._replace(LOG_START_OFFSET_CHECKPOINT_FILE, self._copy.rows, is_copied=True)
        except OSError as error:
            if not is_full(error):
                raise
            # A broker with a full disk must start: clients could not delete records otherwise. Both files stay as they
            # are.
            logger.warning("%s is rewritten later: %s", path, error.strerror)
            self.rows[LOG_START_OFFSET_CHECKPOINT_FILE] = dict(self._copy.rows)
        self.bent_start, self.has_certain_starts = None, True

    def _take_blank(self, name: str, blank: BlankFile, *, is_ours: bool) -> None:
        """Continue without the rows of a checkpoint if that is safe (`blank_checkpoints.py`). Raises StorageError."""
        meaning = meaning_of(name, has_zeros=blank.has_zeros, is_ours=is_ours)
        if meaning is Blank.NEVER_WRITTEN:
            self._never_written.add(name)
            return
        if meaning is Blank.REFUSED:
            raise StorageError(f"{blank}: {CONSEQUENCES[name]}; `ottla log verify --repair {self._path}` accepts that")
        logger.warning("%s: %s", blank, CONSEQUENCES[name])
        self.has_lost_cleaned = self.has_lost_cleaned or name == CLEANER_OFFSET_CHECKPOINT_FILE

    def write_missing(self) -> None:
        """Write the checkpoints that do not exist yet, without rows; durable when this returns. Raises OSError."""
        if not self.rows[LOG_START_OFFSET_CHECKPOINT_FILE]:
            self._never_written.add(LOG_START_OFFSET_CHECKPOINT_FILE)
        for name in sorted(self._never_written):
            if not self.rows[name]:
                write_offsets(self._files, self._path / name, {})  # from now on an empty one has lost its rows

    # -- asking

    def offset_of(self, name: str, topic_partition: TopicPartition) -> int:
        """The offset of a partition in one of the files, 0 where it has no row."""
        return self.rows[name].get(topic_partition, 0)

    def knows(self, topic_partition: TopicPartition) -> bool:
        """Whether any of the files has a row of the partition."""
        return any(topic_partition in rows for rows in self.rows.values())

    def gaps_before(
        self, topic_partition: TopicPartition, *, is_compacted: bool, keeps_order: bool, shows_synced: bool = False
    ) -> int:
        """The offset below which missing offsets are no loss, by the files of the last owner (`missing_offsets.py`).
        `shows_synced`: the log's records become visible only when they are on disk.
        """
        clean_offset = self.rows[CLEANER_OFFSET_CHECKPOINT_FILE].get(topic_partition)
        if clean_offset is None and self.has_lost_cleaned:
            clean_offset = 0
        return missing_offsets.gaps_before(
            may_be_cleaned=is_compacted or clean_offset is not None,
            clean_offset=clean_offset,
            recovery_point=self.rows[RECOVERY_POINT_CHECKPOINT_FILE].get(topic_partition),
            keeps_order=keeps_order,
            synced_offset=self.offset_of(REPLICATION_OFFSET_CHECKPOINT_FILE, topic_partition) if shows_synced else 0,
        )

    # -- writing

    def write(self, name: str, make_rows: Callable[[], Mapping[TopicPartition, int]]) -> bool:
        """Replace the rows of one of the files. Returns whether it was written: False in an offline directory.

        `make_rows` is called under the guard, so that rows are never older than a `forget` that is already on disk.
        A full disk makes the directory FULL, any other error OFFLINE. Both are raised.
        """
        with self.guard:
            if self._status.is_offline:
                return False
            rows = make_rows()
            if rows != self.rows[name]:
                self._replace(name, rows)
            return True

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Durably drop the rows of partitions before they are created again: an old recovery point would vouch for new
        bytes. Returns without waiting where there are no rows: after `settle` none comes back.

        Raises OSError.
        """
        if any(self.knows(one) for one in partitions):
            with self.guard:
                self._drop(frozenset(partitions))

    def forget_unless(self, partitions: Collection[TopicPartition], lives: Callable[[TopicPartition], bool]) -> None:
        """As `forget`, for the partitions that have not been created again. `lives` is asked under the guard: a
        partition gets no rows of its own while the guard is held. Raises OSError.
        """
        with self.guard:
            self._drop(frozenset(one for one in partitions if not lives(one)))

    def forget_leftovers(self, deleted: Collection[TopicPartition], present: Collection[TopicPartition]) -> None:
        """At a start: durably drop the rows of partitions that have a `-delete` directory (`deleted`, by their names)
        and no other one. Raises OSError, also for a full disk; `of_deleted` is set in that case, too.
        """
        known = set().union(*self.rows.values())
        self.of_deleted = frozenset(one for one in known - set(present) if name_when_deleted(one) in deleted)
        self.forget(self.of_deleted)

    def settle(self) -> None:
        """Wait for a write under way: it may include a row of a log that was deleted after the rows were made."""
        with self.guard:
            pass

    def _drop(self, gone: Set[TopicPartition]) -> None:
        for name in _ALL_FILES:
            rows = {one: offset for one, offset in self.rows[name].items() if one not in gone}
            if len(rows) < len(self.rows[name]):
                self._replace(name, rows)

    def lower(self, topic_partition: TopicPartition, offset: int) -> None:
        """Durably withdraw the claims that a log is on disk, indexed and clean beyond `offset`: the records that are
        written there next are not. Raises OSError.
        """
        with self.guard:
            for name in (
                RECOVERY_POINT_CHECKPOINT_FILE,
                CLEANER_OFFSET_CHECKPOINT_FILE,
                INDEX_OFFSET_CHECKPOINT_FILE,
            ):
                if self.rows[name].get(topic_partition, -1) > offset:
                    self._replace(name, {**self.rows[name], topic_partition: offset})

    def keep_cleaned(self, starts: Mapping[TopicPartition, int]) -> None:
        """Treat every log in the directory (first offset by partition) as cleaned from now on, since it may have been.

        Durable when this returns. Raises OSError.
        """
        with self.guard:
            self._replace(CLEANER_OFFSET_CHECKPOINT_FILE, starts)
            self.has_lost_cleaned = False

    def keep_freed(self, partitions: Iterable[TopicPartition]) -> None:
        """At a start after a crash: write the starts of logs whose segments retention was freeing, while the files
        still show it (`formats/lost_starts.py`). An error of the disk is only logged: the opening of the logs meets it
        again.
        """
        name = LOG_START_OFFSET_CHECKPOINT_FILE
        try:
            freed = freed_starts(self._files, self._path, partitions, self.rows[name])
            if freed:
                self.write(name, lambda: {**self.rows[name], **freed})
        except OSError as error:
            logger.warning("%s: the starts of its logs cannot be written: %s", self._path, error)

    def keep_copy(self) -> None:
        """Write the copy where it is missing or differs, because an older version or an Apache Kafka had the directory.
        Called when the logs have been opened, which confirms their starts. If the disk is full, a later call writes it.
        """
        with self.guard:
            rows = self.rows[LOG_START_OFFSET_CHECKPOINT_FILE]
            if self.has_certain_starts or self._status.is_offline or (not rows and self._copy is None):
                return
            try:
                self._put(LOG_START_COPY_FILE, encode_copy(rows))
            except OSError as error:
                logger.warning("%s cannot be written: %s", self._path / LOG_START_COPY_FILE, error)
                self._status.mark_failed(error)
            else:
                self.has_certain_starts = True

    def _replace(self, name: str, rows: Mapping[TopicPartition, int], *, is_copied: bool = False) -> None:
        """Replace the rows in memory and in the file. `is_copied`: the copy of the log starts has these rows already,
        and is not written again. Until the checkpoint is, the times of both files are evidence, and the clock may be
        wrong.
        """
        try:
            if name == LOG_START_OFFSET_CHECKPOINT_FILE and not is_copied:
                self._put(LOG_START_COPY_FILE, encode_copy(rows))
            self._put(name, encode_offsets(rows))
        except OSError as error:
            self._status.mark_failed(error)
            raise
        self.rows[name] = dict(rows)

    def _put(self, name: str, data: bytes) -> None:
        path = self._path / name
        temporary = path.with_name(name + TEMPORARY_SUFFIX)
        self._write_temporary(temporary, data)
        with self._status.guard:
            if self._status.is_offline:
                raise OSError(errno.EIO, "the log directory is offline", str(self._path))
            self._files.rename(temporary, path)
        self._files.sync_directory(self._path)

    def _write_temporary(self, temporary: Path, data: bytes) -> None:
        file = self._files.open(temporary, create=True)
        try:
            file.truncate(0)
            write_all(file, [data], 0)
            file.fdatasync()
        finally:
            file.close()
