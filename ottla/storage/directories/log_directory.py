"""One entry of `log.dirs`: whose it is, its life from `open` to `end`, and the names of partitions in it.

How it stands is in `directory_status.py`, its offset checkpoints are in `directory_checkpoints.py`.

`was_clean` says that the last owner stopped cleanly, so that nothing in the logs needs to be checked. The mark is
taken away by `begin` before anything is changed and put back, as the last write, by `end`.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

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

    `id` is the `directory.id`, None until it is open. For the rest of the arguments and attributes see
    `DirectoryStatus`.
    """

    def __init__(
        self,
        files: Files,
        path: Path,
        reserve_bytes: Callable[[], int] = lambda: 0,
        reserve_inodes: Callable[[], int] = lambda: 0,
        *,
        keeps_redo_log: bool = False,
    ) -> None:
        super().__init__(files, path, reserve_bytes, reserve_inodes)
        self._keeps_redo_log = keeps_redo_log
        self.id: UUID | None = None
        self.was_clean = False
        self.is_ours = False
        """Whether it has an `ottla.format`: its logs were all opened by an Ottla once, and are kept in its order."""
        self.clean_broker_epoch = -1
        self.is_loaded = False
        """Whether every log in it was opened, and so recovered where that was needed."""
        self.known_time: KnownTime | None = None
        """The newest time that it knew of before this start wrote to it."""
        self.has_clock_file = False
        """Whether a sound `ottla.clock` says so."""
        self.redo_contents = RedoContents()
        """What a crash has left in the redo log, until all logs were opened, each of which gets its part first."""
        self.redo_log: RedoLog | None = None
        """What rounds of syncs of several logs write, where that is wanted."""
        self.volume: Volume | None = None
        """Its file system, where that can be synced as a whole: for the stop."""
        self.checkpoints = DirectoryCheckpoints(files, path, self)
        self._lock: Lock | None = None
        self._names_guard = threading.Lock()
        self._names_made = 0
        self._names_synced = 0
        self._names_error: OSError | None = None

    def __repr__(self) -> str:
        return f"LogDirectory({str(self.path)!r}, {self.state.value})"

    @property
    def keeps_order(self) -> bool:
        """Whether an Ottla had it last and was stopped by a crash: what it wrote is there in its order."""
        return self.is_ours and not self.was_clean

    # -- life

    def claim(self) -> None:
        """Lock the directory if anybody has ever locked it, so that a broker that has it is named before all else.

        Makes nothing. Raises StorageError when somebody else has it; `open` meets what the disk says.
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
            raise StorageError(f"{self.path} is in use by another broker ({error.strerror})") from error

    def open(self) -> MetaProperties | None:
        """Make the directory when missing, lock it, and read what it says of itself without changing anything.

        Returns its `meta.properties`, None in a new directory. Raises StorageError when somebody else has it or a
        newer Ottla wrote it or a file in it is broken, OSError when the disk does not let us.
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
        return properties

    def begin(self, cluster_id: str, node_id: int, found: MetaProperties | None) -> None:
        """Take the directory: take the mark of the clean stop away, and write what `found` lacks. Raises OSError.

        The names in it are synced first, and its own if it may be new: a process that was killed may have made them,
        and they are about to be relied on.
        """
        self._redo()
        self._files.sync_directory(self.path)
        if found is None:
            with contextlib.suppress(PermissionError):  # somebody else made it for us, where we may not look
                self._files.sync_directory(self.path.parent)
        remove_clean_shutdown(self._files, self.path)
        for name in self._files.list_directory(self.path):
            if name.endswith(TEMPORARY_SUFFIX):
                self._files.unlink(self.path / name)
        if found is None or found.directory_id is None or found.version != 1:
            self.id = (found.directory_id if found else None) or random_uuid()
            others = found.others if found else {}
            write_meta_properties(self._files, self.path, MetaProperties(cluster_id, node_id, self.id, others=others))
        self.checkpoints.believe_copy()
        if found is None:
            self.take_over()
        elif self.is_ours and self.checkpoints.has_lost_starts:
            self.checkpoints.write_missing()  # it was notified, and is not notified again

    def _redo(self) -> None:
        """Read what the redo log holds, and make a redo log. Its name is synced by the caller.

        After a clean stop what it holds counts for nothing: somebody else had the directory since. Raises OSError.
        """
        path = self.path / REDO_LOG_FILE
        if self.was_clean:
            if self._files.exists(path):
                self._files.unlink(path)
        else:
            self.redo_contents = read_redo_log(self._files, self.path)
        if self._keeps_redo_log:
            redo_log = RedoLog(self._files, self.path)
            try:
                redo_log.make(self.redo_contents.generation)
            except OSError as error:
                if not is_full(error) and not isinstance(error, NotOpened):
                    raise
                logger.warning("%s: no redo log is made: %s", self.path, error)
            else:
                self.redo_log = redo_log

    def begin_redo_log(self) -> None:
        """Use the redo log, once every log in the directory was opened, and so is on disk with what it held.

        Where one could not be opened, what the redo log holds of it stays for the next start, and none is used until
        then.
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

    def keep_appended(self, room_bytes: int) -> None:
        """Have logs keep what is appended in memory for the redo log, so many bytes in all."""
        self.redo_room_bytes = room_bytes

    def open_volume(self) -> None:
        """Hold its file system from now on, where that can be synced as a whole."""
        if not self.is_offline:
            with contextlib.suppress(OSError):
                self.volume = self._files.open_volume(self.path / META_PROPERTIES_FILE)

    def take_over(self) -> None:
        """Say that it is ours from now on, once what its logs hold is recovered and the recovery points say so; a new
        one, which holds none, at once. Raises OSError.
        """
        self.checkpoints.write_missing()
        write_format(self._files, self.path)
        self.is_ours = True

    def end(self, *, clean: bool, broker_epoch: int = -1) -> None:
        """Mark the stop as clean, if it is one, and give the lock back. Raises OSError when that cannot be written."""
        try:
            if clean and not self.is_offline and (self.is_loaded or self.was_clean):
                if self.redo_log is not None:
                    self.redo_log.end()
                write_clean_shutdown(self._files, self.path, broker_epoch)
        finally:
            self.release()

    def release(self) -> None:
        """Give the lock back."""
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
        """A directory was made or renamed in it; what `sync_names` is to be given."""
        with self.guard:
            self._names_made += 1
            return self._names_made

    def sync_names(self, upto: int, *, is_covered: bool = False) -> None:
        """Have that name on disk; one sync serves all that were made before it, and `is_covered` says that one of the
        volume has done so. Raises OSError, and from then on: a second sync would not report what the first one lost.
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
        """`sync_names` for who has no log that would fail with it: a failed sync takes the directory offline, and is
        not tried again. Raises OSError, also when it was offline before.
        """
        if self.is_offline:
            raise OSError(errno.EIO, f"{self.path} is offline: {self.error}")
        try:
            self.sync_names(upto)
        except OSError as error:
            if not isinstance(error, NotOpened):  # else the next one of a name serves this one, too
                self.mark_offline(error)
            raise
