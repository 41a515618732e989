"""The only door to the operating system's files: `OsFiles`. Linux first, any POSIX system with fewer conveniences.

The interface, and what callers may rely on, is in `file_interface.py`; its names are exported here.

What Linux has and others lack is asked for once, at import: `RWF_NOWAIT` (without it `pread_nowait` answers None and
everything is read by a thread), `fdatasync` (without it `fsync`). macOS acknowledges `fsync` before the disk has the
bytes, F_FULLFSYNC does not.

Some file systems refuse `RWF_NOWAIT` (EOPNOTSUPP). That is remembered per device and never an error: what lives in
memory anyway (tmpfs, ramfs) is read directly, everything else through a thread.
"""

# ruff: noqa: D102  (the interface says what each method means; it is not said twice)
from __future__ import annotations

import errno
import mmap
import os
import sys
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from time import monotonic_ns
from typing import Final

from ottla.storage.directory_lock import lock_file
from ottla.storage.file_interface import IOV_MAX, Buffer, File, Files, Lock, PartialWrite, write_all
from ottla.storage.layout import TEMPORARY_SUFFIX
from ottla.storage.open_files import DEFAULT_MAX_DESCRIPTORS, DEFAULT_MAX_MAPS, Descriptor, Handle, OpenFiles
from ottla.storage.residency import ResidencyProbe, address_of

__all__ = ["IOV_MAX", "Buffer", "File", "Files", "Lock", "OsFile", "OsFiles", "PartialWrite", "write_all"]

_NOWAIT: Final[int] = getattr(os, "RWF_NOWAIT", 0)
RESIDENT_AHEAD_BYTES: Final = 4 << 20
RESIDENT_FOR_NS: Final = 500_000_000
"""How far ahead residency is asked for, and how long the answer is believed. A page that leaves memory in between makes
one send wait for the disk, which harms nobody's data."""
_MEMORY_FILE_SYSTEMS: Final = frozenset({"tmpfs", "ramfs"})
_MOUNTS: Final = "/proc/self/mountinfo"


def _sync_content(fd: int) -> None:
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    elif sys.platform == "linux":
        os.fdatasync(fd)
    else:
        os.fsync(fd)


class _Device:
    """What is remembered of one mounted file system."""

    def __init__(self, device: int) -> None:
        self.takes_nowait = bool(_NOWAIT)
        self.lives_in_memory = file_system_type(device) in _MEMORY_FILE_SYSTEMS


class _Map(Handle):
    """The first `len(view)` bytes of a file, mapped. Unmapped when neither its file nor a view refers to it."""

    __slots__ = ("address", "length", "view")

    def __init__(self, mapped: mmap.mmap, length: int, drop: DropHandle) -> None:
        super().__init__(drop)
        self.length = length
        self.view = memoryview(mapped)[:length]
        self.address = address_of(mapped)


class DropHandle:
    """Lets a handle tell its file to forget it, without keeping the file alive."""

    __slots__ = ("_file",)

    def __init__(self, file: OsFile) -> None:
        self._file = weakref.ref(file)

    def __call__(self, handle: Handle) -> None:
        file = self._file()
        if file is not None:
            file.forget(handle)


