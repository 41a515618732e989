"""The file operations that storage may use: the interface of `files.py`, the only access to the operating system's
files.

All storage code uses `Files` and `File`. `files.OsFiles` is the real implementation; `tests/kit/simulated_files.py` has
one that loses what was not synced, tears writes and fails on demand. Only the implementation may call `os`, `open` or
`mmap`. Import the names from `ottla.storage.files.files`.

Rules that callers rely on:

- `pwritev` may write less than requested; `write_all` loops, and its error has the number of bytes written.
- `pread_nowait` and `resident_view` never wait for a disk: None means "not in the page cache, let a thread `pread`".
- Memory from `map` is for the kernel (`send`), never for Python code: reading a page that the disk has lost ends the
  process with SIGBUS, but sending it is only EFAULT (docs/decisions/maps-are-for-the-kernel.md). Maps are dropped,
  never closed: the last memoryview of a map unmaps it.
- A `File` outlives its descriptor: descriptors and maps beyond a limit are closed, the least used first, and opened
  again by path when needed. A file with unsynced writes keeps its descriptor, because only an open descriptor is
  certain to report a failed write-back at its next sync; `derived` files (indexes, which can be rebuilt) are exempt. A
  sync of the `Volume` also counts, once `note_synced` is called.
- Any thread may call any method. Errors are OSErrors with the path in them. NotOpened means that the call did nothing
  at all, so that even a sync may be tried again.
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

Buffer = bytes | bytearray | memoryview
TEMPORARY_SUFFIX: Final = ".tmp"
"""The suffix of a file that is being written, and replaces another one when it is complete (`write_atomically`)."""

IOV_MAX: Final = 1024
"""The maximum number of buffers in one `pwritev` (Linux, UIO_MAXIOV)."""


class PartialWrite(OSError):
    """`write_all` failed; `written` bytes from its start are in the file."""

    def __init__(self, cause: OSError, path: Path, written: int) -> None:
        super().__init__(cause.errno, cause.strerror, str(path))
        self.written = written


class NotOpened(OSError):
    """The file or directory could not be opened, so nothing was done to it: the process or the kernel has no descriptor
    left, or the kernel no memory for one (EMFILE, ENFILE, ENOMEM of an open). The disk is not the cause.

    The same errno from a write or a sync itself is not NotOpened: a failed sync is never tried again.
    """


class Lock(Protocol):
    """A held lock, until `release`."""

    def release(self) -> None:
        """Release the lock; a second call does nothing."""


class File(ABC):
    """One file. `path` follows renames made through the same `Files`."""

    path: Path

    @abstractmethod
    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write at most `IOV_MAX` buffers at byte `position`; returns the number of bytes written, which may be
        fewer.
        """

    @abstractmethod
    def pread(self, length: int, position: int) -> bytes:
        """Read `length` bytes at `position`, waiting for the disk; fewer only at the end of the file."""

    @abstractmethod
    def pread_nowait(self, length: int, position: int) -> bytes | bytearray | None:
        """Read exactly `length` bytes if all are in memory; None if not, or if the file ends before them."""

    @abstractmethod
    def map(self, length: int) -> memoryview:
        """The first `length` bytes, read-only, for the kernel to send. ValueError when the file is shorter."""

    @abstractmethod
    def resident_view(self, position: int, length: int) -> memoryview | None:
        """A slice of the map if its pages are in memory now; otherwise None, also if the file is shorter. For the
        kernel to send; Python code must not read it.
        """

    @abstractmethod
    def size(self) -> int:
        """Length in bytes."""

    @abstractmethod
    def truncate(self, size: int) -> None:
        """Truncate (or extend with zeros) to `size` bytes. Never below the part that a map in use shows."""

    @abstractmethod
    def fdatasync(self) -> None:
        """Bring content and length to the disk. After an error the state of all earlier writes is unknown."""

    @property
    def is_open(self) -> bool:
        """Whether the next use needs to open no descriptor: False while it has none, if descriptors are limited."""
        return True

    @property
    @abstractmethod
    def device(self) -> int:
        """The number of its file system (`st_dev`)."""

    @property
    @abstractmethod
    def writes(self) -> int:
        """A count that grows with every write and truncation, for `note_synced`."""

    @abstractmethod
    def note_synced(self, writes: int) -> None:
        """Note that a sync of the volume has succeeded, which began when `writes` had this value: all writes up to then
        are on the disk.
        """

    @abstractmethod
    def close(self) -> None:
        """Release descriptor and map; returned memoryviews stay valid. Any later call raises OSError (EBADF)."""


class Volume(ABC):
    """A mounted file system that can be synced as a whole, from `Files.open_volume`."""

    @property
    @abstractmethod
    def device(self) -> int:
        """Its number (`st_dev`). It does not sync files with another number: a partition's directory may be a link to
        another disk, or a mount point.
        """

    @abstractmethod
    def sync(self) -> None:
        """Bring content, length and names of all files on it to the disk, also those of other programs; waits for the
        disk. May run in any thread.

        Raises OSError if any write since the volume was opened did not reach the disk, in this call or before it, even
        of another program. Such an error is reported once, so the state of all earlier writes is unknown then.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the descriptor. A sync that runs in another thread is not disturbed; any later one raises OSError."""


