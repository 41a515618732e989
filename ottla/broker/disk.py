"""Group sync: whoever waits for the disk, one `fdatasync` serves all (decisions.md 1-4).

A `Syncer` collects the logs that somebody waits for. At the end of a turn it takes a ticket from each (the log's end
at that moment and the files that must be synced), lets a thread per log directory run them, and back on the broker's
thread publishes the synced offsets and calls back. While one round runs, the next one collects.

A failed sync is never tried again: after it Linux may call lost pages clean. The log fails, its directory goes offline
(`on_failure`), and everybody who waits for that directory gets the error.

Threads only run tickets; every other line here runs on the broker's thread. `QueuedSyncer` has no threads: a
simulation decides when a round ends.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from ottla.broker.turn import Turn
    from ottla.storage.log import Log

SyncCallback = Callable[[OSError | None], None]
T = TypeVar("T")


class Syncer(Protocol):
    """What partitions and the catalog ask of the disk."""

    def request(self, log: Log, callback: SyncCallback) -> None:
        """Call `callback(None)` once the log end seen now is synced (at once if it is), or with the error."""

    def close(self) -> None:
        """Finish what runs and end the threads. Nothing may be requested afterwards."""
