"""Where in a log missing offsets are the cleaner's work, and from where on they are a loss.

The cleaner leaves offsets missing. A power cut does, too, at the end of a segment that was not synced yet, where the
next one, or its snapshot of producers, is there. What distinguishes them is where they lie. A cleaning ends below the
recovery point, and has it on disk (`recovery-point-offset-checkpoint`) before its first swap. So

    offsets         0 .......... recovery point .......... log end
    missing ones    cleaned      lost: the log ends before them, and is what it was before they were written

Taken for a loss, what was cleaned would take all that follows with it. So where it is unknown, a compacted log may
miss any offset, as in Kafka: after a clean stop, in a directory that Kafka left (it has no such order) until a start
has recovered all of it, and where a log was cleaned and its recovery point is lost.

And beyond the recovery point, too, batches show themselves that the cleaner was there (`cleaned_before`): who puts back
an old file leaves an old recovery point. For that a cleaned segment ends where the next one begins, if only with an
empty batch (`cleaner/batch_cleaning.py`), and it is on disk before it is part of the log. Gaps at the ends of segments,
which Kafka's cleaner leaves and ours left once, are below the row of `cleaner-offset-checkpoint`, unless Kafka was
killed before it wrote that: then they cannot be distinguished from a loss.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ottla.protocol.records.batch import MAGIC, CorruptBatch
from ottla.storage.formats.layout import MAX_OFFSET
from ottla.storage.segment.scan import SEQUENTIAL_CHUNK_BYTES, walk

if TYPE_CHECKING:
    from ottla.storage.files.files import File

ANYWHERE: Final = MAX_OFFSET
"""Offsets may be missing wherever."""


def gaps_before(
    *,
    may_be_cleaned: bool,
    clean_offset: int | None,
    recovery_point: int | None,
    keeps_order: bool,
    synced_offset: int = 0,
) -> int:
    """Below which offset missing ones are the cleaner's work; 0 where it has never been.

    Args:
        may_be_cleaned: whether the topic is compacted, or was.
        clean_offset, recovery_point: the log's rows in the two checkpoints, None without one.
        synced_offset: another offset up to which the log was on disk, if one is known, the high watermark of one whose
            records are shown when they are synced. One of the two rows may have lost a bit.
        keeps_order: whether who had the log last has kept to the order above, and was stopped by a crash.
    """
    if not may_be_cleaned:
        return 0
    if not keeps_order or (recovery_point is None and clean_offset is not None):
        return ANYWHERE
    return max(recovery_point or 0, clean_offset or 0, synced_offset)


def cleaned_before(segments: Iterable[tuple[int, File, int]]) -> int:
    """Below which offset missing ones are the cleaner's work by what the batches themselves show; 0 where they show
    nothing. A cleaning goes from the first segment on and leaves none out.

    Appends leave out no offset within a file, and what a power cut took from within it is no batch. A flipped bit in a
    batch's offset would look like a gap before it, but then the next batch, or the next segment, does not continue from
    there. (Messages of old formats have other offsets in front, and show nothing.)

    Args:
        segments: base offset, `.log` and how many bytes of it count, in order.

    Raises OSError.
    """
    shown = 0
    expected, behind_gap = -1, -1
    for base_offset, file, size_bytes in segments:
        if base_offset == expected:
            shown = max(shown, behind_gap)
        expected, behind_gap = base_offset, -1
        try:
            for _, header in walk(file.pread, 0, size_bytes, SEQUENTIAL_CHUNK_BYTES):
                if header.magic != MAGIC:
                    return shown
                if header.base_offset == expected:
                    shown = max(shown, behind_gap)
                behind_gap = header.base_offset if header.base_offset > expected else -1
                expected = header.next_offset
        except CorruptBatch:
            return shown
    return shown
