"""Appending to a log: one call checks a turn's batches, assigns their offsets and writes them; then they are visible.

The checks for every topic are here, in the loop over the batches (docs/decisions/a-look-at-the-header.md). `append.py`
has the rules and the errors, `rewrite.py` the checks for some topics only. Nothing is staged: the places of the batches
are planned in memory (`append_plan.py`), they are written, and then published. A failed write leaves segment list,
lengths, indexes and producers unchanged. Base offset and leader epoch are written into the batches' own bytes.

Duplicates of stored batches get the results of their originals.
"""

from __future__ import annotations

import errno
import logging
import struct
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby
from typing import Final

from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.batch import (
    LENGTH_PREFIX_BYTES,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    HeaderFields,
    place_batch,
    unpack_header,
)
from ottla.protocol.records.checksum import crc32c
from ottla.storage.files.files import IOV_MAX
from ottla.storage.log.append import (
    BEGINS_AT_ZERO,
    LAST_PLAIN_CODEC,
    TAKES_ZSTD,
    Appended,
    AppendEntry,
    AppendResult,
    BatchRules,
    Refused,
    check_attributes,
    check_timestamps,
    wrong_shape,
)
from ottla.storage.log.append_plan import PlannedBatch, SegmentRun, plan_producers, plan_runs
from ottla.storage.log.log_reader import MOST_KEPT_BYTES
from ottla.storage.log.log_state import LogState
from ottla.storage.log.log_writer import MAX_WRITE_BYTES, short_write, undo_write, write_run
from ottla.storage.log.rewrite import rewrite
from ottla.storage.producers.producer_entry import (
    IN_TRANSACTION,
    MAX_SEQUENCE,
    NO_TRANSACTION,
    BatchFields,
    ProducerEntry,
)
from ottla.storage.producers.producer_state import (
    ProducerStates,
    advance_by,
    check_batch,
    due_sequence,
    find_duplicate,
)
from ottla.storage.segment.segment import Segment

logger = logging.getLogger(__name__)
joined = b"".join

_NO_PRODUCERS: Final[dict[int, ProducerEntry]] = {}
_NO_BATCHES: Final[list[BatchFields]] = []
_ALL_STORED: Final[dict[int, AppendResult]] = {}
"""The initial value of a call, which never changes it."""
_CHECKED: Final = slice(21, None)
"""The bytes of a batch that its checksum covers: from its attributes on."""


PLAIN, OPENS_FILE, BEGINS_SEGMENT = range(3)
"""The results of `LogAppend.next_append`."""


