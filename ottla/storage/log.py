"""One partition's log: segments in order of their base offsets, appended to at the end and read anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.storage.append import AppendEntry, AppendResult
from ottla.storage.slice import LogSlice
from ottla.storage.sync import SyncTicket

if TYPE_CHECKING:
    from ottla.config.topic import TopicConfig
    from ottla.storage.producer_state import ProducerStates
    from ottla.storage.recovery import RecoveryReport
    from ottla.storage.segment import Segment


class Log:
    """Made by `recovery.open_log`. One owner (thread); only `SyncTicket.run` and `LogSlice.read_blocking` may run elsewhere."""

    topic: str
    partition: int
    topic_id: UUID
    directory: str
    config: TopicConfig
    log_start_offset: int
    log_end_offset: int
    synced_offset: int
    recovery_point: int
    high_watermark: int
    """`ottla.acks.all=sync`: the synced offset; `page-cache`: the log end. Never goes back (decisions.md 2)."""
    leader_epoch: int
    size_bytes: int
    segments: list[Segment]
    producers: ProducerStates
    recovery: RecoveryReport
    error: BaseException | None
    """Why the log no longer writes, or None."""

    def append(self, entries: Sequence[AppendEntry], now_ms: int) -> list[AppendResult]:
        """Store a turn's batches; one result per entry, in order. Never raises OSError: see AppendResult."""
        raise NotImplementedError

    def append_internal(self, batch: bytes | bytearray, now_ms: int) -> AppendResult:
        """Store one batch of the broker's own (metadata log: control batches allowed; its base offset must be the log end)."""
        raise NotImplementedError

    def read(
        self, offset: int, max_bytes: int, *, end_offset: int, at_least_one: bool = True, allow_map: bool = True
    ) -> LogSlice:
        """Whole batches from the one that contains `offset`, at most `max_bytes`, below `end_offset`."""
        raise NotImplementedError

    def offset_for_timestamp(self, timestamp_ms: int, *, end_offset: int) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record with that stamp or a later one."""
        raise NotImplementedError

    def offset_of_max_timestamp(self, *, end_offset: int) -> tuple[int, int, int] | None:
        """(offset, timestamp, leader epoch) of the first record with the largest stamp."""
        raise NotImplementedError

    def begin_sync(self) -> SyncTicket | None:
        """What a sync now has to cover, or None when all is on disk already."""
        raise NotImplementedError

    def end_sync(self, ticket: SyncTicket) -> None:
        """Publish a ticket that ran: synced offset, recovery point, high watermark."""
        raise NotImplementedError

    def fail(self, error: BaseException) -> None:
        """A sync or a write failed for good: refuse appends and syncs from now on, tell the directory."""
        raise NotImplementedError

    def start_leader_epoch(self, epoch: int) -> None:
        """Lead from the log end with `epoch`: noted in `leader-epoch-checkpoint` before it returns."""
        raise NotImplementedError

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) as OffsetForLeaderEpoch answers; (-1, -1) when unknown."""
        raise NotImplementedError

    def epoch_for_offset(self, offset: int) -> int:
        """Leader epoch under which `offset` was written, -1 when unknown."""
        raise NotImplementedError

    def delete_records(self, before_offset: int) -> int:
        """Move the log start (never past the high watermark); the new log start offset."""
        raise NotImplementedError

    def apply_retention(self, now_ms: int) -> list[Segment]:
        """Delete whole segments by time, size and log start; those that were renamed to `.deleted`."""
        raise NotImplementedError

    def unlink_due(self, now_ms: int) -> int:
        """Unlink segments whose `file.delete.delay.ms` has passed; how many."""
        raise NotImplementedError

    def roll(self, now_ms: int) -> None:
        """Start a new segment at the log end (nothing when the active one is empty)."""
        raise NotImplementedError

    def truncate_to(self, offset: int) -> None:
        """Drop everything from the batch that contains `offset` on."""
        raise NotImplementedError

    def close(self) -> None:
        """Flush and sync everything, write the producer snapshot, close the files; raises OSError."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Close the files and write nothing: for a directory that is offline, and for deletion."""
        raise NotImplementedError
