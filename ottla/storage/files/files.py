"""The only access to the operating system's files: `OsFiles`. For Linux, and with fewer features for any POSIX system.

The interface, and its guarantees, are in `file_interface.py`; its names are exported here.

Features of Linux that other systems lack are detected once, at import: `RWF_NOWAIT` (`device.py`), `fdatasync` (without
it `fsync`). macOS acknowledges `fsync` before the disk has the bytes, F_FULLFSYNC does not (`os_file.py`).
"""

# ruff: noqa: D102  (the interface documents each method)
from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ottla.storage.files.descriptor_shortage import DescriptorShortage
from ottla.storage.files.device import Device, lives_in_memory
from ottla.storage.files.directory_lock import is_locked_elsewhere, lock_file
from ottla.storage.files.file_interface import (
    IOV_MAX,
    TEMPORARY_SUFFIX,
    Buffer,
    File,
    Files,
    Lock,
    NotOpened,
    PartialWrite,
    Volume,
    write_all,
)
from ottla.storage.files.open_files import DEFAULT_MAX_DESCRIPTORS, DEFAULT_MAX_MAPS, OpenFiles
from ottla.storage.files.os_file import OsFile
from ottla.storage.files.residency import ResidencyProbe
from ottla.storage.files.volume import OsVolume, open_volume

__all__ = [
    "IOV_MAX",
    "Buffer",
    "File",
    "Files",
    "Lock",
    "NotOpened",
    "OsFile",
    "OsFiles",
    "PartialWrite",
    "Volume",
    "write_all",
]

T = TypeVar("T")