class LogAppend(LogState):
    """See the module; the attributes are those of LogState."""

    def append(self, entries: Sequence[AppendEntry], now_ms: int) -> Sequence[AppendResult]:
        """Store the batches of requests of any version; one result per entry, in order."""
        results: list[AppendResult] = []
        for takes, group in groupby(entries, _takes):
            results += self.append_batches([entry.records for entry in group], now_ms, takes)
        return results

    def append_batches(self, entries: list[memoryview], now_ms: int, takes: int = TAKES_ZSTD) -> Appended:
        """Store a turn's batches; one result each, in order. An OSError becomes KAFKA_STORAGE_ERROR in each result.

        Base offset and leader epoch are written into the batches' own bytes. A refused one does not affect the others.
        `takes`: what the requests may contain (`TAKES_ZSTD` ...). The return value is valid until the next call.
        """
        health = self._health
        if (
            health.room_bytes <= 0
            or health.is_offline
            or self.error is not None
            or self.leader_epoch > self.epochs.latest
        ):
            problem = self._begin_append()
            if problem is not None:
                if self.error is None and not health.is_offline:
                    self.producers.note_unstored(entries, now_ms)
                return Appended.not_stored([self._storage_refusal(problem) for _ in entries])
        run = self._active_run
        if run is None or run.segment is None or run.segment.size_bytes != run.size_bytes:
            run = self._run_of_active(now_ms)
        appended = self._appended
        batches, added_bytes, newest_ms, next_offset, producers = validate_and_assign(
            entries,
            appended,
            self._rules,
            self.producers,
            self.log_end_offset,
            self.leader_epoch,
            self.log_start_offset,
            now_ms,
            takes,
        )
        if batches:
            if run.add_all(batches, added_bytes, newest_ms, now_ms):
                run.producers = producers
                error = self._write_to_active(run, next_offset, now_ms)
            else:
                runs = plan_runs(run, batches, now_ms)
                if producers:
                    plan_producers(runs, self.producers, now_ms)
                error = self._write(runs, next_offset, now_ms)
            if error is not None:
                old_end = self.log_end_offset
                self.producers.note_unstored((records for records, *_ in batches), now_ms)
                appended.refused = [
                    self._storage_refusal(error) if one.base_offset >= old_end else one for one in appended
                ]
        return appended

    def next_append(self, records: memoryview, now_ms: int) -> int:
        """The work of an append of this batch in addition to the write: none (PLAIN); opening the file or allocating
        its first page (OPENS_FILE), because there was no append since the log was opened, or the file was closed to
        save descriptors; or creating the files of a new segment (BEGINS_SEGMENT). A guess, before the batch is checked.
        """
        run = self._active_run
        if run is None or run.segment is None or not run.segment.file.is_open:
            return OPENS_FILE
        if run.size_bytes + len(records) > self._limits.segment_bytes and run.size_bytes:
            return BEGINS_SEGMENT
        if now_ms <= run.roll_at_ms or not run.size_bytes:
            return PLAIN
        if self._rules.is_log_append_time:
            return BEGINS_SEGMENT
        try:
            newest_ms: int = unpack_header(records)[8]
        except struct.error:
            return PLAIN  # it will be refused
        # Old records that are written now, to a segment of such records, begin no new segment.
        return BEGINS_SEGMENT if newest_ms > run.roll_at_ms else PLAIN

    def next_segment(self) -> tuple[float, int]:
        """The time in ms from which the active segment is too old for a batch, and the bytes that it can take until
        then; -1 if there was no append since the log was opened. A guess, as `next_append`.
        """
        run = self._active_run
        return (-1, -1) if run is None else (run.roll_at_ms, self._limits.segment_bytes - run.size_bytes)

    def _run_of_active(self, now_ms: int) -> SegmentRun:
        """The plan for the active segment: that of the last call, unless it failed or something has changed since."""
        run = self._active_run
        if run is None or run.segment is None or run.segment.size_bytes != run.size_bytes:
            active = self.segment_list.active
            run = self._active_run = SegmentRun(self._limits, active.base_offset, active, now_ms)
        return run

    def _write(self, runs: Sequence[SegmentRun], next_offset: int, now_ms: int) -> OSError | None:
        """Write all runs and publish them, or restore the former state and return the error."""
        self.unsynced.is_staged = False
        created: list[int] = []
        try:
            for run in runs:
                if run.segment is None:
                    created.append(run.base_offset)
                    run.segment = self.create_segment(run.base_offset, now_ms)
                if run.buffers:
                    write_run(run.segment.file, run)
        except OSError as error:
            made = [run.segment for run in runs[1:] if run.segment is not None]
            self._take_back(error, made, created)
            return error
        try:
            self._publish(runs, next_offset)
        except MemoryError as error:
            return self._publication_failed(error)
        return None

    def _write_to_active(self, run: SegmentRun, next_offset: int, now_ms: int) -> OSError | None:
        """`_write` in the common case: one run, at the end of the active segment, by one `pwritev`.

        (A twentieth of the broker's own time for batches of 16 KB five at a time, measured.)
        """
        segment, buffers, start = run.segment, run.buffers, run.start
        written_bytes = run.size_bytes - start
        if segment is None or len(buffers) > IOV_MAX or written_bytes > MAX_WRITE_BYTES:
            return self._write([run], next_offset, now_ms)
        try:
            if segment.file.pwritev(buffers, start) != written_bytes:
                raise short_write(segment.file)
        except OSError as error:
            self._take_back(error, (), ())
            return error
        try:
            if run.producers:
                self._publish_producers(run)
            self.size_bytes += written_bytes
            health = self._health
            health.room_bytes -= written_bytes
            if self._is_synced_before_shown:
                unsynced = self.unsynced
                if unsynced.is_staged and written_bytes <= health.redo_room_bytes:
                    end = next_offset, run.base_offset, run.size_bytes
                    try:
                        health.redo_parts.append((self, segment, start, end, segment.cuts, joined(buffers)))
                        health.redo_room_bytes -= written_bytes
                    except MemoryError:  # the sync reads them from the file
                        unsynced.is_staged = False
                else:
                    unsynced.is_staged = False
            reader = self.reader
            if reader.is_awaited:
                reader.newest = None
                if written_bytes <= MOST_KEPT_BYTES:
                    with suppress(MemoryError):  # they are read from the file
                        reader.newest = segment, start, joined(buffers), self.log_end_offset, next_offset
            try:
                run.publish(segment)
            except OSError as error:
                self._derived_file_failed(error)
        except MemoryError as error:
            return self._publication_failed(error)
        self.log_end_offset = next_offset
        if not self._is_synced_before_shown:
            self.high_watermark = next_offset
            reader.high_watermark = next_offset, run.base_offset, run.size_bytes
        return None

    def _publication_failed(self, error: MemoryError) -> OSError:
        """Take no more writes until a restart: there was no memory to note all of what is in the file now.

        Its producers may be known already with batches that no offset has. Sent again, those would be acknowledged as
        repetitions, and the next append would overwrite them.
        """
        failure = OSError(errno.ENOMEM, f"no memory to note what was appended ({error!r})")
        self._active_run = None
        self.fail(failure)
        return failure

    def _take_back(self, error: OSError, made: Sequence[Segment], created: Sequence[int]) -> None:
        """Restore the segment list and the lengths from before the call, after a failed write."""
        self._active_run = None
        self.unsynced.is_staged = False
        if created:
            # Until the removal is synced, a crash may restore the name, and a start then drops all later appends.
            self.unsynced.name_changed()
        undo_error = undo_write(self.files, self.directory, self.segment_list.active, made, created)
        self._write_failed(error)
        if undo_error is not None:
            logger.error("%s: could not take back a failed write: %s", self.name, undo_error)
            self.fail(undo_error)

    def _publish_producers(self, run: SegmentRun) -> None:
        opened: list[ProducerEntry] = []
        for entry in run.producers:
            self.producers.publish(entry)
            if entry[3] is not NO_TRANSACTION and entry[3][1] >= 0:
                opened.append(entry)
        if opened:
            self.transactions.begin(opened)
        run.producers = ()

    def _publish(self, runs: Sequence[SegmentRun], next_offset: int) -> None:
        for number, run in enumerate(runs):
            segment = run.segment
            assert segment is not None
            if number:
                self.unsynced.rolled(self.segment_list.active)
                self._seal(self.segment_list.active)
                self.segment_list.append(segment)
                self.unsynced.name_changed()
                self.producer_snapshots.take(run.base_offset, self.producers)
                self._active_run = run
                if self.on_roll is not None:
                    self.on_roll()
            self._publish_producers(run)
            written_bytes = run.size_bytes - run.start
            self.size_bytes += written_bytes
            self._health.room_bytes -= written_bytes
            try:
                run.publish(segment)
            except OSError as error:
                self._derived_file_failed(error)
        self.log_end_offset = next_offset
        if not self._is_synced_before_shown:
            self.high_watermark = next_offset
            self.reader.high_watermark = next_offset, run.base_offset, run.size_bytes

    def _storage_refusal(self, error: BaseException) -> AppendResult:
        return AppendResult(
            ErrorCode.KAFKA_STORAGE_ERROR, log_start_offset=self.log_start_offset, error_message=str(error)
        )


