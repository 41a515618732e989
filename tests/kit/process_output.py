"""What a process prints into a pipe, line by line: all that was written when a test looks, not what a thread has read.

A test that a client's answer has reached may look at once for the line that the process logged before it answered. With
a thread alone, that line could still be in the pipe: on a machine with much to do such a test failed.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from typing import IO

READ_SIZE = 65536


class ProcessOutput:
    """The lines of one pipe. `follow` reads until its end, `text` reads what is there now.

    `each` is called with every line, under the lock and in the order of the lines.
    """

    def __init__(self, stream: IO[bytes], each: Callable[[str], None]) -> None:
        self._stream = stream
        self._each = each
        self._lock = threading.Lock()
        self._rest = b""
        self._ended = False
        self._lines: list[str] = []

    def follow(self) -> None:
        """Read until the process, and all that inherited its pipe, have closed it. Runs in a thread."""
        while not self._ended:
            self._readable(None)
            self._read()

    def text(self) -> str:
        """Every whole line that was written before this call; after the end, what had no line end, too."""
        while not self._ended and self._read():
            pass
        return "\n".join(self._lines)

    def close(self) -> None:
        """Give the pipe back. What was read stays."""
        with self._lock:
            self._ended = True
            self._stream.close()

    def _read(self) -> bool:
        """Take what is in the pipe without waiting; False if there is nothing."""
        with self._lock:
            if self._ended or not self._readable(0):
                return False
            data = os.read(self._stream.fileno(), READ_SIZE)
            *lines, self._rest = (self._rest + data).split(b"\n")
            if not data:
                self._ended = True
                lines = [self._rest] if self._rest else []
            for line in lines:
                text = line.decode(errors="replace").rstrip("\r")
                self._lines.append(text)
                self._each(text)
            return bool(data)

    def _readable(self, timeout_ms: int | None) -> bool:
        waiter = select.poll()  # one for each call: two threads may wait; select() refuses descriptors above 1,023
        waiter.register(self._stream, select.POLLIN)
        return bool(waiter.poll(timeout_ms))
