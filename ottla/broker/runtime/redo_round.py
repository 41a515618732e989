"""One sync round by the redo log: the unsynced bytes of several logs were written there, and the redo log is synced.

The round has the interface of `SyncRound` for the threads that run it, but no tickets: no log has anything else to
sync, so all of them have one result (docs/decisions/a-redo-log-for-small-rounds.md).
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from ottla.broker.runtime.sync_round import NOT_ENDED
from ottla.storage.files.files import NotOpened

if TYPE_CHECKING:
    from ottla.broker.runtime.sync_callbacks import SyncCallback
    from ottla.storage.directories.redo_log import RedoLog
    from ottla.storage.log.log import Log
    from ottla.storage.log.log_state import RedoPart

LOG = logging.getLogger("ottla.disk")


class RedoRound:
    """See the module. `run` may be called in any thread.

    Attributes:
        waits: the logs, each with the callbacks that wait for it.
        parts: what was written: one part or more of each log.
        files: the redo log's file.
        error: None when it is on the disk, NotOpened when the sync could not begin, else the failure.
        elapsed_us: how long the sync took.
        is_run_here: whether the broker's thread runs it.
        volume: None; no volume is synced.
    """

    __slots__ = ("elapsed_us", "error", "files", "has_begun", "is_run_here", "parts", "waits")
    volume = None

    def __init__(self, redo_log: RedoLog, waits: dict[Log, list[SyncCallback]], parts: list[RedoPart[Log]]) -> None:
        assert redo_log.file is not None
        self.waits = waits
        self.parts = parts
        self.files = [redo_log.file]
        self.error: OSError | None = NOT_ENDED
        self.elapsed_us = 0
        self.has_begun = False
        self.is_run_here = False

    @property
    def is_postponed(self) -> bool:
        """Whether nothing was synced because no descriptor was free: a later round serves these waits."""
        return isinstance(self.error, NotOpened)

    def run(self) -> None:
        """Sync the redo log. A second call does nothing."""
        if self.has_begun:
            return
        self.has_begun = True
        started_ns = time.perf_counter_ns()
        try:
            self.files[0].fdatasync()
            self.error = None
        except OSError as error:
            self.error = error
        except Exception as error:  # a bug, but the waiting requests must get it
            LOG.exception("bug: a sync failed")
            self.error = OSError(f"a bug: {error}")
        self.elapsed_us = (time.perf_counter_ns() - started_ns) // 1000
