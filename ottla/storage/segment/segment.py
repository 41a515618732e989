"""A segment: one `.log` with its two sparse indexes, all named by the offset of the first record that they may contain.

    00000000000000368769.log        record batches, one after the other, nothing between
    00000000000000368769.index      see offset_index.py
    00000000000000368769.timeindex  see time_index.py

`size_bytes` is the valid size of the `.log`: after a failed append there may be further bytes, which are never read.
The last segment of a log is active, the others are sealed and never change. `segment_indexes.py` has the look-ups.
Kafka's LogSegment. Look-ups may run in any thread; everything else belongs to the log's owner.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Final, Self

from ottla.storage.files.files import File, Files
from ottla.storage.formats import layout
from ottla.storage.index.index_cache import IndexCache
from ottla.storage.index.offset_index import OffsetIndex
from ottla.storage.index.sparse_index import CorruptIndex
from ottla.storage.index.time_index import NO_TIMESTAMP, TimeIndex
from ottla.storage.segment.segment_indexes import UNKNOWN, SegmentIndexes
from ottla.storage.segment.soundness import ENDLESS, SoundRanges

INDEX_ENTRIES_BEHIND: Final = 256
"""The number of index entries that may wait in memory (docs/decisions/index-files-are-written-behind.md)."""
LENGTH_UNSYNCED: Final = -1
"""Instead of the number of bytes on disk: even the file's length may not be on disk."""


