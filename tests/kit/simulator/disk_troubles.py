"""The troubles of a bad disk while a broker runs: it is full for a while, has no inode left, or does not take pages."""

from __future__ import annotations

import errno
import random
from typing import TYPE_CHECKING

from kit.simulated_files import Failure, SimulatedFiles

if TYPE_CHECKING:
    from kit.simulator.redo_worlds import RedoLimits
    from kit.simulator.themes import Theme


class DiskTroubles:
    """See the module. `failure` is what ends again."""

    def __init__(self, chance: random.Random, theme: Theme, redo_limits: RedoLimits) -> None:
        self._chance = chance
        self._theme = theme
        self._redo_limits = redo_limits
        self.failure: Failure | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing fails any more, but for what a restart has to mend."""
        return self.failure is None

    def forget(self) -> None:
        """Another broker starts, and another disk it is."""
        self.failure = None

    def next(self, files: SimulatedFiles) -> bool:
        """End what there is, or begin something; whether pages may be lost now."""
        if self.failure is not None:
            files.heal(self.failure)
            self.failure = None
        elif self._chance.random() < self._theme.lost_pages:
            self._lose_pages(files)
            return True
        elif self._chance.random() < 0.25:
            self.lose_inodes(files)
        elif self._chance.random() < 0.3:
            files.fail("fdatasync", "*.log", errno.EMFILE, times=self._chance.randint(1, 6))
        else:
            room = self._chance.choice((None, self._chance.randrange(1, 3000)))
            self.failure = files.fail("pwritev", "*.log", errno.ENOSPC, times=None, after_bytes=room)
        return False

    def lose_inodes(self, files: SimulatedFiles) -> None:
        """The last inode is gone: no file can be made, those that are there grow."""
        self.failure = files.fail("open", "*.tmp", errno.ENOSPC, times=None)

    def _lose_pages(self, files: SimulatedFiles) -> None:
        """The disk does not take what is written: when it is synced, or before, or what another program has written."""
        chance = self._chance
        how = chance.choice(("sync", "before", "before", "volume", "volume", "elsewhere", "append", "redo"))
        if how == "before":
            files.fail("write_back", "*.log", errno.EIO, times=chance.randint(1, 4))
        elif how == "elsewhere":
            files.fail_elsewhere()
        elif how == "volume" and files.has_volume_sync:
            files.fail("sync_volume", error=errno.EIO)
        elif how == "append":
            files.fail("pwritev", "*.log", errno.EIO, skip=chance.randrange(3))
        elif how == "redo":
            self._redo_limits.fail(files, chance)
        else:
            files.fail("fdatasync", "*.log", errno.EIO, skip=chance.randrange(3))
