"""What a syncer knows of one log directory: the logs that wait for its next round, the round that runs, its volume."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ottla.broker.runtime.sync_round import SyncCallback, SyncRound
    from ottla.storage.files.files import Volume
    from ottla.storage.log.log import Log


class DirectoryQueue:
    """The logs of one directory that wait for the next round."""

    __slots__ = (
        "error",
        "is_planned",
        "is_retry_planned",
        "is_running",
        "is_watched",
        "mark_offline",
        "overtaken",
        "path",
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
        self.mark_offline: Callable[[OSError], None] = _ignore
        self.overtaken: SyncRound | None = None
        """The round whose sync of the volume was overtaken and has not ended."""
        self.volume_again_ms = 0.0
        """No volume is synced before (monotonic)."""
        self.is_watched = False
        """Whether a timer looks how long the sync of the volume takes."""


def _ignore(error: OSError) -> None:
    """A directory that nobody has named."""
