"""Planted bugs that show where there are two log directories (`directory_worlds.py`)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from kit.simulator import planting
from kit.simulator.directory_worlds import OTHER
from kit.simulator.planting import before

from ottla.storage.recovery.redo import RedoContents

bug = partial(planting.bug, directories=True)


@bug("one redo log is replayed", "a start gives the logs of the first directory only what its redo log holds")
def _one_is_replayed() -> Any:
    def replace(restore: Any) -> Any:
        def patched(self: RedoContents, files: Any, directory: Path, *more: Any) -> int:
            written: int = 0 if directory.is_relative_to(OTHER) else restore(self, files, directory, *more)
            return written

        return patched

    return before(RedoContents, "restore", replace)
