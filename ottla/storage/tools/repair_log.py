"""Mending one partition's log offline: recovery from a recovery point that is lowered first, and leader epochs.

Nothing here decides what a log keeps: `recovery.open_log` does, as after a crash. Its report is for people:
which offsets are not served any more, and which of them are still in the files that were quarantined.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ottla.config.broker import BrokerConfig
from ottla.config.topic import TopicConfig
from ottla.protocol.records.batch import MAGIC, BatchHeader, CorruptBatch
from ottla.shown import counted
from ottla.storage.files.files import File, Files
from ottla.storage.formats import layout
from ottla.storage.formats.checkpoint import BrokenFile
from ottla.storage.formats.layout import TopicPartition
from ottla.storage.formats.leader_epoch_checkpoint import EpochEntry, read_leader_epochs, write_leader_epochs
from ottla.storage.log.epoch_runs import EpochRuns
from ottla.storage.producers.transactions import TransactionReplay, write_transaction_indexes
from ottla.storage.recovery.recovery import open_log
from ottla.storage.segment.damage import checksum_matches, sound_batch_behind
from ottla.storage.segment.scan import SEQUENTIAL_CHUNK_BYTES, walk, with_inner_offsets

if TYPE_CHECKING:
    from ottla.storage.tools.repair_small_files import CheckpointMending

NONE = -1
"""The epoch of a batch that was written by a broker that knew none."""
_EPOCH_AT = 12
BatchVisit = Callable[[File, int, BatchHeader], None]
MAX_RANGES_SHOWN = 5
"""Stretches of offsets in a file that was quarantined that are listed one by one."""


class LogMending(NamedTuple):
    """What to do with one log: `recovery_point` is where looking begins, `log_end_offset` what it seemed to end at."""

    path: Path
    topic_partition: TopicPartition
    recovery_point: int
    log_end_offset: int
    gaps_before: int
    snapshots: Sequence[Path]


def mend_log(files: Files, mending: LogMending, checkpoints: CheckpointMending, now_ms: int) -> list[str]:
    """Recover the log, bring it to the disk and say so in the checkpoints; what came of it. Raises OSError."""
    path, one = mending.path, mending.topic_partition
    reached = checkpoints.promised(one)
    checkpoints.lower(one, mending.recovery_point)
    for snapshot in mending.snapshots:
        if files.exists(snapshot):
            files.unlink(snapshot)
    log = open_log(
        files,
        path,
        topic=one.topic,
        partition=one.partition,
        topic_id=UUID(int=0),  # only read from `partition.metadata` by who serves the log
        config=TopicConfig.resolve({}, BrokerConfig.of({})),
        now_ms=now_ms,
        was_clean=False,
        recovery_point=mending.recovery_point,
        log_start_offset=checkpoints.log_start_offset(one),
        is_log_start_certain=True,  # the others were changed
        # A last batch that is whole but for its checksum is quarantined too, not cut as if it were torn.
        high_watermark=max(reached, mending.log_end_offset),
        reached=reached,  # no offset below is given out again (`lost_end.py`)
        gaps_before=mending.gaps_before,
    )
    report, end_offset = log.recovery, log.log_end_offset
    log.close()
    checkpoints.set_end(one, end_offset)
    lines = [f"indexes and producers rebuilt, synced; the log ends at offset {end_offset}"]
    if report.truncated_bytes:
        lines.append(f"{counted(report.truncated_bytes, 'byte')} at the end, no whole batch: cut")
    if report.gap is not None:
        first, following = report.gap
        lines.append(f"offsets {first} to {following - 1} are not in the log any more")
        lines.append(f"the next record gets offset {following}: none is given out twice")
    lines.extend(f"quarantined as {name}: {_ranges_in(files, path / name)}" for name in report.quarantined)
    return lines


def mend_leader_epochs(files: Files, path: Path, current: int | None) -> list[str]:
    """Write the checkpoint from the batches, and in the batches what contradicts the others around them.

    `current`: the partition's leader epoch in the metadata, None where that is not known. A kill can leave batches of
    it that the checkpoint does not list yet. An epoch of the checkpoint that wrote nothing yet stays. Raises OSError.
    """
    try:
        known = read_leader_epochs(files, path)
    except BrokenFile:
        known = []
    runs, end_offset, first_offset = EpochRuns(), 0, None
    for _, header in _batches(files, path):
        runs.note(header)
        end_offset = header.next_offset
        if first_offset is None and header.partition_leader_epoch >= 0:
            first_offset = header.base_offset
    listed = {entry.epoch for entry in known}
    if listed and current is not None:
        listed.add(current)
    entries = runs.entries(listed)
    if first_offset is not None:
        entries = _from_the_first_on(entries, first_offset, known)
    lines = _mend_epochs_of_batches(files, path, entries)
    if known and known[-1].epoch > (entries[-1].epoch if entries else -1) and known[-1].start_offset >= end_offset:
        entries.append(EpochEntry(known[-1].epoch, end_offset))
    write_leader_epochs(files, path, entries)
    words = "rewritten from the batches: "
    return [*lines, words + (", ".join(f"epoch {e} from offset {o}" for e, o in entries) or "none")]


def mend_transactions(files: Files, path: Path) -> list[str]:
    """Write the indexes of aborted transactions from the markers in the batches. Raises OSError."""
    found = [one for one in map(layout.parse_offset_file, files.list_directory(path)) if one is not None]
    bases = sorted(one.offset for one in found if one.suffix == layout.LOG_SUFFIX)
    indexes = [one.offset for one in found if one.suffix == layout.TXN_INDEX_SUFFIX]
    stored = {base: files.read_bytes(layout.txn_index_file(path, base)) for base in indexes if base in bases}
    replay, end_offset = TransactionReplay(), 0
    for base in bases:
        file = files.open(layout.log_file(path, base))
        end_offset = base
        try:
            for position, header in walk(file.pread, 0, file.size(), SEQUENTIAL_CHUNK_BYTES):
                replay.note(header, partial(file.pread, header.size_bytes, position))
                end_offset = header.next_offset
        finally:
            file.close()
    written = write_transaction_indexes(files, path, bases, end_offset, replay.aborted, stored)
    return [f"{one.name} is rewritten from the batches" for one in written]


def _from_the_first_on(entries: list[EpochEntry], first_offset: int, known: Sequence[EpochEntry]) -> list[EpochEntry]:
    """`entries`, and one for the batches before them, whose epoch was found to be wrong: what the checkpoint says of
    their place, or else the first one's.
    """
    if not entries or entries[0].start_offset <= first_offset:
        return entries
    reported = [one.epoch for one in known if one.start_offset <= first_offset and one.epoch < entries[0].epoch]
    if reported:
        return [EpochEntry(reported[-1], first_offset), *entries]
    return [EpochEntry(entries[0].epoch, first_offset), *entries[1:]]


def _batches(files: Files, path: Path, visit: BatchVisit | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of all batches of the log; none can be in the way, because it was recovered before. `visit` is
    called with the file, too, which is synced afterwards.
    """
    for name in files.list_directory(path):
        found = layout.parse_offset_file(name)
        if found is None or found.suffix != layout.LOG_SUFFIX:
            continue
        file = files.open(path / name, writable=visit is not None)
        try:
            for position, header in walk(file.pread, 0, file.size(), SEQUENTIAL_CHUNK_BYTES):
                if visit is not None:
                    visit(file, position, header)
                yield position, header
            if visit is not None:
                file.fdatasync()
        finally:
            file.close()


