"""What a world has of the redo log: limits that are soon reached, its own faults, and the names of what it is doing.

In a life of some fifty operations nothing would ever be full or due with the limits that a broker has.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from kit.simulated_files import SimulatedFiles
from kit.simulator.sites import IN_REPLAY, IN_VOID

from ottla.broker.net import connection
from ottla.broker.runtime import disk, redo_syncs
from ottla.broker.runtime.queued_syncer import QueuedSyncer
from ottla.storage.directories import redo_log
from ottla.storage.directories.redo_log import RedoLog
from ottla.storage.files.files import File
from ottla.storage.recovery.redo import RedoContents


@dataclass(frozen=True)
class RedoLimits:
    """Those of one world, in the units of `redo_log.py`."""

    round_bytes: int
    more_bytes: int
    """The size of the file, beyond that of the largest round."""
    growth_bytes: int
    logs: int
    due_after_ms: int
    is_quick: bool
    """Whether the broker's thread waits for the redo log where a single client does."""

    @classmethod
    def of(cls, chance: random.Random) -> RedoLimits:
        """Draw some; most worlds have one that is small."""
        return cls(
            round_bytes=chance.choice((512 << 10, 512 << 10, 3000, 900)),
            more_bytes=chance.choice((16 << 20, 16 << 20, 6000, 1500)),
            growth_bytes=chance.choice((64 << 10, 4096, 1000)),
            logs=chance.choice((1000, 1000, 6, 3)),
            due_after_ms=chance.choice((10_000, 10_000, 900)),
            is_quick=chance.random() < 0.25,
        )

    @contextmanager
    def kept(self) -> Iterator[None]:
        """The broker has these, and says what it is doing."""
        file_bytes = self.round_bytes + self.more_bytes
        with ExitStack() as patches:
            for owner, name, value in (
                (redo_log, "MOST_ROUND_BYTES", self.round_bytes),
                (redo_log, "MOST_BYTES", file_bytes),
                (redo_log, "GROWTH_BYTES", self.growth_bytes),
                (redo_log, "MOST_LOGS_ALONE", self.logs),
                (disk, "MOST_LOGS", self.logs),
                (redo_syncs, "DUE_AFTER_MS", self.due_after_ms),
            ):
                patches.enter_context(mock.patch.object(owner, name, value))
            if self.is_quick:
                patches.enter_context(mock.patch.object(QueuedSyncer, "is_quick", True))
                patches.enter_context(mock.patch.object(connection, "READS_ALONE", 0))
            patches.enter_context(mock.patch.object(RedoLog, "_void", _said(RedoLog._void)))
            patches.enter_context(mock.patch.object(RedoContents, "restore", _replay_said(RedoContents.restore)))
            yield

    def fail(self, files: SimulatedFiles, chance: random.Random) -> None:
        """The disk does not take what is written to the redo log, or not all of it."""
        pattern = "*/ottla-redo.log"
        match chance.randrange(5):
            case 0:
                files.fail("fdatasync", pattern, errno.EIO, skip=chance.randrange(3))
            case 1:
                files.fail("write_back", pattern, errno.EIO, skip=chance.randrange(2))
            case 2:
                files.fail("pwritev", pattern, errno.ENOSPC, times=None, after_bytes=chance.randrange(2000))
            case 3:
                files.fail("pwritev", pattern, errno.EIO, times=2, skip=chance.randrange(2))
            case _:
                files.fail("fdatasync", pattern, errno.EMFILE, times=chance.randint(1, 3))


def _said(void: Any) -> Any:
    def patched(self: RedoLog, file: File) -> None:
        files = self._files
        assert isinstance(files, SimulatedFiles)
        with _doing(files, IN_VOID):
            void(self, file)

    return patched


def _replay_said(replay: Any) -> Any:
    def patched(self: RedoContents, files: SimulatedFiles, *more: Any) -> Any:
        with _doing(files, IN_REPLAY):
            return replay(self, files, *more)

    return patched


@contextmanager
def _doing(files: SimulatedFiles, what: str) -> Iterator[None]:
    files.doing = what
    try:
        yield
    finally:
        files.doing = ""
