"""One member's next step towards the target (Kafka's `CurrentAssignmentBuilder`, KIP-1071).

    STABLE ──new target──> UNREVOKED_TASKS ──given up──> UNRELEASED_TASKS ──others gave up──> STABLE

As in a consumer group a member first gives up what the target takes from it, at its old epoch, and then gets those of
its new tasks that are free. An active task is free if no member has it. Besides, one process must not have the same
task in two roles, because both would open one state directory. So a task waits while another member of the process has
it in another role. If a member itself has the task in another role, the role changes in one step, and the member does
not close the state in between.
"""

from __future__ import annotations

from typing import Protocol

from ottla.broker.groups.streams.member import MemberState, StreamsMember
from ottla.broker.groups.streams.tasks import (
    NO_PARTITIONS,
    NOTHING_OWNED,
    EpochsOfTasks,
    OwnedTasks,
    Tasks,
    TaskSets,
)
from ottla.protocol.errors import ErrorCode, KafkaError


class Owners(Protocol):
    """The processes whose members have a task, or still have to give it up."""

    def active_process(self, subtopology_id: str, partition: int) -> str | None:
        """The process that has the task as an active one."""

    def standby_processes(self, subtopology_id: str, partition: int) -> frozenset[str]:
        """The processes that have it as a standby task."""

    def warmup_processes(self, subtopology_id: str, partition: int) -> frozenset[str]:
        """The processes that have it as a warm-up task."""


def next_step(
    member: StreamsMember, target_epoch: int, target: TaskSets, owners: Owners, owned: TaskSets | None
) -> StreamsMember:
    """The member after this step; an equal object where there is nothing to do. `owned` is what the member reports to
    have; None where it reports nothing, which does not prove that it has given anything up.

    Raises KafkaError FENCED_MEMBER_EPOCH for a member in a state of a later Kafka that still has tasks.
    """
    if member.state is MemberState.STABLE:
        if member.member_epoch == target_epoch:
            return member
        member_epoch = member.member_epoch
    elif member.state is MemberState.UNREVOKED_TASKS:
        if _still_has(member.pending_revocation, owned):
            return member
        member_epoch = member.member_epoch + 1
    elif member.state is MemberState.UNRELEASED_TASKS:
        member_epoch = member.member_epoch
    else:
        if owned is None or any(owned):
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin.",
            )
        member_epoch = target_epoch
    return _Step(member, target_epoch, target, owners, owned).moved(member_epoch)


class _Roles:
    """The tasks of one role that a member keeps, gives up, and gets, by subtopology; changed while a step is planned.

    `is_blocked`: it must wait for another member to give up a task that it should get.
    """

    def __init__(self) -> None:
        self.kept: dict[str, set[int]] = {}
        self.revoked: dict[str, set[int]] = {}
        self.gained: dict[str, set[int]] = {}
        self.is_blocked = False

    def keep(self, subtopology_id: str, partition: int) -> None:
        self.kept.setdefault(subtopology_id, set()).add(partition)


