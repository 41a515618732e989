"""Writing a planned run to its file, and undoing a failed append. Called by `log.py` only."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ottla.storage.files.files import IOV_MAX, File, Files
from ottla.storage.formats import layout
from ottla.storage.log.append_plan import SegmentRun
from ottla.storage.segment.segment import Segment

MAX_WRITE_BYTES: Final = 1 << 30
"""The limit of one call; Linux writes at most 2 GiB - 4 KiB, and a short write would look like a full disk."""


def write_run(file: File, run: SegmentRun) -> None:
    """Write a run's buffers to their place: one `pwritev` per IOV_MAX buffers.

    Raises:
        OSError: also for a short write, as the ENOSPC that the next attempt would raise.
    """
    buffers = run.buffers
    length = run.size_bytes - run.start
    if len(buffers) <= IOV_MAX and length <= MAX_WRITE_BYTES:
        written = file.pwritev(buffers, run.start)
        if written != length:
            raise short_write(file)
        return
    position, first = run.start, 0
    while first < len(buffers):
        last, length = first, 0
        while (
            last < len(buffers)
            and last - first < IOV_MAX
            and (not length or length + len(buffers[last]) <= MAX_WRITE_BYTES)
        ):
            length += len(buffers[last])
            last += 1
        written = file.pwritev(buffers[first:last], position)
        if written != length:
            raise short_write(file)
        position, first = position + length, last


def short_write(file: File) -> OSError:
    """The error of a short write: the one that the next attempt would raise."""
    return OSError(errno.ENOSPC, "fewer bytes were written than given", str(file.path))


def undo_write(
    files: Files, directory: Path, active: Segment, made: Sequence[Segment], created: Sequence[int]
) -> OSError | None:
    """Truncate the active segment to its published length and unlink segments that the failed call created; None when
    everything is as before.

    Args:
        made: segments that were opened; `created` are the base offsets under which there may be files.
    """
    try:
        for segment in made:
            segment.abandon()
        for base_offset in created:
            for path in (
                layout.log_file(directory, base_offset),
                layout.offset_index_file(directory, base_offset),
                layout.time_index_file(directory, base_offset),
            ):
                if files.exists(path):
                    files.unlink(path)
        if files.size(active.path) != active.size_bytes:  # by name: it takes no descriptor
            active.cut(active.size_bytes)
    except OSError as error:
        return error
    return None
