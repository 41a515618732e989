"""Signals as bytes of a socket that the event loop watches: a process without any memory left notices them.

uvloop's own handlers (`add_signal_handler`) read up to 64 KiB at a time: if there is no memory for that, they fail in
each iteration, and the process does not stop. Here the interpreter's signal handler writes the number of the signal to
a socket, and it is read into a buffer that exists. Neither needs memory.
"""

from __future__ import annotations

import signal
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable


class SignalWatch:
    """Calls `on_signal` with the number of each of these signals, on the loop. For the main thread, and a running loop:
    uvloop watches signals itself from the start of `run_forever` on.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, numbers: Iterable[signal.Signals], on_signal: Callable[[int], object]
    ) -> None:
        self._loop = loop
        self._on_signal = on_signal
        self._reads, self._writes = socket.socketpair()
        self._reads.setblocking(False)
        self._writes.setblocking(False)
        self._number = bytearray(1)
        loop.add_reader(self._reads, self._read)
        self._before = {number: signal.getsignal(number) for number in numbers}
        for number in self._before:
            signal.signal(number, _pass)
            signal.siginterrupt(number, False)
        self._wakeup_before = self.watch()

    def watch(self) -> int:
        """Take over from the loop, which watches signals itself when `run_forever` is called again."""
        return signal.set_wakeup_fd(self._writes.fileno(), warn_on_full_buffer=False)

    def close(self) -> None:
        """Watch nothing any more, once the loop has ended."""
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._loop.remove_reader(self._reads)
        self._reads.close()
        self._writes.close()

    def _read(self) -> None:
        if self._reads.recv_into(self._number) and self._number[0] in self._before:
            self._on_signal(self._number[0])


def _pass(number: int, frame: object) -> None:
    """Let the interpreter's handler do its work, and nothing else."""
