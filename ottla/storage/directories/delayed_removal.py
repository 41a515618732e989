"""Deleted partitions wait before they are unlinked, so that reads under way end in peace: `file.delete.delay.ms`.

A `-delete` directory is dead already: whatever is still there at the next start is removed at once. So the list here
may be lost, and the removal may stop at any point.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from ottla.storage.files.files import Files

logger = logging.getLogger(__name__)


def remove_tree(files: Files, directory: Path) -> None:
    """Unlink all that is in a directory, then the directory. What is gone already is no error. Raises OSError."""
    try:
        names = files.list_directory(directory)
    except FileNotFoundError:
        return
    for name in names:
        path = directory / name
        if files.is_directory(path):
            remove_tree(files, path)
        else:
            try:
                files.unlink(path)
            except FileNotFoundError:
                continue
    files.remove_directory(directory)


class DelayedRemovals:
    """Directories to be removed, each from a moment on. Times are monotonic milliseconds.

    Any thread may call it: what is due is removed in a worker, and more is added meanwhile.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._due: list[tuple[int, Path]] = []
        self._guard = threading.Lock()

    def __len__(self) -> int:
        return len(self._due)

    def add(self, directory: Path, due_ms: int) -> None:
        """Remove `directory` from `due_ms` on."""
        with self._guard:
            heapq.heappush(self._due, (due_ms, directory))

    def next_due_ms(self) -> int | None:
        """When `remove_due` has something to do again, None if nothing waits."""
        with self._guard:
            return self._due[0][0] if self._due else None

    def remove_due(self, now_ms: int, may_remove: Callable[[Path], bool] = lambda _: True) -> int:
        """Remove what is due; returns how many directories went. One that cannot be removed is logged and left to the
        next start, as are those that must not be: `may_remove(directory)` says so, of a disk that has failed.
        """
        removed = 0
        while True:
            with self._guard:
                if not self._due or self._due[0][0] > now_ms:
                    return removed
                _, directory = heapq.heappop(self._due)
            if not may_remove(directory):
                continue
            try:
                remove_tree(self._files, directory)
                removed += 1
            except OSError as error:
                logger.warning("cannot remove %s now, the next start will: %s", directory, error)