def _mend_epochs_of_batches(files: Files, path: Path, entries: Sequence[EpochEntry]) -> list[str]:
    """Batches whose epoch is not that of their place get the right one: the field is in no checksum."""
    mended: list[int] = []
    starts = [entry.start_offset for entry in entries]

    def visit(file: File, position: int, header: BatchHeader) -> None:
        slot = bisect_right(starts, header.base_offset) - 1
        if header.magic == MAGIC and slot >= 0 and header.partition_leader_epoch not in (NONE, entries[slot].epoch):
            file.pwritev([struct.pack(">i", entries[slot].epoch)], position + _EPOCH_AT)
            mended.append(header.base_offset)

    for _ in _batches(files, path, visit):
        pass
    return [f"the leader epoch of the batch at offset {offset} is rewritten" for offset in mended]


def _ranges_in(files: Files, path: Path) -> str:
    """Which offsets are in a file that was quarantined."""
    file = files.open(path)
    try:
        ranges = sound_ranges(file)
    finally:
        file.close()
    if not ranges:
        return "no sound batch in it"
    reported = ", ".join(f"{first} to {last}" for first, last in ranges[:MAX_RANGES_SHOWN])
    more = f" and {len(ranges) - MAX_RANGES_SHOWN} more stretches" if len(ranges) > MAX_RANGES_SHOWN else ""
    return f"sound batches of offsets {reported}{more} are in it"


def sound_ranges(file: File) -> list[tuple[int, int]]:
    """(first, last) offsets of what sound batches hold, one after the other where they continue without a gap."""
    ranges: list[tuple[int, int]] = []
    limit, position = file.size(), 0
    while position < limit:
        try:
            for at, outer in walk(file.pread, position, limit, SEQUENTIAL_CHUNK_BYTES):
                position = at
                if not checksum_matches(file, at, outer):
                    raise CorruptBatch("the checksum does not match")
                header = with_inner_offsets(file.pread, at, outer)
                if ranges and ranges[-1][1] + 1 == header.base_offset:
                    ranges[-1] = (ranges[-1][0], header.last_offset)
                else:
                    ranges.append((header.base_offset, header.last_offset))
                position = at + header.size_bytes
        except CorruptBatch:
            least_offset = ranges[-1][1] + 1 if ranges else _offset_in_name(file.path)
            found = sound_batch_behind(file, position, limit, least_offset=least_offset)
            position = limit if found is None else found
    return ranges


def _offset_in_name(path: Path) -> int:
    found = layout.parse_offset_file(path.name)
    return 0 if found is None else found.offset
