"""One entry of `log.dirs`: whose it is, how it stands, and its small files.

States (decisions.md 4):

    ONLINE   takes writes
    FULL     a write found no room; nothing was lost, a chore probes, it comes back by itself. Or less is free than the
             reserve (`reserve.py`): clients' records are refused before there is no room at all
    OFFLINE  a write, sync or truncate failed otherwise; nothing is written here again until restart, reads go on
    where they can

`was_clean` says that the last owner stopped cleanly, so that nothing in the logs needs to be looked at. The mark is
taken away by `begin` before anything is changed and put back, as the last write, by `end`.

A directory's methods may be called from any thread: a guard keeps its checkpoints, which are replaced whole, apart.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Final
from uuid import UUID

from ottla.storage.blank_checkpoints import CONSEQUENCES, Blank, meaning_of
from ottla.storage.checkpoint import BlankFile, BrokenFile, read_offsets, write_offsets
from ottla.storage.directory_format import (
    FORMAT_VERSION,
    read_clean_shutdown,
    read_format,
    remove_clean_shutdown,
    write_clean_shutdown,
    write_format,
)
from ottla.storage.files import Files, Lock, write_all
from ottla.storage.kafka_uuid import random_uuid
from ottla.storage.layout import (
    CLEANER_OFFSET_CHECKPOINT_FILE,
    FORMAT_FILE,
    INDEX_OFFSET_CHECKPOINT_FILE,
    LOCK_FILE,
    LOG_START_OFFSET_CHECKPOINT_FILE,
    META_PROPERTIES_FILE,
    RECOVERY_POINT_CHECKPOINT_FILE,
    REPLICATION_OFFSET_CHECKPOINT_FILE,
    TEMPORARY_SUFFIX,
    TopicPartition,
)
from ottla.storage.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from ottla.storage.missing_offsets import gaps_before
from ottla.storage.reserve import UNKNOWN_ROOM, RoomLevel, judge

logger = logging.getLogger(__name__)

PROBE_BYTES: Final = 1 << 20
"""A full directory counts as recovered when it takes this much: a write of one byte would bring it back for one byte.
"""

_PROBE_FILE: Final = "ottla-probe" + TEMPORARY_SUFFIX
_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

CHECKPOINT_FILES: Final = (
    RECOVERY_POINT_CHECKPOINT_FILE,
    LOG_START_OFFSET_CHECKPOINT_FILE,
    REPLICATION_OFFSET_CHECKPOINT_FILE,
    CLEANER_OFFSET_CHECKPOINT_FILE,
)

_ALL_FILES: Final = (*CHECKPOINT_FILES, INDEX_OFFSET_CHECKPOINT_FILE)
"""The last one only saves time: broken or lost, it is as if it had no rows."""


class StorageError(Exception):
    """The log directories cannot be used as they are; the message is one line for people."""


class DirectoryState(Enum):
    """How a log directory stands; see the module."""

    ONLINE = "online"
    FULL = "full"
    OFFLINE = "offline"


class LogDirectory:
    """A log directory; `ottla.storage.health.DirectoryHealth` for the logs in it.

    `error` says why it is not ONLINE. `id` is the `directory.id`, None until it is open. `on_change` is called after
    each change of state, from whatever thread met the error. `reserve_bytes()` is what the configuration says of the
    reserve now.
    """

    def __init__(self, files: Files, path: Path, reserve_bytes: Callable[[], int] = lambda: 0) -> None:
        self.path = path
        self.id: UUID | None = None
        self.state = DirectoryState.ONLINE
        self.is_offline = False
        """Whether nothing may be written here until restart. Each append asks for it."""
        self.error: Exception | None = None
        self.room = UNKNOWN_ROOM
        """What the last look at the volume found."""
        self.room_bytes = UNKNOWN_ROOM.budget_bytes
        """Bytes that may be appended until the next look; 0 or less: `refusal` has to be asked."""
        self.was_clean = False
        self.is_ours = False
        """Whether it has an `ottla.format`: its logs were all opened by an Ottla once, and are kept in its order."""
        self.clean_broker_epoch = -1
        self.is_loaded = False
        """Whether every log in it was opened, and so recovered where that was needed."""
        self.on_change: Callable[[LogDirectory], None] | None = None
        self.checkpoints: dict[str, dict[TopicPartition, int]] = {name: {} for name in _ALL_FILES}
        """Rows by file name, as read at the start and as last written."""
        self._never_written: set[str] = set()
        self.has_lost_cleaned = False
        """Whether nobody knows which logs were cleaned, until `keep_cleaned`."""
        self._files = files
        self._reserve_bytes = reserve_bytes
        self._no_room_error: OSError | None = None
        """The write that found no room at all, until a probe finds some."""
        self._lock: Lock | None = None
        self._guard = threading.RLock()
        self._names_guard = threading.Lock()
        self._names_made = 0
        self._names_synced = 0

    def __repr__(self) -> str:
        return f"LogDirectory({str(self.path)!r}, {self.state.value})"

    @property
    def is_online(self) -> bool:
        """Whether it takes everybody's writes now."""
        return self.state is DirectoryState.ONLINE

    @property
    def has_taken_all(self) -> bool:
        """Whether no write has failed that is not made good: it may be FULL all the same, because of the reserve."""
        return not self.is_offline and self._no_room_error is None

    @property
    def takes_groups(self) -> bool:
        """Whether the records of groups may be written: they go on below the reserve for a while."""
        return self.has_taken_all and self.room.level is not RoomLevel.SCARCE

    # -- health

    def mark_full(self, error: OSError) -> None:
        """A write found no room: ONLINE becomes FULL."""
        with self._guard:
            if self.is_offline or self._no_room_error is not None:
                return
            self._no_room_error = error
        self._settle()

    def mark_offline(self, error: OSError, *, is_told: bool = True) -> None:
        """A write, sync or truncate failed: OFFLINE until restart. `is_told` False: the caller says so."""
        self._move(DirectoryState.OFFLINE, error, is_told=is_told)

    def mark_failed(self, error: OSError) -> None:
        """The one or the other, by what the error says. Not for a failed sync, which is always OFFLINE."""
        if error.errno in _NO_ROOM:
            self.mark_full(error)
        else:
            self.mark_offline(error)

    def probe(self) -> bool:
        """See whether a FULL directory takes and syncs `PROBE_BYTES` again, and has its reserve; returns whether it is
        ONLINE. Waits for the disk.
        """
        if self.state is not DirectoryState.FULL:
            return self.is_online
        if self._no_room_error is None:
            return self.look_at_room()
        probe = self.path / _PROBE_FILE
        try:
            file = self._files.open(probe, create=True)
            try:
                write_all(file, [bytes(PROBE_BYTES)], 0)
                file.fdatasync()
            finally:
                file.close()
                self._files.unlink(probe)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                self.mark_offline(error)
            return False
        with self._guard:
            self._no_room_error = None
        return self.look_at_room()

    # -- the reserve

    def look_at_room(self) -> bool:
        """Ask the volume how much is free, and draw the consequences; returns whether it is ONLINE then."""
        volume = self._files.volume_bytes(self.path)
        with self._guard:
            before = self.room.level
            self.room = judge(self._reserve_bytes(), volume, before)
            self.room_bytes = self.room.budget_bytes
        self._settle()
        if RoomLevel.SCARCE in (before, self.room.level) and before is not self.room.level:
            is_scarce = self.room.level is RoomLevel.SCARCE
            what = "offsets and groups are refused, too" if is_scarce else "offsets and groups are taken again"
            logger.warning("log directory %s: %s: %s", self.path, self.room, what)
        return self.is_online

    def refusal(self, *, of_clients: bool) -> OSError | None:
        """Why records are not to be appended now, or None. Asks the volume where that is due."""
        if self.room.level is RoomLevel.AMPLE:
            self.look_at_room()
        if self.room.level > (RoomLevel.AMPLE if of_clients else RoomLevel.SHORT):
            return self._reserve_error()
        return None

    def _reserve_error(self) -> OSError:
        return OSError(errno.ENOSPC, str(self.room), str(self.path))

    def _settle(self) -> None:
        """ONLINE or FULL, by whether a write found no room and by what is free."""
        with self._guard:
            if self.is_offline:
                return
            error = self._no_room_error
            if error is None and self.room.level is not RoomLevel.AMPLE:
                error = self._reserve_error()
            if error is not None and self.state is DirectoryState.FULL:
                self.error = error
                return
        self._move(DirectoryState.ONLINE if error is None else DirectoryState.FULL, error)

    def tell_offline(self) -> None:
        """Say in the log that it is offline, and why."""
        logger.error("log directory %s is %s: %s", self.path, self.state.value, self.error)

    def _move(
        self,
        state: DirectoryState,
        error: OSError | None,
        *,
        is_told: bool = True,
    ) -> None:
        with self._guard:
            if self.state is state or self.is_offline:
                return
            self.state = state
            self.is_offline = state is DirectoryState.OFFLINE
            self.error = error
        if state is DirectoryState.ONLINE:
            logger.warning("log directory %s has room again and takes writes", self.path)
        elif state is DirectoryState.FULL and self._no_room_error is None:
            logger.error(
                "log directory %s is full: %s: records are refused until there is more; reads, commits, and all that"
                " makes room go on",
                self.path,
                self.room,
            )
        elif is_told:
            self.tell_offline()
        if self.on_change is not None:
            self.on_change(self)

    # -- life

    def open(self) -> MetaProperties | None:
        """Make the directory when missing, lock it, and read what it says of itself without changing anything.

        Returns its `meta.properties`, None in a new directory. Raises StorageError when somebody else has it or a
        newer Ottla wrote it or a file in it is broken, OSError when the disk does not let us.
        """
        self._files.make_directory(self.path, parents=True)
        try:
            self._lock = self._files.lock(self.path / LOCK_FILE)
        except BlockingIOError as error:
            raise StorageError(f"{self.path} is in use by another broker ({error.strerror})") from error
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
            for name in CHECKPOINT_FILES:
                try:
                    self.checkpoints[name] = read_offsets(self._files, self.path / name)
                except BlankFile as blank:
                    self._take_blank(name, blank, is_ours=self.is_ours)
        except BrokenFile as error:
            raise StorageError(
                f"{error}; `ottla log verify --repair {self.path}` says and does what can be done"
            ) from error
        try:
            self.checkpoints[INDEX_OFFSET_CHECKPOINT_FILE] = read_offsets(
                self._files, self.path / INDEX_OFFSET_CHECKPOINT_FILE
            )
        except BrokenFile as error:
            logger.warning("%s: indexes are made anew instead", error)
        clean_epoch = read_clean_shutdown(self._files, self.path)
        self.was_clean = clean_epoch is not None
        self.clean_broker_epoch = -1 if clean_epoch is None else clean_epoch
        if properties is not None:
            self.id = properties.directory_id
        return properties

    def _take_blank(self, name: str, blank: BlankFile, *, is_ours: bool) -> None:
        """Go on without the rows of a checkpoint where that is safe (`blank_checkpoints.py`). Raises StorageError."""
        meaning = meaning_of(name, has_zeros=blank.has_zeros, is_ours=is_ours)
        if meaning is Blank.NEVER_WRITTEN:
            self._never_written.add(name)
            return
        if meaning is Blank.REFUSED:
            raise StorageError(f"{blank}: {CONSEQUENCES[name]}; `ottla log verify --repair {self.path}` accepts that")
        logger.warning("%s: %s", blank, CONSEQUENCES[name])
        self.has_lost_cleaned = self.has_lost_cleaned or name == CLEANER_OFFSET_CHECKPOINT_FILE

    def begin(self, cluster_id: str, node_id: int, found: MetaProperties | None) -> None:
        """Take the directory: take the mark of the clean stop away, and write what `found` lacks. Raises OSError.

        The names in it are synced first, and its own if it may be new: a process that was killed may have made them,
        and they are about to be relied on.
        """
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
        if found is None:
            self.take_over()

    def take_over(self) -> None:
        """Say that it is ours from now on, once what its logs hold is recovered and the recovery points say so; a new
        one, which holds none, at once. Raises OSError.
        """
        if not self.checkpoints[LOG_START_OFFSET_CHECKPOINT_FILE]:
            self._never_written.add(LOG_START_OFFSET_CHECKPOINT_FILE)
        for name in sorted(self._never_written):
            if not self.checkpoints[name]:
                write_offsets(self._files, self.path / name, {})  # from now on an empty one is one that was lost
        write_format(self._files, self.path)
        self.is_ours = True

    def end(self, *, clean: bool, broker_epoch: int = -1) -> None:
        """Mark the stop as clean, if it is one, and give the lock back. Raises OSError when that cannot be written."""
        try:
            if clean and not self.is_offline and (self.is_loaded or self.was_clean):
                write_clean_shutdown(self._files, self.path, broker_epoch)
        finally:
            self.release()

    def release(self) -> None:
        """Give the lock back."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # -- names in it

    def name_made(self) -> int:
        """A directory was made or renamed in it; what `sync_names` is to be given."""
        with self._guard:
            self._names_made += 1
            return self._names_made

    def sync_names(self, upto: int) -> None:
        """Have that name on disk; one sync serves all that were made before it. Raises OSError."""
        with self._names_guard:
            if self._names_synced < upto:
                made = self._names_made
                self._files.sync_directory(self.path)
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
            self.mark_offline(error)
            raise

    # -- checkpoints

    def offset_of(self, name: str, topic_partition: TopicPartition) -> int:
        """A partition's offset in one of `CHECKPOINT_FILES`, 0 where it has none."""
        return self.checkpoints[name].get(topic_partition, 0)

    def gaps_before(self, topic_partition: TopicPartition, is_compacted: bool) -> int:
        """Below which offset missing ones are no loss, by what the last owner has left (`missing_offsets.py`)."""
        clean_offset = self.checkpoints[CLEANER_OFFSET_CHECKPOINT_FILE].get(topic_partition)
        if clean_offset is None and self.has_lost_cleaned:
            clean_offset = 0
        return gaps_before(
            may_be_cleaned=is_compacted or clean_offset is not None,
            clean_offset=clean_offset,
            recovery_point=self.checkpoints[RECOVERY_POINT_CHECKPOINT_FILE].get(topic_partition),
            keeps_order=self.is_ours and not self.was_clean,
        )

    def forget(self, topic_partition: TopicPartition) -> None:
        """Durably drop a partition's rows, before another life of it begins: an old recovery point would vouch for
        new bytes.

        Raises OSError.
        """
        with self._guard:
            for name in _ALL_FILES:
                if topic_partition in self.checkpoints[name]:
                    rows = dict(self.checkpoints[name])
                    del rows[topic_partition]
                    self._replace_checkpoint(name, rows)

    def lower_checkpoints(self, topic_partition: TopicPartition, offset: int) -> None:
        """Durably take back the claims that a log is on disk, indexed and clean, beyond `offset`: what is written there
        next is not. Raises OSError.
        """
        with self._guard:
            for name in (
                RECOVERY_POINT_CHECKPOINT_FILE,
                CLEANER_OFFSET_CHECKPOINT_FILE,
                INDEX_OFFSET_CHECKPOINT_FILE,
            ):
                if self.checkpoints[name].get(topic_partition, -1) > offset:
                    self._replace_checkpoint(name, self.checkpoints[name] | {topic_partition: offset})

    def keep_cleaned(self, starts: Mapping[TopicPartition, int]) -> None:
        """Every log in it (its first offset by partition) may have been cleaned, and is taken for it from now on.

        Durable when this returns. Raises OSError.
        """
        with self._guard:
            self._replace_checkpoint(CLEANER_OFFSET_CHECKPOINT_FILE, starts)
            self.has_lost_cleaned = False

    def write_checkpoint(self, name: str, make_rows: Callable[[], Mapping[TopicPartition, int]]) -> bool:
        """Replace the rows of one of `CHECKPOINT_FILES`; returns whether that was done, not so in an offline directory.

        `make_rows` is called under the guard, so that rows never come from before a `forget` that is already on disk.
        No room makes the directory FULL and any other error OFFLINE, and either is raised.
        """
        with self._guard:
            if self.is_offline:
                return False
            rows = make_rows()
            if rows != self.checkpoints[name]:
                self._replace_checkpoint(name, rows)
            return True

    def _replace_checkpoint(self, name: str, rows: Mapping[TopicPartition, int]) -> None:
        try:
            write_offsets(self._files, self.path / name, rows)
        except OSError as error:
            self.mark_failed(error)
            raise
        self.checkpoints[name] = dict(rows)


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
