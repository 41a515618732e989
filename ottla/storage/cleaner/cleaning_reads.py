"""Reading the segments that a cleaning copies: an error of a read must not count as a failed write.

If a sealed segment cannot be read, or has a broken batch, its log is not cleaned (`cleaner.py`); a failed write fails
the log. NotOpened is neither and is raised unchanged: a descriptor will be free later.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.protocol.records.batch import BatchHeader, CorruptBatch
from ottla.storage.files.files import NotOpened
from ottla.storage.segment.scan import batches
from ottla.storage.segment.segment import Segment


class Unreadable(Exception):
    """A segment could not be read; the message names it and the reason, in one line."""


class reading:  # noqa: N801  # reads as a statement: with reading(segment)
    """Turns errors inside into `Unreadable`: they are from reading a segment, not from writing one."""

    __slots__ = ("_segment",)

    def __init__(self, segment: Segment) -> None:
        self._segment = segment

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, NotOpened):
            return
        if isinstance(error, (OSError, ValueError)):  # ValueError: CorruptBatch, or an index that was closed
            raise Unreadable(f"{self._segment.file.path.name}: {error}") from error


def batches_of(segment: Segment, position: int) -> Iterator[tuple[bytes, BatchHeader]]:
    """(bytes, header) of a sealed segment's batches. Raises Unreadable."""
    try:
        for _, header, batch in batches(segment.file.pread, position, segment.size_bytes):
            yield batch, header
    except CorruptBatch as error:
        raise Unreadable(f"{segment.file.path.name}: {error}") from error
    except NotOpened:
        raise
    except OSError as error:
        raise Unreadable(f"{segment.file.path.name}: {error}") from error