class _Step:
    """The plan of a step, and the member after it."""

    def __init__(
        self, member: StreamsMember, target_epoch: int, target: TaskSets, owners: Owners, owned: TaskSets | None
    ) -> None:
        self._member = member
        self._target_epoch = target_epoch
        self._target = target
        self._owners = owners
        self._owned = owned
        self._has = member.assigned.without_epochs()
        self._active = self._compared(self._has.active, target.active, self._is_active_taken)
        self._standby = self._compared(self._has.standby, target.standby, self._is_standby_taken)
        self._warmup = self._compared(self._has.warmup, target.warmup, self._is_warmup_taken)

    def moved(self, member_epoch: int) -> StreamsMember:
        """The member after the step; `member_epoch` is its epoch if it has to give up tasks."""
        self._change_roles()
        for role in (self._standby, self._warmup):
            self._drop_promoted(role)
        revoked = OwnedTasks(
            self._epochs(self._active.revoked), _frozen(self._standby.revoked), _frozen(self._warmup.revoked)
        )
        must_revoke = not revoked.is_empty and _still_has(revoked, self._owned)
        for has, role in ((self._has.standby, self._standby), (self._has.warmup, self._warmup)):
            self._keep_until_promoted(has, role, must_revoke=must_revoke)
        if must_revoke:
            return self._at(member_epoch, MemberState.UNREVOKED_TASKS, self._assigned(with_gains=False), revoked)
        is_blocked = self._active.is_blocked or self._standby.is_blocked or self._warmup.is_blocked
        state = MemberState.UNRELEASED_TASKS if is_blocked else MemberState.STABLE
        return self._at(self._target_epoch, state, self._assigned(with_gains=True), NOTHING_OWNED)

    def _compared(self, has: Tasks, wanted: Tasks, is_taken: _IsTaken) -> _Roles:
        """The tasks of a role that the member has, compared with those that it should have."""
        role = _Roles()
        for subtopology_id in {*has, *wanted}:
            now, then = has.get(subtopology_id, NO_PARTITIONS), wanted.get(subtopology_id, NO_PARTITIONS)
            missing = then - now
            free = {partition for partition in missing if not is_taken(subtopology_id, partition)}
            role.is_blocked = role.is_blocked or len(free) < len(missing)
            for tasks, partitions in ((role.kept, now & then), (role.revoked, now - then), (role.gained, free)):
                if partitions:
                    tasks[subtopology_id] = set(partitions)
        return role

    def _change_roles(self) -> None:
        """Change the role of tasks that the member already has in another role, where that is possible at once."""
        for subtopology_id, partitions in self._has.active.items():
            for partition in partitions & self._standby.gained.get(subtopology_id, set()):
                _move(self._standby, subtopology_id, partition)
        for has, old, new in (
            (self._has.standby, self._standby, self._warmup),
            (self._has.warmup, self._warmup, self._standby),
        ):
            for subtopology_id, partitions in has.items():
                for partition in partitions & new.gained.get(subtopology_id, set()):
                    _move(new, subtopology_id, partition)
                    _discard(old.revoked, subtopology_id, partition)

    def _drop_promoted(self, role: _Roles) -> None:
        """A replica that is to become the active task is not given up first."""
        for subtopology_id, wanted in self._target.active.items():
            for partition in wanted & role.revoked.get(subtopology_id, set()):
                _discard(role.revoked, subtopology_id, partition)

    def _keep_until_promoted(self, has: Tasks, role: _Roles, *, must_revoke: bool) -> None:
        """It stays a replica as long as it cannot become active."""
        for subtopology_id, partitions in has.items():
            granted = set() if must_revoke else self._active.gained.get(subtopology_id, set())
            for partition in (partitions & self._target.active.get(subtopology_id, NO_PARTITIONS)) - granted:
                role.keep(subtopology_id, partition)

    def _assigned(self, *, with_gains: bool) -> OwnedTasks:
        active = _joined(self._active, with_gains=with_gains)
        return OwnedTasks(
            self._epochs(active),
            _frozen(_joined(self._standby, with_gains=with_gains)),
            _frozen(_joined(self._warmup, with_gains=with_gains)),
        )

    def _epochs(self, active: dict[str, set[int]]) -> EpochsOfTasks:
        """The epochs of active tasks: new ones get the target's, the rest keep theirs."""
        before = self._member.assigned.active
        return {
            subtopology_id: {
                partition: before.get(subtopology_id, {}).get(partition, self._target_epoch)
                for partition in sorted(partitions)
            }
            for subtopology_id, partitions in active.items()
        }

    def _at(
        self, member_epoch: int, state: MemberState, assigned: OwnedTasks, pending_revocation: OwnedTasks
    ) -> StreamsMember:
        """The member after the step. A member whose epoch stays forgets its previous one, as in Kafka."""
        return self._member._replace(
            member_epoch=member_epoch,
            previous_member_epoch=self._member.member_epoch,
            state=state,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )

    # --- tasks that other members have ------------------------------------------------------------------------------

    def _is_active_taken(self, subtopology_id: str, partition: int) -> bool:
        owners = self._owners
        return (
            owners.active_process(subtopology_id, partition) is not None
            or self._other_has(
                owners.standby_processes(subtopology_id, partition), self._has.standby, subtopology_id, partition
            )
            or self._other_has(
                owners.warmup_processes(subtopology_id, partition), self._has.warmup, subtopology_id, partition
            )
        )

    def _is_standby_taken(self, subtopology_id: str, partition: int) -> bool:
        owners, process_id = self._owners, self._member.process_id
        runs_it = partition in self._has.active.get(subtopology_id, NO_PARTITIONS)
        return (
            (owners.active_process(subtopology_id, partition) == process_id and not runs_it)
            or process_id in owners.standby_processes(subtopology_id, partition)
            or self._other_has(
                owners.warmup_processes(subtopology_id, partition), self._has.warmup, subtopology_id, partition
            )
        )

    def _is_warmup_taken(self, subtopology_id: str, partition: int) -> bool:
        owners, process_id = self._owners, self._member.process_id
        return (
            owners.active_process(subtopology_id, partition) == process_id
            or self._other_has(
                owners.standby_processes(subtopology_id, partition), self._has.standby, subtopology_id, partition
            )
            or process_id in owners.warmup_processes(subtopology_id, partition)
        )

    def _other_has(self, processes: frozenset[str], has: Tasks, subtopology_id: str, partition: int) -> bool:
        """Whether another member of the same process has the task in a role."""
        is_own = partition in has.get(subtopology_id, NO_PARTITIONS)
        return self._member.process_id in processes and not is_own


class _IsTaken(Protocol):
    def __call__(self, subtopology_id: str, partition: int, /) -> bool:
        """Whether a task that the member should get is not free."""


def _move(role: _Roles, subtopology_id: str, partition: int) -> None:
    """Get a task of a role at once."""
    _discard(role.gained, subtopology_id, partition)
    role.keep(subtopology_id, partition)


def _discard(tasks: dict[str, set[int]], subtopology_id: str, partition: int) -> None:
    partitions = tasks.get(subtopology_id)
    if partitions is not None:
        partitions.discard(partition)
        if not partitions:
            del tasks[subtopology_id]


def _joined(role: _Roles, *, with_gains: bool) -> dict[str, set[int]]:
    if not with_gains:
        return role.kept
    return {
        subtopology_id: role.kept.get(subtopology_id, set()) | role.gained.get(subtopology_id, set())
        for subtopology_id in {*role.kept, *role.gained}
    }


def _frozen(tasks: dict[str, set[int]]) -> Tasks:
    return {subtopology_id: frozenset(partitions) for subtopology_id, partitions in tasks.items()}


def _still_has(tasks: OwnedTasks, owned: TaskSets | None) -> bool:
    """Whether a member may still have one of these tasks, in the same role."""
    if owned is None:
        return True
    sets = tasks.without_epochs()
    return any(
        partitions & reported.get(subtopology_id, NO_PARTITIONS)
        for of_role, reported in zip(sets, owned, strict=True)
        for subtopology_id, partitions in of_role.items()
    )
