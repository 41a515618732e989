"""One file of the operating system: `OsFile`, made by `OsFiles.open` (files.py).

It keeps a descriptor and a map while the limits on open files permit, and opens them again when needed. A descriptor
with unsynced writes is pinned: closing it could lose an error that the sync has to report. The hot path uses `pwritev`,
`resident_view` and `pread_nowait`.
"""

# ruff: noqa: D102  (the interface documents each method)
from __future__ import annotations

import errno
import mmap
import os
import sys
import weakref
from collections.abc import Sequence
from pathlib import Path
from time import monotonic_ns
from typing import Final, Protocol

from ottla.storage.files.device import NOWAIT, Device
from ottla.storage.files.file_interface import Buffer, File, NotOpened
from ottla.storage.files.open_files import Descriptor, Handle, OpenFiles
from ottla.storage.files.residency import ResidencyProbe, address_of

RESIDENT_AHEAD_BYTES: Final = 4 << 20
RESIDENT_FOR_NS: Final = 500_000_000
"""How far ahead residency is queried, and how long the answer is trusted. If a page leaves memory in between, one send
waits for the disk, which harms no data."""


if sys.platform == "darwin":

    def _sync_content(fd: int) -> None:
        import fcntl

        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)

else:
    _sync_content = getattr(os, "fdatasync", os.fsync)


class _Map(Handle):
    """A map of the first `len(view)` bytes of a file. Unmapped when neither its file nor a view refers to it."""

    __slots__ = ("address", "length", "view")

    def __init__(self, mapped: mmap.mmap, length: int, drop: DropHandle) -> None:
        super().__init__(drop)
        self.length = length
        self.view = memoryview(mapped)[:length]
        self.address = address_of(mapped)


class DropHandle:
    """Lets a handle drop itself from its file, without keeping the file alive."""

    __slots__ = ("_file",)

    def __init__(self, file: OsFile) -> None:
        self._file = weakref.ref(file)

    def __call__(self, handle: Handle) -> None:
        file = self._file()
        if file is not None:
            file.forget(handle)


class Owner(Protocol):
    """The part of `OsFiles` that a file of it uses."""

    descriptors: OpenFiles
    maps: OpenFiles
    residency: ResidencyProbe

    def open_by_path(self, file: OsFile, flags: int) -> int:
        """Open the file of `file`, under its current name."""

    def map_descriptor(self, path: Path, fd: int, size: int) -> mmap.mmap:
        """Map the first `size` bytes."""

    def device_of(self, fd: int) -> Device:
        """The properties of the file system of `fd`."""

    def closed(self, file: OsFile) -> None:
        """Forget a closed file, for which renames do not matter any more."""


