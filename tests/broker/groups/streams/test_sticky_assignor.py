"""The sticky task assignor: what holds for every group, and its choices in small ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.groups.streams.configured_topology import ConfiguredSubtopology, InternalTopic
from ottla.broker.groups.streams.sticky_assignor import AssignorMember, assign_sticky
from ottla.broker.groups.streams.tasks import Tasks, TaskSets, count

CHANGELOG = InternalTopic("changelog", 1, 0, {})
Target = Mapping[str, TaskSets]


def subtopology(tasks: int, *, stateful: bool = False) -> ConfiguredSubtopology:
    return ConfiguredSubtopology(tasks, ("source",), (), (), (CHANGELOG,) if stateful else ())


def tasks(subtopology_id: str, *partitions: int) -> Tasks:
    return {subtopology_id: frozenset(partitions)}


def each(some: Tasks) -> list[tuple[str, int]]:
    return [(subtopology_id, partition) for subtopology_id, partitions in some.items() for partition in partitions]


def having(members: Mapping[str, AssignorMember], target: Target) -> dict[str, AssignorMember]:
    """The members once they have their targets."""
    return {
        member_id: member._replace(active=target[member_id].active, standby=target[member_id].standby)
        for member_id, member in members.items()
    }


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, AssignorMember], dict[str, ConfiguredSubtopology], int]:
    """Members with any tasks, also some that two have and some that are not there."""
    subtopologies = {
        str(number): subtopology(draw(st.integers(1, 6)), stateful=draw(st.booleans()))
        for number in range(draw(st.integers(1, 3)))
    }
    some_tasks = st.dictionaries(st.sampled_from("0123"), st.frozensets(st.integers(0, 6), min_size=1), max_size=2)
    offsets = st.dictionaries(st.sampled_from("012"), st.dictionaries(st.integers(0, 5), st.integers(0, 3)), max_size=1)
    process = st.sampled_from("pqrs")
    member = st.builds(AssignorMember, process, some_tasks, some_tasks, offsets)
    members = draw(st.dictionaries(st.text("abcdef", min_size=1, max_size=2), member, min_size=1, max_size=8))
    return members, subtopologies, draw(st.integers(0, 3))


@given(groups())
def test_every_task_is_active_exactly_once(
    group: tuple[dict[str, AssignorMember], dict[str, ConfiguredSubtopology], int],
) -> None:
    members, subtopologies, replicas = group
    target = assign_sticky(members, subtopologies, replicas)
    assert set(target) == set(members)
    found = Counter(task for one in target.values() for task in each(one.active))
    wanted = {(key, number) for key, one in subtopologies.items() for number in range(one.task_count)}
    assert found == Counter(wanted)


@given(groups())
def test_a_process_has_a_task_once_and_standby_tasks_have_state(
    group: tuple[dict[str, AssignorMember], dict[str, ConfiguredSubtopology], int],
) -> None:
    members, subtopologies, replicas = group
    target = assign_sticky(members, subtopologies, replicas)
    by_process = Counter(
        (members[member_id].process_id, task)
        for member_id, one in target.items()
        for task in (*each(one.active), *each(one.standby))
    )
    assert set(by_process.values()) == {1}
    assert all(subtopologies[key].is_stateful for one in target.values() for key in one.standby)
    assert all(one.warmup == {} for one in target.values())


@given(groups())
def test_each_task_with_state_has_as_many_copies_as_processes_allow(
    group: tuple[dict[str, AssignorMember], dict[str, ConfiguredSubtopology], int],
) -> None:
    members, subtopologies, replicas = group
    target = assign_sticky(members, subtopologies, replicas)
    copies = Counter(task for one in target.values() for task in each(one.standby))
    processes = len({member.process_id for member in members.values()})
    for subtopology_id, one in subtopologies.items():
        for number in range(one.task_count):
            expected = min(replicas, processes - 1) if one.is_stateful else 0
            assert copies[subtopology_id, number] == expected


@st.composite
def new_groups(draw: st.DrawFn) -> tuple[dict[str, AssignorMember], dict[str, ConfiguredSubtopology]]:
    """Members without tasks, each a process of its own."""
    names = draw(st.lists(st.text("abcdef", min_size=1, max_size=3), min_size=1, max_size=7, unique=True))
    sizes = draw(st.lists(st.tuples(st.integers(1, 6), st.booleans()), min_size=1, max_size=3))
    subtopologies = {str(number): subtopology(size, stateful=state) for number, (size, state) in enumerate(sizes)}
    return {name: AssignorMember(name) for name in names}, subtopologies


@given(new_groups(), st.integers(0, 2))
def test_active_tasks_stay_where_they_are(
    group: tuple[dict[str, AssignorMember], dict[str, ConfiguredSubtopology]], replicas: int
) -> None:
    members, subtopologies = group
    target = assign_sticky(members, subtopologies, replicas)
    again = assign_sticky(having(members, target), subtopologies, replicas)
    assert {key: one.active for key, one in again.items()} == {key: one.active for key, one in target.items()}


@given(new_groups(), st.integers(0, 2))
def test_no_member_loses_an_active_task_when_another_leaves(
    group: tuple[dict[str, AssignorMember], dict[str, ConfiguredSubtopology]], replicas: int
) -> None:
    members, subtopologies = group
    target = assign_sticky(members, subtopologies, replicas)
    remaining = having(members, target)
    del remaining[next(iter(remaining))]
    after = assign_sticky(remaining, subtopologies, replicas)
    for member_id, one in after.items():
        assert set(each(target[member_id].active)) <= set(each(one.active))


@given(st.integers(1, 40), st.lists(st.sampled_from("pqr"), min_size=1, max_size=9))
def test_new_members_share_evenly_by_process(task_count: int, processes: list[str]) -> None:
    members = {f"m{number}": AssignorMember(process) for number, process in enumerate(processes)}
    target = assign_sticky(members, {"0": subtopology(task_count)}, 0)
    size = Counter(processes)
    loads: Counter[str] = Counter()
    for member_id, one in target.items():
        loads[members[member_id].process_id] += count(one.active)
    # The last task went to a process with the least load: no other could be one task lighter.
    assert max((loads[one] - 1) / size[one] for one in size) <= min(loads[one] / size[one] for one in size)
    assert all(
        abs(count(target[a].active) - count(target[b].active)) <= 1
        for a in members
        for b in members
        if members[a].process_id == members[b].process_id
    )


def test_without_members_nothing_is_assigned() -> None:
    assert assign_sticky({}, {"0": subtopology(2)}, 1) == {}


def test_a_process_with_two_members_gets_twice_as_much() -> None:
    members = {"a": AssignorMember("p"), "b": AssignorMember("p"), "c": AssignorMember("q")}
    target = assign_sticky(members, {"0": subtopology(6)}, 0)
    assert {member_id: count(one.active) for member_id, one in target.items()} == {"a": 2, "b": 2, "c": 2}


def test_a_member_that_joins_takes_only_what_is_above_the_others_share() -> None:
    members = {"a": AssignorMember("p", tasks("0", 0, 1, 2, 3)), "b": AssignorMember("q")}
    target = assign_sticky(members, {"0": subtopology(4)}, 0)
    assert target == {"a": TaskSets(tasks("0", 0, 1)), "b": TaskSets(tasks("0", 2, 3))}


def test_the_tasks_of_a_member_that_left_go_to_its_standby() -> None:
    members = {"a": AssignorMember("p", tasks("0", 0)), "b": AssignorMember("q", {}, tasks("0", 1))}
    target = assign_sticky(members, {"0": subtopology(2, stateful=True)}, 0)
    assert target == {"a": TaskSets(tasks("0", 0)), "b": TaskSets(tasks("0", 1))}


def test_state_on_a_disk_attracts_a_task() -> None:
    offsets = {"0": {1: 10}}
    members = {
        "a": AssignorMember("p"),
        "b": AssignorMember("q", task_offsets={"0": {0: 9}}),
        "c": AssignorMember("r", task_offsets=offsets),
    }
    target = assign_sticky(members, {"0": subtopology(3, stateful=True)}, 0)
    assert target == {"a": TaskSets(tasks("0", 2)), "b": TaskSets(tasks("0", 0)), "c": TaskSets(tasks("0", 1))}


def test_the_largest_state_is_preferred() -> None:
    members = {
        "a": AssignorMember("p", task_offsets={"0": {0: 5}}),
        "b": AssignorMember("q", task_offsets={"0": {0: 7}}),
    }
    target = assign_sticky(members, {"0": subtopology(1, stateful=True)}, 0)
    assert target == {"a": TaskSets(), "b": TaskSets(tasks("0", 0))}


def test_a_standby_task_is_preferred_to_larger_state() -> None:
    members = {
        "a": AssignorMember("p", task_offsets={"0": {0: 5}}),
        "b": AssignorMember("q", standby=tasks("0", 0)),
    }
    target = assign_sticky(members, {"0": subtopology(1, stateful=True)}, 0)
    assert target == {"a": TaskSets(), "b": TaskSets(tasks("0", 0))}


def test_a_member_keeps_a_copy_of_a_task_that_it_gives_up() -> None:
    """Member a had all tasks. It keeps the first two, and copies of the others as its standby tasks."""
    members = {"a": AssignorMember("p", tasks("0", 0, 1, 2, 3)), "b": AssignorMember("q")}
    target = assign_sticky(members, {"0": subtopology(4, stateful=True)}, 1)
    assert target["a"] == TaskSets(tasks("0", 0, 1), tasks("0", 2, 3))
    assert target["b"] == TaskSets(tasks("0", 2, 3), tasks("0", 0, 1))
