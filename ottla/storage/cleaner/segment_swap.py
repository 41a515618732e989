"""Replacing segments by a cleaned one, so that a crash at any point leaves either the old ones or the new one.

    1  the cleaned files are complete and synced                              *.cleaned
    2  they are renamed, and the names are synced                             *.swap: from here on the swap is final
    3  `begin`: the log reads the new segment; `retire`: old files renamed    *.deleted
    4  the names are synced                           otherwise step 5 could be on disk without step 3: overlaps
    5  `finish`: the new files get their own names
    6  the names are synced

A start (`leftovers.py`) unlinks `.cleaned` files. Before step 5 is on disk, it finishes the swap of `.swap` files: it
unlinks the files that they cover and renames them. Old files stay for `file.delete.delay.ms`, so that running reads can
finish. Kafka's LocalLog.replaceSegments, with the syncs of names that it omits.

The functions here run on the log owner's thread and never wait for a sync: the caller does the syncs in a worker.
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
    """Let `log` continue with the cleaned segment, whose files end in `.swap`; call `retire` for the old ones next."""
    log.put_in_place(old, cleaned.segment, cleaned.aborted)


def retire(log: Log, segment: Segment, cleaned: CleanedSegment, waits_from_ms: int) -> None:
    """Step 3, for one of the old segments: rename its files. Each file costs a call, so there are steps between many.

    Raises:
        OSError: some could not be renamed. The log must not write any more; the next start finishes the swap.
    """
    paths = [*segment.paths(), layout.txn_index_file(log.directory, segment.base_offset)]
    newest_offset = log.producer_snapshots.synced_offset
    if segment.base_offset != cleaned.segment.base_offset and segment.base_offset < newest_offset:
        # A snapshot that covers deleted segments stays until a newer one is on disk.
        paths.append(layout.snapshot_file(log.directory, segment.base_offset))
    renamed = [retention.rename_away(log.files, path) for path in paths if log.files.exists(path)]
    log.retention.due_unlinks.append(
        retention.DueUnlink(waits_from_ms + log.config.file_delete_delay_ms, renamed, segment)
    )


def finish(cleaned: CleanedSegment) -> None:
    """Step 5: give the files their own names, unless retention has taken the segment meanwhile. Raises OSError."""
    if not cleaned.segment.is_deleted:
        cleaned.rename("")
