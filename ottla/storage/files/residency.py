"""Finds out whether a range of a file is in the page cache, before the event loop sends it: a cold page would block it.

There are three methods; the best one that the kernel supports is chosen once per process:

- `cachestat(2)` (Linux 6.5): counts pages of a descriptor's range, 2 us for any length. It also counts pages with a
  read-ahead under way, so one byte of the last page is tried with `preadv(RWF_NOWAIT)` as well (1 us), which refuses
  those.
- `mincore(2)`: checks every page of the map, 29 us for 1 MiB (both measured on ext4, kernel 6.18, through ctypes).
- neither (no ctypes, another system): one byte of every 128 KiB, the usual read-ahead window, is tried with
  `RWF_NOWAIT`.

The answer may be out of date: a page may leave memory before the send, which then waits for the disk once. That is
slow, but not wrong.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

from ottla.storage.files.device import NOWAIT

try:
    import ctypes
except ImportError:  # a Python built without libffi
    ctypes = None  # type: ignore[assignment]  # the module or nothing

PAGE_BYTES: Final = mmap.PAGESIZE
SAMPLE_BYTES: Final = 128 * 1024

_CACHESTAT_SYSCALL: Final = 451
"""The number of the system call: the same on x86-64, arm64, riscv64, s390x, ppc64le, and all architectures since
2018."""


class _PerThread(threading.local):
    """Memory for the arguments and results of one call; several threads may call."""

    def __init__(self) -> None:
        self.byte = bytearray(1)
        self.range: Any = (ctypes.c_uint64 * 2)() if ctypes else None
        self.stat: Any = (ctypes.c_uint64 * 5)() if ctypes else None
        self.vector = bytearray(0)


def c_library() -> Any:
    """The system calls of this process; None if Python cannot call them.

    PyDLL keeps the interpreter lock: no call waits for a disk, and releasing the lock can cost milliseconds.
    """
    return None if ctypes is None or sys.platform == "win32" else ctypes.PyDLL(None, use_errno=True)


class ResidencyProbe:
    """Answers `is_resident`. A process needs one; `method` is the method that it has chosen.

    `library` has the system calls `mincore` and `syscall`; by default the C library of this process.
    """

    def __init__(self, method: str | None = None, library: Any = None) -> None:
        self._room = _PerThread()
        self._library = c_library() if library is None else library
        self.method = method or ("cachestat" if self._library is not None and sys.platform == "linux" else "sample")
        self._check: Callable[[int, int, int, int], bool] = {
            "cachestat": self._by_cachestat,
            "mincore": self._by_mincore,
            "sample": self._by_sample,
        }[self.method]

    def is_resident(self, fd: int, map_address: int, position: int, length: int) -> bool:
        """Whether bytes `position` to `position + length` of the file `fd` are in memory.

        `map_address` is the address at which byte 0 of the file is mapped, 0 if unknown.
        """
        if length <= 0:
            return True
        return self._check(fd, map_address, position, length)

    def _fall_back(self, method: str) -> None:
        self.method = method
        self._check = self._by_mincore if method == "mincore" else self._by_sample

    def _by_cachestat(self, fd: int, map_address: int, position: int, length: int) -> bool:
        room = self._room
        room.range[0] = position
        room.range[1] = length
        if self._library.syscall(_CACHESTAT_SYSCALL, fd, ctypes.byref(room.range), ctypes.byref(room.stat), 0) != 0:
            # ENOSYS before Linux 6.5, EPERM from a container's filter that does not know the call.
            self._fall_back("mincore")
            return self._by_mincore(fd, map_address, position, length)
        last = position + length - 1
        pages = last // PAGE_BYTES - position // PAGE_BYTES + 1
        return bool(room.stat[0] >= pages) and self._byte_is_there(fd, last, if_unknown=True)

    def _by_mincore(self, fd: int, map_address: int, position: int, length: int) -> bool:
        if map_address == 0:
            return self._by_sample(fd, map_address, position, length)
        first_page = position // PAGE_BYTES
        pages = (position + length - 1) // PAGE_BYTES - first_page + 1
        room = self._room
        if len(room.vector) < pages:
            room.vector = bytearray(pages)
        vector = (ctypes.c_char * pages).from_buffer(room.vector)
        start = ctypes.c_void_p(map_address + first_page * PAGE_BYTES)
        if self._library.mincore(start, ctypes.c_size_t(pages * PAGE_BYTES), vector) != 0:
            self._fall_back("sample")
            return self._by_sample(fd, map_address, position, length)
        return room.vector.count(1, 0, pages) == pages

    def _by_sample(self, fd: int, map_address: int, position: int, length: int) -> bool:
        last = position + length - 1
        return self._byte_is_there(fd, last, if_unknown=False) and all(
            self._byte_is_there(fd, sample, if_unknown=False) for sample in range(position, last, SAMPLE_BYTES)
        )

    def _byte_is_there(self, fd: int, position: int, *, if_unknown: bool) -> bool:
        if not NOWAIT:
            return if_unknown
        try:
            return os.preadv(fd, [self._room.byte], position, NOWAIT) == 1
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                return if_unknown
            raise


def address_of(mapped: mmap.mmap) -> int:
    """The address of a map in this process's memory; 0 if Python does not know it. Valid while the map is open."""
    if ctypes is None or not len(mapped):
        return 0
    view = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(mapped), ctypes.byref(view), 0)
    address = int(view.buf or 0)
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(view))
    return address


if ctypes is not None:

    class _PyBuffer(ctypes.Structure):
        """CPython's Py_buffer: the address of a read-only map is available through the C interface only."""

        _fields_ = (
            ("buf", ctypes.c_void_p),
            ("obj", ctypes.c_void_p),
            ("len", ctypes.c_ssize_t),
            ("itemsize", ctypes.c_ssize_t),
            ("readonly", ctypes.c_int),
            ("ndim", ctypes.c_int),
            ("format", ctypes.c_char_p),
            ("shape", ctypes.c_void_p),
            ("strides", ctypes.c_void_p),
            ("suboffsets", ctypes.c_void_p),
            ("internal", ctypes.c_void_p),
        )
