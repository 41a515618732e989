"""Lines of standard input for an event loop, which must not wait for a person who types.

A thread reads; it holds at most one chunk more than was taken. It is a daemon that reads the descriptor itself, so
that neither Ctrl-C nor the end of the program waits for it, and no lock of `sys.stdin` stays behind.
"""

from __future__ import annotations

import asyncio
import errno
import io
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import CancelledError
from typing import Final

CHUNK_BYTES: Final = 256 * 1024
MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""A line longer than this is refused; nothing of it has been sent then."""
ENDS_WITH_CRLF: Final = sys.platform == "win32"
"""Whether a carriage return before the line feed belongs to the line end; elsewhere it is part of the record."""


class LineTooLong(ValueError):
    """A line of more than MAX_LINE_BYTES."""


async def stdin_lines() -> AsyncIterator[list[bytes]]:
    """The lines, without their line ends, a list per chunk that was read. Raises LineTooLong, OSError."""
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue(maxsize=1)
    loop = asyncio.get_running_loop()
    try:
        threading.Thread(target=_read, args=(_reader(), chunks, loop), daemon=True, name="stdin").start()
    except RuntimeError as error:  # the limit of tasks is reached
        raise OSError(errno.EAGAIN, f"no thread to read it: {error}") from error
    rest = b""
    while True:
        chunk = await chunks.get()
        if isinstance(chunk, OSError):
            raise chunk
        if not chunk:
            if rest:
                yield [rest]
            return
        lines = (rest + chunk).split(b"\n") if rest else chunk.split(b"\n")
        rest = lines.pop()
        if len(rest) > MAX_LINE_BYTES:
            raise LineTooLong(f"a line of more than {MAX_LINE_BYTES:,} bytes")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines] if ENDS_WITH_CRLF else lines


def _reader() -> Callable[[], bytes]:
    try:
        descriptor = sys.stdin.fileno()
    except (io.UnsupportedOperation, ValueError, AttributeError):
        stream = sys.stdin.buffer
        return lambda: stream.read(CHUNK_BYTES)
    return lambda: os.read(descriptor, CHUNK_BYTES)


def _read(read: Callable[[], bytes], chunks: asyncio.Queue[bytes | OSError], loop: asyncio.AbstractEventLoop) -> None:
    chunk: bytes | OSError = b"-"
    while chunk and not isinstance(chunk, OSError):
        try:
            chunk = read()
        except OSError as error:
            chunk = error
        try:
            asyncio.run_coroutine_threadsafe(chunks.put(chunk), loop).result()
        except (RuntimeError, CancelledError):  # the loop has ended: nothing takes more lines
            return
