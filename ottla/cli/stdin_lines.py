"""Lines of standard input for an event loop, which must not block while a person types.

A thread reads at most two chunks ahead: one that the loop may take, and one that it holds. It is a daemon that reads
the descriptor itself: neither Ctrl-C nor the end of the program waits for it, and it keeps no lock of `sys.stdin`. It
passes plain callbacks to the loop, and no coroutines: a loop that has ended never awaits those, and Python warns then.
"""

from __future__ import annotations

import asyncio
import errno
import io
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from typing import Final

CHUNK_BYTES: Final = 256 * 1024
MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""A longer line is refused; no part of it is sent."""
ENDS_WITH_CRLF: Final = sys.platform == "win32"
"""Whether a carriage return before the line feed belongs to the line end; elsewhere it is part of the record."""


class LineTooLong(ValueError):
    """A line of more than MAX_LINE_BYTES."""


async def stdin_lines() -> AsyncIterator[list[bytes]]:
    """The lines, without their line ends, a list per chunk that was read. Raises LineTooLong, OSError."""
    handover = _Handover(asyncio.get_running_loop())
    try:
        threading.Thread(target=handover.read, args=(_reader(),), daemon=True, name="stdin").start()
    except RuntimeError as error:  # the system's limit of threads is reached
        raise OSError(errno.EAGAIN, f"no thread to read it: {error}") from error
    rest: list[bytes] = []
    """The beginning of a line whose end has not been read, in pieces: a long line is joined once."""
    rest_bytes = 0
    try:
        while True:
            chunk = await handover.take()
            if not chunk:
                if rest_bytes:
                    yield [b"".join(rest)]
                return
            lines = chunk.split(b"\n")
            if len(lines) > 1:
                if rest:
                    lines[0] = b"".join([*rest, lines[0]])
                rest, rest_bytes = [], 0
            last = lines.pop()
            rest.append(last)
            rest_bytes += len(last)
            if rest_bytes > MAX_LINE_BYTES:
                raise LineTooLong(f"a line of more than {MAX_LINE_BYTES:,} bytes")
            if lines:
                yield [line.removesuffix(b"\r") for line in lines] if ENDS_WITH_CRLF else lines
    finally:
        handover.end()


class _Handover:
    """Chunks on their way from the thread to the loop, one at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
        self._room = threading.Semaphore(1)
        self._is_ended = False

    async def take(self) -> bytes:
        """Return the next chunk, an empty one at the end of the input. Raises OSError."""
        chunk = await self._chunks.get()
        self._room.release()
        if isinstance(chunk, OSError):
            raise chunk
        return chunk

    def end(self) -> None:
        """Take no more chunks; the thread ends when its read returns."""
        self._is_ended = True
        self._room.release()

    def read(self, read: Callable[[], bytes]) -> None:
        """Pass on what is read, in the thread, until the input or the loop ends."""
        chunk: bytes | OSError = b"-"
        while chunk and not isinstance(chunk, OSError):
            try:
                chunk = read()
            except OSError as error:
                chunk = error
            self._room.acquire()
            if self._is_ended:
                return
            try:
                self._loop.call_soon_threadsafe(self._chunks.put_nowait, chunk)
            except RuntimeError:  # the loop is closed: nothing takes more lines
                return


def _reader() -> Callable[[], bytes]:
    try:
        descriptor = sys.stdin.fileno()
    except (io.UnsupportedOperation, ValueError, AttributeError):
        stream = sys.stdin.buffer
        return lambda: stream.read(CHUNK_BYTES)
    return lambda: os.read(descriptor, CHUNK_BYTES)
