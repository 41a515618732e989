"""How a log reports to its directory that the disk failed. The directory object is the manager's."""

from __future__ import annotations

from typing import Protocol

from ottla.storage.files.reserve import UNLIMITED_BYTES


class DirectoryHealth(Protocol):
    """State of one of `log.dirs`, shared by the logs that live in it."""

    room_bytes: int
    """Bytes that clients may append before `refusal` has to be asked; each append takes off what it wrote."""
    redo_room_bytes: int
    """Bytes that appends are to keep in memory for the redo log; each takes off what it keeps."""

    @property
    def is_offline(self) -> bool:
        """No writes until restart; reads continue where they can."""
        ...

    def refusal(self, *, of_clients: bool) -> OSError | None:
        """Why records are not to be appended now (too little room is left), or None. `of_clients` False: records of
        groups, which may continue for longer.
        """
        ...

    def mark_full(self, error: OSError) -> None:
        """ENOSPC, EDQUOT or a short write: nothing was published; a chore probes the directory, it recovers by
        itself.
        """
        ...

    def mark_offline(self, error: OSError) -> None:
        """EIO, a failed sync, a failed truncate: nothing is written here again until restart."""
        ...


class IndependentDirectory:
    """Health of a directory that has no manager: for tools and tests."""

    def __init__(self) -> None:
        self.room_bytes = UNLIMITED_BYTES
        self.redo_room_bytes = 0
        self.full_error: OSError | None = None
        self.offline_error: OSError | None = None

    @property
    def is_offline(self) -> bool:
        """Whether a write or a sync has failed for good."""
        return self.offline_error is not None

    def refusal(self, *, of_clients: bool) -> OSError | None:
        """Nothing is kept free."""
        del of_clients
        return None

    def mark_full(self, error: OSError) -> None:
        """Remember the first error that said the disk is full."""
        self.full_error = self.full_error or error

    def mark_offline(self, error: OSError) -> None:
        """Remember the first error that ended writing."""
        self.offline_error = self.offline_error or error
