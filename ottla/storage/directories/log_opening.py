"""Opening one log in its directory, with the offsets in that directory's checkpoints, or creating it there.

`manager.py` decides which logs there are, and in which directory; `recovery.py` opens the files. An error of the disk
is reported to the directory before it is raised.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.storage.directories.delayed_removal import remove_tree
from ottla.storage.directories.log_placement import WantedLog, clear_name
from ottla.storage.files.disk_errors import is_full
from ottla.storage.formats.layout import (
    CLEANER_OFFSET_CHECKPOINT_FILE,
    CLUSTER_METADATA_TOPIC,
    INDEX_OFFSET_CHECKPOINT_FILE,
    LEADER_EPOCH_CHECKPOINT_FILE,
    LOG_START_OFFSET_CHECKPOINT_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_CHECKPOINT_FILE,
    REPLICATION_OFFSET_CHECKPOINT_FILE,
    partition_directory_name,
)
from ottla.storage.formats.leader_epoch_checkpoint import begin_leader_epochs
from ottla.storage.formats.partition_metadata import found_partition, write_partition_metadata
from ottla.storage.index.index_cache import IndexCache
from ottla.storage.recovery.recovery import open_log

if TYPE_CHECKING:
    from ottla.config.broker import BrokerConfig
    from ottla.storage.directories.load_progress import LoadProgress
    from ottla.storage.directories.log_directory import LogDirectory
    from ottla.storage.files.files import Files
    from ottla.storage.log.log import Log

logger = logging.getLogger(__name__)


class LogOpening:
    """See the module. It has what the logs of a broker share; several threads may open logs at the same time."""

    def __init__(self, config: BrokerConfig, files: Files, now_ms: Callable[[], int], progress: LoadProgress) -> None:
        """`now_ms` returns the wall time: the expiration of producers that are found is counted from it."""
        self._config = config
        self._files = files
        self._now_ms = now_ms
        self._progress = progress
        self._index_cache = IndexCache()

    def open(self, wanted: WantedLog, directory: LogDirectory, *, is_marked: bool, is_new: bool = False) -> Log:
        """Open a log that is in `directory`, recovering the part that the checkpoints there do not vouch for.

        `is_marked`: its `partition.metadata` already has the topic id. Raises StorageError, BrokenFile,
        LoadInterrupted, and OSError after the directory was marked as failed.
        """
        topic_partition = wanted.topic_partition
        path = directory.path / partition_directory_name(wanted.topic, wanted.partition)
        try:
            if not is_marked:
                self._mark(path, wanted)
            recovery_point = directory.checkpoints.offset_of(RECOVERY_POINT_CHECKPOINT_FILE, topic_partition)
            high_watermark = directory.checkpoints.offset_of(REPLICATION_OFFSET_CHECKPOINT_FILE, topic_partition)
            if path.name in directory.redo_contents.entries and not is_new:
                # Acknowledged up to there: even if its files are gone, these offsets must not be assigned again.
                high_watermark = max(high_watermark, directory.redo_contents.end_of(path.name, wanted.topic_id.bytes))
                # The cleaner has moved the records below its offset, even if the recovery point was lost.
                cleaned = directory.checkpoints.offset_of(CLEANER_OFFSET_CHECKPOINT_FILE, topic_partition)
                synced_end = max(recovery_point, cleaned)
                directory.redo_contents.restore(self._files, path, wanted.topic_id.bytes, synced_end)
            log = open_log(
                self._files,
                path,
                topic=wanted.topic,
                partition=wanted.partition,
                topic_id=wanted.topic_id,
                config=wanted.config,
                now_ms=self._now_ms(),
                was_clean=directory.was_clean,
                is_new=is_new,
                recovery_point=recovery_point,
                log_start_offset=directory.checkpoints.offset_of(LOG_START_OFFSET_CHECKPOINT_FILE, topic_partition),
                high_watermark=high_watermark,
                indexed_offset=directory.checkpoints.offset_of(INDEX_OFFSET_CHECKPOINT_FILE, topic_partition),
                gaps_before=directory.checkpoints.gaps_before(
                    topic_partition,
                    is_compacted="compact" in wanted.config.cleanup_policy,
                    keeps_order=directory.keeps_order,
                    shows_synced=wanted.config.ottla_acks_all == "sync",
                ),
                knows_log_starts=directory.is_ours and wanted.topic != CLUSTER_METADATA_TOPIC,
                is_log_start_certain=directory.checkpoints.has_certain_starts,
                producer_id_expiration_ms=self._config.producer_id_expiration_ms,
                health=directory,
                index_cache=self._index_cache,
                progress=partial(self._progress.update, topic_partition),
            )
            if not directory.is_ours:
                log.unsynced.was_on_disk = False  # Kafka's clean stop does not sync the last entries of indexes
            if directory.checkpoints.knows(topic_partition):
                # If damage has truncated the log below them, they would vouch for the next appends.
                directory.checkpoints.lower(topic_partition, log.recovery_point)
            return log
        except OSError as error:
            directory.mark_failed(error)
            raise

    def _mark(self, path: Path, wanted: WantedLog) -> None:
        """Write the topic id to the directory if a crash left that file blank. If the disk is full, the log is opened
        nevertheless: the metadata log has the id, too, and a start relies on that one. Raises OSError.
        """
        try:
            write_partition_metadata(self._files, path, wanted.topic_id)
        except OSError as error:
            if not is_full(error):
                raise
            logger.warning("%s is written by a later start: %s", path / PARTITION_METADATA_FILE, error.strerror)

    def make(self, wanted: WantedLog, directory: LogDirectory) -> Log:
        """Create a partition's directory and open its empty log. Anything else under its name is moved away first.

        Durable with the log's first sync, which brings the directory and the id in it to the disk, too. Raises OSError
        after the directory was marked as failed; it tries to leave nothing under the name.
        """
        path = directory.path / partition_directory_name(wanted.topic, wanted.partition)
        try:
            directory.checkpoints.forget([wanted.topic_partition])
            clear_name(self._files, directory, wanted.topic_partition)
            if not self._files.is_directory(path):
                self._files.make_directory(path)
            name = directory.name_made()
            founding = self._found(path, wanted)
            log = self.open(wanted, directory, is_marked=True, is_new=True)
        except OSError as error:
            directory.mark_failed(error)
            if not directory.is_offline and wanted.topic != CLUSTER_METADATA_TOPIC:
                # The next attempt may use another log directory, and a start would find two.
                with contextlib.suppress(OSError):
                    remove_tree(self._files, path)
            raise

        def sync_founding(is_covered: bool) -> None:
            if not is_covered:
                for file in founding:
                    self._sync(file)
            directory.sync_names(name, is_covered=is_covered)

        log.unsynced.found(sync_founding)
        log.unsynced.was_on_disk = True  # this process has written everything in it
        return log

    def _found(self, path: Path, wanted: WantedLog) -> list[Path]:
        """Write the small files of a new partition, which the first sync of its log makes durable. Raises OSError."""
        found_partition(self._files, path, wanted.topic_id)
        if wanted.topic == CLUSTER_METADATA_TOPIC:  # its first epoch is that of the node
            return [path / PARTITION_METADATA_FILE]
        begin_leader_epochs(self._files, path)
        return [path / PARTITION_METADATA_FILE, path / LEADER_EPOCH_CHECKPOINT_FILE]

    def _sync(self, path: Path) -> None:
        file = self._files.open(path, writable=True)
        try:
            file.fdatasync()
        finally:
            file.close()
