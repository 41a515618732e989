"""Sets of tasks: partitions by subtopology, and such sets by role (active, standby, warm-up).

The tasks of a subtopology with four partitions are `{"0": frozenset({0, 1, 2, 3})}`. No subtopology has an empty set,
so that equal sets are equal objects. Immutable.

Source: Kafka's `TasksTuple` and `TasksTupleWithEpochs`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol, TypeAlias

Tasks: TypeAlias = Mapping[str, frozenset[int]]
"""Partitions by subtopology."""
EpochsOfTasks: TypeAlias = Mapping[str, Mapping[int, int]]
"""The epochs at which active tasks were assigned, by partition and subtopology."""
NO_TASKS: Tasks = {}
NO_EPOCHS: EpochsOfTasks = {}
NO_PARTITIONS: frozenset[int] = frozenset()


class TaskIds(Protocol):
    """The tasks of one subtopology, as messages and records list them."""

    subtopology_id: str
    partitions: list[int]


class TaskSets(NamedTuple):
    """The tasks that a member has, or should have, by role."""

    active: Tasks = NO_TASKS
    standby: Tasks = NO_TASKS
    warmup: Tasks = NO_TASKS


class OwnedTasks(NamedTuple):
    """The tasks that a member has, and the epochs at which it got its active ones."""

    active: EpochsOfTasks = NO_EPOCHS
    standby: Tasks = NO_TASKS
    warmup: Tasks = NO_TASKS

    @property
    def is_empty(self) -> bool:
        """Whether there is none."""
        return not (self.active or self.standby or self.warmup)

    def without_epochs(self) -> TaskSets:
        """The same tasks."""
        return TaskSets(
            {subtopology_id: frozenset(epochs) for subtopology_id, epochs in self.active.items()},
            self.standby,
            self.warmup,
        )


NO_TASK_SETS = TaskSets()
NOTHING_OWNED = OwnedTasks()


def from_ids(listed: Iterable[TaskIds]) -> Tasks:
    """Tasks from a message or a record; a subtopology that is listed twice has the partitions of both."""
    tasks: dict[str, frozenset[int]] = {}
    for one in listed:
        partitions = frozenset(one.partitions) | tasks.get(one.subtopology_id, NO_PARTITIONS)
        if partitions:
            tasks[one.subtopology_id] = partitions
    return tasks


def in_order(tasks: Mapping[str, Iterable[int]]) -> list[tuple[str, list[int]]]:
    """Subtopologies and their partitions, both sorted, as Kafka writes them."""
    return [(subtopology_id, sorted(tasks[subtopology_id])) for subtopology_id in sorted(tasks)]


def count(tasks: Mapping[str, Iterable[int]]) -> int:
    """The number of tasks."""
    return sum(len(list(partitions)) for partitions in tasks.values())
