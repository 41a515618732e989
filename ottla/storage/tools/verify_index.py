"""Compares the entries of a segment's two indexes with its batches, which are processed one after the other.

An entry of the offset index must point to the beginning of a batch, and have the last offset of that batch or of one
that follows before the next entry (Kafka before 4.0 makes one entry for several batches that a follower appends
together). For a message of format v0 or v1 it may have any offset inside: Kafka before 0.11 used the first one. An
entry of the time index must have the largest timestamp up to the batch that contains its offset, which is the first one
with it (of several messages v0 or v1 that are appended together and have one time, Kafka may use the last).

Only the first findings of an index are reported one by one: it is rebuilt as a whole, and one lost batch may shift all.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from ottla.protocol.records.batch import MAGIC, BatchHeader
from ottla.storage.files.files import Files
from ottla.storage.index.index_reading import OFFSET_ENTRY, TIME_ENTRY, read_index
from ottla.storage.index.time_index import NO_TIMESTAMP

MAX_REPORTED: Final = 5
"""The findings of one index that are reported one by one."""


class IndexProblem(NamedTuple):
    """A problem of an index file, and the position of the wrong bytes."""

    path: Path
    position: int | None
    problem: str


class _IndexCheck:
    def __init__(self, path: Path, entry_bytes: int, problem: str) -> None:
        self.path = path
        self._entry_bytes = entry_bytes
        self._problems: list[IndexProblem] = []
        self._more = 0
        if problem:
            self._problems.append(IndexProblem(path, None, problem))

    def problems(self) -> Iterator[IndexProblem]:
        """All problems; to be called after `end`."""
        yield from self._problems
        if self._more:
            yield IndexProblem(self.path, None, f"{self._more} more entries are wrong")

    def _wrong(self, number: int, problem: str) -> None:
        if len(self._problems) < MAX_REPORTED:
            self._problems.append(IndexProblem(self.path, number * self._entry_bytes, f"entry {number} {problem}"))
        else:
            self._more += 1


class OffsetIndexCheck(_IndexCheck):
    """The check of an offset index: call `batch` for each batch in order, `hole` where none can be read, then `end`."""

    def __init__(self, files: Files, path: Path, base_offset: int) -> None:
        stored = read_index(files, path, OFFSET_ENTRY)
        super().__init__(path, OFFSET_ENTRY.size, stored.problem)
        self._rows = stored.rows if not stored.problem else ()
        self._base_offset = base_offset
        self._next = 0
        self._open: int | None = None

    def batch(self, position: int, header: BatchHeader) -> None:
        """Process the next batch."""
        self._skip_to(position)
        if self._next < len(self._rows) and self._rows[self._next][1] == position:
            self._close()
            self._open = self._next
            self._next += 1
        if self._open is not None:
            offset = self._base_offset + self._rows[self._open][0]
            is_old = header.magic < MAGIC
            if header.last_offset == offset or (is_old and header.base_offset <= offset <= header.last_offset):
                self._open = None
            elif header.last_offset > offset:
                self._close()

    def hole(self, end: int) -> None:
        """Skip bytes up to `end` that cannot be read: entries that point there cannot be checked."""
        self._open = None
        while self._next < len(self._rows) and self._rows[self._next][1] < end:
            self._next += 1

    def end(self, size_bytes: int) -> None:
        """Process the end of the segment."""
        self._close()
        while self._next < len(self._rows):
            self._wrong(self._next, f"points to byte {self._rows[self._next][1]}, the .log ends at {size_bytes}")
            self._next += 1

    def _skip_to(self, position: int) -> None:
        while self._next < len(self._rows) and self._rows[self._next][1] < position:
            self._wrong(self._next, f"points to byte {self._rows[self._next][1]}, where no batch begins")
            self._next += 1

    def _close(self) -> None:
        if self._open is not None:
            relative, position = self._rows[self._open]
            offset = self._base_offset + relative
            self._wrong(self._open, f"names offset {offset}, with which no batch from byte {position} on ends")
            self._open = None


class TimeIndexCheck(_IndexCheck):
    """The check of a time index; called like `OffsetIndexCheck`. After a hole timestamps cannot be checked."""

    def __init__(self, files: Files, path: Path, base_offset: int) -> None:
        stored = read_index(files, path, TIME_ENTRY)
        super().__init__(path, TIME_ENTRY.size, stored.problem)
        self._rows = stored.rows if not stored.problem else ()
        self._base_offset = base_offset
        self._next = 0
        self._largest_timestamp = -1
        self._is_blind = False

    def batch(self, header: BatchHeader) -> None:
        """Process the next batch."""
        before, self._largest_timestamp = self._largest_timestamp, max(self._largest_timestamp, header.max_timestamp)
        while self._next < len(self._rows):
            timestamp, relative = self._rows[self._next]
            offset = self._base_offset + relative
            if offset > header.last_offset:
                return
            self._possible(timestamp, relative)
            if timestamp != self._largest_timestamp and not self._is_blind:
                self._wrong(
                    self._next,
                    f"says that {timestamp} is the largest timestamp up to offset {offset}, "
                    f"the batches say {self._largest_timestamp}",
                )
            elif header.base_offset <= offset and timestamp <= before and header.magic == MAGIC and not self._is_blind:
                words = f"says that {timestamp} was first reached at offset {offset}, a batch before that has it"
                self._wrong(self._next, words)
            self._next += 1

    def hole(self) -> None:
        """Note unreadable bytes, which may have had the largest timestamp."""
        self._is_blind = True

    def end(self, next_offset: int) -> None:
        """Process the end of the segment, before `next_offset`."""
        while self._next < len(self._rows):
            # An entry may also have the base offset of a segment without records: Kafka writes one at a roll.
            timestamp, relative = self._rows[self._next]
            self._possible(timestamp, relative)
            if self._base_offset + relative >= next_offset and timestamp >= 0 and not self._is_blind:
                offset = self._base_offset + relative
                self._wrong(self._next, f"names offset {offset}, the segment ends before {next_offset}")
            self._next += 1

    def _possible(self, timestamp: int, relative: int) -> None:
        if relative < 0 or timestamp < NO_TIMESTAMP:
            self._wrong(self._next, f"no entry: timestamp {timestamp}, relative offset {relative}")
