"""The state of one entry of `log.dirs`, what changes it, and which writes it permits.

States (docs/decisions/a-failed-sync-is-final.md):

    ONLINE   takes writes
    FULL     a write found no room; nothing was lost, a chore probes, and it becomes ONLINE by itself. Or less is free
             than the reserve (`reserve.py`): clients' records are refused before the disk is really full
    OFFLINE  a write, sync or truncate failed for another reason; nothing is written here again until a restart, and
             reads continue where they can

This file does not know the owner or the content of the directory: `log_directory.py` builds on it. Any thread may meet
an error or query the free space; a guard serializes the changes.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, Final

from ottla.storage.files.disk_errors import is_full, is_passing
from ottla.storage.files.files import Files, write_all
from ottla.storage.files.reserve import UNKNOWN_ROOM, RoomLevel, judge, with_inodes
from ottla.storage.formats.layout import TEMPORARY_SUFFIX
from ottla.storage.log.log_state import RedoPart

logger = logging.getLogger(__name__)

PROBE_BYTES: Final = 1 << 20
"""A full directory counts as recovered when it accepts this much. A probe of one byte would bring it back for one byte.
"""

_PROBE_FILE: Final = "ottla-probe" + TEMPORARY_SUFFIX


class DirectoryState(Enum):
    """The state of a log directory; see the module."""

    ONLINE = "online"
    FULL = "full"
    OFFLINE = "offline"


class DirectoryStatus:
    """The state of the directory `path`.

    `error` is the reason why it is not ONLINE. `reserve_bytes()` and `reserve_inodes()` return the configured reserve.
    """

    def __init__(
        self, files: Files, path: Path, reserve_bytes: Callable[[], int], reserve_inodes: Callable[[], int]
    ) -> None:
        self.path = path
        self.state = DirectoryState.ONLINE
        self.is_offline = False
        """Whether nothing may be written here until a restart. Each append reads it."""
        self.error: Exception | None = None
        self.room = UNKNOWN_ROOM
        """The result of the last query of the volume."""
        self.room_bytes = UNKNOWN_ROOM.budget_bytes
        """Bytes that may be appended before the next query; at 0 or less, `refusal` has to be called."""
        self.redo_room_bytes = 0
        """How many appended bytes to keep in memory for the redo log, which then need not read them."""
        self.redo_parts: list[RedoPart[Any]] = []
        """What appends have kept for its next round."""
        self.guard = threading.RLock()
        """Held while the state changes, and while a checkpoint is renamed into place: none is after `mark_offline` has
        returned. Never held during a sync: the broker's thread takes it, too.
        """
        self._files = files
        self._reserve_bytes = reserve_bytes
        self._reserve_inodes = reserve_inodes
        self._no_room_error: OSError | None = None
        """The error of a write that found no room at all, until a probe finds some."""

    @property
    def is_online(self) -> bool:
        """Whether it accepts all writes now."""
        return self.state is DirectoryState.ONLINE

    @property
    def has_taken_all(self) -> bool:
        """Whether no write has failed, or a probe has succeeded since. The reserve may still make it FULL."""
        return not self.is_offline and self._no_room_error is None

    @property
    def takes_coordinator_records(self) -> bool:
        """Whether records of coordinators (of groups) may be written: they may use a part of the reserve."""
        return self.has_taken_all and self.room.level is not RoomLevel.SCARCE

    # -- errors

    def mark_full(self, error: OSError) -> None:
        """A write found no room: ONLINE becomes FULL."""
        with self.guard:
            if self.is_offline or self._no_room_error is not None:
                return
            self._no_room_error = error
        self._settle()

    def mark_offline(self, error: OSError, *, is_logged: bool = True) -> None:
        """A write, sync or truncate failed: OFFLINE until a restart. `is_logged` False: the caller logs it."""
        with self.guard:
            has_changed = self._change(DirectoryState.OFFLINE, error)
        if has_changed:
            self._log_change(DirectoryState.OFFLINE, is_logged=is_logged)

    def mark_failed(self, error: OSError) -> None:
        """Mark it FULL or OFFLINE, depending on the error. Or neither: a lack of descriptors or memory is no fault of
        the disk. Not for a failed sync, which always means OFFLINE.
        """
        if is_full(error):
            self.mark_full(error)
        elif not is_passing(error):
            self.mark_offline(error)

    def probe(self) -> bool:
        """Check whether a FULL directory accepts and syncs `PROBE_BYTES` again, and has its reserve; returns whether it
        is ONLINE. Waits for the disk.
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
            self.mark_failed(error)
            return False
        with self.guard:
            self._no_room_error = None
        return self.look_at_room()

    # -- the reserve

    def look_at_room(self) -> bool:
        """Query the free space of the volume, and change the state accordingly; returns whether it is ONLINE then."""
        volume, inodes = self._files.volume_bytes(self.path), self._files.volume_inodes(self.path)
        with self.guard:
            was, before = self.room, self.room.level
            room = judge(self._reserve_bytes(), volume, was.byte_level)
            self.room = with_inodes(room, self._reserve_inodes(), inodes, was.inode_level)
            self.room_bytes = self.room.budget_bytes
        self._settle()
        if RoomLevel.SCARCE in (before, self.room.level) and before is not self.room.level:
            is_scarce = self.room.level is RoomLevel.SCARCE
            what = "offsets and groups are refused, too" if is_scarce else "offsets and groups are taken again"
            logger.warning("log directory %s: %s: %s", self.path, self.room, what)
        return self.is_online

    def refusal(self, *, of_clients: bool) -> OSError | None:
        """The reason why records must not be appended now, or None. Queries the volume if that is due."""
        if self.room.level is RoomLevel.AMPLE:
            self.look_at_room()
        if self.room.level > (RoomLevel.AMPLE if of_clients else RoomLevel.SHORT):
            return self._reserve_error()
        return None

    def _reserve_error(self) -> OSError:
        return OSError(errno.ENOSPC, str(self.room), str(self.path))

    def _settle(self) -> None:
        """ONLINE or FULL, by whether a write found no room and by what is free."""
        with self.guard:
            if self.is_offline:
                return
            error = self._no_room_error
            if error is None and self.room.level is not RoomLevel.AMPLE:
                error = self._reserve_error()
            if error is not None and self.state is DirectoryState.FULL:
                self.error = error
                return
            # Decided and changed under one guard: an error that a write meets in between would be overruled.
            state = DirectoryState.ONLINE if error is None else DirectoryState.FULL
            has_changed = self._change(state, error)
        if has_changed:
            self._log_change(state)

    def log_offline(self) -> None:
        """Log that it is offline, and why."""
        logger.error("log directory %s is %s: %s", self.path, self.state.value, self.error)

    def _change(self, state: DirectoryState, error: OSError | None) -> bool:
        """Change the state, under the guard. Returns whether `_log_change`, called without the guard, has to log it."""
        if self.state is state or self.is_offline:
            return False
        self.state = state
        self.is_offline = state is DirectoryState.OFFLINE
        self.error = error
        return True

    def _log_change(self, state: DirectoryState, *, is_logged: bool = True) -> None:
        if state is DirectoryState.ONLINE:
            logger.warning("log directory %s has room again and takes writes", self.path)
        elif state is DirectoryState.FULL and self._no_room_error is None:
            logger.error(
                "log directory %s is full: %s: records are refused until there is more; reads, commits, and operations"
                " that free space continue",
                self.path,
                self.room,
            )
        elif is_logged:
            self.log_offline()