class Files(ABC):
    """A file system. Names are absolute or relative to the process's directory."""

    @abstractmethod
    def open(self, path: Path, *, create: bool = False, writable: bool = False, derived: bool = False) -> File:
        """Open a file; `create` creates it if it is missing, and implies `writable`. The new name is durable after
        `sync_directory`.
        """

    @abstractmethod
    def read_bytes(self, path: Path) -> bytes:
        """The whole content of a small file."""

    @abstractmethod
    def write_atomically(self, path: Path, data: bytes) -> None:
        """Replace a small file: after a crash it is either the old or the new one, and after the return the new one."""

    def write_new(self, path: Path, data: bytes) -> None:
        """Write a small file that is not read yet, replacing its content. A crash may leave it blank."""
        file = self.open(path, create=True)
        try:
            file.truncate(0)
            write_all(file, [data], 0)
        finally:
            file.close()

    @abstractmethod
    def rename(self, old: Path, new: Path) -> None:
        """Rename a file or directory, replacing a file at `new`. Durable after `sync_directory` of the parent(s)."""

    @abstractmethod
    def unlink(self, path: Path) -> None:
        """Remove a file."""

    @abstractmethod
    def make_directory(self, path: Path, *, parents: bool = False) -> None:
        """Create a directory. With `parents`, also create missing parents, sync the name of each in its own parent, and
        accept an existing directory.
        """

    @abstractmethod
    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory, or a link to a directory."""

    @abstractmethod
    def list_directory(self, path: Path) -> list[str]:
        """The names in a directory, sorted."""

    def list_subdirectories(self, path: Path) -> list[str]:
        """The names of the directories in a directory (links are followed), sorted."""
        return [name for name in self.list_directory(path) if self.is_directory(path / name)]

    @abstractmethod
    def exists(self, path: Path) -> bool:
        """Whether there is a file or directory (links are followed)."""

    def is_taken(self, path: Path) -> bool:
        """Whether there is anything of that name, also a link to nothing."""
        return self.exists(path)

    @abstractmethod
    def is_directory(self, path: Path) -> bool:
        """Whether there is a directory (links are followed)."""

    @abstractmethod
    def size(self, path: Path) -> int:
        """The length of a file in bytes."""

    def obstacles(self, path: Path) -> list[tuple[Path, str]]:
        """What is in a directory and is hidden, with the reason: only the tools hide anything (`readable_files.py`)."""
        return []

    def volume_bytes(self, path: Path) -> tuple[int, int] | None:
        """(all, free for this process) bytes of the volume of a directory; None if unknown."""
        return None

    def volume_inodes(self, path: Path) -> tuple[int, int] | None:
        """(all, free for this process) inodes of that volume; None if unknown, or if it has no fixed number."""
        return None

    @abstractmethod
    def modified_ms(self, path: Path) -> int:
        """The time when a file was last written, in milliseconds since 1970."""

    @abstractmethod
    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        """Set the time when a file was last written: for one that replaces an older one."""

    @abstractmethod
    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""

    def open_volume(self, path: Path) -> Volume | None:
        """The volume of the file `path`. None if its sync may hide an error, or is not cheaper than `fdatasync`. Raises
        OSError.
        """
        return None

    @abstractmethod
    def lives_in_memory(self, path: Path) -> bool:
        """Whether the file system of `path` is in memory (tmpfs): a sync costs nothing there. Raises OSError."""

    @abstractmethod
    def is_locked_elsewhere(self, path: Path) -> bool:
        """Whether another process holds such a lock on a file, as far as the system reports it; takes none."""

    @abstractmethod
    def lock(self, path: Path) -> Lock:
        """Take an exclusive lock on a file (created if missing). BlockingIOError when it is held, by this process or
        another.
        """


def write_all(file: File, buffers: Sequence[Buffer], position: int) -> int:
    """Write every byte of `buffers` at `position`; returns their number. Raises PartialWrite when a write fails, and
    NotOpened.

    Continues after short writes, with `IOV_MAX` buffers at a time; buffers need not be contiguous and are not copied.
    """
    written = 0
    pending: list[Buffer] = [buffer for buffer in buffers if len(buffer)]
    first = 0
    while first < len(pending):
        try:
            count = file.pwritev(pending[first : first + IOV_MAX], position + written)
            if count <= 0:
                raise OSError(errno.ENOSPC, "the file took no bytes")
        except NotOpened:  # nothing was written: after an unsynced write the descriptor would still be open
            raise
        except OSError as error:
            raise PartialWrite(error, file.path, written) from error
        written += count
        while first < len(pending) and count >= len(pending[first]):
            count -= len(pending[first])
            first += 1
        if count:
            pending[first] = memoryview(pending[first])[count:]
    return written