class OsFile(File):
    """A file of `OsFiles`; made by `OsFiles.open`."""

    def __init__(self, files: OsFiles, path: Path, *, writable: bool, derived: bool, create: bool) -> None:
        self.path = path
        self._files = files
        self._flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC
        self._derived = derived
        self._closed = False
        self._drop = DropHandle(self)
        self._writes = 0
        self._synced_writes = 0
        self._map: _Map | None = None
        self._resident = (0, 0, 0)
        self._descriptor: Descriptor | None = None
        descriptor = self._open(self._flags | (os.O_CREAT if create else 0))
        self._device = files.device_of(descriptor.fd)

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        descriptor = self._descriptor
        if descriptor is None or self._derived:
            descriptor = self._to_write()
        else:  # `_to_write` once more, without the call, which is time on the hot path
            self._writes += 1
            descriptor.pinned = descriptor.used = True
            if self._descriptor is not descriptor:
                descriptor = self._to_write()
        try:
            written = os.pwritev(descriptor.fd, buffers, position)
        except OSError as error:
            error.filename = str(self.path)
            raise
        if not descriptor.pinned and not self._derived:
            # A sync in another thread ran between the count and the write, and counted what it did not cover.
            self._writes += 1
            descriptor.pinned = True
        return written

    def pread(self, length: int, position: int) -> bytes:
        descriptor = self._descriptor or self._open(self._flags)
        descriptor.used = True
        try:
            data = os.pread(descriptor.fd, length, position)
            if len(data) == length:
                return data
            # A read is short at the end of the file, and also for more than 2 GiB or on a network file system.
            parts = [data]
            while parts[-1]:
                have = sum(map(len, parts))
                if have == length:
                    break
                parts.append(os.pread(descriptor.fd, length - have, position + have))
            return b"".join(parts)
        except OSError as error:
            error.filename = str(self.path)
            raise

    def pread_nowait(self, length: int, position: int) -> bytes | bytearray | None:
        device = self._device
        if not device.takes_nowait:
            if not device.lives_in_memory:
                return None
            data = self.pread(length, position)
            return data if len(data) == length else None
        descriptor = self._descriptor or self._open(self._flags)
        descriptor.used = True
        room = bytearray(length)
        try:
            return room if os.preadv(descriptor.fd, [room], position, _NOWAIT) == length else None
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                device.takes_nowait = False
                return self.pread_nowait(length, position)
            error.filename = str(self.path)
            raise

    def map(self, length: int) -> memoryview:
        return self._mapped(length).view[:length]

    def resident_view(self, position: int, length: int) -> memoryview | None:
        end = position + length
        mapped = self._map
        if mapped is None or mapped.length < end:
            mapped = self._mapped(end)
        mapped.used = True
        first, last, until_ns = self._resident
        if (first <= position and end <= last and monotonic_ns() < until_ns) or self._is_resident(
            mapped, position, end
        ):
            return mapped.view[position:end]
        return None

    def _is_resident(self, mapped: _Map, position: int, end: int) -> bool:
        if self._device.lives_in_memory:
            return True
        descriptor = self._descriptor or self._open(self._flags)
        residency = self._files.residency
        # Readers go on from here: where it costs no more, one look answers for what lies ahead too.
        ahead = end
        if residency.method == "cachestat":
            ahead = min(max(end, position + RESIDENT_AHEAD_BYTES), len(mapped.view))
        if residency.is_resident(descriptor.fd, mapped.address, position, ahead - position):
            self._resident = (position, ahead, monotonic_ns() + RESIDENT_FOR_NS)
            return True
        return ahead > end and residency.is_resident(descriptor.fd, mapped.address, position, end - position)

    def size(self) -> int:
        descriptor = self._descriptor or self._open(self._flags)
        return os.fstat(descriptor.fd).st_size

    def truncate(self, size: int) -> None:
        descriptor = self._to_write()
        mapped = self._map
        self._resident = (0, 0, 0)
        if mapped is not None and len(mapped.view) > size:
            self._map = None
        try:
            os.ftruncate(descriptor.fd, size)
        except OSError as error:
            error.filename = str(self.path)
            raise

    def fdatasync(self) -> None:
        descriptor = self._descriptor or self._open(self._flags)
        descriptor.used = True
        writes = self._writes
        try:
            _sync_content(descriptor.fd)
        except OSError as error:
            error.filename = str(self.path)
            raise
        self._synced_writes = writes
        # Another thread may write between the next two lines: the second puts the pin back, whichever comes first.
        descriptor.pinned = False
        if self._writes != writes:
            descriptor.pinned = True

    def close(self) -> None:
        self._closed = True
        self._descriptor = None
        self._map = None
        self._files.closed(self)

    def forget(self, handle: Handle) -> None:
        """Let go of a handle that the bound on open files has chosen."""
        if handle is self._descriptor:
            self._descriptor = None
        elif handle is self._map:
            self._map = None

    def _to_write(self) -> Descriptor:
        if self._derived:
            descriptor = self._descriptor or self._open(self._flags)
        else:
            # Counted first, so that a descriptor opened here is pinned before a sweep can see it.
            self._writes += 1
            descriptor = self._descriptor or self._open(self._flags)
            descriptor.pinned = True
            if self._descriptor is not descriptor:
                # A sweep in another thread took it just before the pin.
                self._descriptor = descriptor
                self._files.descriptors.admit(descriptor)
        descriptor.used = True
        return descriptor

    def _open(self, flags: int) -> Descriptor:
        if self._closed:
            raise OSError(errno.EBADF, "the file is closed", str(self.path))
        descriptor = Descriptor(self._files.open_by_path(self, flags), self._drop)
        descriptor.pinned = self._writes != self._synced_writes
        self._descriptor = descriptor
        self._files.descriptors.admit(descriptor)
        return descriptor

    def _mapped(self, length: int) -> _Map:
        current = self._map
        if current is not None and len(current.view) >= length:
            current.used = True
            return current
        descriptor = self._descriptor or self._open(self._flags)
        # The whole file, not only what was asked for: a growing file is then mapped once per growth that a fetch
        # notices.
        size = os.fstat(descriptor.fd).st_size
        if size < length:
            raise ValueError(f"{self.path} has {size} bytes, a map of {length} was asked for")
        mapped = (
            mmap.mmap(descriptor.fd, size, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ) if size else _nothing_mapped()
        )
        fresh = _Map(mapped, size, self._drop)
        self._map = fresh
        self._files.maps.admit(fresh)
        return fresh


