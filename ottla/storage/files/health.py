"""The interface through which a log reports to its directory that the disk failed. The manager has the directory."""

from __future__ import annotations

from typing import Any, Protocol

from ottla.storage.files.reserve import UNLIMITED_BYTES


class DirectoryHealth(Protocol):
    """State of one of `log.dirs`, shared by the logs that live in it."""

    room_bytes: int
    """Bytes that clients may append before `refusal` must be called; each append subtracts what it wrote."""
    redo_room_bytes: int
    """Bytes that appends may keep in memory for the redo log; each subtracts what it keeps."""
    redo_parts: list[Any]
    """What they keep for its next round (`RedoPart`), in the order of the appends."""

    @property
    def is_offline(self) -> bool:
        """Whether nothing may be written until a restart; reads continue where they can."""
        ...

    def refusal(self, *, of_clients: bool) -> OSError | None:
        """The reason why records must not be appended now (too little room is left), or None. `of_clients` False:
        records of groups, which may use a part of the reserve.
        """
        ...

    def mark_full(self, error: OSError) -> None:
        """Note ENOSPC, EDQUOT or a short write: nothing was published. A chore probes the directory, which recovers by
        itself.
        """
        ...

    def mark_offline(self, error: OSError) -> None:
        """Note EIO, a failed sync or a failed truncate: nothing is written here again until a restart."""
        ...


class IndependentDirectory:
    """The health of a directory without a manager: for tools and tests."""

    def __init__(self) -> None:
        self.room_bytes = UNLIMITED_BYTES
        self.redo_room_bytes = 0
        self.redo_parts: list[Any] = []
        self.full_error: OSError | None = None
        self.offline_error: OSError | None = None

    @property
    def is_offline(self) -> bool:
        """Whether a write or a sync has failed permanently."""
        return self.offline_error is not None

    def refusal(self, *, of_clients: bool) -> OSError | None:
        """Return None: no room is reserved."""
        del of_clients
        return None

    def mark_full(self, error: OSError) -> None:
        """Remember the first error of a full disk."""
        self.full_error = self.full_error or error

    def mark_offline(self, error: OSError) -> None:
        """Remember the first error that ended writing."""
        self.offline_error = self.offline_error or error