class OsFile(File):
    """A file of `OsFiles`; made by `OsFiles.open`."""

    # Plain attributes instead of the interface's properties: a round of syncs reads them for each of its files.
    device = -1
    writes = 0

    def __init__(self, files: Owner, path: Path, *, writable: bool, derived: bool, create: bool) -> None:
        self.path = path
        self._files = files
        self._flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC
        self._derived = derived
        self._closed = False
        self._drop = DropHandle(self)
        self.writes = 0
        self._synced_writes = 0
        self._map: _Map | None = None
        self._resident = (0, 0, 0)
        self._descriptor: Descriptor | None = None
        descriptor = self._open(self._flags | (os.O_CREAT if create else 0))
        self._device = files.device_of(descriptor.fd)
        self.device = self._device.number

    @property
    def open_descriptor(self) -> Descriptor | None:
        """The descriptor while it is open; None after it was dropped, until the next use opens the file again."""
        return self._descriptor

    @property
    def is_open(self) -> bool:
        return self._descriptor is not None

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> int:
        descriptor = self._descriptor
        if descriptor is None or self._derived:
            descriptor = self._to_write()
        else:  # `_to_write` inlined, to save a call on the hot path
            self.writes += 1
            descriptor.pinned = descriptor.used = True
            if self._descriptor is not descriptor:
                descriptor = self._to_write()
        try:
            written = os.pwritev(descriptor.fd, buffers, position)
        except OSError as error:
            error.filename = str(self.path)
            raise
        if not descriptor.pinned and not self._derived:
            # A sync in another thread ran between the count and the write, and counted a write that it did not cover.
            self.writes += 1
            descriptor.pinned = True
        return written

    def pread(self, length: int, position: int) -> bytes:
        descriptor = self._descriptor or self._open(self._flags)
        descriptor.used = True
        try:
            data = os.pread(descriptor.fd, length, position)
            if len(data) == length:
                return data
            # A read may be short at the end of the file, but also for more than 2 GiB or on a network file system.
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
            return room if os.preadv(descriptor.fd, [room], position, NOWAIT) == length else None
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
            try:
                mapped = self._mapped(end)
            except (NotOpened, ValueError):
                return None  # `pread` needs no descriptor for a map, and detects a file that became shorter
        mapped.used = True
        first, last, until_ns = self._resident
        if (first <= position and end <= last and monotonic_ns() < until_ns) or self._is_resident(
            mapped, position, end
        ):
            return mapped.view[position:end]
        return None

    def _is_resident(self, mapped: _Map, position: int, end: int) -> bool:
        descriptor = self._descriptor or self._open(self._flags)
        if self._device.lives_in_memory:
            # The whole file is in memory; if another program has truncated it, the rest of the map does not exist.
            size = os.fstat(descriptor.fd).st_size
            if size >= mapped.length:
                self._resident = (position, mapped.length, monotonic_ns() + RESIDENT_FOR_NS)
            return size >= end
        residency = self._files.residency
        # Readers continue from here: if it costs no more, one query covers the following bytes, too.
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
        writes = self.writes
        try:
            _sync_content(descriptor.fd)
        except OSError as error:
            error.filename = str(self.path)
            raise
        self._synced_writes = writes
        # Another thread may write between the next two lines: in either order, the second restores the pin.
        descriptor.pinned = False
        if self.writes != writes:
            descriptor.pinned = True

    def note_synced(self, writes: int) -> None:
        descriptor = self._descriptor
        if descriptor is not None:
            self._synced_writes = writes
            descriptor.pinned = False  # as in `fdatasync`, inlined: called for each file of a round
            if self.writes != writes:
                descriptor.pinned = True

    def close(self) -> None:
        self._closed = True
        self._descriptor = None
        self._map = None
        self._files.closed(self)

    def forget(self, handle: Handle) -> None:
        """Drop a handle that the limit on open files has chosen."""
        if handle is self._descriptor:
            self._descriptor = None
        elif handle is self._map:
            self._map = None

    def _to_write(self) -> Descriptor:
        if self._derived:
            descriptor = self._descriptor or self._open(self._flags)
        else:
            # Counted first, so that a descriptor that is opened here is pinned before a sweep can see it.
            self.writes += 1
            descriptor = self._descriptor or self._open(self._flags)
            descriptor.pinned = True
            if self._descriptor is not descriptor:
                # A sweep in another thread dropped it just before the pin.
                self._descriptor = descriptor
                self._files.descriptors.admit(descriptor)
        descriptor.used = True
        return descriptor

    def _open(self, flags: int) -> Descriptor:
        if self._closed:
            raise OSError(errno.EBADF, "the file is closed", str(self.path))
        descriptor = Descriptor(self._files.open_by_path(self, flags), self._drop)
        descriptor.pinned = self.writes != self._synced_writes
        self._descriptor = descriptor
        self._files.descriptors.admit(descriptor)
        return descriptor

    def _mapped(self, length: int) -> _Map:
        current = self._map
        if current is not None and len(current.view) >= length:
            current.used = True
            return current
        descriptor = self._descriptor or self._open(self._flags)
        # The whole file, not only the requested part: a growing file is then mapped once per growth that a fetch
        # notices.
        size = os.fstat(descriptor.fd).st_size
        if size < length:
            raise ValueError(f"{self.path} has {size} bytes, a map of {length} was asked for")
        mapped = self._files.map_descriptor(self.path, descriptor.fd, size) if size else _nothing_mapped()
        fresh = _Map(mapped, size, self._drop)
        self._map = fresh
        self._files.maps.admit(fresh)
        return fresh


def _nothing_mapped() -> mmap.mmap:
    """A substitute for an empty file, which cannot be mapped: an anonymous page, of which callers see no byte."""
    return mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ)
