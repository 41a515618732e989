"""Missing offsets of a log: below which offset the cleaner removed the records, and from which on they are lost.

The cleaner removes offsets. A power cut does so, too: at the end of a segment that was not synced yet, although the
next segment, or its producer snapshot, exists. The place distinguishes the two. A cleaning ends below the recovery
point, and writes that (`recovery-point-offset-checkpoint`) before its first swap. So

    offsets         0 .......... recovery point .......... log end
    missing ones    cleaned      lost: the log ends before them, and is what it was before they were written

If cleaned offsets were taken for a loss, all records after them would be dropped. So if it is unknown, a compacted log
may lack any offset, as in Kafka: after a clean stop, in a directory that Kafka left (it has no such order) until a
start has recovered all of it, and if a log was cleaned and its recovery point is lost.

After the recovery point, too, the batches themselves can show that the cleaner was there (`cleaned_before`): a person
who restores an old checkpoint leaves an old recovery point. Therefore a cleaned segment ends where the next one begins,
if necessary with an empty batch (`cleaner/batch_cleaning.py`), and it is on disk before it is part of the log. Gaps at
the ends of segments, from Kafka's cleaner or an older Ottla's, are below the row of `cleaner-offset-checkpoint`, unless
Kafka was killed before it wrote the row: then they cannot be distinguished from a loss.
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
"""Offsets may be missing anywhere."""


def gaps_before(
    *,
    may_be_cleaned: bool,
    clean_offset: int | None,
    recovery_point: int | None,
    keeps_order: bool,
    synced_offset: int = 0,
) -> int:
    """The offset below which the cleaner may have removed offsets; 0 if the log was never cleaned.

    Args:
        may_be_cleaned: whether the topic is compacted, or was.
        clean_offset, recovery_point: the log's rows in the two checkpoints, None without one.
        synced_offset: another offset up to which the log was on disk, if one is known: the high watermark, if records
            become visible when they are synced. One of the two rows may have lost a bit.
        keeps_order: whether the last owner of the log follows the order above, and was stopped by a crash.
    """
    if not may_be_cleaned:
        return 0
    if not keeps_order or (recovery_point is None and clean_offset is not None):
        return ANYWHERE
    return max(recovery_point or 0, clean_offset or 0, synced_offset)


def cleaned_before(segments: Iterable[tuple[int, File, int]]) -> int:
    """The offset below which the batches themselves show that the cleaner removed offsets; 0 if they show nothing. A
    cleaning begins with the first segment and skips none.

    Appends skip no offset within a file, and pages lost in a power cut do not look like batches. A flipped bit in a
    batch's offset would look like a gap before it, but then the next batch, or the next segment, does not continue from
    there. (Messages of old formats begin with another offset, and show nothing.)

    Args:
        segments: base offset, `.log` and the number of its valid bytes, in order.

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