class Segment(SegmentIndexes):
    """See the module. Created by `create` or `open`."""

    __slots__ = (
        "created_ms",
        "cuts",
        "is_deleted",
        "path",
        "redo_bytes",
        "sound",
        "synced_bytes",
    )

    def __init__(
        self,
        files: Files,
        path: Path,
        file: File,
        offset_index: OffsetIndex,
        time_index: TimeIndex,
        *,
        base_offset: int,
        created_ms: int,
        index_interval_bytes: int,
    ) -> None:
        super().__init__(
            files,
            file,
            offset_index,
            time_index,
            base_offset=base_offset,
            index_interval_bytes=index_interval_bytes,
        )
        self.path = path
        self.created_ms = created_ms
        self.sound = SoundRanges(0)
        """The ranges of the `.log` that readers get without a check."""
        self.synced_bytes = 0
        """The length of the file that is known to be on disk; -1 when the file on disk may also be longer."""
        self.redo_bytes = 0
        """The position up to which the bytes are on disk in the redo log, if not in the file; 0 if they never were."""
        self.cuts = 0
        """How often the file was truncated: a sync that began before does not count."""
        self.is_deleted = False

    @classmethod
    def create(
        cls,
        files: Files,
        directory: Path,
        base_offset: int,
        *,
        now_ms: int,
        index_interval_bytes: int,
        max_index_bytes: int,
        cache: IndexCache | None = None,
        suffix: str = "",
    ) -> Self:
        """Create an empty segment; files of an earlier attempt are truncated. `suffix` (`.cleaned`) is the suffix of a
        segment that is not part of its log yet. Raises OSError, with nothing left open.
        """
        path = layout.log_file(directory, base_offset, suffix)
        file = files.open(path, create=True)
        try:
            if file.size():
                file.truncate(0)
            offset_path = layout.offset_index_file(directory, base_offset, suffix)
            offsets = OffsetIndex.create(files, offset_path, base_offset, max_bytes=max_index_bytes, cache=cache)
            try:
                time_path = layout.time_index_file(directory, base_offset, suffix)
                times = TimeIndex.create(files, time_path, base_offset, max_bytes=max_index_bytes, cache=cache)
            except OSError:
                offsets.abandon()
                raise
        except OSError:
            file.close()
            raise
        segment = cls(
            files,
            path,
            file,
            offsets,
            times,
            base_offset=base_offset,
            created_ms=now_ms,
            index_interval_bytes=index_interval_bytes,
        )
        segment.first_timestamp_ms = NO_TIMESTAMP
        segment.count_free_slots()
        return segment

    @classmethod
    def open(
        cls,
        files: Files,
        directory: Path,
        base_offset: int,
        *,
        sealed: bool,
        is_unsure: bool = False,
        now_ms: int,
        index_interval_bytes: int,
        max_index_bytes: int,
        cache: IndexCache | None = None,
    ) -> tuple[Self, bool]:
        """Open the segment in existing files; returns also whether its indexes must be rebuilt and are still empty.

        The indexes of a sealed segment are loaded, and repaired, when they are first used; those of one that
        `is_unsure` by `keep_indexes` or `begin_rebuild`, which the caller calls next.
        """
        path = layout.log_file(directory, base_offset)
        file = files.open(path, writable=True)
        offset_path = layout.offset_index_file(directory, base_offset)
        time_path = layout.time_index_file(directory, base_offset)
        index_lost = False
        try:
            offsets = OffsetIndex.open(
                files,
                offset_path,
                base_offset,
                sealed=sealed,
                is_unsure=is_unsure,
                max_bytes=max_index_bytes,
                cache=cache,
            )
        except (FileNotFoundError, CorruptIndex):
            offsets = OffsetIndex.create(files, offset_path, base_offset, max_bytes=max_index_bytes, cache=cache)
            index_lost = True
        try:
            times = TimeIndex.open(
                files,
                time_path,
                base_offset,
                sealed=sealed,
                is_unsure=is_unsure,
                max_bytes=max_index_bytes,
                cache=cache,
            )
        except (FileNotFoundError, CorruptIndex):
            times = TimeIndex.create(files, time_path, base_offset, max_bytes=max_index_bytes, cache=cache)
            index_lost = True
        segment = cls(
            files,
            path,
            file,
            offsets,
            times,
            base_offset=base_offset,
            created_ms=now_ms,
            index_interval_bytes=index_interval_bytes,
        )
        segment.size_bytes = segment.synced_bytes = file.size()
        segment.sound = SoundRanges(segment.size_bytes)
        segment.largest_timestamp_ms = UNKNOWN
        return segment, index_lost

    def roll_jitter_ms(self, jitter_ms: int) -> int:
        """The part of `segment.jitter.ms` by which this segment rolls earlier: stable over starts, differs between
        logs.
        """
        return zlib.crc32(str(self.path).encode()) % jitter_ms if jitter_ms > 0 else 0

    def truncate(self, position: int, offset: int) -> None:
        """Truncate the segment, which becomes the active one: the batch at `position` begins with `offset`. Raises
        OSError.
        """
        self.cut(position)
        self.size_bytes = position
        self.sound.add(position, ENDLESS)
        for index in (self.offset_index, self.time_index):
            index.unseal()
            index.truncate_to(offset)
        self.restore_index_state()

    def cut(self, position: int) -> None:
        """Truncate the file. The new length is not on the disk before a sync. Raises OSError."""
        self.synced_bytes = LENGTH_UNSYNCED
        self.redo_bytes = 0
        self.cuts += 1
        self.file.truncate(position)

    def sync(self) -> None:
        """Sync the whole segment, including its indexes."""
        self.file.fdatasync()
        self.offset_index.sync()
        self.time_index.sync()

    def sync_changes(self) -> None:
        """As `sync`, for changes since the last sync, or since the segment was opened: only for one that was on the
        disk then.
        """
        if self.synced_bytes != self.size_bytes:
            self.file.fdatasync()
        self.offset_index.sync_changes()
        self.time_index.sync_changes()

    # -- going

    def paths(self) -> list[Path]:
        """The current paths of the segment's files."""
        return [self.file.path, self.offset_index.path, self.time_index.path]

    def abandon(self) -> None:
        """Close without a write."""
        self.offset_index.abandon()
        self.time_index.abandon()
        self.file.close()
