"""Planted bugs of share groups, which show where there are some (`share_worlds.py`)."""

from __future__ import annotations

from functools import partial
from typing import Any
from unittest import mock

from kit.simulator import planting
from kit.simulator.planting import before, no, nothing

from ottla.broker.share import in_flight, stored_state
from ottla.broker.share.coordinator import ShareCoordinator
from ottla.broker.share.deliveries import RecordState, StateBatch
from ottla.broker.share.in_flight import InFlightRecords
from ottla.broker.share.runs import NEVER_MS, add_change
from ottla.broker.share.shard import ShareStateShard
from ottla.broker.share.share_partition import SharePartition
from ottla.broker.share.stored_state import StoredState
from ottla.protocol.api.share_fetch import AcknowledgeType

bug = partial(planting.bug, shares=True)


@bug("share: acknowledged before it is durable", "answers to members do not wait for what was written of their records")
def _answered_early() -> Any:
    def replace(answer: Any) -> Any:
        def patched(self: ShareCoordinator, pending: Any, response: Any, share_partitions: Any) -> Any:
            return answer(self, pending, response, ())

        return patched

    return before(ShareCoordinator, "_answer", replace)


@bug("share: a snapshot forgets the last change", "that which its turn has come with")
def _forgetful_snapshot() -> Any:
    def change_record(key: Any, known: StoredState, change: Any, *, most_updates: int, now_ms: int) -> Any:
        """The snapshot that its turn has come for lacks what has changed."""
        if known.updates >= most_updates:
            return stored_state.snapshot_record(
                key, known._replace(snapshot_epoch=known.snapshot_epoch + 1, start_offset=change.start_offset), now_ms
            )
        return original(key, known, change, most_updates=most_updates, now_ms=now_ms)

    original = stored_state.change_record
    return mock.patch.object(stored_state, "change_record", change_record)


@bug("share: a lock never times out", "what a member has stays its own while its session lasts")
def _no_time_out() -> Any:
    return mock.patch.object(SharePartition, "_plan_time_out", nothing)


@bug("share: counts are not written", "a release says nothing of how often a record was delivered")
def _no_counts() -> Any:
    def add(changes: list[StateBatch], run: Any) -> None:
        original(changes, run)
        changes[-1] = changes[-1]._replace(delivery_count=0)

    original = add_change
    return mock.patch.object(in_flight, "add_change", add)


@bug("share: a tombstone is not written", "an administrator deletes offsets of a group, until the next start")
def _no_tombstone() -> Any:
    def replace(write: Any) -> Any:
        def patched(self: ShareStateShard, key: Any, records: Any, replies: Any = ()) -> None:
            if records[0][1] is None:
                self.replay(*records[0])
            else:
                write(self, key, records, replies)

        return patched

    return before(ShareStateShard, "_write", replace)


@bug("share: too much is pruned", "all records before the last one are removed, whatever they say")
def _prunes_all() -> Any:
    def needed_from(self: ShareStateShard, state: StoredState) -> int:
        return self.partition.log.log_end_offset - 1

    return mock.patch.object(ShareStateShard, "_needed_from", needed_from)


@bug(
    "share: states are pruned before they are synced",
    "what supersedes a removed record may be lost with the power",
    page_cache=True,
)
def _prunes_early() -> Any:
    def remove_before(self: Any, shard: ShareStateShard, offset: int) -> None:
        self._remove(shard, offset)

    return mock.patch.object(ShareCoordinator, "_remove_before", remove_before)


@bug("share: a session's end releases nothing", "what its member had waits for the locks to time out, and for no count")
def _releases_nothing() -> Any:
    def release(self: InFlightRecords, member_id: str, most_deliveries: int) -> list[StateBatch]:
        for run in self._runs:
            if run.state is RecordState.ACQUIRED and run.member_id == member_id:
                run.deadline_ms = NEVER_MS
        return []

    return mock.patch.object(InFlightRecords, "release", release)


@bug("share: two members get the same records", "what is acquired may be acquired again")
def _two_members() -> Any:
    def replace(available_in: Any) -> Any:
        def patched(self: InFlightRecords, first_offset: int, last_offset: int, most_in_flight: int) -> Any:
            for run in self._covering(first_offset, min(last_offset, self.end_offset - 1)):
                if run.state is RecordState.ACQUIRED and run.delivery_count == 2:
                    run.state = RecordState.AVAILABLE
            return available_in(self, first_offset, last_offset, most_in_flight)

        return patched

    return before(InFlightRecords, "_available_in", replace)


@bug("share: anybody acknowledges", "a record may be acknowledged that another member has")
def _no_check() -> Any:
    return mock.patch.object(InFlightRecords, "_check", nothing)


@bug("share: a release after the last delivery is one more", "the limit of deliveries is not looked at")
def _no_limit() -> Any:
    def replace(end: Any) -> Any:
        def patched(self: InFlightRecords, run: Any, state: RecordState, most_deliveries: int, **rest: Any) -> None:
            end(self, run, state, most_deliveries + 20, **rest)

        return patched

    return before(InFlightRecords, "_end", replace)


@bug("share: archived before the dead letter", "a letter is lost if the broker dies before it is written", letters=True)
def _archived_early() -> Any:
    def add(changes: list[StateBatch], run: Any) -> None:
        original(changes, run)
        if changes[-1].state is RecordState.ARCHIVING:
            changes[-1] = changes[-1]._replace(state=RecordState.ARCHIVED)

    original = add_change
    return mock.patch.object(in_flight, "add_change", add)


@bug("share: a start writes no dead letters", "records that are archiving at the end of a life stay so", letters=True)
def _letters_not_resumed() -> Any:
    return mock.patch.object(SharePartition, "resume_letters", nothing)


@bug("share: rejected records come again", "a rejection is a release")
def _rejection() -> Any:
    results = in_flight._RESULT | {AcknowledgeType.REJECT: RecordState.AVAILABLE}
    return mock.patch.object(in_flight, "_RESULT", results)


@bug(
    "share: aborted records are delivered",
    "a group of committed records gets those of aborted transactions",
    transactions=True,
)
def _aborted() -> Any:
    def aborted_batches(self: SharePartition, read_offset: int, data: Any) -> Any:
        return no

    return mock.patch.object(SharePartition, "_aborted_batches", aborted_batches)


@bug("share: what is not acquired counts as a gap", "with too many records in flight those before a gap are archived")
def _skips() -> Any:
    def replace(acquire: Any) -> Any:
        def patched(self: InFlightRecords, read_offset: int, spans: Any, wanted: Any) -> Any:
            acquired = acquire(self, read_offset, spans, wanted)
            if self.end_offset - self.start_offset >= wanted.most_in_flight:
                self._archive_unread(self.end_offset, self.end_offset)
            return acquired

        return patched

    return before(InFlightRecords, "acquire", replace)


@bug("share: an offset is shown before it is durable", "the start offset of a group goes back with the power")
def _shown_early() -> Any:
    return mock.patch.object(ShareCoordinator, "rest_on", nothing)


@bug("share: a beginning is not awaited", "a fetch that brings nothing is answered before the group has begun durably")
def _beginning() -> Any:
    return mock.patch.object(SharePartition, "begin", nothing)


@bug("share: what the log has lost is acknowledged in memory", "an acknowledgement of removed records writes nothing")
def _start_not_noted() -> Any:
    return mock.patch.object(SharePartition, "note_start", nothing)
