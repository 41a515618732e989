"""One sync for all files of a mounted file system: `syncfs`, and the systems on which its result can be trusted.

`open_volume` returns an `OsVolume` only if a failed write-back of any file is certain to be reported to the next `sync`
of the same volume, and if a success means the same as an `fdatasync` of each file:

- Linux 5.17 and later. Before 5.8 `syncfs` reports no error of a write-back, before 5.17 none of the file system itself
  (its journal).
- ext4 and xfs. tmpfs has nothing to sync, so `fdatasync` costs nothing there. Not btrfs: until Linux 6.5 it set no
  error for some failed writes, and one `syncfs` is a commit of the whole tree. Not overlay, ext3, FUSE or network file
  systems: the file system below them is unknown.

The kernel remembers for each open descriptor which errors of the file system it has reported. So a volume keeps one
open since its directory was opened: the second of two syncs reports an error between them, once, even if another
descriptor has reported it before. It may be another program's error; the two cannot be distinguished.

`sync` ends with an `fdatasync` of that descriptor, although nothing was written to it, and a check of the mount,
because a successful `syncfs` is not enough:

- ext4 without a journal and xfs with an idle log write everything but leave it in the disk's cache; the `fdatasync`
  flushes the cache.
- `syncfs` does nothing and succeeds where an error has made the file system read-only, and ext4 up to Linux 6.12 does
  so, too, after the device was lost.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from pathlib import Path
from typing import Any, Final

from ottla.storage.files.device import file_system_type
from ottla.storage.files.file_interface import Volume
from ottla.storage.files.open_files import Descriptor, Handle

try:
    import ctypes
except ImportError:  # a Python built without libffi
    ctypes = None  # type: ignore[assignment]  # the module or nothing

SURE_FROM: Final = (5, 17)
"""The first version of Linux in which `syncfs` reports all errors."""
SURE_FILE_SYSTEMS: Final = frozenset({"ext4", "xfs"})


def is_sure(system: str, release: str, file_system: str) -> bool:
    """Whether `syncfs` reports every error. `system` and `release` are from `os.uname()` ("Linux", "6.1.0-13"),
    `file_system` is a type as in /proc/self/mountinfo.
    """
    version = re.match(r"(\d+)\.(\d+)", release)
    return (
        system == "Linux"
        and version is not None
        and (int(version[1]), int(version[2])) >= SURE_FROM
        and file_system in SURE_FILE_SYSTEMS
    )


def _library() -> Any:
    """The C library; other threads can run during its calls (CDLL, not PyDLL). None if Python cannot call it."""
    return None if ctypes is None or sys.platform != "linux" else ctypes.CDLL(None, use_errno=True)


def open_volume(path: Path, library: Any = None) -> OsVolume | None:
    """The volume of the file `path`; None if its sync cannot be trusted, or there is none. Raises OSError.

    `library` has `syncfs`; by default the C library of this process.
    """
    library = _library() if library is None else library
    call = getattr(library, "syncfs", None)
    if call is None:
        return None
    system = os.uname()
    if not is_sure(system.sysname, system.release, file_system_type(os.stat(path).st_dev)):
        return None
    return OsVolume(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC), call)


class OsVolume(Volume):
    """A volume of the operating system; made by `open_volume`."""

    def __init__(self, path: Path, fd: int, call: Any) -> None:
        self._path = path
        self._descriptor: Descriptor | None = Descriptor(fd, _stays)
        self._call = call
        self._device = os.fstat(fd).st_dev

    @property
    def device(self) -> int:
        """See `Volume.device`."""
        return self._device

    def sync(self) -> None:
        """See `Volume.sync`."""
        descriptor = self._descriptor  # this reference keeps it open, even if `close` is called meanwhile
        if descriptor is None:
            raise OSError(errno.EBADF, "the volume is closed", str(self._path))
        fd = descriptor.fd
        try:
            if self._call(fd) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number))
            os.fdatasync(fd)
            if os.fstatvfs(fd).f_flag & os.ST_RDONLY:
                raise OSError(errno.EROFS, "the file system has become read-only")
        except OSError as error:
            error.filename = str(self._path)
            raise

    def close(self) -> None:
        """See `Volume.close`."""
        self._descriptor = None


def _stays(handle: Handle) -> None:
    """Do nothing: the handle is not counted, so no sweep drops it."""
