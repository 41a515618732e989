"""One owner per log directory: a POSIX record lock on `.lock`. A JVM's `FileChannel.lock` respects it, and the reverse.

A POSIX lock belongs to the process. So it does not keep out a second broker in the *same* process, and closing any
descriptor of the file releases it. Therefore a registry of real paths is checked first, and no other code may open the
file. The lock always ends with the process; the file stays.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
import threading
from pathlib import Path

try:
    import fcntl
except ImportError:  # not POSIX
    fcntl = None  # type: ignore[assignment]  # the module or nothing

_FLOCK = "@qqihh" if sys.platform == "darwin" else "@hhqqi0q"
"""`struct flock` of 64-bit systems: start, length, pid, type and whence on macOS, type and whence first on Linux."""

_held: set[str] = set()
_guard = threading.Lock()


class DirectoryLock:
    """A held lock; see `lock_file`."""

    def __init__(self, real_path: str, fd: int) -> None:
        self._real_path = real_path
        self._fd: int | None = fd

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        with _guard:
            if self._fd is None:
                return
            os.close(self._fd)
            self._fd = None
            _held.discard(self._real_path)


def lock_file(path: Path) -> DirectoryLock:
    """Lock `path`, creating it if it is missing.

    Raises BlockingIOError when this or another process holds it, OSError when it cannot be opened or the system has
    no such locks.
    """
    if fcntl is None:
        raise OSError(errno.ENOTSUP, "this system has no POSIX file locks", str(path))
    real_path = os.path.realpath(path)
    with _guard:
        if real_path in _held:
            raise BlockingIOError(errno.EAGAIN, "already locked by this process", str(path))
        fd = os.open(real_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in {errno.EAGAIN, errno.EACCES}:  # POSIX allows either
                raise BlockingIOError(errno.EAGAIN, "locked by another process", str(path)) from error
            error.filename = str(path)
            raise
        _held.add(real_path)
        return DirectoryLock(real_path, fd)


def is_locked_elsewhere(path: Path) -> bool:
    """Whether another process holds the lock of `path`. Takes no lock, so that it cannot disturb the start of a broker.

    False also if that is unknown: without the file or the right to read it, without POSIX locks, or on a 32-bit system.
    """
    if fcntl is None or sys.maxsize < 2**32:
        return False
    wanted = {"type": fcntl.F_WRLCK, "whence": os.SEEK_SET}
    is_darwin = sys.platform == "darwin"
    fields = (0, 0, 0, *wanted.values()) if is_darwin else (*wanted.values(), 0, 0, 0)
    with _guard:
        if os.path.realpath(path) in _held:
            return False
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            answer = struct.unpack(_FLOCK, fcntl.fcntl(fd, fcntl.F_GETLK, struct.pack(_FLOCK, *fields)))
        except OSError:
            return False
        finally:
            os.close(fd)
    kind: int = answer[3] if is_darwin else answer[0]
    return kind != fcntl.F_UNLCK
