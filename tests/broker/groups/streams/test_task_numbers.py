"""Tasks as numbers: there and back, and tasks outside of the topology."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.groups.streams.configured_topology import ConfiguredSubtopology, InternalTopic
from ottla.broker.groups.streams.task_numbers import TaskNumbers

CHANGELOG = InternalTopic("changelog", 1, 0, {})


def subtopology(tasks: int, *, stateful: bool = False) -> ConfiguredSubtopology:
    return ConfiguredSubtopology(tasks, ("source",), (), (), (CHANGELOG,) if stateful else ())


def test_tasks_are_numbered_by_subtopology_and_partition() -> None:
    numbers = TaskNumbers({"1": subtopology(3), "0": subtopology(2), "10": subtopology(1)})
    assert (numbers.count, numbers.stateful_count) == (6, 0)
    assert [numbers.range_of(one) for one in ("0", "1", "10", "2")] == [range(2), range(2, 5), range(5, 6), range(0)]


def test_tasks_by_partition_are_of_all_subtopologies_in_turn() -> None:
    numbers = TaskNumbers({"0": subtopology(2), "1": subtopology(3, stateful=True), "2": subtopology(1, stateful=True)})
    assert numbers.by_partition() == [0, 2, 5, 1, 3, 4]
    assert numbers.by_partition(with_state=True) == [2, 5, 3, 4]
    assert numbers.stateful_count == 4


def test_without_subtopologies_there_are_no_tasks() -> None:
    numbers = TaskNumbers({})
    assert (numbers.count, numbers.by_partition(), numbers.tasks([])) == (0, [], {})


def test_tasks_outside_of_the_topology_have_no_number() -> None:
    numbers = TaskNumbers({"0": subtopology(2), "1": subtopology(2)})
    assert list(numbers.of({"0": frozenset({1, 2, -1}), "9": frozenset({0})})) == [1]


@given(st.data())
def test_numbers_stand_for_tasks(data: st.DataObject) -> None:
    sizes = data.draw(st.dictionaries(st.sampled_from(["0", "1", "10", "2"]), st.integers(1, 4), min_size=1))
    numbers = TaskNumbers({one: subtopology(size) for one, size in sizes.items()})
    some = data.draw(st.frozensets(st.integers(0, numbers.count - 1)))
    tasks = numbers.tasks(some)
    assert frozenset(numbers.of(tasks)) == some
    assert all(partitions and max(partitions) < sizes[one] for one, partitions in tasks.items())
