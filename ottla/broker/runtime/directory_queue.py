"""What a syncer knows of one log directory: the logs that wait for its next round, the round that runs, its volume."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.broker.runtime.quick_disk import QuickDisk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ottla.broker.runtime.sync_round import SyncCallback, SyncRound
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
        "keep_appended",
        "keeps_appended",
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
        """What rounds of several logs may be written to."""
        self.disk = QuickDisk()
        """How quick its disk is."""
        self.keep_appended: Callable[[int], None] = _keep_nothing
        """Has logs keep so much of what is appended in memory, for the redo log."""
        self.keeps_appended = False
        """Whether they do, since there are mostly several logs in a round."""
        self.is_redo_watched = False
        """Whether a timer has the redo log's next checkpoint made."""
        self.is_in_memory = False
        """Whether a sync costs nothing there (tmpfs), so that no other thread is woken for one."""
        self.mark_offline: Callable[[OSError], None] = _ignore
        self.overtaken: SyncRound | None = None
        """The round whose sync of the volume was overtaken and has not ended."""
        self.volume_again_ms = 0.0
        """No volume is synced before (monotonic)."""
        self.rest_ms = FIRST_REST_MS
        """How long none is, after the next one that is overtaken."""
        self.file_ms = 0.0
        """How long a file of a round took whose files were shared out among threads, about; 0: none was."""
        self.is_watched = False
        """Whether a timer looks how long the sync of the volume takes."""

    def note_shared(self, files: int, elapsed_ms: float) -> None:
        """A round has taken so long whose files were shared out: a quarter of what is known is from the newest."""
        file_ms = elapsed_ms / files
        self.file_ms = (3 * self.file_ms + file_ms) / 4 if self.file_ms else file_ms

    def rest(self, now_ms: float) -> None:
        """Sync no volume for a while, after one that was overtaken.

        At first for `FIRST_REST_MS`: what has held it up, a burst of writes by another program, is written with it. On
        a disk that is busy all the time each rest is twice the one before, up to `MOST_REST_MS`.
        """
        if now_ms >= self.volume_again_ms + MOST_REST_MS:
            self.rest_ms = FIRST_REST_MS
        self.volume_again_ms = now_ms + self.rest_ms
        self.rest_ms = min(2 * self.rest_ms, MOST_REST_MS)

    def end_rest(self, now_ms: float) -> None:
        """Sync volumes again: the one that was overtaken was not slower than the files of its round."""
        self.volume_again_ms = now_ms
        self.rest_ms = max(self.rest_ms // 2, FIRST_REST_MS)


def _keep_nothing(room_bytes: int) -> None:
    """A directory that nobody has named."""


def _ignore(error: OSError) -> None:
    """A directory that nobody has named."""
