"""A stretch of one segment's bytes, as Fetch sends it: whole batches, not decoded, not joined, not copied.

Hot bytes come as a view: small ones in memory of their own, large ones as a map of the segment, which only a
plaintext `send` may touch (a page that the disk lost is SIGBUS to the reader; `send` gets EFAULT). Cold bytes
come without a view and are read in a thread; where even the look-up would wait for the disk, the
thread does that too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final


class LogSlice:
    """What one read of a log gives.

    Attributes:
        view: the bytes, or None when they may have to come from the disk. Where a map was allowed it may be one of
            the file: for `send` only, never to be read by our code or TLS.
        length: number of bytes; 0 when there is nothing at the offset yet. Without a view it is the most that
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
        """The bytes, whole batches again; may wait for the disk: for a thread, or for where waiting is no harm.

        Raises:
            OSError: the disk failed, or the segment was deleted and its delay has passed.
            KafkaError: CORRUPT_MESSAGE, what is there is no batch.
        """
        if self._load is not None:
            return self._load()
        return bytes(self.view) if self.view is not None else b""


EMPTY_SLICE: Final = LogSlice(memoryview(b""), 0)