def validate_and_assign(  # noqa: PLR0915  (one loop without calls: what it says below)
    entries: list[memoryview],
    appended: Appended,
    rules: BatchRules,
    producers: ProducerStates,
    next_offset: int,
    leader_epoch: int,
    log_start_offset: int,
    now_ms: int,
    takes: int,
) -> tuple[list[PlannedBatch], int, int, int, Sequence[ProducerEntry]]:
    """Check each entry and assign the next offsets to its batch, or refuse it.

    Returns the batches to be stored, their bytes in total, the largest timestamp, the offset after them, and the
    changed producers. (A plain tuple, since it is unpacked immediately.) `appended` is filled in as if they were
    stored.

    One function for everything: a separate call for the check of each batch, which returned its fields, cost 0.6 us
    more for a batch of 16 KB, which takes 8 us.
    """
    if not rules.bounds_from_ms <= now_ms < rules.bounds_until_ms:
        rules.set_bounds(now_ms)
    earliest_ms, latest_ms, max_batch_bytes = rules.earliest_ms, rules.latest_ms, rules.max_batch_bytes
    is_plain = rules.is_plain
    stamp_ms = now_ms if rules.is_log_append_time else -1
    batches: list[PlannedBatch] = []
    base_offsets: list[int] = []
    last_offsets: list[int] = []
    # Of the batch before: its producer, that producer's state, its batches in this call, its next sequence.
    sender = sender_epoch = due = -1
    producer: ProducerEntry | None = None
    fresh = _NO_BATCHES
    staged = _NO_PRODUCERS  # the changed states of other producers of this call
    not_stored = _ALL_STORED
    added_bytes, newest_ms = 0, -1
    for records in entries:
        try:
            try:
                fields: HeaderFields = unpack_header(records)
            except struct.error:
                raise wrong_shape(records, rules) from None
            first, length, _, magic, crc, attributes, delta, base_ms, max_ms, producer_id, epoch, sequence, count = (
                fields
            )
            size_bytes = length + LENGTH_PREFIX_BYTES
            if (
                magic != MAGIC
                or size_bytes != len(records)
                or first
                or count < 1
                or delta != count - 1
                or size_bytes > max_batch_bytes
            ):
                raise wrong_shape(records, rules)
            if crc32c(records[_CHECKED]) != crc:
                raise Refused(ErrorCode.CORRUPT_MESSAGE, "the batch's checksum does not match its bytes")
            # The common case needs no check: a known codec other than zstd, and none of the bits that are refused.
            if attributes and not 0 < attributes <= LAST_PLAIN_CODEC:
                check_attributes(attributes, takes, producer_id)
                if attributes & TRANSACTIONAL_BIT and epoch >= 0:
                    epoch += IN_TRANSACTION
            if base_ms < earliest_ms or max_ms > latest_ms or max_ms < base_ms:
                check_timestamps(base_ms, max_ms, rules, now_ms)
            if producer_id >= 0 or not is_plain:
                if producer_id >= 0 and (sequence < 0 or epoch < 0):
                    raise Refused(
                        ErrorCode.INVALID_RECORD,
                        f"sequence {sequence} and epoch {epoch} cannot be those of producer {producer_id}",
                    )
                if not is_plain and attributes != rules.as_they_are:
                    records, fields = rewrite(  # noqa: PLW2901  (another name costs time on the hot path)
                        records, BatchHeader._make(fields), rules, now_ms
                    )
                    _, length, _, _, _, _, delta, _, max_ms, _, _, _, _ = fields
                    size_bytes = length + LENGTH_PREFIX_BYTES
                if producer_id >= 0:
                    if producer_id != sender or sequence != due or epoch != sender_epoch:
                        if sender >= 0:
                            staged = staged or {}
                            staged[sender] = advance_by(producer, sender, sender_epoch, fresh, now_ms)
                            sender = -1
                        producer = staged.get(producer_id) or producers.get(producer_id)
                        if sequence != due_sequence(producer, epoch):
                            header = BatchHeader._make(fields)
                            duplicate = _duplicate(producer, header, rules, log_start_offset)
                            if duplicate is not None:
                                not_stored = not_stored or {}
                                not_stored[len(batches) + len(not_stored)] = duplicate
                                continue
                            _require_sequence(producers, producer, header, takes)
                        sender, sender_epoch, fresh = producer_id, epoch, []
                    last_sequence = (sequence + delta) & MAX_SEQUENCE
                    fresh.append((last_sequence, next_offset + delta, delta, max_ms))
                    due = (last_sequence + 1) & MAX_SEQUENCE
        except Refused as refusal:
            not_stored = not_stored or {}
            not_stored[len(batches) + len(not_stored)] = _refused(refusal, log_start_offset)
            continue
        place_batch(records, 0, next_offset, length, leader_epoch)
        last_offset = next_offset + delta
        base_offsets.append(next_offset)
        last_offsets.append(last_offset)
        batches.append((records, size_bytes, next_offset, last_offset, max_ms))
        next_offset = last_offset + 1
        added_bytes += size_bytes
        if max_ms > newest_ms:  # noqa: PLR1730  (a call for each batch costs time on the hot path)
            newest_ms = max_ms
    appended.base_offsets, appended.last_offsets = base_offsets, last_offsets
    appended.log_append_time_ms, appended.log_start_offset = stamp_ms, log_start_offset
    appended.refused = None
    if not_stored:
        appended.refused = _in_order(appended, not_stored)
    changed: Sequence[ProducerEntry] = ()
    if sender >= 0:
        newest = advance_by(producer, sender, sender_epoch, fresh, now_ms)
        changed = (*staged.values(), newest) if staged else (newest,)
    elif staged:
        changed = list(staged.values())
    return batches, added_bytes, newest_ms, next_offset, changed


