"""Planted bugs: each breaks one promise, as a plausible mistake would, and the simulator must find it.

That is the test of the simulator. A bug is a patch of the broker's own code for as long as the context lasts; nothing
in the broker knows of them. Where a bug needs a certain kind of world (a full disk, a compacted topic), many seeds
pass before it shows, and that is what the number of seeds in `scripts/simulate --bugs` tells.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from unittest import mock

from kit.simulated_files import SimulatedFiles, SimulatedVolume
from kit.simulator.planting import before, bug, no, nothing, yes

from ottla.broker.catalog import catalog
from ottla.broker.coordination import writes
from ottla.broker.coordination.replay import LogReplay
from ottla.broker.groups import reconciliation
from ottla.broker.metadata import changes, journal
from ottla.broker.metadata.journal import Journal
from ottla.broker.partitions.partition import Partition
from ottla.broker.requests import dispatch
from ottla.broker.runtime import sync_round
from ottla.broker.runtime.disk import GroupSyncer
from ottla.broker.runtime.queued_syncer import QueuedSyncer
from ottla.broker.runtime.threads import NoThread
from ottla.broker.runtime.volume_syncs import VolumeSyncs
from ottla.protocol.records.batch import BatchHeader
from ottla.storage.cleaner.cleaned_segment import CleanedSegment
from ottla.storage.cleaner.offset_map import OffsetMap
from ottla.storage.directories import directory_checkpoints, log_closing, log_directory, log_opening
from ottla.storage.directories.directory_checkpoints import DirectoryCheckpoints
from ottla.storage.directories.log_checkpoints import LogCheckpoints
from ottla.storage.files.clock_trust import ClockTrust
from ottla.storage.log import log_append, log_retention, sync
from ottla.storage.log.append import AppendResult
from ottla.storage.log.log import Log
from ottla.storage.log.log_reader import End
from ottla.storage.log.log_retention import LogRetention
from ottla.storage.producers import producer_recovery, producer_snapshots
from ottla.storage.producers.producer_entry import ProducerEntry
from ottla.storage.producers.producer_snapshots import ProducerSnapshots
from ottla.storage.recovery import recovery, recovery_scan
from ottla.storage.recovery.missing_offsets import ANYWHERE
from ottla.storage.segment import sound_reading

CURRENT_ASSIGNMENT_KEY = 8
"""The version in the key of a ConsumerGroupCurrentMemberAssignment record."""


@bug("acknowledge before sync", "acks=all is answered, and the records are shown, when they are written")
def _acknowledge_before_sync() -> Any:
    def replace(append: Any) -> Any:
        def patched(self: Log, batches: Any, now_ms: int, *more: Any) -> Any:
            appended = append(self, batches, now_ms, *more)
            active = self.segment_list.active
            self._raise_high_watermark(End(self.log_end_offset, active.base_offset, active.size_bytes))
            return appended

        return patched

    return before(Log, "append_batches", replace)


@bug("high watermark ahead of the sync", "readers see what is written before it is synced; acknowledgements wait")
@contextmanager
def _high_watermark_ahead() -> Iterator[None]:
    def read(self: Partition, offset: int, max_bytes: int, at_least_one: bool, *_: Any, **__: Any) -> Any:
        self.settle()
        end_offset = self.log.log_end_offset
        return self.log.read(offset, max_bytes, end_offset=end_offset, at_least_one=at_least_one, allow_map=False)

    with mock.patch.object(Partition, "read", read), mock.patch.object(dispatch, "learn", nothing):
        yield


@bug("no directory sync", "the name of a new segment is not synced with its records")
def _no_directory_sync() -> Any:
    return mock.patch.object(sync.UnsyncedState, "name_changed", nothing)


@bug("only the active segment is synced", "a roll inside a group sync leaves the older file's pages behind")
def _only_active_synced() -> Any:
    def replace(begin: Any) -> Any:
        def patched(*given: Any) -> sync.SyncTicket | None:
            ticket: sync.SyncTicket | None = begin(*given)
            if ticket is not None:
                ticket.files = ticket.files[-1:]
            return ticket

        return patched

    return before(sync.UnsyncedState, "begin", replace)


@bug("duplicate answered early", "a repeated batch is acknowledged though the original is not synced yet")
def _duplicate_early() -> Any:
    def replace(duplicate: Any) -> Any:
        def patched(producer: ProducerEntry | None, header: BatchHeader, *given: Any) -> AppendResult | None:
            found: AppendResult | None = duplicate(producer, header, *given)
            return found and found._replace(last_offset=-1)

        return patched

    return before(log_append, "_duplicate", replace)


@bug(
    "recovery does not write again", "what recovery found sound but unsynced is served and may be lost at the next cut"
)
def _recovery_not_synced() -> Any:
    scan = next(
        value for value in vars(recovery).values() if isinstance(value, type) and hasattr(value, "_write_again")
    )
    return mock.patch.object(scan, "_write_again", nothing)


@bug("recovery point beyond the sync", "the checkpoint vouches for what is only written, so recovery does not look")
def _recovery_point_ahead() -> Any:
    def replace(checkpoint: Any) -> Any:
        def patched(self: LogCheckpoints, name: str, offset_of: Any) -> None:
            if "recovery-point" in name:
                checkpoint(self, name, lambda _, log: log.log_end_offset)
            else:
                checkpoint(self, name, offset_of)

        return patched

    return before(LogCheckpoints, "_write_all", replace)


@bug("leader epoch kept", "an unclean start goes on in the old leader epoch")
def _leader_epoch_kept() -> Any:
    return mock.patch.object(catalog, "write_partition_changes", nothing)


@bug("snapshot of last batches only", "a producer's earlier batches in flight are forgotten at a clean stop")
def _snapshot_of_last_batches() -> Any:
    def replace(encode: Any) -> Any:
        def patched(entries: Sequence[ProducerEntry]) -> Iterator[tuple[int, bytes]]:
            pieces: Iterator[tuple[int, bytes]] = encode([entry._replace(earlier=()) for entry in entries])
            return pieces

        return patched

    return before(producer_snapshots, "encode_snapshot", replace)


@bug(
    "snapshot of a later state",
    "a producer snapshot has batches from beyond the offset in its name",
    theme="full disk",
)
def _snapshot_of_later_state() -> Any:
    def replace(take: Any) -> Any:
        def patched(self: ProducerSnapshots, offset: int, producers: Any) -> None:
            take(self, offset, producers)
            if self._waiting:
                self._waiting[-1] = offset, _AsItIsWhenEncoded(producers)  # type: ignore[assignment]  # no list: the bug

        return patched

    return before(ProducerSnapshots, "take", replace)


class _AsItIsWhenEncoded(Sequence[ProducerEntry]):
    """The producers, not a list of them."""

    def __init__(self, producers: Any) -> None:
        self._producers = producers

    def __len__(self) -> int:
        return len(self._producers)

    def __getitem__(self, index: Any) -> Any:
        return list(self._producers)[index]


@bug("producers not replayed", "after a start producers are known up to the last snapshot only")
def _producers_not_replayed() -> Any:
    return mock.patch.object(producer_recovery, "_replay", nothing)


@bug("metadata answered before sync", "topics, settings and producer ids are acknowledged when they are written")
def _metadata_before_sync() -> Any:
    class AtOnce:
        def request(self, log: Log, callback: Callable[[BaseException | None], None]) -> None:
            callback(None)

    def replace(init: Any) -> Any:
        def patched(self: changes.ChangeQueue, journal: Any, syncer: GroupSyncer) -> None:
            init(self, journal, AtOnce())

        return patched

    return before(changes.ChangeQueue, "__init__", replace)


@bug("deletions not finished", "a start does not ask which topics were deleted: what a crash left is for ever -stray")
def _deletions_not_finished() -> Any:
    return mock.patch.object(Journal, "removed_topics", return_value={})


@bug("log start not checkpointed", "DeleteRecords is answered before its checkpoint is written")
def _log_start_not_checkpointed() -> Any:
    return mock.patch.object(LogCheckpoints, "write_log_start_offsets_of", return_value=set())


@bug("checkpoint renamed before it is synced", "an atomic write renames a file whose content is not on disk")
def _rename_before_sync() -> Any:
    def write_atomically(self: SimulatedFiles, path: Any, data: bytes) -> None:
        temporary = path.with_name(path.name + ".tmp")
        file = self.open(temporary, create=True)
        file.truncate(0)
        file.pwritev([data], 0)
        file.close()
        self.rename(temporary, path)
        self.sync_directory(path.parent)

    return mock.patch.object(SimulatedFiles, "write_atomically", write_atomically)


@bug("failed sync tried again", "after a failed fdatasync the next one succeeds and is believed")
def _failed_sync_retried() -> Any:
    def replace(run: Any) -> Any:
        def patched(self: sync.SyncTicket) -> None:
            try:
                run(self)
            except OSError:
                run(self)

        return patched

    return before(sync.SyncTicket, "run", replace)


@bug(
    "synced by another descriptor",
    "a file is opened again for its sync: what the kernel lost before is not reported",
    theme="failing disk",
)
def _synced_by_another_descriptor() -> Any:
    def replace(run: Any) -> Any:
        def patched(self: sync.SyncTicket) -> None:
            for segment, _, _ in self.dirty:
                segment.file.open_again()  # type: ignore[attr-defined]  # a simulated one
            run(self)

        return patched

    return before(sync.SyncTicket, "run", replace)


@bug(
    "a volume's failed sync believed",
    "a round is acknowledged though the sync of its volume has failed",
    theme="failing disk",
)
def _volume_sync_believed() -> Any:
    def replace(run: Any) -> Any:
        def patched(self: SimulatedVolume) -> None:
            with suppress(OSError):
                run(self)

        return patched

    return before(SimulatedVolume, "sync", replace)


@bug("fdatasync after a volume's failed sync", "it succeeds, and makes the round good", theme="failing disk")
def _fdatasync_after_a_volumes_sync() -> Any:
    def replace(run: Any) -> Any:
        def patched(self: SimulatedVolume) -> None:
            try:
                run(self)
            except OSError:
                self.sync_files()

        return patched

    return before(SimulatedVolume, "sync", replace)


@bug(
    "a volume opened for each sync",
    "what the kernel lost before is not reported to a descriptor that is so new",
    theme="failing disk",
)
def _volume_opened_for_each_sync() -> Any:
    def replace(run: Any) -> Any:
        def patched(self: SimulatedVolume) -> None:
            self.open_again()
            run(self)

        return patched

    return before(SimulatedVolume, "sync", replace)


@bug(
    "an overtaken sync's error ignored",
    "a sync of the volume that was overtaken fails, and its directory is written on",
    theme="failing disk",
)
def _overtaken_error_ignored() -> Any:
    def replace(ended: Any) -> Any:
        def patched(self: VolumeSyncs, queue: Any, sync_round: Any) -> None:
            sync_round.volume_error = None
            ended(self, queue, sync_round)

        return patched

    return before(VolumeSyncs, "ended", replace)


@bug(
    "a result of parallel syncs dropped",
    "of the files that threads share, every second counts as synced",
    theme="failing disk",
)
def _parallel_result_dropped() -> Any:
    def replace(wait: Any) -> Any:
        def patched(self: sync_round._Share) -> None:
            wait(self)
            self.results[1::2] = [None] * len(self.results[1::2])

        return patched

    return before(sync_round._Share, "wait", replace)


@bug("a round without a thread counts as synced", "where the system gives no thread, those who wait are let go")
def _no_thread_no_sync() -> Any:
    def submit(self: QueuedSyncer, queue: Any, sync_round: Any) -> None:
        try:
            self._hand_over(queue, sync_round)
        except NoThread:
            sync_round.has_begun, sync_round.error = True, None
            sync_round.results = [None] * len(sync_round.waits)
            self._finish_soon(queue, sync_round)

    return mock.patch.object(GroupSyncer, "_submit", submit)


@bug("commit answered before sync", "groups answer when their records are written")
def _commit_before_sync() -> Any:
    def replace(await_visible: Any) -> Any:
        def patched(self: writes.Write, end_offset: int) -> None:
            self.settle(None)
            await_visible(self, end_offset)

        return patched

    return before(writes.Write, "await_visible", replace)


@bug("checksums not checked", "recovery takes a torn batch for a sound one when its length fits")
def _no_checksums() -> Any:
    from ottla.storage.segment import damage

    return mock.patch.object(damage, "checksum_matches", yes)


@bug("stored batches not looked at", "what the disk has lost since the last life reaches readers as it is")
def _stored_not_looked_at() -> Any:
    def everything(data: bytes, least_offset: int, *_: object) -> tuple[int, int, int, None]:
        return len(data), 1, least_offset, None

    return mock.patch.object(sound_reading, "sound_batches", everything)


@bug("failed append not taken back", "a short write on a full disk leaves its bytes in the segment")
def _failed_append_stays() -> Any:
    return mock.patch.object(log_append, "undo_write", nothing)


@bug("cleaner swaps before it syncs", "a cleaned segment takes the place of the old ones before its pages are on disk")
def _cleaner_not_synced() -> Any:
    return mock.patch.object(CleanedSegment, "sync", nothing)


@bug("cleaner takes the newest value", "the map of newest offsets is one too far: the newest value of a key goes, too")
def _cleaner_takes_newest() -> Any:
    def replace(put: Any) -> Any:
        def patched(self: OffsetMap, key: bytes, offset: int) -> bool:
            is_there: bool = put(self, key, offset + 1)
            return is_there

        return patched

    return before(OffsetMap, "put", replace)


@bug(
    "a lost end taken for a cleaned one",
    "what a power cut took from the end of a compacted segment is not missed",
    theme="compacted ends",
)
def _lost_end_not_missed() -> Any:
    def patched(self: DirectoryCheckpoints, topic_partition: object, *, is_compacted: bool, **_: bool) -> int:
        return ANYWHERE if is_compacted else 0

    return mock.patch.object(DirectoryCheckpoints, "gaps_before", patched)


@bug(
    "cleaner leaves the recovery point behind",
    "it takes records beyond it, which a start that does not look what batches show takes for lost ones",
)
@contextmanager
def _cleaner_not_covered() -> Iterator[None]:
    with (
        mock.patch.object(LogCheckpoints, "cover", nothing),
        mock.patch.object(recovery_scan, "cleaned_before", return_value=0),
    ):
        yield


@bug("clean marker without sync", "a stop in good order marks the directory clean though its logs are not synced")
def _clean_without_sync() -> Any:
    def close(self: Log) -> None:
        self.synced_offset = self.log_end_offset
        snapshot = self._begin_last_snapshot()
        if snapshot is not None:
            snapshot.run()
        self.recovery_point = self.log_end_offset
        self.abandon()

    def close_by_volume(self: Log) -> Iterator[None]:
        yield from ()
        close(self)

    return mock.patch.multiple(Log, close=close, close_by_volume=close_by_volume)


@bug(
    "clean marker without a sync of the volume",
    "a stop of many logs leaves out what is to sync all of them",
    theme="failing disk",
)
def _clean_without_volume_sync() -> Any:
    return mock.patch.object(log_closing, "_error_of", return_value=None)


@bug(
    "a volume's sync without names",
    "what a new partition holds is acknowledged before its directory is on disk",
    theme="failing disk",
)
def _volume_sync_without_names() -> Any:
    return mock.patch.object(SimulatedVolume, "sync_names", nothing)


@bug("sequence gaps accepted", "a batch is taken though the one before it is missing", theme="full disk")
def _gaps_accepted() -> Any:
    return mock.patch.object(log_append, "_require_sequence", nothing)


@bug("producer repeats accepted", "a repeated batch is stored again")
def _repeats_accepted() -> Any:
    return mock.patch.multiple(log_append, _require_sequence=nothing, find_duplicate=nothing)


@bug("deleted offsets come back", "a load takes no notice of the tombstones of committed offsets")
def _offsets_come_back() -> Any:
    def replace(note: Any) -> Any:
        def patched(self: LogReplay, key: bytes, value: bytes | None, producer_id: int) -> None:
            if value is not None:
                note(self, key, value, producer_id)

        return patched

    return before(LogReplay, "_note_newest", replace)


@bug("owners forgotten", "a load takes no notice of what members of the consumer protocol were given")
def _owners_forgotten() -> Any:
    def replace(replay: Any) -> Any:
        def patched(self: LogReplay, key: bytes, *value: Any) -> None:
            if int.from_bytes(key[:2]) != CURRENT_ASSIGNMENT_KEY:
                replay(self, key, *value)

        return patched

    return before(LogReplay, "_replay_record", replace)


@bug("revocation not awaited", "a partition is given on before its owner has said that it gave it up")
def _revocation_not_awaited() -> Any:
    return mock.patch.object(reconciliation, "_still_owns", no)


@bug(
    "segments go before what stays is on disk", "retention waits for neither the names nor the producers of what stays"
)
@contextmanager
def _segments_before_what_stays() -> Iterator[None]:
    def at_once(log: Log, offset: int) -> Generator[Callable[[], None], None, int]:
        yield from ()
        return offset

    def not_waited_for(retention: LogRetention) -> Generator[Callable[[], None], None, None]:
        yield from ()

    with (
        mock.patch.object(log_retention, "keep_producers", at_once),
        mock.patch.object(LogRetention, "_names_synced", not_waited_for),
    ):
        yield


@bug("retention believes the clock", "what is old by a wall clock that jumped for seconds is deleted")
def _clock_believed() -> Any:
    return mock.patch.object(ClockTrust, "deletion_ms", lambda self: self._clock.wall_ms())


@bug("a start believes the clock", "a jump that was under way at a stop is forgotten by the next start")
def _clock_believed_by_a_start() -> Any:
    return mock.patch.object(ClockTrust, "begin", nothing)


@bug("retention takes one too many", "the segment that retention.bytes and retention.ms keep goes, too")
def _one_too_many() -> Any:
    def replace(deletable: Any) -> Any:
        def patched(segments: Sequence[Any], *given: Any, **more: Any) -> int:
            count: int = deletable(segments, *given, **more)
            return min(count + 1, len(segments) - 1) if 0 < count < len(segments) else count

        return patched

    return before(log_retention, "deletable", replace)


@bug("a start needs an inode", "with none left the start is refused, and nobody can delete topics to make room")
def _start_needs_an_inode() -> Any:
    return mock.patch.object(journal, "is_full", no)


@bug("a lost end not missed", "after a clean stop a log that became shorter gives its last offsets out again")
def _lost_end_of_a_stop_not_missed() -> Any:
    def replace(open_log: Any) -> Any:
        def patched(*given: Any, **more: Any) -> Log:
            if more["was_clean"]:
                more |= {"recovery_point": 0, "high_watermark": 0}
            log: Log = open_log(*given, **more)
            return log

        return patched

    return before(log_opening, "open_log", replace)


@bug(
    "a bent log start believed",
    "a flipped bit in the file of log starts hides records, or shows deleted ones again",
    theme="retention",
)
@contextmanager
def _bent_log_start_believed() -> Iterator[None]:
    with (
        mock.patch.object(directory_checkpoints, "bent_row", return_value=None),
        mock.patch.object(log_directory, "refuse_wrong_log_starts", nothing),
        mock.patch.object(recovery, "_require_sense", nothing),
    ):
        yield
