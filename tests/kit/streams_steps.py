"""Steps of streams members towards their targets, as JSON, and Ottla's answer to each: a part of `streams_cases`.

The member is of process `p`. What it and others have is drawn at random, so that rare combinations of roles occur.
"""

from __future__ import annotations

from random import Random
from typing import Any

from ottla.broker.groups.streams.member import MemberState, StreamsMember
from ottla.broker.groups.streams.reconciliation import next_step
from ottla.broker.groups.streams.tasks import OwnedTasks, Tasks, TaskSets, in_order
from ottla.protocol.errors import KafkaError

Case = dict[str, Any]
_SUBTOPOLOGIES = ("0", "1")
_PARTITIONS = (0, 1, 2)
_PROCESSES = ("p", "q", "r")


class _Owners:
    """The processes of a case."""

    def __init__(self, case: Case) -> None:
        self._case = case

    def active_process(self, subtopology_id: str, partition: int) -> str | None:
        process: str | None = self._case["active_process"].get(f"{subtopology_id}-{partition}")
        return process

    def standby_processes(self, subtopology_id: str, partition: int) -> frozenset[str]:
        return frozenset(self._case["standby_processes"].get(f"{subtopology_id}-{partition}", ()))

    def warmup_processes(self, subtopology_id: str, partition: int) -> frozenset[str]:
        return frozenset(self._case["warmup_processes"].get(f"{subtopology_id}-{partition}", ()))


def step(random: Random) -> Case:
    """A random member, target, and tasks of others."""
    epoch = random.randint(1, 4)
    assigned = _sets(random)
    return {
        "epoch": epoch,
        "previous": random.randint(0, epoch),
        "state": random.choice((1, 1, 2, 2, 3, 127)),
        "assigned": [_with_epochs(random, assigned[0], epoch), *assigned[1:]],
        "pending": [_with_epochs(random, _tasks(random, 0.2), epoch), _tasks(random, 0.2), _tasks(random, 0.1)],
        "target_epoch": random.choice((epoch, epoch + 1, epoch + 1, epoch + 2)),
        "target": _sets(random),
        "active_process": {task: random.choice(_PROCESSES) for task in _ids() if random.random() < 0.3},
        "standby_processes": _processes(random),
        "warmup_processes": _processes(random),
        "owned": random.choice((None, assigned, [{}, {}, {}], _sets(random))),
    }


def answer_to_step(case: Case) -> Case:
    """What Ottla makes of the member."""
    member = StreamsMember(
        "member",
        case["epoch"],
        case["previous"],
        MemberState.of(case["state"]),
        process_id="p",
        assigned=_owned(case["assigned"]),
        pending_revocation=_owned(case["pending"]),
    )
    owned = None if case["owned"] is None else TaskSets(*map(_frozen, case["owned"]))
    target = TaskSets(*map(_frozen, case["target"]))
    try:
        moved = next_step(member, case["target_epoch"], target, _Owners(case), owned)
    except KafkaError as error:
        return {"error": error.code.name, "message": error.message}
    return {
        "epoch": moved.member_epoch,
        "previous": moved.previous_member_epoch,
        "state": int(moved.state),
        "assigned": _shown(moved.assigned),
        "pending": _shown(moved.pending_revocation),
    }


def _ids() -> list[str]:
    return [f"{subtopology_id}-{partition}" for subtopology_id in _SUBTOPOLOGIES for partition in _PARTITIONS]


def _tasks(random: Random, share: float) -> dict[str, list[int]]:
    drawn = {one: [partition for partition in _PARTITIONS if random.random() < share] for one in _SUBTOPOLOGIES}
    return {one: partitions for one, partitions in drawn.items() if partitions}


def _sets(random: Random) -> list[dict[str, list[int]]]:
    return [_tasks(random, 0.5), _tasks(random, 0.3), _tasks(random, 0.2)]


def _with_epochs(random: Random, tasks: dict[str, list[int]], epoch: int) -> dict[str, dict[str, int]]:
    return {one: {str(partition): random.randint(1, epoch) for partition in tasks[one]} for one in tasks}


def _processes(random: Random) -> dict[str, list[str]]:
    drawn = {task: [process for process in _PROCESSES if random.random() < 0.2] for task in _ids()}
    return {task: processes for task, processes in drawn.items() if processes}


def _frozen(tasks: dict[str, list[int]]) -> Tasks:
    return {one: frozenset(partitions) for one, partitions in tasks.items()}


def _owned(listed: list[Any]) -> OwnedTasks:
    active = {one: {int(partition): epoch for partition, epoch in epochs.items()} for one, epochs in listed[0].items()}
    return OwnedTasks(active, _frozen(listed[1]), _frozen(listed[2]))


def _shown(tasks: OwnedTasks) -> list[Any]:
    active = {one: {str(partition): epochs[partition] for partition in epochs} for one, epochs in tasks.active.items()}
    return [active, dict(in_order(tasks.standby)), dict(in_order(tasks.warmup))]
