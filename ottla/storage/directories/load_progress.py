"""The progress of the opening of many logs: for log lines, for `/readyz`, and to stop it early.

Shared by the threads that load; any other thread may read or stop it. A recovery counts each byte twice, once when it
was checked and once when it was written again and synced, so that the estimate of the time left is realistic.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.storage.files.clock import Clock
    from ottla.storage.formats.layout import TopicPartition

logger = logging.getLogger(__name__)

LINE_EVERY_MS: Final = 5_000
KEPT_EVERY_MS: Final = 5_000
"""How often the recovery points of recovered logs are written while other logs are still being recovered."""
_GB: Final = 1_000_000_000
_MB: Final = 1_000_000


class LoadInterrupted(Exception):
    """The start was cancelled. The next one continues with the logs that were not recovered yet."""


class LoadProgress:
    """See the module. `logs_done` of `logs` are open; `done_bytes` of `all_bytes` are recovered."""

    def __init__(self, clock: Clock) -> None:
        self.logs = 0
        self.logs_done = 0
        self.all_bytes = 0
        self.done_bytes = 0
        self.is_stopped = False
        self._clock = clock
        self._began_ms = self._logged_ms = self._kept_ms = clock.monotonic_ms()
        self._of_log: dict[TopicPartition, tuple[int, int]] = {}
        self._guard = threading.Lock()

    def begin(self, logs: int, unsure_bytes: dict[TopicPartition, int]) -> None:
        """Begin to open `logs` logs; `unsure_bytes` has the bytes to be checked of each that needs recovery."""
        with self._guard:
            self.logs += logs
            self._of_log |= {one: (0, size_bytes) for one, size_bytes in unsure_bytes.items()}
            self.all_bytes += sum(unsure_bytes.values())
            self._began_ms = self._logged_ms = self._clock.monotonic_ms()
        unsure = sum(unsure_bytes.values())
        if unsure:
            size = f"{unsure / _GB:.1f} GB" if unsure * 10 >= _GB else f"{unsure / _MB:.1f} MB"
            logger.info("recovery: up to %s in %d logs may not be on disk", size, len(unsure_bytes))

    def update(self, one: TopicPartition, done_bytes: int, all_bytes: int) -> None:
        """Note the progress of one log's recovery. Raises LoadInterrupted after `stop`."""
        self.check()
        line = ""
        with self._guard:
            before_done, before_all = self._of_log.get(one, (0, 0))
            self._of_log[one] = (done_bytes, all_bytes)
            self.done_bytes += done_bytes - before_done
            self.all_bytes += all_bytes - before_all
            now_ms = self._clock.monotonic_ms()
            if now_ms - self._logged_ms >= LINE_EVERY_MS:
                self._logged_ms = now_ms
                line = self.words()
        if line:
            logger.info("recovery: %s", line)

    def is_to_be_kept(self) -> bool:
        """Whether it is time to write the recovery points of what was recovered; True once per `KEPT_EVERY_MS`."""
        with self._guard:
            now_ms = self._clock.monotonic_ms()
            is_due = now_ms - self._kept_ms >= KEPT_EVERY_MS
            if is_due:
                self._kept_ms = now_ms
            return is_due

    def log_done(self) -> None:
        """Note that one more log is open."""
        with self._guard:
            self.logs_done += 1

    def check(self) -> None:
        """Raise LoadInterrupted after `stop`."""
        if self.is_stopped:
            raise LoadInterrupted("stopped while logs were being opened")

    def stop(self) -> None:
        """Stop the loading at its next step."""
        self.is_stopped = True

    def words(self) -> str:
        """The progress as text: `37 %, 3.7 of 10.0 GB, 0.51 GB/s, about 12 s left, 3 of 8 logs are open`."""
        logs = f"{self.logs_done} of {self.logs} logs are open"
        all_bytes, done_bytes = self.all_bytes, self.done_bytes
        if not all_bytes:
            return logs
        elapsed_s = max(self._clock.monotonic_ms() - self._began_ms, 1) / 1_000
        rate = done_bytes / elapsed_s
        left = f"about {(all_bytes - done_bytes) / rate:.0f} s left" if done_bytes else "just begun"
        return (
            f"{100 * done_bytes // all_bytes} %, {done_bytes / _GB:.1f} of {all_bytes / _GB:.1f} GB,"
            f" {rate / _GB:.2f} GB/s, {left}, {logs}"
        )
