"""The two indexes of a segment: look-ups by offset and by time, and what keeps them in step with the `.log`.

Indexes can be rebuilt from the `.log` at any time, so a damaged or missing one is repaired when it is used. Look-ups
may run in any thread; everything else belongs to the log's owner.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from contextlib import suppress
from typing import Final

from ottla.protocol.records.batch import BatchHeader, CorruptBatch
from ottla.storage.files.files import File, Files
from ottla.storage.index.offset_index import OffsetIndex
from ottla.storage.index.sparse_index import CorruptIndex
from ottla.storage.index.time_index import NO_TIMESTAMP, TimeIndex
from ottla.storage.segment.scan import SEQUENTIAL_CHUNK_BYTES, NotResident, walk

UNKNOWN: Final = -2
"""A timestamp that was not looked up yet."""
NOBODY: Final = 0
"""Instead of a thread's identifier."""


class SegmentIndexes:
    """See the module; the base of `Segment`."""

    __slots__ = (
        "_files",
        "_guard",
        "_rebuilt_by",
        "base_offset",
        "file",
        "first_timestamp_ms",
        "free_slots",
        "index_interval_bytes",
        "indexed_position",
        "largest_timestamp_ms",
        "offset_index",
        "offset_of_largest_timestamp",
        "size_bytes",
        "time_index",
    )

    def __init__(
        self,
        files: Files,
        file: File,
        offset_index: OffsetIndex,
        time_index: TimeIndex,
        *,
        base_offset: int,
        index_interval_bytes: int,
    ) -> None:
        self._files = files
        self._guard = threading.RLock()
        self._rebuilt_by = NOBODY
        """The thread that is rebuilding the indexes."""
        self.file = file
        self.offset_index = offset_index
        self.time_index = time_index
        self.base_offset = base_offset
        self.index_interval_bytes = index_interval_bytes
        self.size_bytes = 0
        self.indexed_position = 0
        """The start of the batch that was indexed last; 0 when none was."""
        self.first_timestamp_ms = UNKNOWN
        """The largest timestamp of the first batch, from which rolling by time is counted."""
        self.largest_timestamp_ms = NO_TIMESTAMP
        self.offset_of_largest_timestamp = base_offset
        self.free_slots = (0, 0)
        """The entries that the offset index and the time index of the active segment can take before it rolls."""

    # -- looking up

    def floor(self, offset: int) -> int:
        """The position from which to search for the batch that contains `offset`."""
        try:
            return self._sound(self.offset_index.lookup(offset).position)
        except CorruptIndex:
            self._rebuild_up_to_damage()
            return self.offset_index.lookup(offset).position

    def floor_by_position(self, position: int) -> int:
        """The last position at or below `position` at which a batch is known to begin."""
        try:
            positions = self.offset_index.entries().values
        except CorruptIndex:
            self._rebuild_up_to_damage()
            positions = self.offset_index.entries().values
        slot = bisect_right(positions, position) - 1
        return positions[slot] if slot >= 0 else 0

    def _rebuild_up_to_damage(self) -> None:
        """`rebuild_indexes` for a reader: batches before the damage are found, and the reader then meets the damage."""
        with suppress(CorruptBatch):
            self.rebuild_indexes(seal=self.offset_index.is_sealed)

    def require_loaded(self) -> None:
        """Raise NotResident when a look-up would first have to load the offset index."""
        if not self.offset_index.is_loaded:
            raise NotResident

    def floor_by_timestamp(self, timestamp_ms: int) -> int:
        """An offset such that all records before its batch are older than `timestamp_ms`."""
        try:
            return self.time_index.lookup(timestamp_ms).offset
        except CorruptIndex:
            self.rebuild_indexes(seal=self.offset_index.is_sealed)
            return self.time_index.lookup(timestamp_ms).offset

    def largest_timestamp(self) -> tuple[int, int]:
        """(largest timestamp in ms or -1, last offset of the first batch that has it).

        Waits while another thread rebuilds the indexes: with the timestamps until there the segment would look too old.
        """
        if self._rebuilt_by not in (NOBODY, threading.get_ident()):
            with self._guard:
                pass
        if self.largest_timestamp_ms == UNKNOWN:
            try:
                last = self.time_index.last_entry
            except CorruptIndex:
                self.rebuild_indexes(seal=self.offset_index.is_sealed)
                last = self.time_index.last_entry
            self.set_largest_timestamp(last.timestamp, last.offset)
        return self.largest_timestamp_ms, self.offset_of_largest_timestamp

    def retention_timestamp_ms(self) -> int:
        """The time from which retention counts: the largest timestamp, or without one the last write of the file."""
        largest_ms, _ = self.largest_timestamp()
        return largest_ms if largest_ms >= 0 else self._files.modified_ms(self.file.path)

    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch, -1 when there is no batch or no timestamp."""
        if self.first_timestamp_ms == UNKNOWN:
            first = next(walk(self.file.pread, 0, self.size_bytes), None)
            self.first_timestamp_ms = first[1].max_timestamp if first is not None else NO_TIMESTAMP
        return self.first_timestamp_ms

    def _sound(self, position: int) -> int:
        if position >= self.size_bytes > 0:
            raise CorruptIndex(
                f"{self.offset_index.path}: position {position} is past the log's {self.size_bytes} bytes"
            )
        return position

    # -- changing

    def set_largest_timestamp(self, timestamp_ms: int, offset: int) -> None:
        """Set the largest timestamp so far and the last offset of its batch."""
        self.largest_timestamp_ms = timestamp_ms
        self.offset_of_largest_timestamp = offset

    def index(self, header: BatchHeader, position: int) -> None:
        """Add one batch of the `.log` to the indexes, by Kafka's rule (if more than the interval follows the last
        indexed one).
        """
        if header.max_timestamp > self.largest_timestamp_ms:
            self.set_largest_timestamp(header.max_timestamp, header.last_offset)
        if position - self.indexed_position > self.index_interval_bytes and not self.offset_index.is_full:
            self.offset_index.append(header.last_offset, position)
            if not self.time_index.is_full:
                self.time_index.maybe_append(self.largest_timestamp_ms, self.offset_of_largest_timestamp)
            self.indexed_position = position

    def begin_rebuild(self) -> None:
        """Empty the indexes, to be filled by `index` for each batch."""
        self.offset_index.reset()
        self.time_index.reset()
        self.offset_index.unseal()
        self.time_index.unseal()
        self.indexed_position = 0
        self.set_largest_timestamp(NO_TIMESTAMP, self.base_offset)

    def keep_indexes(self, before_offset: int) -> tuple[int, int] | None:
        """Keep the entries for batches that end before `before_offset`, and drop all others, in the files too.

        Returns position and base offset of the last kept batch, from which `index` continues. None when there is none,
        or the entries are not of this log: they must be rebuilt.
        """
        if before_offset <= self.base_offset:
            return None
        try:
            self.offset_index.keep_before(before_offset)
            self.time_index.keep_before(before_offset)
            last, newest = self.offset_index.last_entry, self.time_index.last_entry
            if not last.position:
                return None
            _, header = next(walk(self.file.pread, last.position, self.size_bytes), (0, None))
        except (CorruptIndex, CorruptBatch):
            return None
        if header is None or header.last_offset != last.offset or newest.offset > last.offset:
            return None
        self.indexed_position = last.position
        self.set_largest_timestamp(newest.timestamp, newest.offset)
        return last.position, header.base_offset

    def rebuild_indexes(self, *, seal: bool) -> None:
        """Rebuild both indexes from the headers of the batches.

        Raises CorruptBatch. Then they end before the damage, but the largest timestamp does not become smaller: that of
        a record after the damage may be known.
        """
        with self._guard:
            self._rebuilt_by = threading.get_ident()
            known_ms, offset = self._known_timestamp()
            try:
                self.begin_rebuild()
                for position, header in walk(self.file.pread, 0, self.size_bytes, SEQUENTIAL_CHUNK_BYTES):
                    try:
                        self.index(header, position)
                    except ValueError as error:  # offsets that decrease, or are impossible in a segment with this base
                        raise CorruptBatch(str(error)) from error
            except CorruptBatch:
                if known_ms > self.largest_timestamp_ms:
                    self.set_largest_timestamp(known_ms, offset)
                raise
            finally:
                self._rebuilt_by = NOBODY
            if seal:
                self.seal()
            else:
                self.flush_indexes()

    def _known_timestamp(self) -> tuple[int, int]:
        """`largest_timestamp` without a rebuild; -1 if that would need one."""
        if self.largest_timestamp_ms != UNKNOWN:
            return self.largest_timestamp_ms, self.offset_of_largest_timestamp
        with suppress(CorruptIndex):
            last = self.time_index.last_entry
            return last.timestamp, last.offset
        return NO_TIMESTAMP, self.base_offset

    def prepare_to_append(self) -> None:
        """Read the state that the next append needs, now, while an error is harmless. Raises OSError, CorruptBatch."""
        self.first_timestamp_ms = UNKNOWN
        self.first_timestamp()
        self.count_free_slots()

    def count_free_slots(self) -> None:
        """Compute how many entries the indexes can still take; one place of the time index is reserved for the roll."""
        self.free_slots = (
            self.offset_index.max_entries - len(self.offset_index),
            self.time_index.max_entries - 1 - len(self.time_index),
        )

    def flush_indexes(self) -> None:
        """Write the entries that the index files lack. Raises OSError; the next flush then writes the rest."""
        self.time_index.flush()  # first: up to the last entry of the offset index's file it is complete
        self.offset_index.flush()

    def sync_written_indexes(self) -> int:
        """Sync the written part of the index files, during appends and in any thread; returns the offset up to which a
        start may rely on them (`keep_indexes`). Raises OSError, and ValueError when they were closed.
        """
        end_offset = self.offset_index.written_end
        self.offset_index.sync_written()
        self.time_index.sync_written()
        return end_offset

    @property
    def is_sealed(self) -> bool:
        """Whether the indexes are complete and take no more entries."""
        return self.offset_index.is_sealed and self.time_index.is_sealed

    def complete_time_index(self) -> None:
        """Add the entry with the segment's largest timestamp, at a roll and a clean stop, as Kafka does."""
        if not self.time_index.is_sealed:
            largest_ms, offset = self.largest_timestamp()
            # With a smaller `segment.index.bytes` than before, the index may be too full for this mandatory entry.
            self.time_index.max_entries = max(self.time_index.max_entries, len(self.time_index) + 1)
            try:
                self.time_index.maybe_append(largest_ms, offset, at_roll=True)
            except CorruptIndex:  # entries that were found on disk are not of this log
                self.rebuild_indexes(seal=False)
                self.time_index.maybe_append(*self.largest_timestamp(), at_roll=True)

    def seal(self) -> None:
        """Seal a segment that gets no more records: add the last time index entry, write both files. Raises OSError."""
        self.complete_time_index()
        self.offset_index.seal()
        self.time_index.seal()

    def restore_index_state(self) -> int:
        """Restore the state for appends from the indexes and the batches after their last entries; returns the offset
        after those.

        Raises:
            CorruptBatch: the `.log` does not continue in whole batches.
        """
        self._require_sound_index()
        next_offset = self.base_offset
        self.indexed_position = self.offset_index.last_entry.position
        last = self.time_index.last_entry
        self.set_largest_timestamp(last.timestamp, last.offset)
        # Up to the batch that was indexed last the time index has the largest timestamp; after it the headers do.
        for _, header in walk(self.file.pread, self.indexed_position, self.size_bytes, SEQUENTIAL_CHUNK_BYTES):
            if header.max_timestamp > self.largest_timestamp_ms:
                self.set_largest_timestamp(header.max_timestamp, header.last_offset)
            next_offset = header.next_offset
        self.prepare_to_append()
        return next_offset

    def _require_sound_index(self) -> None:
        """Rebuild the indexes unless the last entry matches the batch at its position."""
        last = self.offset_index.last_entry
        if last.position:
            try:
                at_position = next(walk(self.file.pread, last.position, self.size_bytes), None)
            except CorruptBatch:
                at_position = None
            if at_position is None or at_position[1].last_offset != last.offset:
                self.rebuild_indexes(seal=False)
        elif self.size_bytes > self.index_interval_bytes:
            self.rebuild_indexes(seal=False)  # lost entries, or a few large batches: the scan is cheap in either case
