"""Deleted partitions wait before they are unlinked, so that reads under way can end: `file.delete.delay.ms`.

A `-delete` directory has no use any more: the next start removes those that are left immediately. So the list here may
be lost, and the removal may stop at any point.

The directory itself is removed last. While it exists, it shows that checkpoint rows of its partition may be of the
deleted topic. So it stays until these rows are gone from the disk:

    files of the partition unlinked  ->  its rows dropped  ->  the `-delete` directory removed
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

from ottla.storage.files.files import Files
from ottla.storage.formats.layout import TopicPartition

logger = logging.getLogger(__name__)

ForgetRows = Callable[[Path, Collection[TopicPartition]], None]
"""Durably drops the checkpoint rows of deleted partitions of a log directory. Raises OSError."""


def empty_tree(files: Files, directory: Path) -> None:
    """Unlink everything in a directory, but nothing behind a link in it. A file that is already gone is no error.
    Raises OSError.
    """
    try:
        names = files.list_directory(directory)
    except FileNotFoundError:
        return
    for name in names:
        path = directory / name
        try:
            files.unlink(path)  # before it is known what it is: a link to a directory looks like one
        except FileNotFoundError:
            continue
        except (IsADirectoryError, PermissionError):  # Linux, macOS
            if not files.is_directory(path):
                raise
            remove_tree(files, path)


def remove_tree(files: Files, directory: Path) -> None:
    """Unlink everything in a directory, then the directory, or the link to it. A file that is already gone is no error.
    Raises OSError.
    """
    empty_tree(files, directory)
    try:
        files.remove_directory(directory)
    except FileNotFoundError:
        return


class _Removal(NamedTuple):
    """A directory to be removed, and the partition that it was of."""

    due_ms: int
    directory: Path
    partition: TopicPartition


class DelayedRemovals:
    """Directories to be removed, each after its own due time. Times are monotonic milliseconds.

    Any thread may call it: a worker removes the directories that are due while others are added.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._due: list[_Removal] = []
        self._guard = threading.Lock()

    def __len__(self) -> int:
        return len(self._due)

    def add(self, directory: Path, due_ms: int, partition: TopicPartition) -> None:
        """Remove `directory`, in which `partition` was, from `due_ms` on."""
        with self._guard:
            heapq.heappush(self._due, _Removal(due_ms, directory, partition))

    def next_due_ms(self) -> int | None:
        """The time at which `remove_due` has work again, None if no directory waits."""
        with self._guard:
            return self._due[0].due_ms if self._due else None

    def remove_due(self, now_ms: int, forget_rows: ForgetRows, may_remove: Callable[[Path], bool]) -> int:
        """Remove the directories that are due; returns how many were removed. One that cannot be removed is logged and
        left to the next start. So is one that `may_remove(directory)` forbids because its disk has failed.
        """
        emptied: dict[Path, list[_Removal]] = {}
        while (one := self._pop_due(now_ms)) is not None:
            if not may_remove(one.directory):
                continue
            try:
                empty_tree(self._files, one.directory)
                emptied.setdefault(one.directory.parent, []).append(one)
            except OSError as error:
                _report(one.directory, error)
        return sum(self._remove_emptied(root, removals, forget_rows) for root, removals in emptied.items())

    def _pop_due(self, now_ms: int) -> _Removal | None:
        with self._guard:
            return heapq.heappop(self._due) if self._due and self._due[0].due_ms <= now_ms else None

    def _remove_emptied(self, root: Path, removals: list[_Removal], forget_rows: ForgetRows) -> int:
        removed = 0
        path = root
        try:
            forget_rows(root, {one.partition for one in removals})
            for one in removals:
                path = one.directory
                remove_tree(self._files, path)
                removed += 1
        except OSError as error:
            _report(path, error)
        return removed


def _report(directory: Path, error: OSError) -> None:
    logger.warning("cannot remove %s now, the next start will: %s", directory, error)
