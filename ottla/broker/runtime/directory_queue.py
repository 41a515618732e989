"""The state of one log directory in a syncer: the logs that wait for its next round, the running round, its volume."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.broker.runtime.quick_disk import QuickDisk
from ottla.broker.runtime.sync_callbacks import fail_all

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ottla.broker.runtime.sync_callbacks import SyncCallback
    from ottla.broker.runtime.sync_round import SyncRound
    from ottla.storage.directories.redo_log import RedoLog
    from ottla.storage.files.files import Volume
    from ottla.storage.log.log import Log


FIRST_REST_MS: Final = 500
MOST_REST_MS: Final = 10_000


class DirectoryQueue:
    """The logs of one directory that wait for the next round."""

    __slots__ = (
        "disk",
        "error",
        "file_ms",
        "is_in_memory",
        "is_planned",
        "is_redo_watched",
        "is_retry_planned",
        "is_running",
        "is_watched",
        "mark_offline",
        "overtaken",
        "path",
        "redo_log",
        "rest_ms",
        "running",
        "sync_round",
        "volume",
        "volume_again_ms",
        "waiting",
    )

    def __init__(self, path: Path) -> None:
        self.path = path
        self.waiting: dict[Log, list[SyncCallback]] = {}
        self.running: dict[Log, list[SyncCallback]] = {}
        """The logs of the round that runs, and their callbacks."""
        self.is_planned = False
        self.is_retry_planned = False
        self.is_running = False
        self.sync_round: SyncRound | None = None
        """The round that runs."""
        self.error: BaseException | None = None
        self.volume: Volume | None = None
        """The file system of the directory, where it can be synced as a whole."""
        self.redo_log: RedoLog | None = None
        """The log to which rounds of several logs may be written."""
        self.disk = QuickDisk()
        """How quick its disk is."""
        self.is_redo_watched = False
        """Whether a timer for the redo log's next checkpoint runs."""
        self.is_in_memory = False
        """Whether a sync costs nothing there (tmpfs), so that no other thread is woken for one."""
        self.mark_offline: Callable[[OSError], None] = _ignore
        self.overtaken: SyncRound | None = None
        """The round whose sync of the volume was overtaken and has not ended."""
        self.volume_again_ms = 0.0
        """No volume is synced before this time (monotonic)."""
        self.rest_ms = FIRST_REST_MS
        """How long no volume is synced, after the next sync that is overtaken."""
        self.file_ms = 0.0
        """About how long one file took in rounds whose files were shared among threads; 0: there was no such round."""
        self.is_watched = False
        """Whether a timer watches how long the sync of the volume takes."""

    def fail_waiting(self, error: BaseException) -> None:
        """Fail the logs that wait for the next round, and call back with the error: nothing is written any more."""
        waiting, self.waiting = self.waiting, {}
        fail_all(waiting, error)

    def note_shared(self, files: int, elapsed_ms: float) -> None:
        """Note the time of a round whose files were shared: a moving average, in which the newest counts a quarter."""
        file_ms = elapsed_ms / files
        self.file_ms = (3 * self.file_ms + file_ms) / 4 if self.file_ms else file_ms

    def rest(self, now_ms: float) -> None:
        """Sync no volume for a while, after one that was overtaken.

        The first rest is `FIRST_REST_MS`: what has delayed the sync, a burst of writes by another program, is written
        with it. On a disk that is busy all the time each rest is twice the one before, up to `MOST_REST_MS`.
        """
        if now_ms >= self.volume_again_ms + MOST_REST_MS:
            self.rest_ms = FIRST_REST_MS
        self.volume_again_ms = now_ms + self.rest_ms
        self.rest_ms = min(2 * self.rest_ms, MOST_REST_MS)

    def end_rest(self, now_ms: float) -> None:
        """Sync volumes again: the sync that was overtaken was not slower than the files of its round."""
        self.volume_again_ms = now_ms
        self.rest_ms = max(self.rest_ms // 2, FIRST_REST_MS)


def _ignore(error: OSError) -> None:
    """The default, for a directory that was not given to `take_directories`."""
