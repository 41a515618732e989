"""Closing many logs at a stop: in several threads, in a bounded time, with a line from time to time that says how far
it is.

Each log is synced before its files are closed, two or three syncs of some milliseconds on a disk that is busy; several
threads at once share what the file system does for all of them. A stop that takes longer than it may is given up: logs
that are left are closed as they are, the directory is not marked clean, and the next start recovers them. Nothing is
lost by that: what was acknowledged is where it was promised to be before its acknowledgement. Called by `manager.py`
only.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.storage.files.clock import Clock
    from ottla.storage.formats.layout import TopicPartition
    from ottla.storage.log.log import Log

logger = logging.getLogger(__name__)

MOST_THREADS: Final = 8
LOGS_FOR_A_THREAD: Final = 16
"""With fewer, another thread would start too late to help."""
LINE_EVERY_MS: Final = 5_000
FOR_EVER_MS: Final = 1 << 62

Closed = tuple["TopicPartition", "Log", "OSError | None"]


class CloseProgress:
    """How far the closing of the logs has come. May be read, and stopped, from any thread."""

    def __init__(self, clock: Clock) -> None:
        self.logs = 0
        self.logs_done = 0
        self.is_stopped = False
        self._clock = clock
        self._began_ms = self._logged_ms = clock.monotonic_ms()
        self._timeout_ms = FOR_EVER_MS
        self._guard = threading.Lock()

    def begin(self, logs: int, timeout_ms: int) -> None:
        """So many logs are closed now, and that may take so long."""
        self.logs = logs
        self._timeout_ms = timeout_ms
        self._began_ms = self._logged_ms = self._clock.monotonic_ms()

    def log_done(self) -> None:
        """One more log is closed, and on disk."""
        line = ""
        with self._guard:
            self.logs_done += 1
            now_ms = self._clock.monotonic_ms()
            if now_ms - self._logged_ms >= LINE_EVERY_MS:
                self._logged_ms = now_ms
                line = self.words()
        if line:
            logger.info("stopping: %s", line)

    def stop(self) -> None:
        """Abandon the logs that are left, without a sync."""
        self.is_stopped = True

    @property
    def is_over(self) -> bool:
        """Whether what is left is closed as it is: by `stop`, or after the time that it may take."""
        return self.is_stopped or self._clock.monotonic_ms() - self._began_ms >= self._timeout_ms

    def words(self) -> str:
        """How far it is, for people: `1204 of 6500 logs are synced and closed, about 9 s left`."""
        done = f"{self.logs_done} of {self.logs} logs are synced and closed"
        if not self.logs_done:
            return done
        elapsed_s = (self._clock.monotonic_ms() - self._began_ms) / 1_000
        return f"{done}, about {elapsed_s * (self.logs - self.logs_done) / self.logs_done:.0f} s left"


def close_all(logs: Mapping[TopicPartition, Log], progress: CloseProgress) -> list[Closed]:
    """Close logs, each with what went wrong with it, until `progress` is over; those that are left are abandoned, and
    not among what is returned.

    Raises a bug (RuntimeError of `Log.close`) when all threads have ended.
    """
    waiting = deque(logs.items())
    closed: list[Closed] = []
    bugs: list[BaseException] = []

    def work() -> None:
        try:
            while not bugs:
                try:
                    one, log = waiting.popleft()
                except IndexError:
                    return
                if progress.is_over:
                    log.abandon()
                    continue
                try:
                    log.close()
                except OSError as error:
                    closed.append((one, log, error))
                else:
                    closed.append((one, log, None))
                progress.log_done()
        except BaseException as error:  # raised again where it is waited for
            bugs.append(error)

    threads = [_start(work) for _ in range(min(MOST_THREADS, len(waiting) // LOGS_FOR_A_THREAD))]
    work()
    for thread in threads:
        if thread is not None:
            thread.join()
    if bugs:
        raise bugs[0]
    return closed


def _start(work: Callable[[], None]) -> threading.Thread | None:
    """Another thread that closes logs; None where the system gives none: the caller's closes them all."""
    thread = threading.Thread(target=work, name="close logs", daemon=True)
    try:
        thread.start()
    except (RuntimeError, MemoryError):
        return None
    return thread
