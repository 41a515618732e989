"""All logs of a broker and the directories they live in: opening, creating, deleting, checkpointing, closing.

Order of life: `open_directories`, `open_log` for the metadata log, `open_logs` for all that the catalog knows, then
`create_log`, `delete_log` and the chores (`unlink_due`, `probe_full`, `write_*`), at last `close`.

What holds on disk (decisions.md 4, 6, 7, 14):

- The catalog's record is synced before `create_log` and before `delete_log`. So a directory that is missing at the
  start is made, one that the catalog does not know becomes `-stray` and is never deleted, and `-delete` directories
  are removed.
- A partition's directory, and the topic id in it, are durable with the first sync of its records, which brings them to
  the disk too. A crash before that leaves something, or nothing, that `open_logs` completes: creating waits for no
  disk.
- Checkpoint rows of a log that could not be opened are kept; those of a deleted one are gone before its name lives
  again.
- The mark of a clean stop is written last, and only where every log was opened and closed without an error.

One thread owns the manager. The `write_*` methods, `probe_full` and `unlink_due` wait for the disk and may run in
another.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.storage.checkpoint import BrokenFile
from ottla.storage.delayed_removal import DelayedRemovals
from ottla.storage.directory_status import DirectoryState
from ottla.storage.errors import StorageError
from ottla.storage.index_syncs import IndexSyncs
from ottla.storage.kafka_uuid import random_uuid, uuid_to_text
from ottla.storage.layout import (
    CLEANER_OFFSET_CHECKPOINT_FILE,
    CLUSTER_METADATA_TOPIC,
    INDEX_OFFSET_CHECKPOINT_FILE,
    LOG_START_OFFSET_CHECKPOINT_FILE,
    META_PROPERTIES_FILE,
    RECOVERY_POINT_CHECKPOINT_FILE,
    REPLICATION_OFFSET_CHECKPOINT_FILE,
    TopicPartition,
    delete_directory_name,
    partition_directory_name,
)
from ottla.storage.load_progress import LoadProgress
from ottla.storage.log_directory import LogDirectory
from ottla.storage.log_homes import WantedLog, choose_home, remove_leftovers, scan, set_aside
from ottla.storage.log_loading import open_all
from ottla.storage.meta_properties import MetaProperties
from ottla.storage.partition_metadata import found_partition, sync_founded, write_partition_metadata
from ottla.storage.recovery import open_log
from ottla.storage.sparse_index import IndexCache

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.config.topic import TopicConfig
    from ottla.storage.clock import Clock
    from ottla.storage.files import Files
    from ottla.storage.log import Log

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class LoadedLogs:
    """What `open_logs` did: open logs, partitions that are unavailable and why, those made new, what was set aside."""

    logs: dict[TopicPartition, Log] = field(default_factory=dict)
    failed: dict[TopicPartition, Exception] = field(default_factory=dict)
    made: list[TopicPartition] = field(default_factory=list)
    strays: list[Path] = field(default_factory=list)


def _reason(error: Exception | None) -> str:
    """What the operating system says, without the name of the file in the directory that it was met at."""
    return str((error.strerror if isinstance(error, OSError) else None) or error)


class LogManager:
    """See the module. `directories` are in the order of `log.dirs`; `logs` holds every open log."""

    def __init__(self, config: BrokerConfig, files: Files, clock: Clock) -> None:
        self.directories: list[LogDirectory] = []
        self.logs: dict[TopicPartition, Log] = {}
        self.cluster_id = ""
        self._config = config
        self._files = files
        self._clock = clock
        self._homes: dict[TopicPartition, LogDirectory] = {}
        self._failed: dict[TopicPartition, Exception] = {}
        self._removals = DelayedRemovals(files)
        self._index_cache = IndexCache()
        self._index_syncs = IndexSyncs()
        self.loading = LoadProgress(clock)
        """How far opening the logs has come; may be asked, and told to stop, from any thread."""

    # -- directories

    def open_directories(self, cluster_id: str | None = None) -> None:
        """Lock and check every directory of `log.dirs`, then take them.

        Nothing is changed before all of them agree. `cluster_id` is demanded of the directories if given; without it,
        theirs holds, or a new one is made. A directory that the disk refuses is OFFLINE as long as another one works.
        StorageError, in one line, when the broker cannot start on them.
        """
        self.directories = [LogDirectory(self._files, path, self._configured_reserve) for path in self._paths()]
        found: dict[Path, MetaProperties | None] = {}
        try:
            for directory in self.directories:
                try:
                    found[directory.path] = directory.open()
                except OSError as error:
                    directory.mark_offline(error, is_told=False)
            self._demand_one_online()
            identities = {path: properties for path, properties in found.items() if properties is not None}
            agreed = check_identities(identities, self._config.node_id, cluster_id)
            self._refuse_shared_ids()
            self.cluster_id = agreed or uuid_to_text(random_uuid())
            for directory in self._not_offline():
                try:
                    directory.begin(self.cluster_id, self._config.node_id, found[directory.path])
                    remove_leftovers(self._files, directory)
                    directory.look_at_room()
                except OSError as error:
                    directory.mark_offline(error, is_told=False)
            self._demand_one_online()
            for directory in self.directories:
                if directory.is_offline:
                    directory.tell_offline()
        except BaseException:
            self._release()
            raise

    @property
    def was_clean(self) -> bool:
        """Whether the last stop was clean in every directory that is here; a new directory does not count as clean."""
        return all(directory.was_clean for directory in self.directories)

    def directory_of(self, topic: str, partition: int) -> LogDirectory | None:
        """Where an open log lives."""
        return self._homes.get(TopicPartition(topic, partition))

    def get(self, topic: str, partition: int) -> Log | None:
        """An open log, None when it is not open."""
        return self.logs.get(TopicPartition(topic, partition))

    def probe_full(self, now_ms: int) -> list[LogDirectory]:
        """See whether FULL directories have room again; returns those that came back. Waits for the disk."""
        del now_ms  # every call probes; how often is the chore's to say
        full = [directory for directory in self.directories if directory.state is DirectoryState.FULL]
        return [directory for directory in full if directory.probe()]

    def look_at_room(self) -> bool:
        """See how much is free on the volumes; whether a directory takes records again. May run in any thread."""
        before = [directory for directory in self._not_offline() if not directory.is_online]
        for directory in self._not_offline():
            directory.look_at_room()
        return any(directory.is_online for directory in before)

    def _configured_reserve(self) -> int:
        return self._config.ottla_log_dir_reserve_bytes

    def _paths(self) -> list[Path]:
        paths = [Path(path).absolute() for path in self._config.log_dirs]
        for path in paths:
            if paths.count(path) > 1:
                raise StorageError(f"log.dirs names {path} twice")
        return paths

    def _not_offline(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if not directory.is_offline]

    def _demand_one_online(self) -> None:
        if not self._not_offline():
            reasons = "; ".join(f"{directory.path}: {_reason(directory.error)}" for directory in self.directories)
            raise StorageError(f"no log directory can be used: {reasons}")

    def _refuse_shared_ids(self) -> None:
        seen: dict[UUID, LogDirectory] = {}
        for directory in self._not_offline():
            if directory.id is not None:
                other = seen.setdefault(directory.id, directory)
                if other is not directory:
                    raise StorageError(
                        f"{other.path} and {directory.path} have the same directory.id {uuid_to_text(directory.id)}: "
                        "one is a copy of the other, remove one from log.dirs"
                    )

    # -- opening

    def open_log(self, topic: str, partition: int, topic_id: UUID, config: TopicConfig) -> Log:
        """Open one log, making it when no directory has it; `__cluster_metadata` is made in the first of `log.dirs`.

        Raises StorageError when it may be in a directory that is offline, or is in two, or its `partition.metadata`
        does not read, OSError when the disk fails.
        """
        wanted = WantedLog(topic, partition, topic_id, config)
        name = partition_directory_name(topic, partition)
        homes = [one for one in self._not_offline() if self._files.is_directory(one.path / name)]
        try:
            home = choose_home(self._files, wanted, homes)
        except BrokenFile as error:
            raise StorageError(str(error)) from error
        if home is None:
            return self._make(wanted, self._home_for_new(wanted))
        log = self._open(wanted, home.directory, is_marked=home.is_marked)
        self._take(wanted.topic_partition, log, home.directory)
        return log

    def open_logs(self, wanted: Iterable[WantedLog]) -> LoadedLogs:
        """Open every log that the catalog knows and that is not open yet, and set aside what it does not know.

        A log that cannot be opened is among `failed` and does not stop the others; a disk that fails takes its
        directory offline. To be called once. Raises LoadInterrupted when `loading` was stopped.
        """
        loaded = LoadedLogs()
        waiting = {one.topic_partition: one for one in wanted if one.topic_partition not in self.logs}
        by_home: dict[LogDirectory, list[WantedLog]] = {directory: [] for directory in self._not_offline()}
        marked: set[TopicPartition] = set()
        present = scan(self._files, by_home)
        missing: list[WantedLog] = []
        for topic_partition, one in waiting.items():
            try:
                home = choose_home(self._files, one, present.get(topic_partition, []))
            except (StorageError, BrokenFile, OSError) as error:
                loaded.failed[topic_partition] = error
                continue
            if home is None:
                missing.append(one)
                continue
            by_home[home.directory].append(one)
            if home.is_marked:
                marked.add(topic_partition)

        def open_one(wanted: WantedLog, home: LogDirectory) -> Log:
            return self._open(wanted, home, is_marked=wanted.topic_partition in marked)

        threads = self._config.num_recovery_threads_per_data_dir
        for its_home, one, log in open_all(self._files, by_home, open_one, threads=threads, progress=self.loading):
            if isinstance(log, Exception):
                loaded.failed[one.topic_partition] = log
            else:
                loaded.logs[one.topic_partition] = log
                self._take(one.topic_partition, log, its_home)
        self._set_strays_aside(present, waiting, loaded)
        for one in missing:
            try:
                loaded.logs[one.topic_partition] = self._make(one, self._home_for_new(one))
                loaded.made.append(one.topic_partition)
            except (StorageError, OSError) as error:
                loaded.failed[one.topic_partition] = error
        self._failed = dict(loaded.failed)
        for directory in self._not_offline():
            failed = [one for one in loaded.failed if directory in present.get(one, ())]
            self._keep_cleaned(directory, failed)
            directory.is_loaded = not any(directory in present.get(failed, ()) for failed in loaded.failed)
            if directory.is_loaded and not directory.is_ours:
                self._take_over(directory)
        for topic_partition, reason in loaded.failed.items():
            logger.error("%s is unavailable: %s", topic_partition, reason)
        return loaded

    def _keep_cleaned(self, home: LogDirectory, failed: Sequence[TopicPartition]) -> None:
        """Where the cleaner's checkpoint was lost: the next unclean start must not take missing offsets for damage."""
        if home.checkpoints.has_lost_cleaned:
            starts = dict.fromkeys(failed, 0)
            starts |= {one: log.log_start_offset for one, log in self.logs.items() if self._homes[one] is home}
            try:
                home.checkpoints.keep_cleaned(starts)
            except OSError as error:
                logger.error("cannot write %s: %s", home.path / CLEANER_OFFSET_CHECKPOINT_FILE, error)

    def _take_over(self, home: LogDirectory) -> None:
        """Kafka's directory becomes ours: what it had cleaned beyond its recovery points is below ours."""
        try:
            rows = self._rows(RECOVERY_POINT_CHECKPOINT_FILE, home, _recovery_point)
            if home.checkpoints.write(RECOVERY_POINT_CHECKPOINT_FILE, rows):
                home.take_over()
        except OSError as error:
            home.mark_failed(error)
            logger.error("cannot take %s over: %s", home.path, error)

    def _home_for_new(self, wanted: WantedLog) -> LogDirectory:
        """Where a partition that was found nowhere may be made.

        Not at all while it may be in a directory that is offline: an empty log in its place would answer that all is
        gone.
        """
        offline = [directory for directory in self.directories if directory.is_offline]
        is_here = any(directory.id == wanted.directory_id for directory in self._not_offline())
        if offline and not (wanted.directory_id is not None and is_here):
            raise StorageError(
                f"{wanted.topic_partition} may be in {offline[0].path}, which is offline: {offline[0].error}"
            )
        if wanted.topic == CLUSTER_METADATA_TOPIC:
            return self.directories[0]
        # It was promised before: the reserve is for such, too.
        return self._emptiest(self._online() or [one for one in self.directories if one.has_taken_all])

    def _open(self, wanted: WantedLog, home: LogDirectory, *, is_marked: bool) -> Log:
        topic_partition = wanted.topic_partition
        path = home.path / partition_directory_name(wanted.topic, wanted.partition)
        try:
            if not is_marked:
                write_partition_metadata(self._files, path, wanted.topic_id)
            log = open_log(
                self._files,
                path,
                topic=wanted.topic,
                partition=wanted.partition,
                topic_id=wanted.topic_id,
                config=wanted.config,
                now_ms=self._clock.wall_ms(),
                was_clean=home.was_clean,
                recovery_point=home.checkpoints.offset_of(RECOVERY_POINT_CHECKPOINT_FILE, topic_partition),
                log_start_offset=home.checkpoints.offset_of(LOG_START_OFFSET_CHECKPOINT_FILE, topic_partition),
                high_watermark=home.checkpoints.offset_of(REPLICATION_OFFSET_CHECKPOINT_FILE, topic_partition),
                indexed_offset=home.checkpoints.offset_of(INDEX_OFFSET_CHECKPOINT_FILE, topic_partition),
                gaps_before=home.checkpoints.gaps_before(
                    topic_partition,
                    is_compacted="compact" in wanted.config.cleanup_policy,
                    keeps_order=home.keeps_order,
                ),
                producer_id_expiration_ms=self._config.producer_id_expiration_ms,
                health=home,
                index_cache=self._index_cache,
                progress=partial(self.loading.update, topic_partition),
            )
            # Where damage cut the log below them they would vouch for what is appended next.
            home.checkpoints.lower(topic_partition, log.recovery_point)
            return log
        except OSError as error:
            home.mark_failed(error)
            raise

    def _take(self, topic_partition: TopicPartition, log: Log, home: LogDirectory) -> None:
        self.logs[topic_partition] = log
        self._homes[topic_partition] = home

    def _set_strays_aside(
        self,
        present: Mapping[TopicPartition, Sequence[LogDirectory]],
        wanted: Mapping[TopicPartition, WantedLog],
        loaded: LoadedLogs,
    ) -> None:
        for topic_partition, homes in present.items():
            if topic_partition.topic == CLUSTER_METADATA_TOPIC or topic_partition in loaded.failed:
                continue
            for home in homes:
                if self._homes.get(topic_partition) is home or home.is_offline:
                    continue
                reason = "it belongs to another topic id" if topic_partition in wanted else "no such partition is known"
                try:
                    stray = set_aside(self._files, home, topic_partition, reason)
                    if self._homes.get(topic_partition) is None:
                        home.checkpoints.forget(topic_partition)
                except OSError as error:
                    home.mark_failed(error)
                    continue
                loaded.strays.append(stray)

    # -- creating and deleting

    def create_log(
        self, topic: str, partition: int, topic_id: UUID, config: TopicConfig, *, directory_id: UUID | None = None
    ) -> Log:
        """Make a partition's directory and log, durable with its first sync: in the directory of this id while it takes
        writes, else where the fewest partitions are.

        The catalog's record of it is synced already. Raises OSError: no directory takes writes (then ENOSPC or EIO),
        or the disk failed.
        """
        topic_partition = TopicPartition(topic, partition)
        if topic_partition in self.logs:
            raise ValueError(f"{topic_partition} is open already")
        named = [one for one in self.directories if one.is_online and one.id == directory_id]
        home = named[0] if named and directory_id is not None else self._emptiest(self._online())
        return self._make(WantedLog(topic, partition, topic_id, config), home)

    def delete_log(self, topic: str, partition: int) -> Callable[[], None]:
        """Close a log and rename its directory to `-delete`; `unlink_due` removes it after `file.delete.delay.ms`.

        Returns what brings the new name to the disk: it blocks, may run in any thread, and one sync serves all that
        were deleted before it. Both raise OSError.

        The catalog's record of it is synced already. Does nothing for a log that is not open; in an offline directory
        the files stay and are strays at the next start.
        """
        topic_partition = TopicPartition(topic, partition)
        log = self.logs.pop(topic_partition, None)
        self._index_syncs.forget(topic_partition)
        if log is None:
            return _nothing_to_settle
        home = self._homes.pop(topic_partition)
        log.abandon()
        if home.is_offline:
            return _nothing_to_settle
        doomed = home.path / delete_directory_name(topic, partition)
        try:
            self._files.rename(home.path / partition_directory_name(topic, partition), doomed)
        except OSError as error:
            home.mark_offline(error)
            raise
        self._removals.add(doomed, self._clock.monotonic_ms() + log.config.file_delete_delay_ms)
        return partial(home.settle_names, home.name_made())

    def unlink_due(self, now_ms: int) -> int:
        """Remove deleted partitions whose delay is over; returns how many. `now_ms` is monotonic."""
        return self._removals.remove_due(now_ms)

    def next_unlink_ms(self) -> int | None:
        """When `unlink_due` has something to do (monotonic), None if nothing waits."""
        return self._removals.next_due_ms()

    def _make(self, wanted: WantedLog, home: LogDirectory) -> Log:
        path = home.path / partition_directory_name(wanted.topic, wanted.partition)
        try:
            home.checkpoints.forget(wanted.topic_partition)
            if not self._files.is_directory(path):
                self._files.make_directory(path)
            name = home.name_made()
            found_partition(self._files, path, wanted.topic_id)
        except OSError as error:
            home.mark_failed(error)
            raise
        log = self._open(wanted, home, is_marked=True)

        def found() -> None:
            sync_founded(self._files, path)
            home.sync_names(name)

        log.unsynced.founding = found
        self._take(wanted.topic_partition, log, home)
        return log

    def _online(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if directory.is_online]

    def _emptiest(self, usable: Sequence[LogDirectory]) -> LogDirectory:
        if not usable:
            is_full = any(directory.state is DirectoryState.FULL for directory in self.directories)
            raise OSError(errno.ENOSPC if is_full else errno.EIO, "no log directory takes writes")
        counts = dict.fromkeys(usable, 0)
        for home in self._homes.values():
            if home in counts:
                counts[home] += 1
        return min(usable, key=counts.__getitem__)

    # -- checkpoints

    def write_recovery_points(self) -> None:
        """Write how far each log is known to be on disk. Errors are logged and shown in the directory's state."""
        self._checkpoint(RECOVERY_POINT_CHECKPOINT_FILE, _recovery_point)

    def cover(self, topic: str, partition: int, offset: int) -> None:
        """Have on disk that a log is on disk up to `offset`, at least; it is, and what is missing below it was cleaned.

        Durable when this returns. Raises OSError.
        """
        covered = TopicPartition(topic, partition)
        home = self._homes.get(covered)
        if home is None or home.checkpoints.offset_of(RECOVERY_POINT_CHECKPOINT_FILE, covered) >= offset:
            return  # its topic was deleted, or the chore has been here
        rows = self._rows(RECOVERY_POINT_CHECKPOINT_FILE, home, _recovery_point)
        if not home.checkpoints.write(RECOVERY_POINT_CHECKPOINT_FILE, rows):
            raise OSError(errno.EIO, "the log directory is offline", str(home.path))

    def sync_indexes(self) -> None:
        """Bring index files of active segments to the disk, those that have grown most, and write how far they are."""
        for home in self._not_offline():
            logs = [(one, log) for one, log in list(self.logs.items()) if self._homes.get(one) is home]
            try:
                self._index_syncs.run(logs)
            except (OSError, ValueError) as error:
                home.mark_offline(error if isinstance(error, OSError) else OSError(str(error)))
        self._checkpoint(INDEX_OFFSET_CHECKPOINT_FILE, lambda one, _: self._indexed_offset(one))

    def _indexed_offset(self, one: TopicPartition) -> int | None:
        home = self._homes.get(one)
        before = None if home is None else home.checkpoints.rows[INDEX_OFFSET_CHECKPOINT_FILE].get(one)
        return self._index_syncs.offsets.get(one, before)

    def write_log_start_offsets(self) -> None:
        """Write where logs start that do not start at offset 0."""
        self._checkpoint(LOG_START_OFFSET_CHECKPOINT_FILE, _moved_start)

    def checkpoint_log_start_offsets(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """The same for the directories of some logs, durable when this returns: before DeleteRecords is answered.

        Those whose directory does not take it; the log says why. Partitions that are gone meanwhile are not among them.
        """
        failed: set[TopicPartition] = set()
        homes = {one: self._homes.get(one) for one in partitions}
        for home in {home for home in homes.values() if home is not None}:
            try:
                rows = self._rows(LOG_START_OFFSET_CHECKPOINT_FILE, home, _moved_start)
                is_written = home.checkpoints.write(LOG_START_OFFSET_CHECKPOINT_FILE, rows)
            except OSError as error:
                logger.error("cannot write %s: %s", home.path / LOG_START_OFFSET_CHECKPOINT_FILE, error)
                is_written = False
            if not is_written:
                failed |= {one for one, its in homes.items() if its is home}
        return failed

    def clean_offset_of(self, topic: str, partition: int) -> int | None:
        """Up to where a log was cleaned, None when the cleaner has never been there."""
        one = TopicPartition(topic, partition)
        home = self._homes.get(one)
        return None if home is None else home.checkpoints.rows[CLEANER_OFFSET_CHECKPOINT_FILE].get(one)

    def write_clean_offset(self, topic: str, partition: int, offset: int) -> None:
        """Write up to where a log is clean, durable when this returns. Raises OSError."""
        cleaned = TopicPartition(topic, partition)
        home = self._homes.get(cleaned)
        if home is None:
            return  # its topic was deleted
        known = home.checkpoints.rows[CLEANER_OFFSET_CHECKPOINT_FILE].get
        rows = self._rows(CLEANER_OFFSET_CHECKPOINT_FILE, home, lambda one, _: offset if one == cleaned else known(one))
        if not home.checkpoints.write(CLEANER_OFFSET_CHECKPOINT_FILE, rows):
            raise OSError(errno.EIO, "the log directory is offline", str(home.path))

    def write_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """Write each log's high watermark; `high_watermarks` overrides what the logs themselves say."""
        given = high_watermarks or {}
        self._checkpoint(REPLICATION_OFFSET_CHECKPOINT_FILE, lambda one, log: given.get(one, log.high_watermark))

    def _checkpoint(self, name: str, offset_of: Callable[[TopicPartition, Log], int | None]) -> None:
        for home in self._not_offline():
            try:
                home.checkpoints.write(name, self._rows(name, home, offset_of))
            except OSError as error:
                logger.error("cannot write %s: %s", home.path / name, error)

    def _rows(
        self, name: str, home: LogDirectory, offset_of: Callable[[TopicPartition, Log], int | None]
    ) -> Callable[[], dict[TopicPartition, int]]:
        def make_rows() -> dict[TopicPartition, int]:
            # A log that is not open (not yet, or it failed) keeps what was said of it.
            rows = {
                one: offset
                for one, offset in home.checkpoints.rows[name].items()
                if not home.is_loaded or one in self._failed
            }
            for one, log in list(self.logs.items()):
                if self._homes.get(one) is home:
                    rows.pop(one, None)
                    offset = offset_of(one, log)
                    if offset is not None:
                        rows[one] = offset
            return rows

        return make_rows

    # -- closing

    def close(self, clean: bool = True, *, broker_epoch: int = -1) -> None:
        """Close every log and give the directories back. The manager is done afterwards.

        With `clean` everything is flushed, synced and checkpointed, and the mark of the clean stop is written last,
        where nothing failed (Kafka's `.kafka_cleanshutdown`, with `broker_epoch`). Without, files are closed as they
        are.
        """
        for topic_partition, log in self.logs.items():
            home = self._homes[topic_partition]
            if not clean or home.is_offline:
                log.abandon()
                continue
            try:
                log.close()
                self._index_syncs.offsets[topic_partition] = log.log_end_offset  # its indexes are on disk, too
            except OSError as error:
                home.mark_offline(error)
        if clean:
            self.write_recovery_points()
            self._checkpoint(INDEX_OFFSET_CHECKPOINT_FILE, lambda one, _: self._indexed_offset(one))
            self.write_log_start_offsets()
            self.write_high_watermarks()
        for directory in self.directories:
            try:
                directory.end(clean=clean and directory.has_taken_all, broker_epoch=broker_epoch)
            except OSError as error:
                directory.mark_offline(error)
        self.logs.clear()
        self._homes.clear()

    def _release(self) -> None:
        for directory in self.directories:
            directory.release()


def check_identities(found: Mapping[Path, MetaProperties], node_id: int, wanted_cluster_id: str | None) -> str | None:
    """The cluster id that all agree on; None when none has one. Raises StorageError naming who disagrees."""
    cluster_id, said_by = wanted_cluster_id, "the configuration"
    for path, properties in found.items():
        file = path / META_PROPERTIES_FILE
        if properties.node_id != node_id:
            raise StorageError(f"{file} belongs to node.id {properties.node_id}, this broker is node.id {node_id}")
        if cluster_id is None:
            cluster_id, said_by = properties.cluster_id, str(file)
        elif properties.cluster_id != cluster_id:
            raise StorageError(f"{file} says cluster.id {properties.cluster_id}, {said_by} says {cluster_id}")
    return cluster_id


def _nothing_to_settle() -> None:
    """Of a log that was not open, or whose directory nobody may write to."""


def _recovery_point(_: TopicPartition, log: Log) -> int:
    return log.recovery_point


def _moved_start(_: TopicPartition, log: Log) -> int | None:
    """A log start that the files may not show.

    Kafka writes no row for a log that starts with its first segment. Here the row stays: retention may be between the
    rename of the segments before it and the sync of their names, and without the row they would come back.
    """
    return log.log_start_offset or None
