"""Closing many logs at a stop: in a bounded time, with a progress line in the log from time to time.

Each log has files that are not on disk yet, and one that is renamed once they are. Where the volume can be synced as a
whole (docs/decisions/one-sync-for-many-logs.md), all logs write first, the volume is synced, all files are renamed, and
the volume is synced again: two syncs for `LOGS_OF_A_ROUND` logs. Elsewhere each log is synced alone, which takes two or
three syncs of some milliseconds on a busy disk. Several threads then share the work that the file system does for all.

A stop that exceeds its time limit is abandoned: the logs that are left are closed as they are, the directory is not
marked clean, and the next start recovers them. Nothing is lost: acknowledged records are where they were promised to be
before the acknowledgement. Called by `manager.py` only.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.storage.files.clock import Clock
    from ottla.storage.files.files import Volume
    from ottla.storage.formats.layout import TopicPartition
    from ottla.storage.log.log import Log

logger = logging.getLogger(__name__)

MOST_THREADS: Final = 8
LOGS_FOR_A_THREAD: Final = 16
"""With fewer, another thread would start too late to help."""
LINE_EVERY_MS: Final = 5_000
FOR_EVER_MS: Final = 1 << 62
VOLUME_FROM: Final = 3
"""With fewer logs, a sync of the volume would take as long as theirs."""
LOGS_OF_A_ROUND: Final = 1_000
"""Logs that two syncs of the volume close together; the time limit is checked between two rounds."""

Closed = tuple["TopicPartition", "Log", "OSError | None"]


class CloseProgress:
    """The progress of the closing of the logs. Any thread may read or stop it."""

    def __init__(self, clock: Clock) -> None:
        self.logs = 0
        self.logs_done = 0
        self.is_stopped = False
        self._clock = clock
        self._began_ms = self._logged_ms = clock.monotonic_ms()
        self._timeout_ms = FOR_EVER_MS
        self._guard = threading.Lock()

    def begin(self, logs: int, timeout_ms: int) -> None:
        """Begin to close `logs` logs, which may take `timeout_ms`."""
        self.logs = logs
        self._timeout_ms = timeout_ms
        self._began_ms = self._logged_ms = self._clock.monotonic_ms()

    def log_done(self) -> None:
        """Note that one more log is closed and on disk."""
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
        """Whether the logs that are left are closed as they are: after `stop`, or when the time has passed."""
        return self.is_stopped or self._clock.monotonic_ms() - self._began_ms >= self._timeout_ms

    def words(self) -> str:
        """The progress as text: `1204 of 6500 logs are synced and closed, about 9 s left`."""
        done = f"{self.logs_done} of {self.logs} logs are synced and closed"
        if not self.logs_done:
            return done
        elapsed_s = (self._clock.monotonic_ms() - self._began_ms) / 1_000
        return f"{done}, about {elapsed_s * (self.logs - self.logs_done) / self.logs_done:.0f} s left"


def close_logs(
    logs: Mapping[TopicPartition, Log], volume_of: Callable[[TopicPartition], Volume | None], progress: CloseProgress
) -> list[Closed]:
    """`close_all`, with the logs on a volume together. `volume_of` returns the volume of a log's directory."""
    alone = dict(logs)
    together: dict[Volume, dict[TopicPartition, Log]] = {}
    for one, log in logs.items():
        volume = volume_of(one)
        # A partition's directory may be a link to another disk.
        if volume is not None and all(segment.file.device == volume.device for segment in log.segment_list):
            together.setdefault(volume, {})[one] = log
    closed: list[Closed] = []
    for volume, its in together.items():
        if len(its) >= VOLUME_FROM:
            for one in its:
                del alone[one]
            closed += _close_by_volume(its, volume, progress)
    return closed + close_all(alone, progress)


def _close_by_volume(logs: Mapping[TopicPartition, Log], volume: Volume, progress: CloseProgress) -> list[Closed]:
    waiting = iter(logs.items())
    closed: list[Closed] = []
    while not progress.is_over:
        logs_of_round = list(islice(waiting, LOGS_OF_A_ROUND))
        if not logs_of_round:
            break
        closed += _close_round(logs_of_round, volume, progress)
    for _, log in waiting:
        log.abandon()
    return closed


def _close_round(
    logs: Sequence[tuple[TopicPartition, Log]], volume: Volume, progress: CloseProgress
) -> Iterator[Closed]:
    """Close some logs by two syncs of their volume."""
    open_logs = [(one, log, log.close_by_volume()) for one, log in logs]
    error: OSError | None = None
    while True:
        still_open = []
        for one, log, steps in open_logs:
            try:
                if error is None:
                    next(steps)
                else:
                    steps.throw(error)
            except StopIteration:
                yield one, log, None
            except OSError as failure:
                yield one, log, failure
            else:
                still_open.append((one, log, steps))
                continue
            progress.log_done()
        open_logs = still_open
        if not open_logs:
            return
        if progress.is_over:
            for _, _, steps in open_logs:
                steps.close()
            return
        error = _error_of(volume)


def _error_of(volume: Volume) -> OSError | None:
    """Sync the volume; returns its error, or None."""
    try:
        volume.sync()
    except OSError as error:
        return error
    return None


def close_all(logs: Mapping[TopicPartition, Log], progress: CloseProgress) -> list[Closed]:
    """Close logs until `progress` is over. Returns each closed log with its error, if any; the others are abandoned and
    not returned.

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
        except BaseException as error:  # raised again by the thread that waits
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
    """Start another thread that closes logs. None if the system refuses it: the caller's thread closes them all."""
    thread = threading.Thread(target=work, name="close logs", daemon=True)
    try:
        thread.start()
    except (RuntimeError, MemoryError):
        return None
    return thread