def _takes(entry: AppendEntry) -> int:
    return entry.takes


def _in_order(stored: Appended, not_stored: dict[int, AppendResult]) -> list[AppendResult]:
    """One result for each entry; `not_stored` has the results of entries that are not stored, by their index."""
    rest = iter(stored)
    return [not_stored.get(number) or next(rest) for number in range(len(stored) + len(not_stored))]


def _duplicate(
    producer: ProducerEntry | None, header: BatchHeader, rules: BatchRules, log_start_offset: int
) -> AppendResult | None:
    original = find_duplicate(producer, header)
    if original is None:
        return None
    stamp_ms = original.timestamp_ms if rules.is_log_append_time else -1
    return AppendResult(
        ErrorCode.NONE, original.base_offset, original.last_offset, stamp_ms, log_start_offset, is_duplicate=True
    )


def _refused(refusal: Refused, log_start_offset: int) -> AppendResult:
    return AppendResult(
        refusal.code,
        log_start_offset=log_start_offset,
        error_message=refusal.message,
        record_errors=refusal.record_errors,
    )


def _require_sequence(
    producers: ProducerStates, producer: ProducerEntry | None, header: BatchHeader, takes: int
) -> None:
    if producer is None:
        if takes & BEGINS_AT_ZERO and header.base_sequence:
            raise Refused(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"the first sequence of producer {header.producer_id} in this partition is {header.base_sequence}, "
                "not 0",
            )
        earlier = producers.beginnings.earlier(header)
        if earlier is not None:
            raise Refused(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"sequence {header.base_sequence} of producer {header.producer_id} is after {earlier}, "
                "which was refused and has to be stored first",
            )
    refusal = check_batch(producer, header)
    if refusal is not None:
        raise Refused(refusal.error_code, refusal.message)
