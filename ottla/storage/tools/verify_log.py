"""Verifies one partition, segment by segment and batch by batch: the part of `verify.py` that reads the logs.

Damage does not end the scan: after bytes that are no batch it continues at the next place where a batch with a right
checksum and a later offset begins, so that one finding names the position of the damage and the bytes that are lost. A
batch with a wrong checksum, but a length that leads to the next batch, is a separate finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path
from typing import Final

from ottla.protocol.records.batch import HEADER_BYTES, BatchHeader, CorruptBatch
from ottla.protocol.records.formats import parse_any_header
from ottla.storage.files.files import File, Files
from ottla.storage.formats import layout
from ottla.storage.producers.producer_entry import ProducerEntry
from ottla.storage.producers.snapshot_format import CorruptSnapshot, parse_snapshot
from ottla.storage.recovery.lost_end import is_gap
from ottla.storage.recovery.missing_offsets import cleaned_before
from ottla.storage.segment.damage import checksum_matches, sound_batch_behind
from ottla.storage.segment.scan import SEQUENTIAL_CHUNK_BYTES, walk, with_inner_offsets
from ottla.storage.tools.verify_epochs import EpochCheck
from ottla.storage.tools.verify_findings import Counts, Finding, Progress, Promises, Severity, obstacles
from ottla.storage.tools.verify_index import OffsetIndexCheck, TimeIndexCheck
from ottla.storage.tools.verify_transactions import TransactionCheck

PROGRESS_BYTES: Final = 1024 * 1024
"""Progress is reported after at least this many bytes."""
_METADATA_SNAPSHOT_SUFFIX: Final = ".checkpoint"
_QUARANTINED: Final = ".log.corrupt-"


class PartitionVerification:
    """See the module. After `run`, `log_end_offset` is the end of the log that was found."""

    def __init__(self, files: Files, directory: Path, promises: Promises, counts: Counts, progress: Progress) -> None:
        self.log_end_offset = 0
        self._files = files
        self._directory = directory
        self._promises = promises
        self._counts = counts
        self._progress = progress
        self._names = files.list_directory(directory)
        parsed = [found for found in map(layout.parse_offset_file, self._names) if found is not None]
        self._bases = sorted(found.offset for found in parsed if found.suffix == layout.LOG_SUFFIX)
        self._producers = _Producers(
            files,
            directory,
            promises,
            sorted(found.offset for found in parsed if found.suffix == layout.SNAPSHOT_SUFFIX),
        )
        self._epochs = EpochCheck(files, directory, promises)
        indexes = [found.offset for found in parsed if found.suffix == layout.TXN_INDEX_SUFFIX]
        self._transactions = TransactionCheck(files, directory, promises, self._bases, indexes)
        self._gaps = 0
        self._has_quarantined = any(_QUARANTINED in name for name in self._names)
        self.first_offset = self._bases[0] if self._bases else 0
        self.has_gaps = False

    def run(self) -> Iterator[Finding]:
        """Every finding. Raises OSError."""
        yield from obstacles(self._files, self._directory)
        if not self._bases:
            yield Finding(Severity.NOTE, self._directory, "no segment (no .log file)")
        self.log_end_offset = self._bases[0] if self._bases else 0
        for slot, base_offset in enumerate(self._bases):
            self._counts.segments += 1
            following = self._bases[slot + 1] if slot + 1 < len(self._bases) else None
            yield from self._settled(base_offset, following)
        if self._gaps > 1:
            yield Finding(Severity.NOTE, self._directory, f"{self._gaps} gaps between offsets in all")
        yield from self._epochs.end(self.log_end_offset)
        yield from self._producers.end(self.log_end_offset)
        yield from self._transactions.end(self.log_end_offset)
        yield from self._other_files()

    # --- segments ----------------------------------------------------------------------------------------------------

    def _settled(self, base_offset: int, following: int | None) -> Iterator[Finding]:
        """The findings in a segment, unless a running broker replaces it meanwhile: then they have no meaning."""
        path = layout.log_file(self._directory, base_offset)
        try:
            size_bytes = self._files.size(path)
            found = list(self._segment(base_offset, following))
            is_settled = not found or following is None or self._files.size(path) == size_bytes
            if found and following is not None:
                self._files.size(layout.log_file(self._directory, following))
        except FileNotFoundError:
            is_settled = False
        if is_settled:
            yield from found
        else:
            words = "a running broker has replaced it meanwhile: not checked"
            yield Finding(Severity.NOTE, path, words, offset=base_offset)

    def _segment(self, base_offset: int, following: int | None) -> Iterator[Finding]:
        path = layout.log_file(self._directory, base_offset)
        offsets = OffsetIndexCheck(self._files, layout.offset_index_file(self._directory, base_offset), base_offset)
        times = TimeIndexCheck(self._files, layout.time_index_file(self._directory, base_offset), base_offset)
        file = self._files.open(path)
        try:
            limit = file.size()
            self._counts.size_bytes += limit
            if base_offset != self.log_end_offset and base_offset > self._bases[0]:
                yield from self._boundary(path, base_offset)
            self.log_end_offset = max(self.log_end_offset, base_offset)
            yield from self._batches(file, path, limit, following, offsets, times)
        finally:
            file.close()
        times.end(self.log_end_offset)
        severity = self._promises.severity_at((following or self.log_end_offset) - 1)
        if following is None and not self._promises.was_clean:
            severity = Severity.UNSURE  # the active segment's entries are written before they are synced
        for problem in (*offsets.problems(), *times.problems()):
            words = f"{problem.problem} (the broker rebuilds the index)"
            yield Finding(severity, problem.path, words, problem.position)

    def _boundary(self, path: Path, base_offset: int) -> Iterator[Finding]:
        if base_offset < self.log_end_offset:
            problem = f"the segment begins at {base_offset}, the one before reaches to {self.log_end_offset}"
            yield Finding(Severity.DAMAGE, path, problem, 0, base_offset)
        else:
            yield from self._gap(path, 0, base_offset)

    def _batches(  # the only scan, which feeds all other checks
        self,
        file: File,
        path: Path,
        limit: int,
        following: int | None,
        offsets: OffsetIndexCheck,
        times: TimeIndexCheck,
    ) -> Iterator[Finding]:
        position = described = 0
        while position < limit:
            try:
                for at, outer in walk(file.pread, position, limit, SEQUENTIAL_CHUNK_BYTES):
                    is_sound = checksum_matches(file, at, outer)
                    header = with_inner_offsets(file.pread, at, outer) if is_sound else outer
                    if not is_sound:
                        yield from self._wrong_checksum(file, path, at, header, limit)
                        times.hole()
                        self._transactions.hole()
                    self._counts.batches += 1
                    yield from self._order(path, at, header, following)
                    if not self._has_quarantined and is_gap(header):  # otherwise the note of those files reports it
                        words = (
                            f"offsets {header.base_offset} to {header.last_offset} are gone: a start or a repair found"
                            " the log shorter than it had been, and continued after them"
                        )
                        yield Finding(Severity.NOTE, path, words, at, header.base_offset)
                    offsets.batch(at, header)
                    if is_sound:
                        times.batch(header)
                        yield from self._epochs.batch(header)
                        yield from self._producers.batch(header)
                        self._transactions.batch(header, partial(file.pread, header.size_bytes, at))
                    self.log_end_offset = max(self.log_end_offset, header.next_offset)
                    position = at + header.size_bytes
                    if position - described >= PROGRESS_BYTES:
                        self._progress(position - described)
                        described = position
            except CorruptBatch as error:
                self._transactions.hole()
                resumed = sound_batch_behind(file, position, limit, least_offset=self.log_end_offset)
                yield self._no_batch(path, position, limit, resumed, following, str(error))
                if resumed is None:
                    offsets.hole(limit)
                    times.hole()
                    position = limit
                else:
                    offsets.hole(resumed)
                    times.hole()
                    position = resumed
        offsets.end(limit)
        self._progress(limit - described)

    def _wrong_checksum(
        self, file: File, path: Path, position: int, header: BatchHeader, limit: int
    ) -> Iterator[Finding]:
        """One finding; or CorruptBatch when the header is wrong, too: its length does not lead to a batch."""
        end = position + header.size_bytes
        problem = "the checksum does not match"
        is_believable = header.base_offset >= self.log_end_offset
        if end < limit:
            try:
                following = parse_any_header(file.pread(min(HEADER_BYTES, limit - end), end))
                is_believable = is_believable and following.base_offset > header.last_offset
            except CorruptBatch:
                is_believable = False
        if not is_believable:
            raise CorruptBatch(problem)
        lost = f"offsets {header.base_offset} to {header.last_offset} cannot be read"
        severity = self._promises.severity_at(header.last_offset)
        yield Finding(severity, path, f"{problem}: {lost}", position, header.base_offset)

    def _no_batch(
        self, path: Path, position: int, limit: int, resumed: int | None, following: int | None, reason: str
    ) -> Finding:
        reason = reason.removeprefix(f"at position {position}: ")
        offset = self.log_end_offset
        severity = self._promises.severity_at(offset)
        if resumed is not None:
            words = f"{resumed - position} bytes are no batch ({reason}); the next sound one is at position {resumed}"
            return Finding(severity, path, words, position, offset)
        words = f"the last {limit - position} bytes are no batch ({reason})"
        if following is not None:
            words += f"; the next segment begins at offset {following}"
        elif severity is Severity.UNSURE:
            words += "; the next start truncates them"
        return Finding(severity, path, words, position, offset)

    def _order(self, path: Path, position: int, header: BatchHeader, following: int | None) -> Iterator[Finding]:
        expected = self.log_end_offset
        severity = self._promises.severity_at(header.last_offset)
        if header.base_offset < expected:
            problem = f"the batch begins at offset {header.base_offset}, {expected} or more was expected"
            yield Finding(severity, path, problem, position, header.base_offset)
        elif header.base_offset > expected:
            yield from self._gap(path, position, header.base_offset)
        if following is not None and header.last_offset >= following:
            problem = f"the batch ends at offset {header.last_offset}, the next segment begins at {following}"
            yield Finding(severity, path, problem, position, header.base_offset)
        if header.record_count > header.last_offset_delta + 1:
            problem = f"{header.record_count} records in a batch of {header.last_offset_delta + 1} offsets"
            yield Finding(severity, path, problem, position, header.base_offset)

    def _gap(self, path: Path, position: int, base_offset: int) -> Iterator[Finding]:
        """The finding for offsets that no batch has: compaction removes offsets; otherwise they were lost. Only the
        first of many is reported.
        """
        self.has_gaps = True
        promises = self._promises
        if promises.allows_gaps and (base_offset <= promises.gaps_before or base_offset <= self._cleaned_before):
            return
        self._gaps += 1
        if promises.allows_gaps:
            words = f"offsets {self.log_end_offset} to {base_offset - 1} are missing, beyond all that was cleaned"
            yield Finding(promises.severity_at(base_offset), path, words, position, self.log_end_offset)
        elif promises.allows_gaps is False:
            words = f"offsets {self.log_end_offset} to {base_offset - 1} are missing, and the topic is not compacted"
            yield Finding(promises.severity_at(base_offset), path, words, position, self.log_end_offset)
        elif self._gaps == 1:
            words = f"offsets {self.log_end_offset} to {base_offset - 1} are missing: compacted away, or lost"
            yield Finding(Severity.NOTE, path, words, position, self.log_end_offset)

    @cached_property
    def _cleaned_before(self) -> int:
        """The offset that a start finds, too, by the batches. 0 if a running broker replaces the segments meanwhile."""
        with ExitStack() as opened:
            try:
                files = [self._files.open(layout.log_file(self._directory, base)) for base in self._bases]
                for file in files:
                    opened.callback(file.close)
                return cleaned_before((base, file, file.size()) for base, file in zip(self._bases, files, strict=True))
            except FileNotFoundError:
                return 0

    # --- other files -------------------------------------------------------------------------------------------------

    def _other_files(self) -> Iterator[Finding]:
        hidden = {path for path, _ in self._files.obstacles(self._directory)}
        for name in self._names:
            path = self._directory / name
            found = layout.parse_offset_file(name)
            if _QUARANTINED in name:
                yield Finding(
                    Severity.NOTE, path, "quarantined by an earlier start or repair: damaged or unsynced batches"
                )
            elif name.endswith(_METADATA_SNAPSHOT_SUFFIX):
                yield from self._metadata_snapshot(path)
            elif (
                found is not None
                and found.suffix in (layout.INDEX_SUFFIX, layout.TIME_INDEX_SUFFIX)
                and found.offset not in self._bases
                and layout.log_file(self._directory, found.offset) not in hidden
            ):
                # An interrupted deletion leaves it: the `.log` is renamed first.
                severity = Severity.DAMAGE if self._promises.was_clean else Severity.UNSURE
                words = "an index without its .log: the next start removes it"
                yield Finding(severity, path, words, offset=found.offset)

    def _metadata_snapshot(self, path: Path) -> Iterator[Finding]:
        file = self._files.open(path)
        try:
            for position, header in walk(file.pread, 0, file.size(), SEQUENTIAL_CHUNK_BYTES):
                self._counts.batches += 1
                if not checksum_matches(file, position, header):
                    problem = "the checksum does not match"
                    yield Finding(Severity.DAMAGE, path, problem, position, header.base_offset)
        except CorruptBatch as error:
            yield Finding(Severity.DAMAGE, path, str(error))
        finally:
            file.close()


class _Producers:
    """The check of `.snapshot` files against the producers' batches.

    A snapshot may have producers whose batches retention has deleted, and may lack idle ones. But if the log still has
    the offset of a producer's last batch in the snapshot, that must be the producer's last batch there.
    """

    def __init__(self, files: Files, directory: Path, promises: Promises, offsets: list[int]) -> None:
        self._files = files
        self._directory = directory
        self._promises = promises
        self._offsets = offsets
        self._first_offset: int | None = None
        self._last: dict[int, tuple[int, int]] = {}

    def batch(self, header: BatchHeader) -> Iterator[Finding]:
        """Process the next valid batch."""
        if self._first_offset is None:
            self._first_offset = header.base_offset
        while self._offsets and self._offsets[0] <= header.base_offset:
            yield from self._compare(self._offsets.pop(0))
        if header.producer_id >= 0 and not header.is_control:
            self._last[header.producer_id] = (header.last_offset, header.last_sequence)

    def end(self, log_end_offset: int) -> Iterator[Finding]:
        """Process the end of the log: the remaining snapshots are at its end, or after it."""
        for offset in self._offsets:
            if offset > log_end_offset:
                path = layout.snapshot_file(self._directory, offset)
                problem = f"it speaks of offsets up to {offset}, the log ends at {log_end_offset}"
                yield Finding(self._promises.severity_at(offset - 1), path, problem, offset=offset)
            yield from self._compare(offset)

    def _compare(self, offset: int) -> Iterator[Finding]:
        path = layout.snapshot_file(self._directory, offset)
        severity = self._promises.severity_at(offset - 1)
        try:
            producers = parse_snapshot(self._files.read_bytes(path))
        except FileNotFoundError:
            return  # a running broker has replaced it meanwhile
        except CorruptSnapshot as error:
            yield Finding(severity, path, f"{error} (the broker takes an older one)", offset=offset)
            return
        for producer in producers:
            problem = self._contradiction(producer, offset)
            if problem is not None:
                yield Finding(severity, path, f"producer {producer.producer_id} {problem}", offset=offset)

    def _contradiction(self, producer: ProducerEntry, offset: int) -> str | None:
        if not producer.batches or self._first_offset is None or producer.batches[-1].last_offset < self._first_offset:
            return None
        last_offset, last_sequence = producer.batches[-1].last_offset, producer.last_sequence
        if last_offset >= offset:
            return f"is said to have written offset {last_offset}, beyond the snapshot's own {offset}"
        found = self._last.get(producer.producer_id)
        if self._promises.allows_gaps is not False and (found is None or found[0] < last_offset):
            return None  # the batch was compacted away; its producer has written later ones
        if found != (last_offset, last_sequence):
            says = "has none of its batches" if found is None else f"says offset {found[0]}, sequence {found[1]}"
            return f"is said to have ended with offset {last_offset}, sequence {last_sequence}; the log {says}"
        return None
