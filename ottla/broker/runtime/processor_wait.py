"""How long a thread was ready to run and had no processor, as Linux counts it.

The second number of a thread's `schedstat` in /proc is the time that it has spent in run queues, in nanoseconds. The
kernel adds a wait when it ends: a current wait is not in it yet. Where the system does not count, or hides /proc,
the time is unknown.
"""

from __future__ import annotations

import os
from typing import Final

PLACE: Final = "/proc/thread-self/schedstat"
_MOST_BYTES: Final = 100


class ProcessorWait:
    """The waits of the thread that creates it; any thread may read them. Raises OSError where the system has none."""

    __slots__ = ("_close", "_descriptor")

    def __init__(self) -> None:
        self._close = os.close  # os itself may be gone when the interpreter ends
        self._descriptor = os.open(PLACE, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        descriptor = getattr(self, "_descriptor", None)
        if descriptor is not None:
            self._close(descriptor)

    def mark(self) -> bytes:
        """The count so far, for `since_ms`; not parsed yet, since each sync round calls this."""
        try:
            return os.pread(self._descriptor, _MOST_BYTES, 0)
        except OSError:  # the thread has ended
            return b""

    def since_ms(self, mark: bytes) -> int:
        """Milliseconds that were counted since `mark`; 0 if unknown."""
        before_ns, now_ns = _waited_ns(mark), _waited_ns(self.mark())
        return 0 if before_ns is None or now_ns is None else (now_ns - before_ns) // 1_000_000


def _waited_ns(text: bytes) -> int | None:
    """The second number of e.g. b"1865159506 1894532179 1909\\n"; None if there is none."""
    words = text.split()
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else None
