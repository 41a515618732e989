"""The states of the share partitions of one partition of `__share_group_state`: read at a load, written by change.

    change -> one record -> replayed into the state -> durable -> reply

What is delivered at the moment is not here: `share_partition.py`. Source: Kafka's `ShareCoordinatorShard`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from ottla.broker.coordination.effects import Effects
from ottla.broker.coordination.shard import CoordinatorShard
from ottla.broker.runtime.steps import Pace
from ottla.broker.share.deliveries import RecordState
from ottla.broker.share.stored_state import (
    Change,
    SharePartitionKey,
    StoredState,
    change_records,
    replayed_snapshot,
    replayed_update,
    snapshot_record,
    tombstone,
)
from ottla.protocol.stored.share_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from ottla.shown import counted

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.broker.coordination.effects import CoordinatorRecord, Reply
    from ottla.broker.coordination.shard import ShardContext
    from ottla.protocol.message import Struct

logger = logging.getLogger(__name__)

STATES_PER_STEP: Final = 200
RECORDS_PER_STATE: Final = 8
"""So many records the log may have for each state before old snapshots are written again, which lets it be pruned."""
RECORDS_LEFT: Final = 1_000
"""A log of no more records is left as it is."""
UNKNOWN_OFFSET: Final = -1
BATCH_BYTES: Final = 20
"""Of a record: first and last offset, state, delivery count, and the end of the fields."""
RECORD_BYTES: Final = 128
"""Of a record without its batches and the group's name."""


class ShareStateShard(CoordinatorShard):
    """One partition's states, from the beginning of its load until its partition goes or its disk fails."""

    def __init__(
        self,
        context: ShardContext,
        *,
        most_updates: int,
        has_topic: Callable[[UUID], bool],
        on_forgotten: Callable[[Collection[SharePartitionKey]], None],
        on_archiving: Callable[[Collection[SharePartitionKey]], None],
    ) -> None:
        """`on_forgotten` is called with the share partitions whose states are not here any more, `on_archiving` at the
        end of a load with those that have records without the dead letter that they should have.
        """
        super().__init__(context)
        self.states: dict[SharePartitionKey, StoredState] = {}
        self._most_updates = most_updates
        self._has_topic = has_topic
        self._on_forgotten = on_forgotten
        self._on_archiving = on_archiving
        self._is_loaded = False

    # --- load ------------------------------------------------------------------------------------------------------

    def replay(self, key: Struct, value: Struct | None) -> None:
        """Apply one record, at a load and when it is written."""
        if not isinstance(key, (ShareSnapshotKey, ShareUpdateKey)):
            return
        place = SharePartitionKey(key.group_id, key.topic_id, key.partition)
        known = self.states.get(place)
        if isinstance(value, ShareSnapshotValue):
            offset = self.partition.log.log_end_offset if self._is_loaded else UNKNOWN_OFFSET
            self.states[place] = replayed_snapshot(known, value, offset)
        elif isinstance(value, ShareUpdateValue):
            if known is not None:
                self.states[place] = replayed_update(known, value)
        else:
            self.states.pop(place, None)

    def begin_some(self) -> bool:
        """Everything is replayed: forget the states of topics that were deleted as the broker stopped, and write the
        dead letters that it had not written.
        """
        self._is_loaded = True
        self.forget([key for key in self.states if not self._has_topic(key.topic_id)])
        archiving = RecordState.ARCHIVING
        unwritten = [
            key for key, state in self.states.items() if any(batch.state is archiving for batch in state.batches)
        ]
        if unwritten:
            self._on_archiving(unwritten)
        return False

    def summary(self) -> str:
        """For the log line of a load."""
        return f"{counted(len(self.states), 'share partition')}"

    # --- changes ---------------------------------------------------------------------------------------------------

    def begin(self, key: SharePartitionKey, start_offset: int, leader_epoch: int) -> None:
        """Let a state begin at an offset, or begin again there."""
        known, now_ms = self.states.get(key), self.now().wall_ms
        if known is None:
            new = StoredState(0, 0, leader_epoch, start_offset, 0, now_ms)
        else:
            new = StoredState(
                known.snapshot_epoch + 1, known.state_epoch + 1, leader_epoch, start_offset, 0, known.create_ms
            )
        self._write(key, [snapshot_record(key, new, now_ms)])

    def change(self, key: SharePartitionKey, change: Change, replies: Sequence[Reply] = ()) -> None:
        """Write what has changed of a state that has begun."""
        records = change_records(
            key,
            self.states[key],
            change,
            most_updates=self._most_updates,
            most_batches=self._most_batches(key),
            now_ms=self.now().wall_ms,
        )
        self._write(key, records, replies)

    def forget(self, keys: Collection[SharePartitionKey]) -> None:
        """Remove states."""
        for key in keys:
            if key in self.states:
                self._write(key, [tombstone(key)])
        if keys:
            self._on_forgotten(keys)

    def _most_batches(self, key: SharePartitionKey) -> int:
        """So many batches a record may have that the log takes."""
        room_bytes = self.log.record_max_bytes - RECORD_BYTES - len(key.group_id.encode())
        return max(room_bytes // BATCH_BYTES, 1)

    def _write(self, key: SharePartitionKey, records: list[CoordinatorRecord], replies: Sequence[Reply] = ()) -> None:
        for record in records:
            self.replay(*record)
        self.finish(key.text, Effects(records=records, replies=list(replies)))

    # --- what happens by itself ------------------------------------------------------------------------------------

    def on_topics_changed(self, deleted: Collection[str]) -> Iterator[None]:
        """Topics are gone: so are the states of their partitions."""
        if not deleted:
            return
        pace = Pace(STATES_PER_STEP)
        for key in list(self.states):
            if key in self.states and not self._has_topic(key.topic_id):
                self.forget([key])
            if pace.is_up():
                yield

    def on_unload(self) -> Sequence[Reply]:
        """The shard is dead: what is delivered by its states has to begin again with those of its successor."""
        self._on_forgotten(list(self.states))
        return ()

    def prune(self, remove_before: Callable[[int], None]) -> None:
        """Have the records removed (`remove_before(offset)`) that no state needs, once those are durable that are
        needed. Snapshots that are in the way of very many are written again, and let the next time remove them.
        """
        log = self.partition.log
        first_needed = min((self._needed_from(state) for state in self.states.values()), default=log.log_end_offset)

        def settled(error: BaseException | None) -> None:
            if error is None and not self.is_dead and first_needed > log.log_start_offset:
                remove_before(first_needed)

        self.when_durable(None, settled)
        most_records = max(RECORDS_LEFT, RECORDS_PER_STATE * len(self.states))
        if log.log_end_offset - first_needed <= most_records:
            return
        recent_offset = log.log_end_offset - most_records // 2
        now_ms = self.now().wall_ms
        for key, state in list(self.states.items()):
            if self._needed_from(state) < recent_offset and len(state.batches) <= self._most_batches(key):
                again = state._replace(snapshot_epoch=state.snapshot_epoch + 1)
                self._write(key, [snapshot_record(key, again, now_ms)])

    def _needed_from(self, state: StoredState) -> int:
        offset = state.snapshot_offset
        return self.partition.log.log_start_offset if offset == UNKNOWN_OFFSET else offset
