"""The state of one partition in `__cluster_metadata-0`, from its record and back (PartitionRegistration).

Pure. A state is immutable.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from ottla.protocol.stored.metadata import NO_LEADER_CHANGE, PartitionChangeRecord, PartitionRecord


class PartitionState(NamedTuple):
    """One partition in the records; `leader_epoch` grows with every PartitionChangeRecord that names a leader."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[UUID, ...]
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0


def partition_state(record: PartitionRecord) -> PartitionState:
    """The state that a PartitionRecord describes."""
    return PartitionState(
        replicas=tuple(record.replicas),
        isr=tuple(record.isr),
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        directories=tuple(record.directories),
        removing_replicas=tuple(record.removing_replicas),
        adding_replicas=tuple(record.adding_replicas),
        leader_recovery_state=record.leader_recovery_state,
    )


def partition_record(topic_id: UUID, index: int, state: PartitionState) -> PartitionRecord:
    """The record that replays to `state`."""
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(state.replicas),
        isr=list(state.isr),
        removing_replicas=list(state.removing_replicas),
        adding_replicas=list(state.adding_replicas),
        leader=state.leader,
        leader_recovery_state=state.leader_recovery_state,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        directories=list(state.directories),
    )


def changed_state(old: PartitionState, record: PartitionChangeRecord) -> PartitionState:
    """The state after a change (PartitionRegistration.merge): a record that names a leader, even the same one, starts a
    leader epoch.
    """
    same_leader = record.leader == NO_LEADER_CHANGE
    return old._replace(
        replicas=_changed(record.replicas, old.replicas),
        isr=_changed(record.isr, old.isr),
        removing_replicas=_changed(record.removing_replicas, old.removing_replicas),
        adding_replicas=_changed(record.adding_replicas, old.adding_replicas),
        leader=old.leader if same_leader else record.leader,
        leader_epoch=old.leader_epoch if same_leader else old.leader_epoch + 1,
        partition_epoch=old.partition_epoch + 1,
        leader_recovery_state=(
            old.leader_recovery_state if record.leader_recovery_state < 0 else record.leader_recovery_state
        ),
        directories=old.directories if record.directories is None else tuple(record.directories),
    )


def _changed(new: list[int] | None, old: tuple[int, ...]) -> tuple[int, ...]:
    return old if new is None else tuple(new)
