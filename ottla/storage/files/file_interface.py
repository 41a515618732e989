"""What storage may ask of files: the interface of the only door to the operating system, `files.py`.

`Files` and `File` are what all storage code is written against. `files.OsFiles` is the real one;
`tests/kit/simulated_files.py` is one that forgets what was not synced, tears writes and fails on demand. Nothing else
in `ottla.storage` but what is after that door may call `os`, `open` or `mmap`. Import the names from
`ottla.storage.files.files`.

Rules that callers rely on:

- `pwritev` may write less than asked, `write_all` loops and says how much was written when it fails.
- `pread_nowait` and `resident_view` never wait for a disk: None means "not in the page cache, ask a thread to `pread`".
- Memory from `map` is for the kernel (`send`), never for our code: a page that the disk lost is SIGBUS for a process
  that reads it, but only EFAULT for one that sends it (docs/decisions/maps-are-for-the-kernel.md). Maps are dropped,
  never closed: the last memoryview of one unmaps it.
- A `File` outlives its descriptor: descriptors and maps beyond a bound are closed, the least used first, and opened
  again by path when needed. A file with unsynced writes keeps its descriptor, because only an open descriptor is sure
  to hear of a failed write-back at its next sync; `derived` files (indexes, which can be rebuilt) are exempt. A sync of
  the `Volume` counts for that once `note_synced` is called.
- All methods may be called from any thread. Errors are OSErrors with the path in them; NotOpened says that the call did
  nothing at all, so that even a sync may be tried again.
"""

from __future__ import annotations

import errno
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

Buffer = bytes | bytearray | memoryview
TEMPORARY_SUFFIX: Final = ".tmp"
"""Ends the name of a file that is being written and takes another's place when it is whole (`write_atomically`)."""

IOV_MAX: Final = 1024
"""Most buffers that one `pwritev` takes (Linux, UIO_MAXIOV)."""


class PartialWrite(OSError):
    """`write_all` failed; `written` bytes from its start are in the file."""

    def __init__(self, cause: OSError, path: Path, written: int) -> None:
        super().__init__(cause.errno, cause.strerror, str(path))
        self.written = written


class NotOpened(OSError):
    """The process has no descriptor left, or the kernel none or no memory for one (EMFILE, ENFILE, ENOMEM of an open):
    the file or directory could not be opened, so nothing was done to it. The disk is not at fault.

    The same errno from a write or a sync itself is no NotOpened: a sync that failed is never tried again.
    """


class Lock(Protocol):
    """A held lock; `release` gives it back."""

    def release(self) -> None:
        """Give the lock back; a second call does nothing."""


class File(ABC):
    """One file. `path` follows renames made through the same `Files`."""

    path: Path

    @abstractmethod
    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        """Write at most `IOV_MAX` buffers at byte `position`; returns how many bytes were written, maybe fewer than
        given.
        """

    @abstractmethod
    def pread(self, length: int, position: int) -> bytes:
        """Read `length` bytes at `position`, waiting for the disk; fewer only at the end of the file."""

    @abstractmethod
    def pread_nowait(self, length: int, position: int) -> bytes | bytearray | None:
        """Read exactly `length` bytes if they are in memory; None when they are not all, or end beyond the file."""

    @abstractmethod
    def map(self, length: int) -> memoryview:
        """The first `length` bytes, read-only, for the kernel to send. ValueError when the file is shorter."""

    @abstractmethod
    def resident_view(self, position: int, length: int) -> memoryview | None:
        """A slice of the map if its pages are in memory now, else None, also where the file is shorter than that. For
        the kernel to send; not for our code to read.
        """

    @abstractmethod
    def size(self) -> int:
        """Length in bytes."""

    @abstractmethod
    def truncate(self, size: int) -> None:
        """Cut (or grow with zeros) to `size` bytes. Never below what a map in use may show."""

    @abstractmethod
    def fdatasync(self) -> None:
        """Bring content and length to the disk. After an error nothing can be said about what was written before."""

    @property
    def is_open(self) -> bool:
        """Whether the next use needs no descriptor first: False while it has none, where descriptors are bounded."""
        return True

    @property
    @abstractmethod
    def device(self) -> int:
        """The number of the file system that it is on (`st_dev`)."""

    @property
    @abstractmethod
    def writes(self) -> int:
        """A count that grows with every write and truncation, for `note_synced`."""

    @abstractmethod
    def note_synced(self, writes: int) -> None:
        """Note that a sync of the volume has succeeded which began after `writes` was this: what was written before is
        on the disk.
        """

    @abstractmethod
    def close(self) -> None:
        """Let descriptor and map go; memoryviews handed out stay valid. Any later call raises OSError (EBADF)."""