class OsFiles(Files):
    """The operating system's files.

    `max_descriptors` and `max_maps` limit what is open at a time. A map also costs a descriptor, which Python keeps
    open with it.
    """

    def __init__(self, *, max_descriptors: int = DEFAULT_MAX_DESCRIPTORS, max_maps: int = DEFAULT_MAX_MAPS) -> None:
        self.descriptors = OpenFiles(max_descriptors)
        self.maps = OpenFiles(max_maps)
        self.residency = ResidencyProbe()
        self._shortage = DescriptorShortage()
        self._devices: dict[int, Device] = {}
        self._open_files: dict[str, dict[str, list[weakref.ref[OsFile]]]] = {}
        """The open files by directory and name: a rename affects few of what may be many thousands."""
        self._guard = threading.Lock()

    def open(self, path: Path, *, create: bool = False, writable: bool = False, derived: bool = False) -> OsFile:
        file = OsFile(self, path, writable=writable or create, derived=derived, create=create)
        with self._guard:
            self._remember(file)
        return file

    def read_bytes(self, path: Path) -> bytes:
        with open(path, "rb", buffering=0) as file:  # a start reads thousands of small files
            return file.readall()

    def write_atomically(self, path: Path, data: bytes) -> None:
        temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        self._write_whole(temporary, data, is_synced=True)
        os.replace(temporary, path)
        self.sync_directory(path.parent)

    def write_new(self, path: Path, data: bytes) -> None:
        self._write_whole(path, data, is_synced=False)

    def _write_whole(self, path: Path, data: bytes, *, is_synced: bool) -> None:
        fd = self.open_descriptor(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(fd, left) :]
            if is_synced:
                os.fsync(fd)
        except OSError as error:
            error.filename = str(path)
            raise
        finally:
            os.close(fd)

    def rename(self, old: Path, new: Path) -> None:
        # Name and paths change together for `open_by_path`.
        with self._guard:
            os.rename(old, new)
            for file in self._files_at(old):
                self._move(file, new)
            if new.is_dir():
                name, inside = str(old), f"{old}{os.sep}"
                for directory in [one for one in self._open_files if one == name or one.startswith(inside)]:
                    for reference in [each for files in self._open_files[directory].values() for each in files]:
                        below = reference()
                        if below is not None:
                            self._move(below, new / below.path.relative_to(old))

    def _move(self, file: OsFile, path: Path) -> None:
        self._forget(file)
        file.path = path
        self._remember(file)

    def _files_at(self, path: Path) -> list[OsFile]:
        directory, name = os.path.split(path)
        references = self._open_files.get(directory, {}).get(name, ())
        return [file for file in (reference() for reference in references) if file is not None]

    def _remember(self, file: OsFile) -> None:
        directory, name = os.path.split(file.path)
        references = self._open_files.setdefault(directory, {}).setdefault(name, [])
        references[:] = [reference for reference in references if reference() is not None]
        references.append(weakref.ref(file))

    def _forget(self, file: OsFile) -> None:
        directory, name = os.path.split(file.path)
        names = self._open_files.get(directory, {})
        others = [weakref.ref(one) for one in self._files_at(file.path) if one is not file]
        if others:
            names[name] = others
        else:
            names.pop(name, None)
            if not names:
                self._open_files.pop(directory, None)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def make_directory(self, path: Path, *, parents: bool = False) -> None:
        if not parents:
            path.mkdir()
            return
        missing = [directory for directory in (path, *path.parents) if not directory.exists()]
        for directory in reversed(missing):
            directory.mkdir(exist_ok=True)
            self.sync_directory(directory.parent)

    def remove_directory(self, path: Path) -> None:
        try:
            path.rmdir()
        except NotADirectoryError:
            if not path.is_symlink():
                raise
            path.unlink()

    def list_directory(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))

    def list_subdirectories(self, path: Path) -> list[str]:
        with os.scandir(path) as entries:  # knows the type of most entries without a `stat` of each
            return sorted(entry.name for entry in entries if entry.is_dir())

    def exists(self, path: Path) -> bool:
        return path.exists()

    def is_taken(self, path: Path) -> bool:
        return os.path.lexists(path)

    def is_directory(self, path: Path) -> bool:
        return path.is_dir()

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def volume_bytes(self, path: Path) -> tuple[int, int] | None:
        try:
            volume = os.statvfs(path)
        except OSError:
            return None
        return volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize

    def volume_inodes(self, path: Path) -> tuple[int, int] | None:
        try:
            volume = os.statvfs(path)
        except OSError:
            return None
        return (volume.f_files, volume.f_favail) if volume.f_files else None  # btrfs has 0 of 0

    def modified_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def sync_directory(self, path: Path) -> None:
        fd = self.open_descriptor(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            error.filename = str(path)
            raise
        finally:
            os.close(fd)

    def open_volume(self, path: Path) -> OsVolume | None:
        return self._with_descriptor(path, lambda: open_volume(path))

    def lives_in_memory(self, path: Path) -> bool:
        return lives_in_memory(os.stat(path).st_dev)

    def is_locked_elsewhere(self, path: Path) -> bool:
        return is_locked_elsewhere(path)

    def lock(self, path: Path) -> Lock:
        return lock_file(path)

    def open_descriptor(self, path: Path, flags: int) -> int:
        """Open a file or directory. NotOpened when the process has no descriptor left."""
        return self._with_descriptor(path, lambda: os.open(path, flags, 0o644))

    def map_descriptor(self, path: Path, fd: int, size: int) -> mmap.mmap:
        """Map the first `size` bytes, which needs a descriptor, too. NotOpened when the process has none left."""
        return self._with_descriptor(path, lambda: mmap.mmap(fd, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ))

    def _with_descriptor(self, path: Path, make: Callable[[], T]) -> T:
        """Call `make`. If no descriptor is left, close half of those that are not pinned and try again; NotOpened if
        that does not help.
        """
        try:
            return make()
        except OSError as error:
            if not self._shortage.is_one(error):
                raise
        self.maps.sweep(len(self.maps) // 2)
        self.descriptors.sweep(len(self.descriptors) // 2)
        try:
            return make()
        except OSError as error:
            if not self._shortage.is_one(error):
                raise
            self._shortage.log(error)
            raise NotOpened(error.errno, error.strerror, str(path)) from None

    def open_by_path(self, file: OsFile, flags: int) -> int:
        """Open the file of `file`, even while another thread renames it: its name may be gone, or be another file's."""
        while True:
            path = file.path
            fd, missing = -1, None
            try:
                fd = self.open_descriptor(path, flags)
            except FileNotFoundError as error:
                missing = error
            with self._guard:  # waits for a rename under way
                if file.path is path:
                    if missing is not None:
                        raise missing
                    return fd
            if fd >= 0:
                os.close(fd)

    def device_of(self, fd: int) -> Device:
        """The properties of the file system of `fd`."""
        number = os.fstat(fd).st_dev
        device = self._devices.get(number)
        if device is None:
            device = self._devices[number] = Device(number)
        return device

    def closed(self, file: OsFile) -> None:
        """Forget a closed `OsFile`, for which renames do not matter any more."""
        with self._guard:
            self._forget(file)
