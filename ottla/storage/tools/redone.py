"""A log directory as the next start sees it: the content of its redo log is in the logs, although nothing was written.

After a power cut, logs may lack bytes that were synced in the redo log only
(docs/decisions/a-redo-log-for-small-rounds.md). That is no damage, since a start writes them before it opens the logs.
`Redone` does the same in memory, with the same code, so that a verification finds only real damage.
"""

# ruff: noqa: D102  (the interface documents each method)
from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from ottla.storage.files.files import Buffer, File, Files, Lock
from ottla.storage.formats.checkpoint import BrokenFile, read_offsets
from ottla.storage.formats.directory_format import read_clean_shutdown
from ottla.storage.formats.layout import (
    CLEANER_OFFSET_CHECKPOINT_FILE,
    RECOVERY_POINT_CHECKPOINT_FILE,
    REDO_LOG_FILE,
    TopicPartition,
    parse_partition_directory,
)
from ottla.storage.recovery.redo import redo


class SyncedEnds:
    """The offsets below which the logs' own files have their records, as a start knows them: the recovery point, or the
    end of what was cleaned, which was never after the recovery point of that time.

    They are read by the first call: everything that a running broker has written to the redo log before that is after
    them, or in its logs. A file that cannot be read counts as empty.
    """

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._directory = directory
        self._checkpoints: list[dict[TopicPartition, int]] | None = None

    def of(self, partition: TopicPartition) -> int:
        """The synced end of a partition, 0 if no checkpoint has it. Raises OSError."""
        if self._checkpoints is None:
            names = (RECOVERY_POINT_CHECKPOINT_FILE, CLEANER_OFFSET_CHECKPOINT_FILE)
            self._checkpoints = [self._rows(self._directory / name) for name in names]
        return max(rows.get(partition, 0) for rows in self._checkpoints)

    def _rows(self, path: Path) -> dict[TopicPartition, int]:
        try:
            return read_offsets(self._files, path)
        except BrokenFile:
            return {}


def counts(files: Files, directory: Path) -> bool:
    """Whether the directory has a redo log that the next start reads: not after a clean stop. Raises OSError."""
    return files.exists(directory / REDO_LOG_FILE) and read_clean_shutdown(files, directory) is None


class Redone(Files):
    """See the module. `lacking`: the bytes that each log lacks, by partition; empty if there is nothing to write.

    Raises OSError, also from all methods that would change the directory.
    """

    def __init__(self, files: Files, directory: Path, only: TopicPartition | None = None) -> None:
        self._files = files
        self._written: dict[Path, list[tuple[int, bytes]]] = {}
        if counts(files, directory):
            redo(self, directory, SyncedEnds(files, directory).of, only)
        self.lacking: dict[TopicPartition, int] = {}
        for path, written in self._written.items():
            if not written:
                continue
            parsed = parse_partition_directory(path.parent.name)
            assert parsed is not None
            before = self.lacking.get(parsed.topic_partition, 0)
            self.lacking[parsed.topic_partition] = before + sum(len(data) for _, data in written)

    def open(self, path: Path, *, create: bool = False, writable: bool = False, derived: bool = False) -> File:
        if create:
            _refuse(path)
        file = self._files.open(path, derived=derived)
        if writable:
            return _RedoneFile(file, self._written.setdefault(path, []))
        written = self._written.get(path)
        return _RedoneFile(file, written) if written else file

    def read_bytes(self, path: Path) -> bytes:
        if not self._written.get(path):
            return self._files.read_bytes(path)
        file = self.open(path)
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()

    def size(self, path: Path) -> int:
        return _end_of(self._files.size(path), self._written.get(path, ()))

    def list_directory(self, path: Path) -> list[str]:
        return self._files.list_directory(path)

    def exists(self, path: Path) -> bool:
        return self._files.exists(path)

    def is_directory(self, path: Path) -> bool:
        return self._files.is_directory(path)

    def obstacles(self, path: Path) -> list[tuple[Path, str]]:
        return self._files.obstacles(path)

    def modified_ms(self, path: Path) -> int:
        return self._files.modified_ms(path)

    def lives_in_memory(self, path: Path) -> bool:
        return self._files.lives_in_memory(path)

    def write_atomically(self, path: Path, data: bytes) -> None:
        _refuse(path)

    def rename(self, old: Path, new: Path) -> None:
        _refuse(old)

    def unlink(self, path: Path) -> None:
        _refuse(path)

    def make_directory(self, path: Path, *, parents: bool = False) -> None:
        _refuse(path)

    def remove_directory(self, path: Path) -> None:
        _refuse(path)

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        _refuse(path)

    def sync_directory(self, path: Path) -> None:
        _refuse(path)

    def is_locked_elsewhere(self, path: Path) -> bool:
        return self._files.is_locked_elsewhere(path)

    def lock(self, path: Path) -> Lock:
        _refuse(path)


class _RedoneFile(File):
    """A file with writes that are in memory only: position and bytes; later writes replace earlier ones."""

    def __init__(self, file: File, written: list[tuple[int, bytes]]) -> None:
        self.path = file.path
        self._file = file
        self._written = written

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        data = b"".join(buffers)
        self._written.append((position, data))
        return len(data)

    def pread(self, length: int, position: int) -> bytes:
        length = max(0, min(length, self.size() - position))
        found = bytearray(self._file.pread(length, position).ljust(length, b"\0"))
        for start, data in self._written:
            first, end = max(start, position), min(start + len(data), position + length)
            if first < end:
                found[first - position : end - position] = data[first - start : end - start]
        return bytes(found)

    def pread_nowait(self, length: int, position: int) -> bytes | bytearray | None:
        return None

    def map(self, length: int) -> memoryview:
        if length > self.size():
            raise ValueError(f"{self.path} is shorter than {length}")
        return memoryview(self.pread(length, 0))

    def resident_view(self, position: int, length: int) -> memoryview | None:
        return None

    def size(self) -> int:
        return _end_of(self._file.size(), self._written)

    def truncate(self, size: int) -> None:
        _refuse(self.path)

    def fdatasync(self) -> None:
        _refuse(self.path)

    @property
    def device(self) -> int:
        return self._file.device

    @property
    def writes(self) -> int:
        return len(self._written)

    def note_synced(self, writes: int) -> None:
        """Do nothing: no sync is needed."""

    def close(self) -> None:
        self._file.close()


def _end_of(size_bytes: int, written: Sequence[tuple[int, bytes]]) -> int:
    return max([size_bytes, *(position + len(data) for position, data in written)])


def _refuse(path: Path) -> NoReturn:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