def _nothing_mapped() -> mmap.mmap:
    """An empty file cannot be mapped; a page of nobody's stands in, of which callers see no byte."""
    return mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)


class OsFiles(Files):
    """The operating system's files.

    `max_descriptors` and `max_maps` bound what is open at a time; a map costs a descriptor of its own, since Python
    keeps one with it.
    """

    def __init__(self, *, max_descriptors: int = DEFAULT_MAX_DESCRIPTORS, max_maps: int = DEFAULT_MAX_MAPS) -> None:
        self.descriptors = OpenFiles(max_descriptors)
        self.maps = OpenFiles(max_maps)
        self.residency = ResidencyProbe()
        self._devices: dict[int, _Device] = {}
        self._open_files: dict[str, dict[str, list[weakref.ref[OsFile]]]] = {}
        """By directory and name, since a rename concerns few and there may be many thousands."""
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
        fd = self.open_descriptor(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(fd, left) :]
            os.fsync(fd)
        except OSError as error:
            error.filename = str(temporary)
            raise
        finally:
            os.close(fd)
        os.replace(temporary, path)
        self.sync_directory(path.parent)

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
        path.rmdir()

    def list_directory(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))

    def list_subdirectories(self, path: Path) -> list[str]:
        with os.scandir(path) as entries:  # knows most kinds without asking for each
            return sorted(entry.name for entry in entries if entry.is_dir())

    def exists(self, path: Path) -> bool:
        return path.exists()

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

    def lock(self, path: Path) -> Lock:
        return lock_file(path)

    def open_descriptor(self, path: Path, flags: int) -> int:
        """Open a file or directory; when the process has no descriptor left, half of those that can go are closed
        first.
        """
        try:
            return os.open(path, flags, 0o644)
        except OSError as error:
            if error.errno not in {errno.EMFILE, errno.ENFILE}:
                raise
        self.maps.sweep(len(self.maps) // 2)
        self.descriptors.sweep(len(self.descriptors) // 2)
        return os.open(path, flags, 0o644)

    def open_by_path(self, file: OsFile, flags: int) -> int:
        """Open what `file` is, also while another thread renames it: its name may be gone, or be another file's."""
        while True:
            path = file.path
            fd, missing = -1, None
            try:
                fd = self.open_descriptor(path, flags)
            except FileNotFoundError as error:
                missing = error
            with self._guard:  # a rename that was under way is over
                if file.path is path:
                    if missing is not None:
                        raise missing
                    return fd
            if fd >= 0:
                os.close(fd)

    def device_of(self, fd: int) -> _Device:
        """What is remembered of the file system that holds `fd`."""
        number = os.fstat(fd).st_dev
        device = self._devices.get(number)
        if device is None:
            device = self._devices[number] = _Device(number)
        return device

    def closed(self, file: OsFile) -> None:
        """An `OsFile` was closed and need not be told of renames."""
        with self._guard:
            self._forget(file)


def file_system_type(device: int) -> str:
    """Name of the mounted file system with this `st_dev` (`ext4`, `tmpfs`), from the kernel's list; empty when it does
    not say.
    """
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = Path(_MOUNTS).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    for line in mounts.splitlines():
        # 36 35 98:0 /root /mount options shared:1 - ext4 /dev/root rw    (proc_pid_mountinfo(5))
        mount, _, file_system = line.partition(" - ")
        if mount.split()[2:3] == [wanted]:
            return file_system.split(" ", 1)[0]
    return ""
