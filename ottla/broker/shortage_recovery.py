"""The recovery after a shortage of memory, on the event loop: it repeats `MemoryReserve.recover` until there is memory.

The loop's own calls need memory to be planned. A descriptor that stays readable needs none: the loop calls its reader
in each iteration, until the reader has read it. `Server` makes one.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ottla.broker.runtime.memory_reserve import MemoryReserve

LOG = logging.getLogger("ottla.memory")

PAUSE_S: Final = 0.01
"""The loop rests so long before the next attempt: else it would keep a processor busy until there is memory."""


class ShortageRecovery:
    """Watches a descriptor to which the reserve writes. On a system without eventfd, the loop plans one attempt."""

    def __init__(
        self, reserve: MemoryReserve, loop: asyncio.AbstractEventLoop, *, rest: Callable[[float], None] = time.sleep
    ) -> None:
        self._reserve = reserve
        self._loop = loop
        self._rest = rest
        self._descriptor = -1
        try:
            self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            loop.add_reader(self._descriptor, self._recover)
        except (AttributeError, OSError, NotImplementedError):  # no eventfd, no descriptor left, a loop without readers
            self._close()
            reserve.wake = lambda: loop.call_soon(reserve.recover)
        else:
            reserve.wake = self._wake

    def stop(self) -> None:
        """Recover nothing any more."""
        self._reserve.wake = _nothing
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            self._close()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _wake(self) -> None:
        os.eventfd_write(self._descriptor, 1)

    def _recover(self) -> None:
        os.eventfd_read(self._descriptor)  # first: the recovery may find the next shortage
        try:
            if self._reserve.recover():
                return
        except MemoryError:
            pass
        except Exception:  # a bug, logged once: repeated, it would keep the loop busy
            LOG.exception("bug: the recovery after a shortage of memory failed")
            return
        self._wake()
        self._rest(PAUSE_S)


def _nothing() -> None:
    """Wake nothing."""
