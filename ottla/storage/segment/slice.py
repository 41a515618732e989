"""A range of one segment's bytes, as Fetch sends it: whole batches, not decoded, not joined, not copied.

Bytes in memory are returned as a view: few bytes as a copy, many as a map of the segment, which only a plaintext `send`
may read (a page that the disk has lost is SIGBUS for a reader, but only EFAULT for `send`). Other bytes have no view
and are read in a thread. If even the look-up would wait for the disk, the thread does that too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final


class LogSlice:
    """The result of one read of a log.

    Attributes:
        view: the bytes, or None when they may have to be read from the disk. If a map was allowed, it may be a map of
            the file: for `send` only, never to be read by Python code or TLS.
        length: the number of bytes; 0 when there is nothing at the offset yet. Without a view it is the most that
            `read_blocking` returns.
    """

    __slots__ = ("_load", "length", "view")

    def __init__(
        self,
        view: memoryview | None,
        length: int,
        *,
        load: Callable[[], bytes] | None = None,
    ) -> None:
        self.view = view
        self.length = length
        self._load = load

    def read_blocking(self) -> bytes:
        """The bytes, also whole batches; may wait for the disk: for a thread, or where waiting is harmless.

        Raises:
            OSError: the disk failed, or the segment was deleted and its delay has passed.
            KafkaError: CORRUPT_MESSAGE, no batch is there.
        """
        if self._load is not None:
            return self._load()
        return bytes(self.view) if self.view is not None else b""


EMPTY_SLICE: Final = LogSlice(memoryview(b""), 0)
