"""One entry of `log.dirs`: its owner, its life from `open` to `end`, and the names of partitions in it.

Its state is in `directory_status.py`, its offset checkpoints are in `directory_checkpoints.py`.

`was_clean` means that the last owner stopped cleanly, so that the logs need no checks. `begin` removes the mark before
anything is changed, and `end` writes it again, as the last write.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.config.cordoned import is_cordoned
from ottla.storage.directories.directory_checkpoints import DirectoryCheckpoints
from ottla.storage.directories.directory_status import DirectoryStatus
from ottla.storage.directories.redo_log import RedoLog
from ottla.storage.directories.wrong_log_starts import refuse_wrong_log_starts
from ottla.storage.errors import StorageError
from ottla.storage.files.disk_errors import is_full
from ottla.storage.files.files import Files, Lock, NotOpened, PartialWrite
from ottla.storage.formats.checkpoint import BrokenFile
from ottla.storage.formats.clock_checkpoint import known_time_of
from ottla.storage.formats.directory_format import (
    FORMAT_VERSION,
    read_clean_shutdown,
    read_format,
    remove_clean_shutdown,
    write_clean_shutdown,
    write_format,
)
from ottla.storage.formats.kafka_uuid import random_uuid
from ottla.storage.formats.layout import (
    FORMAT_FILE,
    LOCK_FILE,
    META_PROPERTIES_FILE,
    REDO_LOG_FILE,
    TEMPORARY_SUFFIX,
)
from ottla.storage.formats.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from ottla.storage.recovery.redo import RedoContents, read_redo_log

if TYPE_CHECKING:
    from ottla.storage.files.clock_trust import KnownTime
    from ottla.storage.files.files import Volume

logger = logging.getLogger(__name__)


class LogDirectory(DirectoryStatus):
    """A log directory; `ottla.storage.files.health.DirectoryHealth` for the logs in it.

    `id` is the `directory.id`, None until it is open. `DirectoryStatus` documents the other arguments and attributes.
    """

    def __init__(
        self,
        files: Files,
        path: Path,
        reserve_bytes: Callable[[], int] = lambda: 0,
        reserve_inodes: Callable[[], int] = lambda: 0,
        *,
        cordoned: Callable[[], Collection[str]] = lambda: (),
        keeps_redo_log: bool = False,
    ) -> None:
        super().__init__(files, path, reserve_bytes, reserve_inodes)
        self._cordoned = cordoned
        self._keeps_redo_log = keeps_redo_log
        self.id: UUID | None = None
        self.was_clean = False
        self.left_as = ""
        """How its last owner left it, in words for people; empty if that could not be read."""
        self.is_ours = False
        """Whether it has an `ottla.format`: an Ottla has opened all of its logs once, and keeps their files in order.
        """
        self.clean_broker_epoch = -1
        self.is_loaded = False
        """Whether every log in it was opened, and recovered where necessary."""
        self.known_time: KnownTime | None = None
        """The newest time that it knew of before this start wrote to it."""
        self.has_clock_file = False
        """Whether `known_time` is from a valid `ottla.clock`."""
        self.redo_contents = RedoContents()
        """The records that a crash has left in the redo log, until all logs are open. Each log is given its part first.
        """
        self.redo_log: RedoLog | None = None
        """The file that a round writes instead of syncing several logs, if that is configured."""
        self.volume: Volume | None = None
        """Its file system, if that can be synced as a whole: for the stop."""
        self.checkpoints = DirectoryCheckpoints(files, path, self)
        self._lock: Lock | None = None
        self._names_guard = threading.Lock()
        self._names_made = 0
        self._names_synced = 0
        self._names_error: OSError | None = None

    def __repr__(self) -> str:
        return f"LogDirectory({str(self.path)!r}, {self.state.value})"

    @property
    def is_cordoned(self) -> bool:
        """Whether it takes no new partitions (`cordoned.log.dirs`, whose value `cordoned` returns)."""
        return is_cordoned(self.path.absolute(), self._cordoned())

    @property
    def keeps_order(self) -> bool:
        """Whether its last owner was an Ottla that has crashed: its writes reached the disk in their order."""
        return self.is_ours and not self.was_clean

    # -- life

    def claim(self) -> None:
        """Lock the directory if it has a lock file, so that another broker that uses it is reported before other
        errors.

        Creates nothing. Raises StorageError when another process has it; errors of the disk are left to `open`.
        """
        try:
            is_known = self._files.exists(self.path / LOCK_FILE)
        except OSError:
            return
        if is_known:
            with contextlib.suppress(OSError):
                self._take_lock()

    def _take_lock(self) -> None:
        try:
            self._lock = self._files.lock(self.path / LOCK_FILE)
        except BlockingIOError as error:
            raise StorageError(
                f"{self.path} is in use by another broker ({error.strerror}): stop that one, or set log.dirs to another"
            ) from error

    def open(self) -> MetaProperties | None:
        """Create the directory if it is missing, lock it, and read its own files without changing anything.

        Returns its `meta.properties`, None in a new directory. Raises StorageError when another process has it, a newer
        Ottla wrote it or a file in it is broken, and OSError when the disk fails.
        """
        self._files.make_directory(self.path, parents=True)
        if self._lock is None:
            self._take_lock()
        try:
            return self._read_identity()
        except BaseException:
            self.release()
            raise

    def _read_identity(self) -> MetaProperties | None:
        try:
            version = read_format(self._files, self.path)
            if version is not None and version > FORMAT_VERSION:
                raise StorageError(
                    f"{self.path / FORMAT_FILE} says version {version}, this Ottla knows {FORMAT_VERSION}: "
                    "a newer Ottla has written here, use that one"
                )
            self.is_ours = version is not None
            properties = read_meta_properties(self._files, self.path)
            self.checkpoints.read(is_ours=self.is_ours)
            self.known_time, self.has_clock_file = known_time_of(self._files, self.path)
        except BrokenFile as error:
            raise StorageError(
                f"{error}; `ottla log verify --repair {self.path}` says and does what can be done"
            ) from error
        clean_epoch = read_clean_shutdown(self._files, self.path)
        self.was_clean = clean_epoch is not None
        if self.was_clean:
            refuse_wrong_log_starts(self._files, self.path, self.checkpoints.rows)
        self.clean_broker_epoch = -1 if clean_epoch is None else clean_epoch
        if properties is not None:
            self.id = properties.directory_id
        if properties is None:
            self.left_as = "new"
        elif self.was_clean:
            self.left_as = "stopped cleanly before"
        elif self.is_ours:
            self.left_as = "not stopped cleanly before"
        else:
            self.left_as = "formatted and not used yet, or not stopped cleanly by Apache Kafka"
        return properties

    def begin(self, cluster_id: str, node_id: int, found: MetaProperties | None) -> None:
        """Take the directory: remove the mark of the clean stop, and write what `found` lacks. Raises OSError.

        The names in it are synced first, and its own if it may be new: a process that was killed may have created them,
        and the broker is about to rely on them.
        """
        self._redo()
        self._files.sync_directory(self.path)
        if found is None:
            with contextlib.suppress(PermissionError):  # created by another user, in a parent that Ottla must not open
                self._files.sync_directory(self.path.parent)
        remove_clean_shutdown(self._files, self.path)
        for name in self._files.list_directory(self.path):
            if name.endswith(TEMPORARY_SUFFIX) and not self._files.is_directory(self.path / name):
                self._files.unlink(self.path / name)
        if found is None or found.directory_id is None or found.version != 1:
            self.id = (found.directory_id if found else None) or random_uuid()
            others = found.others if found else {}
            write_meta_properties(self._files, self.path, MetaProperties(cluster_id, node_id, self.id, others=others))
        self.checkpoints.believe_copy()
        if found is None:
            self.take_over()
        elif self.is_ours and self.checkpoints.has_lost_starts:
            self.checkpoints.write_missing()  # the loss was logged: the next start must not log it again

    def _redo(self) -> None:
        """Read the redo log, and create one. The caller syncs its name.

        After a clean stop its content is ignored: another owner has had the directory since. Raises OSError.
        """
        path = self.path / REDO_LOG_FILE
        if self.was_clean:
            if self._files.exists(path):
                self._files.unlink(path)
        else:
            self.redo_contents = read_redo_log(self._files, self.path)
        if self._keeps_redo_log:
            redo_log = RedoLog(self._files, self.path, self)
            try:
                redo_log.make(self.redo_contents.generation)
            except OSError as error:
                if not is_full(error) and not isinstance(error, NotOpened):
                    raise
                logger.warning("%s: no redo log is made: %s", self.path, error)
            else:
                self.redo_log = redo_log

    def begin_redo_log(self) -> None:
        """Use the redo log, once every log in the directory was opened, and so is on disk with its part of it.

        If a log could not be opened, its part of the redo log is kept for the next start, and none is used until then.
        """
        if not self.is_loaded or self.is_offline:
            return
        self.redo_contents = RedoContents()
        try:
            if self.redo_log is not None:
                self.redo_log.begin()
            elif not self.was_clean and self._files.exists(self.path / REDO_LOG_FILE):
                self._files.unlink(self.path / REDO_LOG_FILE)
                self._files.sync_directory(self.path)
        except NotOpened as error:
            logger.info("%s: the redo log is not used: %s", self.path, error)
        except PartialWrite as error:
            self.mark_failed(error)
        except OSError as error:  # a failed sync among them
            self.mark_offline(error)

    def open_volume(self) -> None:
        """Keep its file system open from now on, if that can be synced as a whole."""
        if not self.is_offline:
            with contextlib.suppress(OSError):
                self.volume = self._files.open_volume(self.path / META_PROPERTIES_FILE)

    def take_over(self) -> None:
        """Mark the directory as Ottla's: when its logs are recovered and the recovery points are written, or
        immediately if it is new and has no logs. Raises OSError.
        """
        self.checkpoints.write_missing()
        write_format(self._files, self.path)
        self.is_ours = True

    def end(self, *, clean: bool, broker_epoch: int = -1) -> None:
        """Mark the stop as clean, if it is one, and release the lock. Raises OSError when that cannot be written."""
        try:
            if clean and not self.is_offline and (self.is_loaded or self.was_clean):
                if self.redo_log is not None:
                    self.redo_log.end()
                write_clean_shutdown(self._files, self.path, broker_epoch)
        finally:
            self.release()

    def release(self) -> None:
        """Close the volume and the redo log, and release the lock."""
        if self.volume is not None:
            self.volume.close()
            self.volume = None
        if self.redo_log is not None:
            self.redo_log.close()
            self.redo_log = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # -- names in it

    def name_made(self) -> int:
        """Note that a directory was created or renamed in it; returns the argument for `sync_names`."""
        with self.guard:
            self._names_made += 1
            return self._names_made

    def sync_names(self, upto: int, *, is_covered: bool = False) -> None:
        """Bring that name to the disk. One sync serves all names made before it; `is_covered`: a sync of the volume has
        done it. Raises OSError, and again in each later call: a second sync would not report what the first one lost.
        """
        with self._names_guard:
            if self._names_synced < upto:
                if self._names_error is not None:
                    raise OSError(self._names_error.errno, self._names_error.strerror, str(self.path))
                if is_covered:
                    self._names_synced = upto
                    return
                made = self._names_made
                try:
                    self._files.sync_directory(self.path)
                except OSError as error:
                    if not isinstance(error, NotOpened):
                        self._names_error = error
                    raise
                self._names_synced = made

    def settle_names(self, upto: int) -> None:
        """`sync_names` for callers without a log that would fail with it: a failed sync takes the directory offline,
        and is not tried again. Raises OSError, also when it was offline before.
        """
        if self.is_offline:
            raise OSError(errno.EIO, f"{self.path} is offline: {self.error}")
        try:
            self.sync_names(upto)
        except OSError as error:
            if not isinstance(error, NotOpened):  # otherwise the next sync of a name includes this one
                self.mark_offline(error)
            raise
