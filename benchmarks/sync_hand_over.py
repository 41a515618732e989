"""The cost of a file's sync beside a running loop, for four methods of the loop. It needs no broker.

    python benchmarks/sync_hand_over.py [--directory D] [--turns N] [--pause MS]

A uvloop loop writes 100 bytes to a file, has them synced, and begins again when it is notified of the end (`--pause`: a
number of milliseconds later, when the processor's caches contain other data):

    inline      the loop's own thread calls fdatasync: there is no hand-over, and everything else waits
    queue       a thread gets it by a SimpleQueue, and answers by call_soon_threadsafe
    eventfd     a thread gets it by an eventfd, and answers by one (ottla/hand_over.py)
    kernel      Linux' native AIO: io_submit of IOCB_CMD_FDSYNC, an eventfd, io_getevents; x86-64 only

The methods take turns. Printed are the CPU of the process and of all kernel workers of the machine, which do the
kernel's own work. The latter includes the work of other programs, so run it on a quiet machine, or trust the
least of many turns.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import errno
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import uvloop
from tabulate import tabulate

from ottla.hand_over import HandOver, Posts

SYNCS = 100
"""In each turn."""
RECORD = b"x" * 100
IO_SETUP, IO_GETEVENTS, IO_SUBMIT = 206, 208, 209
FDSYNC, TELL_EVENTFD = 3, 1

Ended = Callable[[], None]


class Way:
    """One method: `begin` starts a sync; after its end `ended` is called on the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int, ended: Ended) -> None:
        self.loop, self.fd, self.ended = loop, fd, ended

    def begin(self) -> None:
        """Sync inline."""
        os.fdatasync(self.fd)
        self.loop.call_soon(self.ended)

    def close(self) -> None:
        """End the threads that were started."""


class Threaded(Way):
    """By a thread that takes jobs from `get`."""

    def serve(self, get: Callable[[], bool], answer: Callable[[Ended], object]) -> None:
        """Start the thread."""

        def work() -> None:
            while get():
                os.fdatasync(self.fd)
                answer(self.ended)

        self.thread = threading.Thread(target=work)
        self.thread.start()


class ByQueue(Threaded):
    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int, ended: Ended) -> None:
        super().__init__(loop, fd, ended)
        self.jobs: SimpleQueue[bool] = SimpleQueue()
        self.serve(self.jobs.get, loop.call_soon_threadsafe)

    def begin(self) -> None:
        self.jobs.put(True)

    def close(self) -> None:
        self.jobs.put(False)
        self.thread.join()


class ByEventfd(Threaded):
    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int, ended: Ended) -> None:
        super().__init__(loop, fd, ended)
        self.jobs: HandOver[bool] = HandOver()
        self.posts = Posts()
        loop.add_reader(self.posts.descriptor, self.posts.run)
        self.serve(self.jobs.get, self.posts.put)

    def begin(self) -> None:
        self.jobs.put(True)

    def close(self) -> None:
        self.jobs.put(False)
        self.thread.join()
        self.loop.remove_reader(self.posts.descriptor)


class Request(ctypes.Structure):
    """`struct iocb` (linux/aio_abi.h)."""

    _fields_ = (
        *(("data", ctypes.c_uint64), ("key", ctypes.c_uint32), ("rw_flags", ctypes.c_uint32)),
        *(("operation", ctypes.c_uint16), ("priority", ctypes.c_int16), ("fd", ctypes.c_uint32)),
        *(("buffer", ctypes.c_uint64), ("bytes", ctypes.c_uint64), ("offset", ctypes.c_int64)),
        *(("reserved", ctypes.c_uint64), ("flags", ctypes.c_uint32), ("told_by", ctypes.c_uint32)),
    )


class ByKernel(Way):
    library: Any = ctypes.PyDLL(None, use_errno=True)
    context = ctypes.c_ulong(0)

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int, ended: Ended) -> None:
        super().__init__(loop, fd, ended)
        self.told_by = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        if not self.context.value and self.library.syscall(IO_SETUP, 8, ctypes.byref(self.context)):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self.request = Request(operation=FDSYNC, fd=fd, flags=TELL_EVENTFD, told_by=self.told_by)
        self.requests = ctypes.pointer(ctypes.pointer(self.request))
        self.events = (ctypes.c_int64 * 4)()
        self.one, self.zero = ctypes.c_long(1), ctypes.c_long(0)
        loop.add_reader(self.told_by, self.collect)

    def begin(self) -> None:
        if self.library.syscall(IO_SUBMIT, self.context, self.one, self.requests) != 1:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def collect(self) -> None:
        """Take the answer."""
        os.eventfd_read(self.told_by)
        if self.library.syscall(IO_GETEVENTS, self.context, self.zero, self.one, self.events, None) != 1:
            raise OSError(errno.EIO, "no event")
        if self.events[2]:
            raise OSError(-self.events[2], os.strerror(-self.events[2]))
        self.ended()

    def close(self) -> None:
        self.loop.remove_reader(self.told_by)
        os.close(self.told_by)


WAYS: dict[str, type[Way]] = {"inline": Way, "queue": ByQueue, "eventfd": ByEventfd, "kernel": ByKernel}


def kernel_workers_ns() -> int:
    """CPU time of all workers of the kernel."""
    total = 0
    for name in Path("/proc").glob("[0-9]*/comm"):
        with suppress(OSError):
            if name.read_text().startswith("kworker"):
                total += int(name.with_name("schedstat").read_text().split()[0])
    return total


def turn(loop: asyncio.AbstractEventLoop, make: type[Way], fd: int, pause_s: float) -> tuple[float, float, float]:
    """(median time, CPU of the process, CPU of the kernel's workers) of a sync, in us."""
    done = loop.create_future()
    took_ns: list[int] = []
    begun_ns = 0

    def begin() -> None:
        nonlocal begun_ns
        os.write(fd, RECORD)
        begun_ns = time.perf_counter_ns()
        way.begin()

    def ended() -> None:
        took_ns.append(time.perf_counter_ns() - begun_ns)
        if len(took_ns) == SYNCS:
            done.set_result(None)
        elif pause_s:
            loop.call_later(pause_s, begin)
        else:
            begin()

    way = make(loop, fd, ended)
    workers_ns, own_ns = kernel_workers_ns(), time.process_time_ns()
    loop.call_soon(begin)
    loop.run_until_complete(done)
    own_ns = time.process_time_ns() - own_ns
    workers_ns = kernel_workers_ns() - workers_ns
    way.close()
    return statistics.median(took_ns) / 1e3, own_ns / SYNCS / 1e3, workers_ns / SYNCS / 1e3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, help="on the disk to be measured")
    parser.add_argument("--turns", type=int, default=25)
    parser.add_argument("--pause", type=float, default=0, help="milliseconds between two syncs")
    options = parser.parse_args()
    loop = uvloop.new_event_loop()
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in WAYS}
    with tempfile.TemporaryFile(dir=options.directory, buffering=0) as file:
        for _ in range(options.turns):
            for name, make in WAYS.items():
                found[name].append(turn(loop, make, file.fileno(), options.pause / 1e3))
    rows = []
    for name, turns in found.items():
        columns = [*zip(*turns, strict=True), [own + workers for _, own, workers in turns]]
        rows.append([name, *(f"{min(column):.0f} ({statistics.median(column):.0f})" for column in columns)])
    headers = ["way", "time, us", "CPU of the process", "of the kernel's workers", "of both"]
    print(f"kernel {os.uname().release}, load {os.getloadavg()[0]:.1f}; least of {options.turns} turns (median)\n")
    print(tabulate(rows, headers, tablefmt="github"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
