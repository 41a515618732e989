"""All logs of a broker and their directories: opening, creating, deleting, closing.

Order of calls: `open_directories`, `open_log` for the metadata log, `open_logs` for all logs in the catalog, then
`create_log`, `delete_log` and the chores (`unlink_due`, `probe_full`, the writes of `checkpoints`), finally `close`.

Invariants on disk (docs/decisions/metadata-is-kafkas-log.md):

- The catalog's record is synced before `create_log` and before `delete_log`. So a start creates directories that are
  missing and removes `-delete` directories. Of directories that the catalog does not know, those of deleted topics are
  renamed to `-delete` (`unfinished_deletions.py`), all others to `-stray`, which is never deleted.
- The first sync of a partition's records also brings its directory, and the topic id in it, to the disk. A crash before
  that leaves a part of it, or nothing, and `open_logs` completes it: creating a log does not wait for the disk.
- Checkpoint rows of a log that could not be opened are kept. Those of a deleted log are gone before its name is used
  again, and before its `-delete` directory is removed, which shows a start that the rows are of a deleted log.
- The mark of a clean stop is written last, and only where every log was opened and closed without an error.

One thread owns the manager. `checkpoints`, `probe_full`, `look_at_room` and `unlink_due` wait for the disk and may be
called from another thread.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.plain import Plain, field
from ottla.storage.directories.delayed_removal import DelayedRemovals
from ottla.storage.directories.directory_opening import Look, claim_directories, release_directories, take_directories
from ottla.storage.directories.directory_shapes import refuse_partitions_without_metadata
from ottla.storage.directories.directory_status import DirectoryState
from ottla.storage.directories.load_progress import LoadInterrupted, LoadProgress
from ottla.storage.directories.log_checkpoints import LogCheckpoints
from ottla.storage.directories.log_closing import FOR_EVER_MS, CloseProgress, close_logs
from ottla.storage.directories.log_directory import LogDirectory
from ottla.storage.directories.log_loading import Jobs, Opened, open_all
from ottla.storage.directories.log_opening import LogOpening
from ottla.storage.directories.log_placement import (
    WantedLog,
    choose_directory,
    directory_for_missing,
    directory_for_new,
    require_free_name,
    scan,
)
from ottla.storage.directories.unfinished_deletions import RemovedTopics, UnfinishedDeletions, Unwanted
from ottla.storage.errors import StorageError
from ottla.storage.formats.checkpoint import BrokenFile
from ottla.storage.formats.clock_checkpoint import write_known_time
from ottla.storage.formats.layout import (
    CLUSTER_METADATA_TOPIC,
    RECOVERY_POINT_CHECKPOINT_FILE,
    REPLICATION_OFFSET_CHECKPOINT_FILE,
    TopicPartition,
    delete_directory_name,
    partition_directory_name,
)

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.config.topic import TopicConfig
    from ottla.storage.files.clock import Clock
    from ottla.storage.files.clock_trust import KnownTime
    from ottla.storage.files.files import Files
    from ottla.storage.log.log import Log

logger = logging.getLogger(__name__)


class LoadedLogs(Plain):
    """The result of `open_logs`: open logs, unavailable partitions with their errors, partitions that were created,
    strays, and partitions of deleted topics that are being removed.
    """

    logs: dict[TopicPartition, Log] = field(factory=dict)
    failed: dict[TopicPartition, Exception] = field(factory=dict)
    made: list[TopicPartition] = field(factory=list)
    strays: list[Path] = field(factory=list)
    deleted: list[TopicPartition] = field(factory=list)


class LogManager:
    """See the module. `directories` are in the order of `log.dirs`; `logs` holds every open log."""

    def __init__(
        self, config: BrokerConfig, files: Files, clock: Clock, estimate_ms: Callable[[], int] | None = None
    ) -> None:
        """`estimate_ms` returns the wall time, better than the wall clock where that is not trusted (`clock_trust.py`).
        Any thread may call it.
        """
        self.directories: list[LogDirectory] = []
        self.logs: dict[TopicPartition, Log] = {}
        self.cluster_id = ""
        self._config = config
        self._files = files
        self._clock = clock
        self._directory_by_log: dict[TopicPartition, LogDirectory] = {}
        self.checkpoints = LogCheckpoints(self.directories, self.logs, self._directory_by_log)
        """Writes the offsets up to which the logs are on disk; any thread may call it."""
        self._claimed: list[LogDirectory] = []
        self._removals = DelayedRemovals(files)
        self.deletions = UnfinishedDeletions(config, files, clock, self._removals)
        """The directories that are left of deleted topics, and whether there are any."""
        self.loading = LoadProgress(clock)
        """The progress of opening the logs; any thread may read or stop it."""
        self.closing = CloseProgress(clock)
        """The progress of closing the logs; any thread may read or stop it."""
        self._opening = LogOpening(config, files, estimate_ms or clock.wall_ms, self.loading)

    # -- directories

    def claim_directories(self) -> None:
        """Lock the directories of `log.dirs` that have a lock file; `open_directories` or `release` must follow.

        Creates and changes nothing. StorageError, in one line, when another process has one locked, or a start on them
        would rename every partition to `-stray`.
        """
        refuse_partitions_without_metadata(self._files, [Path(path).absolute() for path in self._config.log_dirs])
        self._claimed = claim_directories(self._files, self._config)

    def release(self) -> None:
        """Release the locks of `claim_directories`, before `open_directories`."""
        release_directories(self._claimed)
        self._claimed = []

    def open_directories(self, cluster_id: str | None = None, look: Look | None = None) -> None:
        """Lock and check every directory of `log.dirs`, then take them (`directory_opening.py`).

        Nothing is changed before all of them agree. The directories must have `cluster_id` if it is given; without it,
        theirs is used, or a new one is made. `look` is called with the directories when they are locked and agree, and
        may refuse them by an exception. A directory with a failing disk is OFFLINE as long as another one works.
        StorageError, in one line, when the broker cannot start on them.
        """
        claimed, self._claimed = self._claimed or claim_directories(self._files, self._config), []
        taken = take_directories(self._files, self._config, claimed, cluster_id, look)
        self.directories[:] = taken.directories
        if self._config.ottla_syncfs_enable:
            # Before the first write to a log: a later failure is reported to the descriptors that the volumes hold.
            for directory in self.directories:
                directory.open_volume()
        self.cluster_id = taken.cluster_id

    @property
    def was_clean(self) -> bool:
        """Whether the last stop was clean in every directory; a new directory does not count as clean."""
        return all(directory.was_clean for directory in self.directories)

    def directory_of(self, topic: str, partition: int) -> LogDirectory | None:
        """The directory of an open log."""
        return self._directory_by_log.get(TopicPartition(topic, partition))

    def get(self, topic: str, partition: int) -> Log | None:
        """An open log, None when it is not open."""
        return self.logs.get(TopicPartition(topic, partition))

    def probe_full(self) -> list[LogDirectory]:
        """Check whether FULL directories have room again; returns those that do. Waits for the disk."""
        full = [directory for directory in self.directories if directory.state is DirectoryState.FULL]
        return [directory for directory in full if directory.probe()]

    def look_at_room(self) -> bool:
        """Query the free space of the volumes; returns whether a directory accepts records again. Any thread."""
        before = [directory for directory in self._not_offline() if not directory.is_online]
        for directory in self._not_offline():
            directory.look_at_room()
        return any(directory.is_online for directory in before)

    def _not_offline(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if not directory.is_offline]

    # -- the wall clock

    @property
    def known_time(self) -> KnownTime | None:
        """The newest wall time that a directory knew of when it was opened; None where all are new."""
        return max((one.known_time for one in self.directories if one.known_time is not None), default=None)

    def write_known_time(self, known: KnownTime, *, only_missing: bool = False) -> None:
        """Write `known` for the next start to every directory that accepts writes (with `only_missing`: and has no such
        file yet). May run in any thread. A failure is logged: the next start then knows an older time.
        """
        for directory in self.directories:
            if not directory.is_online or (only_missing and directory.has_clock_file):
                continue
            try:
                write_known_time(self._files, directory.path, known)
            except OSError as error:
                logger.warning("%s: the newest known time cannot be written: %s", directory.path, error)

    # -- opening

    def open_log(self, topic: str, partition: int, topic_id: UUID, config: TopicConfig) -> Log:
        """Open one log, and create it if no directory has it: `__cluster_metadata` in the first of `log.dirs`.

        Raises StorageError when it may be in a directory that is offline, or is in two, or its `partition.metadata`
        cannot be read, and OSError when the disk fails.
        """
        wanted = WantedLog(topic, partition, topic_id, config)
        name = partition_directory_name(topic, partition)
        directories = [one for one in self._not_offline() if self._files.is_directory(one.path / name)]
        try:
            directory = choose_directory(self._files, wanted, directories)
        except BrokenFile as error:
            raise StorageError(f"{error}{self._advice(error)}") from error
        if directory is None:
            return self._make(wanted, directory_for_missing(wanted, self.directories, self._directory_by_log.values()))
        log = self._opening.open(wanted, directory.directory, is_marked=directory.is_marked)
        self._take(wanted.topic_partition, log, directory.directory)
        return log

    def open_logs(self, wanted: Iterable[WantedLog], removed: RemovedTopics = dict) -> LoadedLogs:
        """Open every log in the catalog that is not open yet, finish interrupted deletions, and rename directories that
        the catalog does not know to `-stray`.

        `removed` is called once, if there is a directory that is not wanted. A log that cannot be opened is in `failed`
        and does not stop the others; a disk that fails takes its directory offline. To be called once. Raises
        LoadInterrupted when `loading` was stopped.
        """
        loaded = LoadedLogs()
        waiting = {one.topic_partition: one for one in wanted if one.topic_partition not in self.logs}
        by_directory: dict[LogDirectory, list[WantedLog]] = {directory: [] for directory in self._not_offline()}
        marked: set[TopicPartition] = set()
        present = scan(self._files, by_directory)
        missing: list[WantedLog] = []
        for topic_partition, one in waiting.items():
            try:
                log_directory = choose_directory(self._files, one, present.get(topic_partition, []))
            except (StorageError, BrokenFile, OSError) as error:
                loaded.failed[topic_partition] = error
                continue
            if log_directory is None:
                missing.append(one)
                continue
            by_directory[log_directory.directory].append(one)
            if log_directory.is_marked:
                marked.add(topic_partition)

        for directory, its_logs in by_directory.items():
            if directory.keeps_order:
                directory.checkpoints.keep_freed(one.topic_partition for one in its_logs)
        for its_directory, one, log in self._open_all(by_directory, marked):
            if isinstance(log, Exception):
                loaded.failed[one.topic_partition] = log
            else:
                loaded.logs[one.topic_partition] = log
                self._take(one.topic_partition, log, its_directory)
        self._clear_unwanted(present, waiting, removed, loaded)
        for one in missing:
            try:
                its_directory = directory_for_missing(one, self.directories, self._directory_by_log.values())
                require_free_name(self._files, its_directory, one.topic_partition)
                self._log_missing(one.topic_partition)
                loaded.logs[one.topic_partition] = self._make(one, its_directory)
                loaded.made.append(one.topic_partition)
            except (StorageError, OSError) as error:
                loaded.failed[one.topic_partition] = error
        self.checkpoints.keep_rows_of(loaded.failed)
        for directory in self._not_offline():
            failed = [one for one in loaded.failed if directory in present.get(one, ())]
            self.checkpoints.keep_cleaned(directory, failed)
            directory.is_loaded = not any(directory in present.get(failed, ()) for failed in loaded.failed)
            if directory.is_loaded:
                directory.checkpoints.keep_copy()
                if not directory.is_ours:
                    self.checkpoints.take_over(directory)
            directory.begin_redo_log()
        if any(log.recovery.scanned_bytes for log in self.logs.values()):
            # All of it was synced. Without this, a broker that is killed before its first chores would check it again.
            self.checkpoints.write_recovery_points()
        for topic_partition, reason in loaded.failed.items():
            logger.error("%s is unavailable: %s%s", topic_partition, reason, self._advice(reason))
        return loaded

    def _open_all(self, by_directory: Jobs, marked: Set[TopicPartition]) -> list[Opened]:
        """Open the logs in these directories. Raises LoadInterrupted; logs that were recovered before are recorded."""

        def open_one(wanted: WantedLog, directory: LogDirectory) -> Log:
            log = self._opening.open(wanted, directory, is_marked=wanted.topic_partition in marked)
            if log.recovery.scanned_bytes:
                self.checkpoints.note_recovered(directory, wanted.topic_partition, log.recovery_point)
                if self.loading.is_to_be_kept():
                    self.checkpoints.write_recovered()
            return log

        threads = self._config.num_recovery_threads_per_data_dir
        try:
            return open_all(self._files, by_directory, open_one, threads=threads, progress=self.loading)
        except LoadInterrupted:
            self.checkpoints.write_recovered()
            raise

    def _take(self, topic_partition: TopicPartition, log: Log, directory: LogDirectory) -> None:
        self.logs[topic_partition] = log
        self._directory_by_log[topic_partition] = directory

    def _make(self, wanted: WantedLog, directory: LogDirectory) -> Log:
        log = self._opening.make(wanted, directory)
        self._take(wanted.topic_partition, log, directory)
        return log

    def _clear_unwanted(
        self,
        present: Mapping[TopicPartition, Sequence[LogDirectory]],
        wanted: Collection[TopicPartition],
        removed: RemovedTopics,
        loaded: LoadedLogs,
    ) -> None:
        """Rename directories with the name of a partition that are not the partition's: to `-delete` or `-stray`."""
        unwanted = [
            Unwanted(topic_partition, log_directory, topic_partition in self._directory_by_log)
            for topic_partition, directories in present.items()
            for log_directory in directories
            if topic_partition.topic != CLUSTER_METADATA_TOPIC
            and topic_partition not in loaded.failed
            and self._directory_by_log.get(topic_partition) is not log_directory
        ]
        is_any_away = any(directory.is_offline for directory in self.directories)
        gone = removed() if unwanted or is_any_away else {}
        if is_any_away and gone:
            self.deletions.are_settled = False
        loaded.deleted, loaded.strays = self.deletions.clear(unwanted, wanted, gone)

    def _advice(self, reason: Exception) -> str:
        """The advice for a small file that cannot be read; other errors include their own."""
        if not isinstance(reason, BrokenFile):
            return ""
        directory = next((one.path for one in self.directories if one.path in reason.path.parents), reason.path.parent)
        return (
            f"; stop the broker and run `ottla log verify --repair {directory}`, which says and does what can be done"
        )

    def _log_missing(self, one: TopicPartition) -> None:
        """Log an error if a partition that is created again had records."""
        for directory in self._not_offline():
            names = (RECOVERY_POINT_CHECKPOINT_FILE, REPLICATION_OFFSET_CHECKPOINT_FILE)
            reached = max(directory.checkpoints.offset_of(name, one) for name in names)
            if reached and one not in directory.checkpoints.of_deleted:
                path = directory.path / partition_directory_name(*one)
                logger.error("%s is gone: its log had reached offset %d, and is created again, empty", path, reached)

    # -- creating and deleting

    def remembers(self, topic_partition: TopicPartition) -> bool:
        """Whether a checkpoint has a row of a partition."""
        return any(directory.checkpoints.knows(topic_partition) for directory in self._not_offline())

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the rows of deleted partitions from the checkpoints, before others of their names are created. Waits for
        the disk if there are any. May run in any thread.
        """
        for directory in self._not_offline():
            with contextlib.suppress(OSError):  # the directory's state shows it, and `create_log` tries it again
                directory.checkpoints.forget(partitions)

    def create_log(
        self, topic: str, partition: int, topic_id: UUID, config: TopicConfig, *, directory_id: UUID | None = None
    ) -> Log:
        """Create a partition's directory and log, durable with its first sync: in the directory of this id if it
        accepts writes, else in the one with the fewest partitions.

        The catalog's record of it is synced already. Raises OSError: no directory accepts writes (ENOSPC or EIO), the
        disk failed, or something else has the name (EEXIST).
        """
        topic_partition = TopicPartition(topic, partition)
        if topic_partition in self.logs:
            raise ValueError(f"{topic_partition} is open already")
        directory = directory_for_new(directory_id, self.directories, self._directory_by_log.values())
        require_free_name(self._files, directory, topic_partition)
        return self._make(WantedLog(topic, partition, topic_id, config), directory)

    def delete_log(self, topic: str, partition: int) -> Callable[[], None]:
        """Close a log and rename its directory to `-delete`; `unlink_due` removes it after `file.delete.delay.ms`.

        Returns a function that brings the new name to the disk: it blocks, may run in any thread, and one sync serves
        all logs that were deleted before it. Both raise OSError.

        The catalog's record of it is synced already. Does nothing for a log that is not open. In an offline directory
        the files stay, until a start on a working disk removes them.
        """
        topic_partition = TopicPartition(topic, partition)
        log = self.logs.pop(topic_partition, None)
        self.checkpoints.log_deleted(topic_partition)
        if log is None:
            return _nothing_to_settle
        directory = self._directory_by_log.pop(topic_partition)
        log.abandon()
        if directory.is_offline:
            self.deletions.are_settled = False
            return _nothing_to_settle
        doomed = directory.path / delete_directory_name(topic, partition)
        try:
            self._files.rename(directory.path / partition_directory_name(topic, partition), doomed)
        except OSError as error:
            self.deletions.are_settled = False
            directory.mark_offline(error)
            raise
        due_ms = self._clock.monotonic_ms() + log.config.file_delete_delay_ms
        self._removals.add(doomed, due_ms, topic_partition)
        return partial(_settle_deletion, directory, directory.name_made())

    def delete_unopened(self, topic: str, topic_id: UUID, partitions: Collection[int]) -> None:
        """As `delete_log`, for partitions that are not open; durable on return, or left to the next start. Blocks."""
        for partition in partitions:
            self.checkpoints.log_deleted(TopicPartition(topic, partition))
        self.deletions.delete(topic, topic_id, partitions, self._not_offline())
        if any(directory.is_offline for directory in self.directories):
            self.deletions.are_settled = False

    def unlink_due(self, now_ms: int) -> int:
        """Remove deleted partitions whose delay has passed; returns how many. `now_ms` is monotonic."""
        offline = {directory.path for directory in self.directories if directory.is_offline}
        return self._removals.remove_due(
            now_ms, self.checkpoints.forget_deleted, lambda directory: directory.parent not in offline
        )

    def next_unlink_ms(self) -> int | None:
        """The time (monotonic) at which `unlink_due` has work, None if no partition waits."""
        return self._removals.next_due_ms()

    # -- closing

    def close(
        self,
        clean: bool = True,
        *,
        broker_epoch: int = -1,
        timeout_ms: int = FOR_EVER_MS,
        leaves_deletion: bool = False,
    ) -> None:
        """Close every log and release the directories. The manager cannot be used afterwards. Blocks.

        With `clean` everything is flushed, synced and checkpointed, and if nothing failed, the mark of the clean stop
        is written last (Kafka's `.kafka_cleanshutdown`, with `broker_epoch`). Without it, files are closed as they are.
        So are logs that are left after `timeout_ms`, or when `closing` was stopped. With `leaves_deletion` no mark is
        written: after a clean stop the next start would take the rest of a deleted topic for an unknown directory.
        """
        wanted = {}
        for topic_partition, log in self.logs.items():
            if not clean or self._directory_by_log[topic_partition].is_offline:
                log.abandon()
            else:
                wanted[topic_partition] = log
        self.closing.begin(len(wanted), timeout_ms)
        closed = close_logs(wanted, lambda one: self._directory_by_log[one].volume, self.closing)
        for topic_partition, log, error in closed:
            if error is not None:
                self._directory_by_log[topic_partition].mark_offline(error)
            else:
                self.checkpoints.log_closed(topic_partition, log)
        left = wanted.keys() - {topic_partition for topic_partition, _, _ in closed}
        if left:
            logger.warning(
                "%d of %d logs are closed without a sync: that took longer than %s; nothing acknowledged is lost, the"
                " next start recovers as after a kill",
                len(left),
                len(wanted),
                "an operator waits" if self.closing.is_stopped else f"ottla.shutdown.close.timeout.ms={timeout_ms}",
            )
        if clean:
            self.checkpoints.write_last()
        unclean = {self._directory_by_log[topic_partition] for topic_partition in left} | self.deletions.left_in
        for directory in self.directories:
            is_clean = clean and directory.has_taken_all and directory not in unclean and not leaves_deletion
            try:
                directory.end(clean=is_clean, broker_epoch=broker_epoch)
            except OSError as error:
                directory.mark_offline(error)
        self.logs.clear()
        self._directory_by_log.clear()


def _settle_deletion(directory: LogDirectory, name: int) -> None:
    directory.settle_names(name)
    directory.checkpoints.settle()


def _nothing_to_settle() -> None:
    """Do nothing: the log was not open, or its directory must not be written to."""
