"""Putting a cleaned segment in the place of others, so that a crash at any point leaves the one or the other.

    1  the cleaned files are complete and synced                              *.cleaned
    2  they are renamed, and the names are synced                             *.swap: from here on the swap holds
    3  `begin`: the log reads the new segment; `retire`: the old files go     *.deleted
    4  the names are synced                           else the next step could outlive this one, and segments overlap
    5  `finish`: the new files get their own names
    6  the names are synced

A start (`leftovers.py`) unlinks `.cleaned` files, and before step 5 is on disk finishes what `.swap` files began: it
unlinks what they cover and renames them. Old files stay readable for `file.delete.delay.ms` for who reads them now.
Kafka's LocalLog.replaceSegments, with the syncs of names that it leaves out.

The functions here run on the log owner's thread and never wait for a sync: those are for the caller, in a worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.storage.cleaner.cleaned_segment import CleanedSegment
from ottla.storage.formats import layout
from ottla.storage.log import retention
from ottla.storage.segment.segment import Segment

if TYPE_CHECKING:
    from ottla.storage.log.log import Log


def begin(log: Log, old: Sequence[Segment], cleaned: CleanedSegment) -> None:
    """Let `log` continue with the cleaned segment, whose files end in `.swap`; the old ones are to be retired."""
    log.put_in_place(old, cleaned.segment, cleaned.aborted)


def retire(log: Log, segment: Segment, cleaned: CleanedSegment, waits_from_ms: int) -> None:
    """Step 3, for one of the old segments: rename its files. Each file costs a call, so there are steps between many.

    Raises:
        OSError: some could not be renamed. The log must not write any more; the next start finishes the swap.
    """
    paths = [*segment.paths(), layout.txn_index_file(log.directory, segment.base_offset)]
    newest_offset = log.producer_snapshots.synced_offset
    if segment.base_offset != cleaned.segment.base_offset and segment.base_offset < newest_offset:
        # One that stands for segments that are gone stays until there is a newer one on disk.
        paths.append(layout.snapshot_file(log.directory, segment.base_offset))
    renamed = [retention.rename_away(log.files, path) for path in paths if log.files.exists(path)]
    log.retention.due_unlinks.append(
        retention.DueUnlink(waits_from_ms + log.config.file_delete_delay_ms, renamed, segment)
    )


def finish(cleaned: CleanedSegment) -> None:
    """Step 5: give the files their own names, unless retention has taken the segment meanwhile. Raises OSError."""
    if not cleaned.segment.is_deleted:
        cleaned.rename("")
