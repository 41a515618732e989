"""The files of a directory for the tools: what has a file's name and is none is refused by an error, or hidden.

Restored backups, copies and mistakes leave directories, links to nothing, named pipes, sockets and files of other users
among a log's files. Opening a named pipe waits for ever. `CheckedFiles` raises `Obstacle` for each of them, which names
what it is. `ReadableFiles` also acts as if they were not there, and lists them (`obstacles`), so that a verification
reports them and continues with the rest.
"""

# ruff: noqa: D102  (the interface documents each method)
from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

from ottla.storage.files.files import OsFile, OsFiles
from ottla.storage.formats import layout

_KINDS: Final = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_SMALL_FILES: Final = frozenset(
    {
        layout.LOCK_FILE,
        layout.META_PROPERTIES_FILE,
        layout.FORMAT_FILE,
        layout.CLEAN_SHUTDOWN_FILE,
        layout.CLOCK_FILE,
        layout.RECOVERY_POINT_CHECKPOINT_FILE,
        layout.LOG_START_OFFSET_CHECKPOINT_FILE,
        layout.REPLICATION_OFFSET_CHECKPOINT_FILE,
        layout.CLEANER_OFFSET_CHECKPOINT_FILE,
        layout.INDEX_OFFSET_CHECKPOINT_FILE,
        layout.LOG_START_COPY_FILE,
        layout.REDO_LOG_FILE,
        layout.LEADER_EPOCH_CHECKPOINT_FILE,
        layout.PARTITION_METADATA_FILE,
        "quorum-state",
    }
)


class Obstacle(OSError):
    """What is at `filename` cannot be read as a file; `strerror` says why."""

    def __init__(self, path: Path, words: str) -> None:
        super().__init__(errno.EINVAL, words, str(path))


def is_of_a_file(name: str) -> bool:
    """Whether the broker reads a file of this name."""
    return name in _SMALL_FILES or name.endswith(".checkpoint") or layout.parse_offset_file(name) is not None


def obstacle(path: Path) -> str | None:
    """Why a path cannot be read as a file, in words; None if it can be, and if there is nothing."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        if not path.is_symlink():
            return None if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        words = "to nothing" if isinstance(error, FileNotFoundError) else f"that leads nowhere ({error.strerror})"
        return f"is a link {words}"
    for is_kind, words in _KINDS:
        if is_kind(mode):
            return f"is {words}, not a file"
    return None if os.access(path, os.R_OK) else "cannot be read: Permission denied"


class CheckedFiles(OsFiles):
    """See the module. Raises `Obstacle`."""

    def open(self, path: Path, *, create: bool = False, writable: bool = False, derived: bool = False) -> OsFile:
        self._check(path)
        return super().open(path, create=create, writable=writable, derived=derived)

    def read_bytes(self, path: Path) -> bytes:
        self._check(path)
        return super().read_bytes(path)

    def size(self, path: Path) -> int:
        self._check(path)
        return super().size(path)

    def _check(self, path: Path) -> None:
        words = obstacle(path)
        if words is not None:
            raise Obstacle(path, words)


class ReadableFiles(CheckedFiles):
    """See the module."""

    def list_directory(self, path: Path) -> list[str]:
        return [name for name in super().list_directory(path) if _hidden(path / name) is None]

    def exists(self, path: Path) -> bool:
        return _hidden(path) is None and super().exists(path)

    def is_directory(self, path: Path) -> bool:
        return _hidden(path) is None and super().is_directory(path)

    def is_locked_elsewhere(self, path: Path) -> bool:
        return _hidden(path) is None and super().is_locked_elsewhere(path)

    def _check(self, path: Path) -> None:
        if _hidden(path) is not None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))

    def obstacles(self, path: Path) -> list[tuple[Path, str]]:
        found = ((path / name, _hidden(path / name)) for name in super().list_directory(path))
        return [(one, words) for one, words in found if words is not None]


def _hidden(path: Path) -> str | None:
    """Why something is hidden; None if it is not."""
    if is_of_a_file(path.name):
        return obstacle(path)
    if (
        layout.parse_partition_directory(path.name) is not None
        and path.is_dir()
        and not os.access(path, os.R_OK | os.X_OK)
    ):
        return "cannot be read: Permission denied"
    return None
