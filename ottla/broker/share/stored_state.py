"""What `__share_group_state` says of one share partition: replayed from its records, and written as its next record.

Pure. A ShareSnapshot has all of it, a ShareUpdate what has changed; after some updates the next record is a snapshot
(`share.coordinator.snapshot.update.records.per.snapshot`), so that a load need not read far, and what is before the
oldest snapshot can be removed. Source: Kafka's `ShareCoordinatorShard` and `PersisterStateBatchCombiner`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from uuid import UUID

from ottla.broker.share.deliveries import RecordState, StateBatch
from ottla.protocol.stored.share_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from ottla.storage.formats.kafka_uuid import uuid_from_text, uuid_to_text

if TYPE_CHECKING:
    from ottla.broker.coordination.effects import CoordinatorRecord

B = TypeVar("B")

_DURABLE = {int(state): state for state in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVING, RecordState.ARCHIVED)}
"""The states that a load takes over, by their numbers."""
UNCHANGED = -1
"""A ShareUpdate's start offset where it stays, and a snapshot's where it is not known yet."""


class SharePartitionKey(NamedTuple):
    """A share partition: a group, and a partition that it reads."""

    group_id: str
    topic_id: UUID
    partition: int

    @property
    def text(self) -> str:
        """By its hash a share partition is found in `__share_group_state`, as in Kafka (`SharePartitionKey`)."""
        return f"{self.group_id}:{uuid_to_text(self.topic_id)}:{self.partition}"


def is_share_partition(text: str) -> bool:
    """Whether a text names a share partition: `group:topic id:partition`, as FindCoordinator has it; a group's id may
    have colons.
    """
    rest, _, partition = text.rpartition(":")
    group_id, _, topic_id = rest.rpartition(":")
    try:
        uuid_from_text(topic_id)
    except ValueError:
        return False
    return bool(group_id) and partition.isascii() and partition.isdigit()


class StoredState(NamedTuple):
    """The state as its records say. `start_offset` is -1 in a state that Kafka has made and no member has read yet.

    `updates` counts those since the snapshot; `snapshot_offset`: the snapshot is not before it in the log.
    """

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    create_ms: int
    batches: tuple[StateBatch, ...] = ()
    updates: int = 0
    snapshot_offset: int = 0


class Change(NamedTuple):
    """What is to be written: the present start offset and complete records, and the batches that have changed."""

    start_offset: int
    complete_count: int
    batches: Sequence[StateBatch]
    leader_epoch: int


def replayed_snapshot(known: StoredState | None, value: ShareSnapshotValue, offset: int) -> StoredState:
    """The state after a snapshot, which is in the log at `offset` or after it."""
    if known is not None and value.snapshot_epoch < known.snapshot_epoch:
        return known
    return StoredState(
        value.snapshot_epoch,
        value.state_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        value.create_timestamp,
        _combined((), _batches(value.state_batches), value.start_offset),
        0,
        offset,
    )


def replayed_update(known: StoredState, value: ShareUpdateValue) -> StoredState:
    """The state after an update."""
    if value.snapshot_epoch < known.snapshot_epoch:
        return known
    start_offset = known.start_offset if value.start_offset == UNCHANGED else value.start_offset
    return known._replace(
        leader_epoch=max(known.leader_epoch, value.leader_epoch),
        start_offset=start_offset,
        complete_count=value.delivery_complete_count,
        batches=_combined(known.batches, _batches(value.state_batches), start_offset),
        updates=known.updates + 1,
    )


def change_record(
    key: SharePartitionKey, known: StoredState, change: Change, *, most_updates: int, now_ms: int
) -> CoordinatorRecord:
    """The record of a change: an update, or the snapshot that its turn has come for."""
    if known.updates >= most_updates:
        changed = known._replace(
            snapshot_epoch=known.snapshot_epoch + 1,
            leader_epoch=max(known.leader_epoch, change.leader_epoch),
            start_offset=change.start_offset,
            complete_count=change.complete_count,
            batches=_combined(known.batches, change.batches, change.start_offset),
        )
        return snapshot_record(key, changed, now_ms)
    batches = [batch for batch in change.batches if batch.last_offset >= change.start_offset]
    return (
        ShareUpdateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition),
        ShareUpdateValue(
            snapshot_epoch=known.snapshot_epoch,
            leader_epoch=change.leader_epoch,
            start_offset=change.start_offset,
            delivery_complete_count=change.complete_count,
            state_batches=[_struct(ShareUpdateValue.StateBatch, batch) for batch in batches],
        ),
    )


def change_records(
    key: SharePartitionKey, known: StoredState, change: Change, *, most_updates: int, most_batches: int, now_ms: int
) -> list[CoordinatorRecord]:
    """The records of a change, none of which has more than `most_batches`.

    Mostly it is one, as of `change_record`. A state that is too large for a snapshot is written by updates alone, until
    it is smaller: a snapshot in parts would leave only one of them where a crash takes the others. A change that is too
    large is several updates, of which the last has the start offset.
    """
    is_large = len(change.batches) > most_batches
    if not is_large and known.updates >= most_updates:
        is_large = len(_combined(known.batches, change.batches, change.start_offset)) > most_batches
    if not is_large:
        return [change_record(key, known, change, most_updates=most_updates, now_ms=now_ms)]
    batches = list(change.batches)
    parts = [batches[first : first + most_batches] for first in range(0, len(batches), most_batches)] or [batches]
    unchanged = Change(UNCHANGED, known.complete_count, (), change.leader_epoch)
    changes = [unchanged._replace(batches=part) for part in parts[:-1]] + [change._replace(batches=parts[-1])]
    return [change_record(key, known, one, most_updates=known.updates + len(changes), now_ms=now_ms) for one in changes]


def snapshot_record(key: SharePartitionKey, state: StoredState, now_ms: int) -> CoordinatorRecord:
    """The record that has all of the state."""
    return (
        ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition),
        ShareSnapshotValue(
            snapshot_epoch=state.snapshot_epoch,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.complete_count,
            create_timestamp=state.create_ms,
            write_timestamp=now_ms,
            state_batches=[_struct(ShareSnapshotValue.StateBatch, batch) for batch in state.batches],
        ),
    )


def tombstone(key: SharePartitionKey) -> CoordinatorRecord:
    """The record that forgets a state."""
    return ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition), None


def _struct(make: Callable[..., B], batch: StateBatch) -> B:
    return make(
        first_offset=batch.first_offset,
        last_offset=batch.last_offset,
        delivery_state=batch.state,
        delivery_count=batch.delivery_count,
    )


def _batches(stored: Iterable[ShareSnapshotValue.StateBatch | ShareUpdateValue.StateBatch]) -> list[StateBatch]:
    """As they are stored. Of a state that this version does not know the records are delivered again."""
    known, available = _DURABLE, RecordState.AVAILABLE
    return [
        StateBatch(one.first_offset, one.last_offset, known.get(one.delivery_state, available), one.delivery_count)
        for one in stored
        if 0 <= one.first_offset <= one.last_offset
    ]


def _combined(before: Sequence[StateBatch], changes: Sequence[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """The batches after some have changed, in order, without what is before the start offset. `before` is in order."""
    batches = before
    first = 0
    for index in range(1, len(changes) + 1):
        if index == len(changes) or changes[index].first_offset <= changes[index - 1].last_offset:
            batches = _overlaid(batches, changes[first:index])  # mostly all of them at once
            first = index
    joined: list[StateBatch] = []
    before_offset, before_state, before_count = -1, None, -1  # of the last one that was joined
    for batch in batches:
        first_offset, last_offset, state, count = batch
        if last_offset < start_offset:
            continue
        if before_offset + 1 == first_offset and before_state is state and before_count == count and joined:
            joined[-1] = StateBatch(joined[-1].first_offset, last_offset, state, count)
        elif first_offset < start_offset:
            joined.append(StateBatch(start_offset, last_offset, state, count))
        else:
            joined.append(batch)
        before_offset, before_state, before_count = last_offset, state, count
    return tuple(joined)


def _overlaid(before: Sequence[StateBatch], changes: Sequence[StateBatch]) -> list[StateBatch]:
    """The batches after some have changed; both are in order, and none overlaps another of its own."""
    found: list[StateBatch] = []
    left = iter(before)
    old = next(left, None)
    for new in changes:
        while old is not None and old.first_offset <= new.last_offset:
            if old.first_offset < new.first_offset:
                found.append(old._replace(last_offset=min(old.last_offset, new.first_offset - 1)))
            if old.last_offset > new.last_offset:
                old = old._replace(first_offset=new.last_offset + 1)
                break
            old = next(left, None)
        found.append(new)
    if old is not None:
        found.append(old)
    found.extend(left)
    return found