class Volume(ABC):
    """A mounted file system that can be synced as a whole, from `Files.open_volume`."""

    @property
    @abstractmethod
    def device(self) -> int:
        """Its number (`st_dev`). A file of another number is not synced by it: a partition's directory may be a link
        to another disk, or a mount point.
        """

    @abstractmethod
    def sync(self) -> None:
        """Bring content and length of all files on it to the disk, and all names, those of other programs, too; waits
        for the disk. May run in any thread.

        Raises OSError if anything that was to be written since the volume was opened did not reach the disk: by this
        call or before it, and whosever it was. Such an error is reported once, so nothing can be said about what was
        written before.
        """

    @abstractmethod
    def close(self) -> None:
        """Let the descriptor go. A sync that runs in another thread is not disturbed; any later one raises OSError."""


class Files(ABC):
    """A file system. Names are absolute or relative to the process's directory."""

    @abstractmethod
    def open(self, path: Path, *, create: bool = False, writable: bool = False, derived: bool = False) -> File:
        """Open a file; `create` makes it when missing and implies `writable`. The new name is durable after
        `sync_directory`.
        """

    @abstractmethod
    def read_bytes(self, path: Path) -> bytes:
        """The whole content of a small file."""

    @abstractmethod
    def write_atomically(self, path: Path, data: bytes) -> None:
        """Replace a small file so that after a crash it is either the old or the new one, and after the return the new
        one.
        """

    def write_new(self, path: Path, data: bytes) -> None:
        """Write a small file that is not read yet; what it held is gone. A crash may leave it blank."""
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
        """Make a directory. With `parents` missing parents too, each synced into its own parent, and an existing one is
        fine.
        """

    @abstractmethod
    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""

    @abstractmethod
    def list_directory(self, path: Path) -> list[str]:
        """Names in a directory, sorted."""

    def list_subdirectories(self, path: Path) -> list[str]:
        """Names of the directories in a directory (followed through links), sorted."""
        return [name for name in self.list_directory(path) if self.is_directory(path / name)]

    @abstractmethod
    def exists(self, path: Path) -> bool:
        """Whether there is a file or directory."""

    @abstractmethod
    def is_directory(self, path: Path) -> bool:
        """Whether there is a directory (followed through links)."""

    @abstractmethod
    def size(self, path: Path) -> int:
        """Length of a file in bytes."""

    def volume_bytes(self, path: Path) -> tuple[int, int] | None:
        """(all, still free for us) bytes of the volume that holds a directory; None where that cannot be known."""
        return None

    def volume_inodes(self, path: Path) -> tuple[int, int] | None:
        """(all, still free for us) inodes of that volume; None where that cannot be known, or it has no number."""
        return None

    @abstractmethod
    def modified_ms(self, path: Path) -> int:
        """When a file was last written, milliseconds since 1970."""

    @abstractmethod
    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        """Let a file count as last written then: for one that takes the place of an older one."""

    @abstractmethod
    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""

    def open_volume(self, path: Path) -> Volume | None:
        """The volume that holds the file `path`. None where a sync of it may keep an error to itself, or costs no less
        than `fdatasync`. Raises OSError.
        """
        return None

    @abstractmethod
    def lives_in_memory(self, path: Path) -> bool:
        """Whether the file system of `path` has no disk (tmpfs): a sync costs nothing there. Raises OSError."""

    @abstractmethod
    def is_locked_elsewhere(self, path: Path) -> bool:
        """Whether another process holds such a lock on a file, as far as the system says it; takes none."""

    @abstractmethod
    def lock(self, path: Path) -> Lock:
        """Take an exclusive lock on a file (made when missing). BlockingIOError when somebody holds it, in this process
        or another.
        """


def write_all(file: File, buffers: Sequence[Buffer], position: int) -> int:
    """Write every byte of `buffers` at `position`; returns their number. PartialWrite when the file takes no more,
    NotOpened.

    Goes on after short writes and takes `IOV_MAX` buffers a time; buffers need not be contiguous and are not copied.
    """
    written = 0
    pending: list[Buffer] = [buffer for buffer in buffers if len(buffer)]
    first = 0
    while first < len(pending):
        try:
            count = file.pwritev(pending[first : first + IOV_MAX], position + written)
            if count <= 0:
                raise OSError(errno.ENOSPC, "the file took no bytes")
        except NotOpened:  # its descriptor would be there had anything been written and not synced
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
